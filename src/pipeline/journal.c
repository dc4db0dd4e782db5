// SPDX-License-Identifier: MIT
#include "pipeline/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/paths.h"

#define HEADER "conv-journal 1\n"
#define HEADER_SIZE (sizeof HEADER - 1)
#define DIGEST_DIGITS 32
#define LONGEST_LINE (DIGEST_DIGITS + 2 + 4 * PATH_MAX) // every byte escaped as \xNN

struct conv_journal {
    struct conv_journal_config config;
    int fd;               // -1: nothing there, and nothing to be written
    pthread_mutex_t lock; // guards the end of the file, which a short write() leaves within a line
    bool torn;            // the file does not end with a line's end
    size_t damaged;
    // Open addressing, at most half full, a power of two; the digest 0 is an empty place.
    struct conv_digest *table;
    size_t count, capacity;
};

// --- the set of digests --------------------------------------------------------------------------

static bool is_empty(const struct conv_digest *digest)
{
    return (digest->word[0] | digest->word[1]) == 0;
}

// The place of the digest, or the empty place where it belongs.
static struct conv_digest *find(const struct conv_journal *journal,
                                const struct conv_digest *digest)
{
    size_t at = digest->word[0] & (journal->capacity - 1);
    while (!is_empty(&journal->table[at]) &&
           memcmp(&journal->table[at], digest, sizeof *digest) != 0)
        at = (at + 1) & (journal->capacity - 1);
    return &journal->table[at];
}

static enum conv_status grow(struct conv_journal *journal, struct conv_err *err)
{
    struct conv_digest *old = journal->table;
    size_t old_capacity = journal->capacity;
    size_t capacity = old_capacity ? 2 * old_capacity : 1024;
    struct conv_digest *table = calloc(capacity, sizeof *table);
    if (!table)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal's %zu entries",
                            journal->count);
    journal->table = table;
    journal->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (!is_empty(&old[i]))
            *find(journal, &old[i]) = old[i];
    free(old);
    return CONV_OK;
}

static enum conv_status insert(struct conv_journal *journal, const struct conv_digest *digest,
                               struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (2 * journal->count >= journal->capacity)
        status = grow(journal, err);
    if (status || is_empty(digest))
        return status;
    struct conv_digest *place = find(journal, digest);
    journal->count += is_empty(place);
    *place = *digest;
    return CONV_OK;
}

// --- lines ---------------------------------------------------------------------------------------

