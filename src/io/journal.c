// SPDX-License-Identifier: MIT
// Reads, extends and locks the file; the entries themselves are a set of digests.
#include "io/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/digest_set.h"
#include "io/paths.h"

#define HEADER "conv-journal 2\n"
#define HEADER_SIZE (sizeof HEADER - 1)
#define DIGEST_DIGITS 32
#define LONGEST_LINE (DIGEST_DIGITS + 2 + 4 * PATH_MAX) // every byte escaped as \xNN
#define BUFFER_SIZE ((size_t)4 * LONGEST_LINE)          // so that half a line at its end can stay

// After a signal a run still waits this long for the lock, which others hold for moments.
#define PATIENCE_NS 1000000000L
#define LONGEST_PAUSE_NS 10000000L

struct conv_journal {
    struct conv_journal_config config;
    int fd;               // -1: there is no file, and nothing is written
    pthread_mutex_t turn; // in place: held while an image is replaced, taken before `lock`
    pthread_mutex_t lock; // guards everything below, and the end of the file
    char *buffer;         // for reading
    off_t read_to;        // the beginning of the first line, or part of one, that is not read yet
    bool skipping;        // that is the rest of a line that is too long
    bool torn;            // the file does not end with a line's end
    size_t damaged;
    struct conv_digest_set known;
};

// --- lines ---------------------------------------------------------------------------------------

// False if the line is not a journal's.
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
        return conv_digest_set_add(&journal->known, &digest, NULL, err);
    // A blank line ends one that was cut short; two runs that begin together write two headers.
    bool header = size == HEADER_SIZE - 1 && memcmp(line, HEADER, size) == 0;
    journal->damaged += size > 0 && !header;
    return CONV_OK;
}

static ssize_t read_some(int fd, char *data, size_t size, off_t offset)
{
    ssize_t got;
    do
        got = pread(fd, data, size, offset);
    while (got < 0 && errno == EINTR);
    return got;
}

static enum conv_status about(struct conv_err *err, enum conv_status status)
{
    return conv_err_hint(err, CONV_HINT_JOURNAL, 0, status);
}

static enum conv_status foreign(const struct conv_journal *journal, struct conv_err *err)
{
    return about(err, conv_err_set(err, CONV_ERR_USAGE,
                                   "%s: the file is not a journal of this version of conv",
                                   journal->config.path));
}

// Takes the whole lines of `have` bytes in the buffer and returns the size of what is left.
static enum conv_status take_lines(struct conv_journal *journal, size_t *have, struct conv_err *err)
{
    char *line = journal->buffer, *end;
    while ((end = memchr(line, '\n', *have - (size_t)(line - journal->buffer)))) {
        enum conv_status status =
            journal->skipping ? CONV_OK : take_line(journal, line, (size_t)(end - line), err);
        if (status)
            return status;
        journal->skipping = false;
        line = end + 1;
    }
    size_t used = (size_t)(line - journal->buffer);
    *have -= used;
    memmove(journal->buffer, line, *have);
    if (*have > LONGEST_LINE) {
        journal->damaged += !journal->skipping;
        journal->skipping = true;
        used += *have;
        *have = 0;
    }
    journal->read_to += (off_t)used;
    return CONV_OK;
}

// Reads the lines that were not read yet.
static enum conv_status read_on(struct conv_journal *journal, struct conv_err *err)
{
    size_t have = 0;
    for (;;) {
        bool begin = journal->read_to == 0;
        ssize_t got = read_some(journal->fd, journal->buffer + have, BUFFER_SIZE - have,
                                journal->read_to + (off_t)have);
        if (got < 0)
            return about(err, conv_err_errno(err, errno, "%s", journal->config.path));
        have += (size_t)got;
        size_t size = have < HEADER_SIZE ? have : HEADER_SIZE;
        if (begin && (have >= HEADER_SIZE || got == 0) &&
            memcmp(journal->buffer, HEADER, size) != 0)
            return foreign(journal, err);
        if (got == 0)
            break;
        if (begin && have < HEADER_SIZE)
            continue;
        enum conv_status status = take_lines(journal, &have, err);
        if (status)
            return status;
    }
    journal->torn = have > 0 || journal->skipping;
    return CONV_OK;
}

// One call of write() in the common case, which appends the whole line.
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

