// SPDX-License-Identifier: MIT
// Lines are appended whole and read to the end of the file.
#include "io/files/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "io/files/paths.h"

#define HEADER "conv-journal 3\n"
#define EARLIER "conv-journal 2\n"
#define HEADER_SIZE (sizeof HEADER - 1)
#define DIGEST_DIGITS 32
// Every byte of a name escaped as \xNN.
#define LONGEST_LINE (CONV_JOURNAL_FILE_DIGESTS * (DIGEST_DIGITS + 1) + 1 + 4 * PATH_MAX)
#define BUFFER_SIZE ((size_t)4 * LONGEST_LINE) // and half a line from the read before

// After a signal a run still waits this long for the lock, which others hold for moments.
#define PATIENCE_NS 1000000000L
#define LONGEST_PAUSE_NS 10000000L

static bool parse_digest(struct conv_digest *digest, const char *text)
{
    *digest = (struct conv_digest){0};
    for (int i = 0; i < DIGEST_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *digit = memchr(digits, text[i], 16);
        if (!digit)
            return false;
        uint64_t *word = &digest->word[i / 16];
        *word = *word << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

// The number of digests; 0 if the line is not a journal's.
static int parse_line(struct conv_digest digests[CONV_JOURNAL_FILE_DIGESTS], const char *line,
                      size_t size)
{
    for (int count = 0; count < CONV_JOURNAL_FILE_DIGESTS; count++) {
        if (size < DIGEST_DIGITS + 2 || !parse_digest(&digests[count], line))
            return 0;
        if (line[DIGEST_DIGITS] != '+')
            return line[DIGEST_DIGITS] == ' ' ? count + 1 : 0;
        line += DIGEST_DIGITS + 1;
        size -= DIGEST_DIGITS + 1;
    }
    return 0;
}

static bool is_header(const char *line, size_t size)
{
    return memcmp(line, HEADER, size) == 0 || memcmp(line, EARLIER, size) == 0;
}

static enum conv_status take_line(struct conv_journal_file *file, const char *line, size_t size,
                                  struct conv_err *err)
{
    struct conv_digest digests[CONV_JOURNAL_FILE_DIGESTS];
    enum conv_status status = CONV_OK;
    int count = parse_line(digests, line, size);
    if (count > 0 && file->is_loaded)
        status = conv_digest_set_add(&file->recent, &digests[0], NULL, err);
    for (int i = 0; i < count && !file->is_loaded && !status; i++)
        status = conv_digest_set_add(&file->known, &digests[i], NULL, err);
    // A blank line ends one that was cut short; two runs that begin together write two headers.
    bool header = size == HEADER_SIZE - 1 && is_header(line, size);
    file->damaged += count == 0 && size > 0 && !header;
    return status;
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

static enum conv_status foreign(const struct conv_journal_file *file, struct conv_err *err)
{
    return about(err, conv_err_set(err, CONV_ERR_USAGE,
                                   "%s: the file is not a journal of this version of conv",
                                   file->config->path));
}

// In place none of the images would be recognised, and all would be filtered again.
static enum conv_status check_header(const struct conv_journal_file *file, size_t have,
                                     struct conv_err *err)
{
    if (!is_header(file->buffer, have < HEADER_SIZE ? have : HEADER_SIZE))
        return foreign(file, err);
    if (have < HEADER_SIZE || !file->config->in_place || memcmp(file->buffer, EARLIER, HEADER_SIZE))
        return CONV_OK;
    return about(err, conv_err_set(err, CONV_ERR_USAGE,
                                   "%s: the journal is of an earlier version of conv, which "
                                   "recognised images in another way; those that it lists would be "
                                   "filtered again",
                                   file->config->path));
}

// Takes the complete lines among the *have bytes in the buffer; *have becomes the size of the rest.
static enum conv_status take_lines(struct conv_journal_file *file, size_t *have,
                                   struct conv_err *err)
{
    char *line = file->buffer, *end;
    while ((end = memchr(line, '\n', *have - (size_t)(line - file->buffer)))) {
        enum conv_status status =
            file->skipping ? CONV_OK : take_line(file, line, (size_t)(end - line), err);
        if (status)
            return status;
        file->skipping = false;
        line = end + 1;
    }
    size_t used = (size_t)(line - file->buffer);
    *have -= used;
    memmove(file->buffer, line, *have);
    if (*have > LONGEST_LINE) {
        file->damaged += !file->skipping;
        file->skipping = true;
        used += *have;
        *have = 0;
    }
    file->read_to += (off_t)used;
    return CONV_OK;
}

enum conv_status conv_journal_file_read_on(struct conv_journal_file *file, struct conv_err *err)
{
    size_t have = 0;
    for (;;) {
        bool begin = file->read_to == 0;
        ssize_t got = read_some(file->fd, file->buffer + have, BUFFER_SIZE - have,
                                file->read_to + (off_t)have);
        if (got < 0)
            return about(err, conv_err_errno(err, errno, "%s", file->config->path));
        have += (size_t)got;
        enum conv_status status = CONV_OK;
        if (begin && (have >= HEADER_SIZE || got == 0))
            status = check_header(file, have, err);
        if (status)
            return status;
        if (got == 0)
            break;
        if (begin && have < HEADER_SIZE)
            continue;
        status = take_lines(file, &have, err);
        if (status)
            return status;
    }
    file->torn = have > 0 || file->skipping;
    return CONV_OK;
}

// One call of write() in the common case, which appends the whole line.
static enum conv_status append(struct conv_journal_file *file, const char *text, size_t size,
                               struct conv_err *err)
{
    while (size > 0) {
        ssize_t written = write(file->fd, text, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            file->torn = true;
            return conv_err_errno(err, errno, "cannot write the journal %s", file->config->path);
        }
        text += written;
        size -= (size_t)written;
    }
    while (file->config->fsync && fdatasync(file->fd) != 0)
        if (errno != EINTR)
            return conv_err_errno(err, errno, "cannot write the journal %s", file->config->path);
    return CONV_OK;
}

// In place, at the start: a file system without locks is noticed before any work is done.
static enum conv_status check_locks(struct conv_journal_file *file, struct conv_err *err)
{
    int result;
    do
        result = flock(file->fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        (void)flock(file->fd, LOCK_UN);
    else if (errno != EWOULDBLOCK) {
        conv_err_errno(err, errno, "%s: replacing images needs a journal that can be locked",
                       file->config->path);
        return about(err, err->status = CONV_ERR_USAGE);
    }
    return CONV_OK;
}

// flock() itself could wait, out of reach of a signal, for a run that was suspended with the lock.
enum conv_status conv_journal_file_lock(struct conv_journal_file *file, struct conv_err *err)
{
    struct timespec pause = {.tv_nsec = 100000};
    long waited = 0;
    while (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return conv_err_errno(err, errno, "cannot lock the journal %s", file->config->path);
        if (waited > PATIENCE_NS && file->config->stop && atomic_load(file->config->stop))
            return conv_err_set(err, CONV_ERR_IO,
                                "stopped while another run held the lock of the journal %s",
                                file->config->path);
        nanosleep(&pause, NULL);
        waited += pause.tv_nsec;
        pause.tv_nsec += pause.tv_nsec < LONGEST_PAUSE_NS ? pause.tv_nsec / 4 : 0;
    }
    return CONV_OK;
}

static enum conv_status load(struct conv_journal_file *file, struct conv_err *err)
{
    const struct conv_journal_config *config = file->config;
    struct stat info;
    file->buffer = malloc(BUFFER_SIZE);
    if (!file->buffer)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    // The size is read first: another run that begins now may write the header as well.
    if (fstat(file->fd, &info) != 0)
        return about(err, conv_err_errno(err, errno, "%s", config->path));
    enum conv_status status = conv_journal_file_read_on(file, err);
    file->is_loaded = true;
    if (status)
        return status;
    if (config->read_only || info.st_size >= (off_t)HEADER_SIZE) {
        file->damaged += info.st_size - file->read_to > (off_t)HEADER_SIZE;
        return CONV_OK;
    }
    // Empty, or the header of a run that was killed while it wrote it.
    file->torn = false;
    return append(file, &HEADER[info.st_size], HEADER_SIZE - (size_t)info.st_size, err);
}

enum conv_status conv_journal_file_open(struct conv_journal_file *file,
                                        const struct conv_journal_config *config,
                                        struct conv_err *err)
{
    file->config = config;
    if (!config->path)
        return CONV_OK;
    struct stat info;
    int flags = config->read_only ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT;
    file->fd = conv_paths_open(config->path, flags | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0 && errno == ENOENT && config->read_only)
        return CONV_OK;
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        conv_err_errno(err, errno, "%s", config->path);
        return about(err, err->status = CONV_ERR_USAGE);
    }
    if (!S_ISREG(info.st_mode))
        return foreign(file, err);
    bool locks = config->in_place && !config->read_only;
    enum conv_status status = locks ? check_locks(file, err) : CONV_OK;
    if (!status)
        status = load(file, err);
    if (!locks) {
        free(file->buffer);
        file->buffer = NULL;
    }
    return status;
}

static size_t print_line(char *line, size_t room, const struct conv_digest *digests, int count,
                         const char *input)
{
    size_t size = 0;
    // The newline before the line ends one that was cut short.
    for (int i = 0; i < count; i++)
        size += (size_t)snprintf(line + size, room - size, "%c%016" PRIx64 "%016" PRIx64,
                                 i == 0 ? '\n' : '+', digests[i].word[0], digests[i].word[1]);
    line[size++] = ' ';
    for (const unsigned char *s = (const unsigned char *)input; *s; s++)
        size += (size_t)snprintf(line + size, room - size,
                                 *s < 0x20 || *s == 0x7F || *s == '\\' ? "\\x%02x" : "%c", *s);
    line[size++] = '\n';
    return size;
}

enum conv_status conv_journal_file_add(struct conv_journal_file *file,
                                       const struct conv_digest *digests, int count,
                                       const char *input, struct conv_err *err)
{
    char line[LONGEST_LINE + 2];
    size_t size = print_line(line, sizeof line, digests, count, input);
    bool torn = file->torn;
    file->torn = false;
    return append(file, torn ? line : line + 1, torn ? size : size - 1, err);
}

void conv_journal_file_unlock(struct conv_journal_file *file)
{
    (void)flock(file->fd, LOCK_UN);
}

void conv_journal_file_close(struct conv_journal_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    conv_digest_set_free(&file->known);
    conv_digest_set_free(&file->recent);
    free(file->buffer);
}
