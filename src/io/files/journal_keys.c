// SPDX-License-Identifier: MIT
#include "io/files/journal_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "io/files/paths.h"

// The finest time that a coarse file system has: exFAT counts in 10 ms, FAT in 2 s, sshfs in 1 s.
#define COARSE_NS 10000000
#define BLOCK ((size_t)16 << 10)

static void add_number(struct conv_digest *digest, int64_t number)
{
    conv_hash_add(digest, &number, sizeof number);
}

static void add_time(struct conv_digest *digest, const struct timespec *time)
{
    const int64_t numbers[] = {time->tv_sec, time->tv_nsec};
    conv_hash_add(digest, numbers, sizeof numbers);
}

// What an output in another place was made of, and its name.
static void add_origin(struct conv_digest *digest, const struct conv_journal_fact *fact)
{
    add_number(digest, fact->in->st_size);
    add_time(digest, &fact->in->st_mtim);
    if (fact->archive && !fact->member) {
        add_number(digest, fact->archive->st_size);
        add_time(digest, &fact->archive->st_mtim);
    }
    if (fact->is_copy)
        add_number(digest, 1);
    if (fact->member)
        conv_hash_add(digest, fact->member, (size_t)fact->in->st_size);
    conv_hash_add(digest, fact->input, strlen(fact->input));
    conv_hash_add(digest, fact->output, strlen(fact->output));
}

void conv_journal_keys_make(struct conv_journal_keys *keys,
                            const struct conv_journal_config *config,
                            const struct conv_journal_fact *fact)
{
    keys->count = 1;
    keys->is_sure = !config->preserve && fact->out->st_mtim.tv_nsec % COARSE_NS != 0;
    for (int i = 0; i < CONV_JOURNAL_KEYS; i++) {
        keys->key[i] = config->settings;
        add_number(&keys->key[i], i);
        add_number(&keys->key[i], fact->out->st_size);
    }
    struct conv_digest *identity = &keys->key[CONV_JOURNAL_IDENTITY];
    add_time(identity, &fact->out->st_mtim);
    if (config->in_place) {
        // The numbers alone identify the file: its name may have other spellings. The number of the
        // file system is omitted where it would have to outlive the run, since mounting changes it.
        add_number(identity, (int64_t)fact->out->st_ino);
        add_number(identity, config->path ? 0 : (int64_t)fact->out->st_dev);
        keys->count = config->path ? CONV_JOURNAL_KEYS : 1;
        return;
    }
    if (!keys->is_sure && fact->name)
        keys->count = 2;
    keys->is_sure = keys->is_sure || !fact->name;
    add_origin(identity, fact);
    add_origin(&keys->key[CONV_JOURNAL_CONTENT], fact);
}

// --- content -------------------------------------------------------------------------------------

// A digest of bytes that does not depend on the parts in which they come.
struct content {
    struct conv_digest *digest;
    size_t used;
    uint8_t block[BLOCK];
};

static void add_bytes(struct content *content, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t step = BLOCK - content->used < size ? BLOCK - content->used : size;
        memcpy(content->block + content->used, data, step);
        content->used += step;
        data += step;
        size -= step;
        if (content->used == BLOCK) {
            conv_hash_add(content->digest, content->block, BLOCK);
            content->used = 0;
        }
    }
}

void conv_journal_keys_take(struct conv_journal_keys *keys, const struct conv_journal_fact *fact)
{
    struct content content = {.digest = &keys->key[CONV_JOURNAL_CONTENT]};
    if (keys->count == 1)
        return;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if (fact->encoded->part[i].size > 0)
            add_bytes(&content, fact->encoded->part[i].data, fact->encoded->part[i].size);
    conv_hash_add(content.digest, content.block, content.used);
}

// -1 with errno.
static int open_output(const struct conv_journal_config *config,
                       const struct conv_journal_fact *fact)
{
    int fd, tries = 0;
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (config->in_place ? O_NOFOLLOW : 0);
    do
        fd = openat(fact->folder, fact->name, flags);
    while (fd < 0 && (errno == EINTR || conv_descriptors_wait(errno, &tries)));
    return fd;
}

// Not by the inode number, which may differ from one call to the next on a file system in user
// space.
static bool is_same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && S_ISREG(b->st_mode) && !conv_paths_is_older(a, b) &&
           !conv_paths_is_older(b, a);
}

static bool read_content(struct content *content, int fd, off_t size,
                         const struct conv_journal_config *config)
{
    uint8_t data[BLOCK];
    off_t left = size;
    while (left >= 0 && !(config->stop && atomic_load(config->stop))) {
        ssize_t got = read(fd, data, sizeof data);
        if (got == 0)
            return left == 0;
        if (got < 0 && errno != EINTR)
            return false;
        if (got > 0)
            add_bytes(content, data, (size_t)got);
        left -= got > 0 ? got : 0;
    }
    return false;
}

bool conv_journal_keys_read(struct conv_journal_keys *keys,
                            const struct conv_journal_config *config,
                            const struct conv_journal_fact *fact)
{
    struct content content = {.digest = &keys->key[CONV_JOURNAL_CONTENT]};
    struct stat now;
    conv_descriptors_take(1);
    int fd = open_output(config, fact);
    bool good = fd >= 0 && fstat(fd, &now) == 0 && is_same_version(fact->out, &now) &&
                read_content(&content, fd, fact->out->st_size, config);
    if (fd >= 0)
        close(fd);
    conv_descriptors_give(1);
    conv_hash_add(content.digest, content.block, content.used);
    return good;
}
