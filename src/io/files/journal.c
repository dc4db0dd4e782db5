// SPDX-License-Identifier: MIT
// The file, whose lines are appended whole and read to its end; the digests by which an image is
// recognised; and the order of checking and adding entries.
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

#include "base/descriptors.h"
#include "base/lock.h"
#include "io/files/paths.h"

#define HEADER "conv-journal 3\n"
#define EARLIER "conv-journal 2\n"
#define HEADER_SIZE (sizeof HEADER - 1)
#define DIGEST_DIGITS 32
#define LINE_DIGESTS 3 // at most
// Every byte of a name escaped as \xNN.
#define LONGEST_LINE (LINE_DIGESTS * (DIGEST_DIGITS + 1) + 1 + 4 * PATH_MAX)
#define BUFFER_SIZE ((size_t)4 * LONGEST_LINE) // and half a line from the read before

// After a signal a run still waits this long for the lock, which others hold for moments.
#define PATIENCE_NS 1000000000L
#define LONGEST_PAUSE_NS 10000000L

struct conv_journal {
    struct conv_journal_config config;
    struct conv_lock turn; // in place: held while an image is replaced, taken before `lock`
    struct conv_lock lock; // guards all below, and the end of the file
    int fd;                // -1: there is no file, and nothing is written
    char *buffer;          // for reading
    off_t read_to;         // the beginning of the first line, or part of one, that is not read yet
    bool skipping;         // that is the rest of a line that is too long
    bool torn;             // the file does not end with a line's end
    size_t damaged;        // lines that could not be understood
    bool is_loaded;        // what was there when the journal was opened
    struct conv_digest_set known;  // all digests of that
    struct conv_digest_set recent; // the first one of each line that was read later
};

// --- the file ------------------------------------------------------------------------------------

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
static int parse_line(struct conv_digest digests[LINE_DIGESTS], const char *line, size_t size)
{
    for (int count = 0; count < LINE_DIGESTS; count++) {
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

static enum conv_status take_line(struct conv_journal *journal, const char *line, size_t size,
                                  struct conv_err *err)
{
    struct conv_digest digests[LINE_DIGESTS];
    enum conv_status status = CONV_OK;
    int count = parse_line(digests, line, size);
    if (count > 0 && journal->is_loaded)
        status = conv_digest_set_add(&journal->recent, &digests[0], NULL, err);
    for (int i = 0; i < count && !journal->is_loaded && !status; i++)
        status = conv_digest_set_add(&journal->known, &digests[i], NULL, err);
    // A blank line ends one that was cut short; two runs that begin together write two headers.
    bool header = size == HEADER_SIZE - 1 && is_header(line, size);
    journal->damaged += count == 0 && size > 0 && !header;
    return status;
}

static enum conv_status about(struct conv_err *err, enum conv_status status)
{
    return conv_err_hint(err, CONV_HINT_JOURNAL, 0, status);
}

static enum conv_status foreign(const struct conv_journal *journal, struct conv_err *err)
{
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_JOURNAL,
                           "%s: the file is not a journal of this version of conv",
                           journal->config.path);
}

// In place none of the images would be recognised, and all would be filtered again.
static enum conv_status check_header(const struct conv_journal *journal, size_t have,
                                     struct conv_err *err)
{
    if (!is_header(journal->buffer, have < HEADER_SIZE ? have : HEADER_SIZE))
        return foreign(journal, err);
    if (have < HEADER_SIZE || !journal->config.in_place ||
        memcmp(journal->buffer, EARLIER, HEADER_SIZE))
        return CONV_OK;
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_JOURNAL,
                           "%s: the journal is of an earlier version of conv, which recognised "
                           "images in another way; those that it lists would be filtered again",
                           journal->config.path);
}

// Takes the complete lines among the *have bytes in the buffer; *have becomes the size of the rest.
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

// Reads the lines that were not read yet. CONV_ERR_IO, CONV_ERR_USAGE, CONV_ERR_MEMORY.
static enum conv_status read_on(struct conv_journal *journal, struct conv_err *err)
{
    size_t have = 0;
    for (;;) {
        bool begin = journal->read_to == 0;
        ssize_t got = TEMP_FAILURE_RETRY(pread(journal->fd, journal->buffer + have,
                                               BUFFER_SIZE - have, journal->read_to + (off_t)have));
        if (got < 0)
            return about(err, conv_err_errno(err, errno, "%s", journal->config.path));
        have += (size_t)got;
        enum conv_status status = CONV_OK;
        if (begin && (have >= HEADER_SIZE || got == 0))
            status = check_header(journal, have, err);
        if (status)
            return status;
        if (got == 0)
            break;
        if (begin && have < HEADER_SIZE)
            continue;
        status = take_lines(journal, &have, err);
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
        ssize_t written = TEMP_FAILURE_RETRY(write(journal->fd, text, size));
        if (written < 0) {
            journal->torn = true;
            return conv_err_errno(err, errno, "cannot write the journal %s", journal->config.path);
        }
        text += written;
        size -= (size_t)written;
    }
    if (journal->config.fsync && TEMP_FAILURE_RETRY(fdatasync(journal->fd)) != 0)
        return conv_err_errno(err, errno, "cannot write the journal %s", journal->config.path);
    return CONV_OK;
}

// In place, at the start: a file system without locks is noticed before any work is done.
static enum conv_status check_locks(struct conv_journal *journal, struct conv_err *err)
{
    if (TEMP_FAILURE_RETRY(flock(journal->fd, LOCK_EX | LOCK_NB)) == 0)
        (void)flock(journal->fd, LOCK_UN);
    else if (errno != EWOULDBLOCK) {
        conv_err_errno(err, errno, "%s: replacing images needs a journal that can be locked",
                       journal->config.path);
        return about(err, err->status = CONV_ERR_USAGE);
    }
    return CONV_OK;
}