// False if the line is none of ours.
static bool parse_line(struct conv_digest *digest, const char *line, size_t size)
{
    if (size < DIGEST_DIGITS + 2 || line[DIGEST_DIGITS] != ' ')
        return false;
    *digest = (struct conv_digest){0};
    for (int i = 0; i < DIGEST_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *digit = memchr(digits, line[i], 16);
        if (!digit)
            return false;
        uint64_t *word = &digest->word[i / 16];
        *word = *word << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static enum conv_status take_line(struct conv_journal *journal, const char *line, size_t size,
                                  struct conv_err *err)
{
    struct conv_digest digest;
    if (parse_line(&digest, line, size))
        return insert(journal, &digest, err);
    // A blank line ends one that was cut short; two runs that begin together write two headers.
    bool header = size == HEADER_SIZE - 1 && memcmp(line, HEADER, size) == 0;
    journal->damaged += size > 0 && !header;
    return CONV_OK;
}

static ssize_t read_some(int fd, char *data, size_t size)
{
    ssize_t got;
    do
        got = read(fd, data, size);
    while (got < 0 && errno == EINTR);
    return got;
}

static enum conv_status foreign(const struct conv_journal *journal, struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--resume %s: the file is no journal of this version of conv",
                        journal->config.path);
}

// `buffer` holds more than two of the longest lines, so that half of one at its end can stay.
static enum conv_status read_lines(struct conv_journal *journal, char *buffer, size_t room,
                                   struct conv_err *err)
{
    size_t have = 0;
    bool first = true, skipping = false; // behind a part of a line that is too long
    for (;;) {
        ssize_t got = read_some(journal->fd, buffer + have, room - have);
        if (got < 0)
            return conv_err_errno(err, errno, "--resume %s", journal->config.path);
        have += (size_t)got;
        if (first && (have >= HEADER_SIZE || got == 0)) {
            size_t size = have < HEADER_SIZE ? have : HEADER_SIZE;
            if (memcmp(buffer, HEADER, size) != 0)
                return foreign(journal, err);
            first = false;
        }
        if (got == 0)
            break;
        char *line = buffer, *end;
        while (!first && (end = memchr(line, '\n', have - (size_t)(line - buffer)))) {
            enum conv_status status =
                skipping ? CONV_OK : take_line(journal, line, (size_t)(end - line), err);
            if (status)
                return status;
            skipping = false;
            line = end + 1;
        }
        have -= (size_t)(line - buffer);
        memmove(buffer, line, have);
        if (have > LONGEST_LINE) {
            journal->damaged += !skipping;
            skipping = true;
            have = 0;
        }
    }
    journal->torn = have > 0 || skipping;
    journal->damaged += have > HEADER_SIZE;
    return CONV_OK;
}

static enum conv_status load(struct conv_journal *journal, struct conv_err *err)
{
    size_t room = 4 * (size_t)LONGEST_LINE;
    char *buffer = malloc(room);
    if (!buffer)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    enum conv_status status = grow(journal, err);
    if (!status)
        status = read_lines(journal, buffer, room, err);
    free(buffer);
    return status;
}

// One call of write() in the common case, which puts the whole line behind all others.
static enum conv_status append(struct conv_journal *journal, const char *text, size_t size,
                               struct conv_err *err)
{
    while (size > 0) {
        ssize_t written = write(journal->fd, text, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            journal->torn = true;
            return conv_err_errno(err, errno, "cannot write the journal %s", journal->config.path);
        }
        text += written;
        size -= (size_t)written;
    }
    while (journal->config.fsync && fdatasync(journal->fd) != 0)
        if (errno != EINTR)
            return conv_err_errno(err, errno, "cannot write the journal %s", journal->config.path);
    return CONV_OK;
}

// --- from outside --------------------------------------------------------------------------------

static enum conv_status open_file(struct conv_journal *journal, struct conv_err *err)
{
    const struct conv_journal_config *config = &journal->config;
    struct stat info;
    int flags = config->read_only ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT;
    journal->fd = conv_paths_open(config->path, flags | O_NONBLOCK | O_NOCTTY);
    if (journal->fd < 0 && errno == ENOENT && config->read_only)
        return grow(journal, err);
    if (journal->fd < 0 || fstat(journal->fd, &info) != 0) {
        conv_err_errno(err, errno, "--resume %s", config->path);
        return err->status = CONV_ERR_USAGE;
    }
    if (!S_ISREG(info.st_mode))
        return foreign(journal, err);
    enum conv_status status = load(journal, err);
    if (status || config->read_only || info.st_size >= (off_t)HEADER_SIZE)
        return status;
    // Empty, or the header of a run that was killed while it wrote it.
    journal->torn = false;
    return append(journal, &HEADER[info.st_size], HEADER_SIZE - (size_t)info.st_size, err);
}

enum conv_status conv_journal_open(struct conv_journal **out,
                                   const struct conv_journal_config *config, struct conv_err *err)
{
    struct conv_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    journal->config = *config;
    journal->fd = -1;
    pthread_mutex_init(&journal->lock, NULL); // never fails with default attributes
    enum conv_status status = open_file(journal, err);
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
    if (journal->fd >= 0)
        close(journal->fd);
    pthread_mutex_destroy(&journal->lock);
    free(journal->table);
    free(journal);
}

size_t conv_journal_damaged(const struct conv_journal *journal)
{
    return journal->damaged;
}

static struct conv_digest digest_fact(const struct conv_journal *journal,
                                      const struct conv_journal_fact *fact)
{
    struct conv_digest digest = journal->config.settings;
    bool in_place = strcmp(fact->input, fact->output) == 0;
    // In place the file's number too: input and output may agree in all else.
    const struct stat *in = in_place ? fact->out : fact->in, *out = fact->out;
    int64_t numbers[] = {in->st_size,
                         in->st_mtim.tv_sec,
                         in->st_mtim.tv_nsec,
                         out->st_size,
                         out->st_mtim.tv_sec,
                         out->st_mtim.tv_nsec,
                         in_place ? (int64_t)out->st_ino : 0};
    conv_hash_add(&digest, fact->input, strlen(fact->input));
    conv_hash_add(&digest, fact->output, strlen(fact->output));
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

bool conv_journal_knows(const struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct conv_digest digest = digest_fact(journal, fact);
    return !is_empty(find(journal, &digest));
}

enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err)
{
    char line[LONGEST_LINE + 2];
    struct conv_digest digest = digest_fact(journal, fact);
    // The end of a line in front is for one that was cut short.
    size_t size = (size_t)snprintf(line, sizeof line, "\n%016" PRIx64 "%016" PRIx64 " ",
                                   digest.word[0], digest.word[1]);
    for (const unsigned char *s = (const unsigned char *)fact->input; *s; s++)
        size += (size_t)snprintf(line + size, sizeof line - size,
                                 *s < 0x20 || *s == 0x7F || *s == '\\' ? "\\x%02x" : "%c", *s);
    line[size++] = '\n';
    pthread_mutex_lock(&journal->lock);
    bool torn = journal->torn;
    journal->torn = false;
    enum conv_status status = append(journal, torn ? line : line + 1, torn ? size : size - 1, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}