// In place, at the start: a file system without locks is noticed before any work is done.
static enum conv_status check_locks(struct conv_journal *journal, struct conv_err *err)
{
    int result;
    do
        result = flock(journal->fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        (void)flock(journal->fd, LOCK_UN);
    else if (errno != EWOULDBLOCK) {
        conv_err_errno(err, errno, "%s: replacing images needs a journal that can be locked",
                       journal->config.path);
        return about(err, err->status = CONV_ERR_USAGE);
    }
    return CONV_OK;
}

// flock() itself could wait, out of reach of a signal, for a run that was suspended with the lock.
static enum conv_status lock_file(struct conv_journal *journal, struct conv_err *err)
{
    struct timespec pause = {.tv_nsec = 100000};
    long waited = 0;
    while (flock(journal->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return conv_err_errno(err, errno, "cannot lock the journal %s", journal->config.path);
        if (waited > PATIENCE_NS && journal->config.stop && atomic_load(journal->config.stop))
            return conv_err_set(err, CONV_ERR_IO,
                                "stopped while another run held the lock of the journal %s",
                                journal->config.path);
        nanosleep(&pause, NULL);
        waited += pause.tv_nsec;
        pause.tv_nsec += pause.tv_nsec < LONGEST_PAUSE_NS ? pause.tv_nsec / 4 : 0;
    }
    return CONV_OK;
}

// --- from outside --------------------------------------------------------------------------------

static enum conv_status load(struct conv_journal *journal, struct conv_err *err)
{
    const struct conv_journal_config *config = &journal->config;
    struct stat info;
    journal->buffer = malloc(BUFFER_SIZE);
    if (!journal->buffer)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    // The size first: another run that begins now may write the header as well.
    if (fstat(journal->fd, &info) != 0)
        return about(err, conv_err_errno(err, errno, "%s", config->path));
    enum conv_status status = read_on(journal, err);
    if (status)
        return status;
    if (config->read_only || info.st_size >= (off_t)HEADER_SIZE) {
        journal->damaged += info.st_size - journal->read_to > (off_t)HEADER_SIZE;
        return CONV_OK;
    }
    // Empty, or the header of a run that was killed while it wrote it.
    journal->torn = false;
    return append(journal, &HEADER[info.st_size], HEADER_SIZE - (size_t)info.st_size, err);
}

static enum conv_status open_file(struct conv_journal *journal, struct conv_err *err)
{
    const struct conv_journal_config *config = &journal->config;
    struct stat info;
    int flags = config->read_only ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT;
    journal->fd = conv_paths_open(config->path, flags | O_NONBLOCK | O_NOCTTY);
    if (journal->fd < 0 && errno == ENOENT && config->read_only)
        return CONV_OK;
    if (journal->fd < 0 || fstat(journal->fd, &info) != 0) {
        conv_err_errno(err, errno, "%s", config->path);
        return about(err, err->status = CONV_ERR_USAGE);
    }
    if (!S_ISREG(info.st_mode))
        return foreign(journal, err);
    bool locks = config->in_place && !config->read_only;
    enum conv_status status = locks ? check_locks(journal, err) : CONV_OK;
    if (!status)
        status = load(journal, err);
    if (!locks) {
        free(journal->buffer);
        journal->buffer = NULL;
    }
    return status;
}

enum conv_status conv_journal_open(struct conv_journal **out,
                                   const struct conv_journal_config *config, struct conv_err *err)
{
    struct conv_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    journal->config = *config;
    journal->fd = -1;
    pthread_mutex_init(&journal->turn, NULL); // never fails with default attributes
    pthread_mutex_init(&journal->lock, NULL);
    enum conv_status status = config->path ? open_file(journal, err) : CONV_OK;
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
    pthread_mutex_destroy(&journal->turn);
    conv_digest_set_free(&journal->known);
    free(journal->buffer);
    free(journal);
}

size_t conv_journal_damaged(const struct conv_journal *journal)
{
    return journal->damaged;
}

enum conv_status conv_journal_lock(struct conv_journal *journal, struct conv_err *err)
{
    pthread_mutex_lock(&journal->turn);
    if (journal->fd < 0)
        return CONV_OK;
    enum conv_status status = lock_file(journal, err);
    if (!status) {
        pthread_mutex_lock(&journal->lock);
        status = read_on(journal, err);
        pthread_mutex_unlock(&journal->lock);
    }
    if (status)
        conv_journal_unlock(journal);
    return status;
}

void conv_journal_unlock(struct conv_journal *journal)
{
    if (journal->fd >= 0)
        (void)flock(journal->fd, LOCK_UN);
    pthread_mutex_unlock(&journal->turn);
}

struct timespec conv_journal_birth(const struct conv_journal *journal, int folder, const char *name)
{
    struct statx info;
    if (!journal->config.preserve ||
        statx(folder, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &info) != 0 ||
        !(info.stx_mask & STATX_BTIME))
        return (struct timespec){0};
    return (struct timespec){.tv_sec = (time_t)info.stx_btime.tv_sec,
                             .tv_nsec = (long)info.stx_btime.tv_nsec};
}

// The numbers alone identify the file: its name may have other spellings. The number of the file
// system is omitted where it would have to outlive the run, since mounting changes it.
static struct conv_digest digest_in_place(const struct conv_journal *journal,
                                          const struct conv_journal_fact *fact,
                                          struct timespec birth)
{
    struct conv_digest digest = journal->config.settings;
    const struct stat *out = fact->out;
    int64_t numbers[] = {(int64_t)out->st_ino,
                         out->st_size,
                         out->st_mtim.tv_sec,
                         out->st_mtim.tv_nsec,
                         birth.tv_sec,
                         birth.tv_nsec,
                         journal->config.path ? 0 : (int64_t)out->st_dev};
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

static struct conv_digest digest_fact(const struct conv_journal *journal,
                                      const struct conv_journal_fact *fact)
{
    struct conv_digest digest = journal->config.settings;
    if (journal->config.in_place)
        return digest_in_place(journal, fact, fact->birth);
    const struct stat *in = fact->in, *out = fact->out;
    int64_t numbers[] = {in->st_size,
                         in->st_mtim.tv_sec,
                         in->st_mtim.tv_nsec,
                         out->st_size,
                         out->st_mtim.tv_sec,
                         out->st_mtim.tv_nsec,
                         0};
    conv_hash_add(&digest, fact->input, strlen(fact->input));
    conv_hash_add(&digest, fact->output, strlen(fact->output));
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct conv_digest digest = digest_fact(journal, fact);
    pthread_mutex_lock(&journal->lock);
    bool known = conv_digest_set_has(&journal->known, &digest);
    if (!known && journal->config.in_place && fact->birth.tv_sec != 0) {
        // The line may be from a kernel that did not report the time of birth.
        digest = digest_in_place(journal, fact, (struct timespec){0});
        known = conv_digest_set_has(&journal->known, &digest);
    }
    pthread_mutex_unlock(&journal->lock);
    return known;
}

static size_t print_line(char *line, size_t room, const struct conv_digest *digest,
                         const char *input)
{
    // The newline before the line ends one that was cut short.
    size_t size = (size_t)snprintf(line, room, "\n%016" PRIx64 "%016" PRIx64 " ", digest->word[0],
                                   digest->word[1]);
    for (const unsigned char *s = (const unsigned char *)input; *s; s++)
        size += (size_t)snprintf(line + size, room - size,
                                 *s < 0x20 || *s == 0x7F || *s == '\\' ? "\\x%02x" : "%c", *s);
    line[size++] = '\n';
    return size;
}

static enum conv_status add_line(struct conv_journal *journal, const char *line, size_t size,
                                 struct conv_err *err)
{
    bool torn = journal->torn;
    journal->torn = false;
    return append(journal, torn ? line : line + 1, torn ? size : size - 1, err);
}

// Adds the line and reads it again: what this run finds, every other run finds. The line can be
// lost after half a line of a killed run that is not in place and so takes no lock.
static enum conv_status add_surely(struct conv_journal *journal, const struct conv_digest *digest,
                                   const char *line, size_t size, struct conv_err *err)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        enum conv_status status = add_line(journal, line, size, err);
        if (!status)
            status = read_on(journal, err);
        if (status || conv_digest_set_has(&journal->known, digest))
            return status;
        journal->torn = true;
    }
    return conv_err_set(err, CONV_ERR_IO, "another program has changed the journal %s",
                        journal->config.path);
}

enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err)
{
    char line[LONGEST_LINE + 2];
    struct conv_digest digest = digest_fact(journal, fact);
    size_t size = print_line(line, sizeof line, &digest, fact->input);
    enum conv_status status;
    pthread_mutex_lock(&journal->lock);
    if (!journal->config.path)
        status = conv_digest_set_add(&journal->known, &digest, NULL, err);
    else if (journal->config.in_place)
        status = add_surely(journal, &digest, line, size, err);
    else
        status = add_line(journal, line, size, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}
