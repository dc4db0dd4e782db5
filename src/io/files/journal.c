// SPDX-License-Identifier: MIT
// The digests by which an image is recognised, and the order of checking and adding entries;
// journal_file.c reads and writes the file.
#include "io/files/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/lock.h"
#include "io/files/paths.h"

// --- digests -------------------------------------------------------------------------------------

// The finest time that a coarse file system has: exFAT counts in 10 ms, FAT in 2 s, sshfs in 1 s.
#define COARSE_NS 10000000
#define BLOCK ((size_t)16 << 10)

enum key {
    IDENTITY, // what the system tells about the output without reading it
    CONTENT,  // the bytes of the output
    SIZE,     // in place: their number, which tells if it is worth while to read them
    KEYS,
};

struct keys {
    struct conv_digest key[KEYS]; // the content's is set later
    int count;                    // 1, 2 (with the content), or all
    // The identity can belong to no other output, also of another run: its time is finer than that
    // of a file system that counts in seconds, and not one that was copied.
    bool is_sure;
};

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

static void make_keys(struct keys *keys, const struct conv_journal_config *config,
                      const struct conv_journal_fact *fact)
{
    keys->count = 1;
    keys->is_sure = !config->preserve && fact->out->st_mtim.tv_nsec % COARSE_NS != 0;
    for (int i = 0; i < KEYS; i++) {
        keys->key[i] = config->settings;
        add_number(&keys->key[i], i);
        add_number(&keys->key[i], fact->out->st_size);
    }
    struct conv_digest *identity = &keys->key[IDENTITY];
    add_time(identity, &fact->out->st_mtim);
    if (config->in_place) {
        // The numbers alone identify the file: its name may have other spellings. The number of the
        // file system is omitted where it would have to outlive the run, since mounting changes it.
        add_number(identity, (int64_t)fact->out->st_ino);
        add_number(identity, config->path ? 0 : (int64_t)fact->out->st_dev);
        keys->count = config->path ? KEYS : 1;
        return;
    }
    if (!keys->is_sure && fact->name)
        keys->count = 2;
    keys->is_sure = keys->is_sure || !fact->name;
    add_origin(identity, fact);
    add_origin(&keys->key[CONTENT], fact);
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

// Sets the content's key from the bytes that are being written, fact->encoded, if keys->count > 1.
static void take_content(struct keys *keys, const struct conv_journal_fact *fact)
{
    struct content content = {.digest = &keys->key[CONTENT]};
    if (keys->count == 1)
        return;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if (fact->encoded->part[i].size > 0)
            add_bytes(&content, fact->encoded->part[i].data, fact->encoded->part[i].size);
    conv_hash_add(content.digest, content.block, content.used);
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

// Sets it from the file fact->name in fact->folder. False if that cannot be read, or is not the
// file of fact->out any more.
static bool read_file(struct keys *keys, const struct conv_journal_config *config,
                      const struct conv_journal_fact *fact)
{
    struct content content = {.digest = &keys->key[CONTENT]};
    struct stat now;
    conv_descriptors_take(1);
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (config->in_place ? O_NOFOLLOW : 0);
    int fd = conv_paths_open_at(fact->folder, fact->name, flags, 0, NULL);
    bool good = fd >= 0 && fstat(fd, &now) == 0 && is_same_version(fact->out, &now) &&
                read_content(&content, fd, fact->out->st_size, config);
    if (fd >= 0)
        close(fd);
    conv_descriptors_give(1);
    conv_hash_add(content.digest, content.block, content.used);
    return good;
}

// --- entries -------------------------------------------------------------------------------------

struct conv_journal {
    struct conv_journal_config config;
    struct conv_lock turn; // in place: held while an image is replaced, taken before `lock`
    struct conv_lock lock; // guards the file's members, and its end
    struct conv_journal_file file;
};

enum conv_status conv_journal_open(struct conv_journal **out,
                                   const struct conv_journal_config *config, struct conv_err *err)
{
    struct conv_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    journal->config = *config;
    journal->file.fd = -1;
    (void)conv_lock_init(&journal->turn);
    (void)conv_lock_init(&journal->lock);
    enum conv_status status = conv_journal_file_open(&journal->file, &journal->config, err);
    if (status)
        conv_journal_close(journal);
    else
        *out = journal;
    return status;
}

void conv_journal_close(struct conv_journal *journal)
{
    if (!journal)
        return;
    conv_journal_file_close(&journal->file);
    conv_lock_destroy(&journal->lock);
    conv_lock_destroy(&journal->turn);
    free(journal);
}

size_t conv_journal_damaged(const struct conv_journal *journal)
{
    return journal->file.damaged;
}

CONV_UNCHECKED enum conv_status conv_journal_lock(struct conv_journal *journal,
                                                  struct conv_err *err)
{
    conv_lock_acquire(&journal->turn);
    if (journal->file.fd < 0)
        return CONV_OK;
    enum conv_status status = conv_journal_file_lock(&journal->file, err);
    if (!status) {
        conv_lock_acquire(&journal->lock);
        status = conv_journal_file_read_on(&journal->file, err);
        conv_lock_release(&journal->lock);
    }
    if (status)
        conv_journal_unlock(journal);
    return status;
}

CONV_UNCHECKED void conv_journal_unlock(struct conv_journal *journal)
{
    if (journal->file.fd >= 0)
        conv_journal_file_unlock(&journal->file);
    conv_lock_release(&journal->turn);
}

bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct conv_journal_file *file = &journal->file;
    struct keys keys;
    make_keys(&keys, &journal->config, fact);
    conv_lock_acquire(&journal->lock);
    // Inode numbers last as long as the run.
    bool known = conv_digest_set_has(&file->recent, &keys.key[IDENTITY]) ||
                 (keys.is_sure && conv_digest_set_has(&file->known, &keys.key[IDENTITY]));
    bool may_be = !known && keys.count > 1 && fact->name &&
                  (keys.count < KEYS || conv_digest_set_has(&file->known, &keys.key[SIZE]));
    conv_lock_release(&journal->lock);
    // No thread changes `known` any more.
    return known || (may_be && read_file(&keys, &journal->config, fact) &&
                     conv_digest_set_has(&file->known, &keys.key[CONTENT]));
}

// Adds the line and reads it again: if this run finds it, every other run finds it, too. The line
// can get lost if it follows half a line of a killed run that was not in place and so took no lock.
static enum conv_status add_surely(struct conv_journal *journal, const struct keys *keys,
                                   const char *input, struct conv_err *err)
    CONV_NEEDS(journal->lock)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        enum conv_status status =
            conv_journal_file_add(&journal->file, keys->key, keys->count, input, err);
        if (!status)
            status = conv_journal_file_read_on(&journal->file, err);
        if (status || conv_digest_set_has(&journal->file.recent, &keys->key[0]))
            return status;
        journal->file.torn = true;
    }
    return conv_err_set(err, CONV_ERR_IO, "another program has changed the journal %s",
                        journal->config.path);
}

enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err)
{
    struct keys keys;
    enum conv_status status;
    make_keys(&keys, &journal->config, fact);
    take_content(&keys, fact);
    conv_lock_acquire(&journal->lock);
    if (!journal->config.path)
        status = conv_digest_set_add(&journal->file.recent, &keys.key[0], NULL, err);
    else if (journal->config.in_place)
        status = add_surely(journal, &keys, fact->input, err);
    else
        status = conv_journal_file_add(&journal->file, keys.key, keys.count, fact->input, err);
    conv_lock_release(&journal->lock);
    return status;
}