// flock() itself could wait, out of reach of a signal, for a run that was suspended with the lock.
// The exclusive lock against other processes. Waits. CONV_ERR_IO, also after a signal.
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

static enum conv_status load(struct conv_journal *journal, struct conv_err *err)
{
    const struct conv_journal_config *config = &journal->config;
    struct stat info;
    journal->buffer = malloc(BUFFER_SIZE);
    if (!journal->buffer)
        return conv_err_memory(err, "no memory for the journal");
    // The size is read first: another run that begins now may write the header as well.
    if (fstat(journal->fd, &info) != 0)
        return about(err, conv_err_errno(err, errno, "%s", config->path));
    enum conv_status status = read_on(journal, err);
    journal->is_loaded = true;
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

// Opens and reads config->path, or nothing if that is NULL. Errors as of conv_journal_open.
static enum conv_status open_file(struct conv_journal *journal, struct conv_err *err)
{
    const struct conv_journal_config *config = &journal->config;
    if (!config->path)
        return CONV_OK;
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

// Appends a line with 1 to LINE_DIGESTS digests; `recent` gets the first when it is read.
// CONV_ERR_IO.
static enum conv_status add_line(struct conv_journal *journal, const struct conv_digest *digests,
                                 int count, const char *input, struct conv_err *err)
{
    char line[LONGEST_LINE + 2];
    size_t size = print_line(line, sizeof line, digests, count, input);
    bool torn = journal->torn;
    journal->torn = false;
    return append(journal, torn ? line : line + 1, torn ? size : size - 1, err);
}

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

// Sets the content's key from the bytes that are being written, fact->encoded.
static void take_content(struct keys *keys, const struct conv_journal_fact *fact)
{
    struct content content = {.digest = &keys->key[CONTENT]};
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

enum conv_status conv_journal_open(struct conv_journal **out,
                                   const struct conv_journal_config *config, struct conv_err *err)
{
    struct conv_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return conv_err_memory(err, "no memory for the journal");
    journal->config = *config;
    journal->fd = -1;
    conv_lock_init(&journal->turn);
    conv_lock_init(&journal->lock);
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
    conv_digest_set_free(&journal->known);
    conv_digest_set_free(&journal->recent);
    free(journal->buffer);
    conv_lock_destroy(&journal->lock);
    conv_lock_destroy(&journal->turn);
    free(journal);
}

size_t conv_journal_damaged(const struct conv_journal *journal)
{
    return journal->damaged;
}

CONV_UNCHECKED enum conv_status conv_journal_lock(struct conv_journal *journal,
                                                  struct conv_err *err)
{
    conv_lock_acquire(&journal->turn);
    if (journal->fd < 0)
        return CONV_OK;
    enum conv_status status = lock_file(journal, err);
    if (!status) {
        conv_lock_acquire(&journal->lock);
        status = read_on(journal, err);
        conv_lock_release(&journal->lock);
    }
    if (status)
        conv_journal_unlock(journal);
    return status;
}

CONV_UNCHECKED void conv_journal_unlock(struct conv_journal *journal)
{
    if (journal->fd >= 0)
        (void)flock(journal->fd, LOCK_UN);
    conv_lock_release(&journal->turn);
}

bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct keys keys;
    make_keys(&keys, &journal->config, fact);
    conv_lock_acquire(&journal->lock);
    // Inode numbers last as long as the run.
    bool known = conv_digest_set_has(&journal->recent, &keys.key[IDENTITY]) ||
                 (keys.is_sure && conv_digest_set_has(&journal->known, &keys.key[IDENTITY]));
    bool may_be = !known && keys.count > 1 && fact->name &&
                  (keys.count < KEYS || conv_digest_set_has(&journal->known, &keys.key[SIZE]));
    conv_lock_release(&journal->lock);
    // No thread changes `known` any more.
    return known || (may_be && read_file(&keys, &journal->config, fact) &&
                     conv_digest_set_has(&journal->known, &keys.key[CONTENT]));
}

// Adds the line and reads it again: if this run finds it, every other run finds it, too. The line
// can get lost if it follows half a line of a killed run that was not in place and so took no lock.
static enum conv_status add_surely(struct conv_journal *journal, const struct keys *keys,
                                   const char *input, struct conv_err *err)
    CONV_NEEDS(journal->lock)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        enum conv_status status = add_line(journal, keys->key, keys->count, input, err);
        if (!status)
            status = read_on(journal, err);
        if (status || conv_digest_set_has(&journal->recent, &keys->key[0]))
            return status;
        journal->torn = true;
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
    if (keys.count > 1 && !fact->encoded->next) {
        take_content(&keys, fact);
    } else if (keys.count > 1 && !read_file(&keys, &journal->config, fact)) {
        if (journal->config.in_place)
            return conv_err_set(err, CONV_ERR_IO, "cannot read the output %s", fact->output);
        keys.count = 1; // a later run recognises it by its size and time, or not at all
    }
    conv_lock_acquire(&journal->lock);
    if (!journal->config.path)
        status = conv_digest_set_add(&journal->recent, &keys.key[0], NULL, err);
    else if (journal->config.in_place)
        status = add_surely(journal, &keys, fact->input, err);
    else
        status = add_line(journal, keys.key, keys.count, fact->input, err);
    conv_lock_release(&journal->lock);
    return status;
}
