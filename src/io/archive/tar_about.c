// SPDX-License-Identifier: MIT
// What comes before a member and is about it: PAX headers, GNU tar's names, and the maps of sparse
// files, in the formats of "Storing Sparse Files" in the manual of GNU tar.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/archive/tar.h"

// --- sparse files --------------------------------------------------------------------------------

// In a header of type 'S' and in the blocks after it: parts of two numbers of 12 bytes each, then a
// byte that says whether another block follows, and in the header the size of the file.
enum { NUMBER = 12, HEADER_PARTS = 4, HEADER_AT = 386, HEADER_MORE = 482, HEADER_SIZE = 483 };
enum { BLOCK_PARTS = 21, BLOCK_MORE = 504 };

static enum conv_status refuse_map(struct conv_err *err)
{
    return conv_err_format(err, "the map of a sparse file is malformed");
}

static enum conv_status add_part(struct conv_tar_sparse *sparse, uint64_t at, uint64_t size,
                                 struct conv_err *err)
{
    if (sparse->count == CONV_TAR_MOST_PARTS)
        return conv_err_limit(err, "a sparse file of more than %zu parts is not read",
                              CONV_TAR_MOST_PARTS);
    struct conv_tar_part *parts = conv_array_grow(sparse->parts, sparse->count, sizeof *parts);
    if (!parts)
        return conv_err_memory(err, "no memory for the map of a sparse file");
    sparse->parts = parts;
    sparse->parts[sparse->count++] = (struct conv_tar_part){at, size};
    return CONV_OK;
}

// --- maps of GNU tar before 1.15 -----------------------------------------------------------------

// Unused entries are empty.
static enum conv_status add_entries(struct conv_tar_sparse *sparse, const char *entries, int count,
                                    struct conv_err *err)
{
    for (int i = 0; i < count; i++) {
        const char *entry = entries + 2 * NUMBER * i;
        int64_t at, size;
        if (!entry[0])
            return CONV_OK;
        if (!conv_tar_parse_number(&at, entry, NUMBER) || at < 0 ||
            !conv_tar_parse_number(&size, entry + NUMBER, NUMBER) || size < 0)
            return refuse_map(err);
        enum conv_status status = add_part(sparse, (uint64_t)at, (uint64_t)size, err);
        if (status)
            return status;
    }
    return CONV_OK;
}

enum conv_status conv_tar_sparse_old(struct conv_tar_sparse *sparse,
                                     const struct conv_tar_header *header,
                                     struct conv_archive_input *input, bool *is_over,
                                     struct conv_err *err)
{
    const char *bytes = (const char *)header;
    int64_t size = 0;
    *is_over = false;
    enum conv_status status = add_entries(sparse, bytes + HEADER_AT, HEADER_PARTS, err);
    if (!status && (!conv_tar_parse_number(&size, bytes + HEADER_SIZE, NUMBER) || size < 0))
        status = refuse_map(err);
    sparse->size = (uint64_t)size;
    for (bool more = bytes[HEADER_MORE] != 0; more;) {
        char block[CONV_TAR_BLOCK];
        ssize_t got = conv_archive_input_read(input, block, sizeof block, err);
        *is_over = got < CONV_TAR_BLOCK;
        if (*is_over)
            return got < 0 ? err->status
                           : conv_err_format(err, "truncated archive: it ends inside a header");
        more = block[BLOCK_MORE] != 0;
        if (!status)
            status = add_entries(sparse, block, BLOCK_PARTS, err);
    }
    return status;
}

// --- maps in PAX headers -------------------------------------------------------------------------

// Decimal digits. Returns how many bytes they take; 0 if there are none or the number is too large.
static size_t parse_digits(uint64_t *value, const char *text, size_t size)
{
    size_t i = 0;
    *value = 0;
    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(text[i] - '0'), value))
            return 0;
    return i;
}

// "offset,size,offset,size": PAX format 0.1.
static enum conv_status read_list(struct conv_tar_sparse *sparse, const char *text, size_t size,
                                  struct conv_err *err)
{
    uint64_t numbers[2];
    enum conv_status status = CONV_OK;
    for (size_t i = 0, count = 0; i <= size && !status; i++) {
        size_t digits = parse_digits(&numbers[count++ % 2], text + i, size - i);
        i += digits;
        if (digits == 0 || (i < size ? text[i] != ',' : count % 2 != 0))
            return refuse_map(err);
        if (count % 2 == 0)
            status = add_part(sparse, numbers[0], numbers[1], err);
    }
    return status;
}

// --- maps before the content ---------------------------------------------------------------------

// The numbers of such a map: decimal, each with a newline, in blocks of which the last is padded.
struct map {
    struct conv_archive_input *input;
    uint64_t *left;
    char block[CONV_TAR_BLOCK];
    size_t at; // in the block; CONV_TAR_BLOCK: none was read
};

static enum conv_status read_number(struct map *map, uint64_t *number, struct conv_err *err)
{
    bool any = false;
    *number = 0;
    for (;;) {
        if (map->at == CONV_TAR_BLOCK) {
            if (*map->left < CONV_TAR_BLOCK)
                return refuse_map(err);
            ssize_t got = conv_archive_input_read(map->input, map->block, CONV_TAR_BLOCK, err);
            if (got < 0)
                return err->status;
            *map->left -= (uint64_t)got;
            if (got < CONV_TAR_BLOCK)
                return refuse_map(err);
            map->at = 0;
        }
        char c = map->block[map->at++];
        if (c == '\n' && any)
            return CONV_OK;
        if (c < '0' || c > '9' || *number > (INT64_MAX - 9) / 10)
            return refuse_map(err);
        *number = 10 * *number + (uint64_t)(c - '0');
        any = true;
    }
}

enum conv_status conv_tar_sparse_begin(struct conv_tar_sparse *sparse,
                                       struct conv_archive_input *input, uint64_t *left,
                                       struct conv_err *err)
{
    struct map map = {.input = input, .left = left, .at = CONV_TAR_BLOCK};
    uint64_t count, at, size;
    enum conv_status status = read_number(&map, &count, err);
    for (uint64_t i = 0; i < count && !status; i++) {
        status = read_number(&map, &at, err);
        if (!status)
            status = read_number(&map, &size, err);
        if (!status)
            status = add_part(sparse, at, size, err);
    }
    return status;
}

// --- the file ------------------------------------------------------------------------------------

bool conv_tar_sparse_fits(const struct conv_tar_sparse *sparse, uint64_t left)
{
    uint64_t end = 0, sum = 0;
    for (size_t i = 0; i < sparse->count; i++) {
        const struct conv_tar_part *part = &sparse->parts[i];
        if (part->at < end || part->at > sparse->size || part->size > sparse->size - part->at)
            return false;
        end = part->at + part->size;
        sum += part->size;
    }
    return sum == left;
}

ssize_t conv_tar_sparse_read(struct conv_tar_sparse *sparse, struct conv_archive_input *input,
                             uint64_t *left, uint8_t *data, size_t size, struct conv_err *err)
{
    size_t done = 0;
    while (done < size && sparse->produced < sparse->size) {
        const struct conv_tar_part *part =
            sparse->next < sparse->count ? &sparse->parts[sparse->next] : NULL;
        if (part && sparse->produced >= part->at + part->size) {
            sparse->next++;
            continue;
        }
        bool is_hole = !part || sparse->produced < part->at;
        uint64_t end = !part ? sparse->size : is_hole ? part->at : part->at + part->size;
        uint64_t step = end - sparse->produced;
        ssize_t got = (ssize_t)(step < size - done ? step : size - done);
        size_t wanted = (size_t)got;
        if (is_hole)
            memset(data + done, 0, wanted);
        else
            got = conv_archive_input_read(input, data + done, wanted, err);
        if (got < 0)
            return -1;
        *left -= is_hole ? 0 : (uint64_t)got;
        sparse->produced += (uint64_t)got;
        done += (size_t)got;
        if ((size_t)got < wanted)
            break;
    }
    return (ssize_t)done;
}

// --- PAX headers ---------------------------------------------------------------------------------

static enum conv_status refuse(struct conv_err *err)
{
    return conv_err_format(err, "its PAX header is malformed");
}

static enum conv_status refuse_length(uint64_t length, struct conv_err *err)
{
    return conv_err_limit(err,
                          "a header about the member has %" PRIu64 " bytes; at most %zu are read",
                          length, CONV_TAR_MOST_PAX);
}

// *to = a copy of the string of `size` bytes; what was there before is freed. An empty string
// stands for none.
static enum conv_status set_text(char **to, const char *text, size_t size, struct conv_err *err)
{
    if (memchr(text, '\0', size))
        return conv_err_format(err, "its PAX header has a name with a NUL byte");
    free(*to);
    *to = size ? strndup(text, size) : NULL;
    return size && !*to ? conv_err_memory(err, "no memory for the name of a member") : CONV_OK;
}

static bool parse_whole(uint64_t *value, const char *text, size_t size)
{
    return size > 0 && parse_digits(value, text, size) == size && *value <= INT64_MAX;
}

// "1700000000.123456789", perhaps negative.
static bool parse_time(struct timespec *time, const char *text, size_t size)
{
    bool is_negative = size > 0 && text[0] == '-';
    uint64_t seconds;
    size_t i = is_negative, digits = parse_digits(&seconds, text + i, size - i);
    if (digits == 0 || seconds > INT64_MAX)
        return false;
    i += digits;
    long nanoseconds = 0, unit = 100000000;
    if (i < size && text[i] == '.')
        for (i++; i < size && text[i] >= '0' && text[i] <= '9'; i++, unit /= 10)
            nanoseconds += (text[i] - '0') * unit;
    time->tv_sec = (time_t)(is_negative ? -(int64_t)seconds : (int64_t)seconds);
    time->tv_nsec = nanoseconds;
    if (is_negative && nanoseconds > 0) {
        time->tv_sec--;
        time->tv_nsec = 1000000000 - nanoseconds;
    }
    return i == size;
}

#define IS(NAME) (key_size == sizeof NAME - 1 && memcmp(key, NAME, key_size) == 0)

// A key after "GNU.sparse.".
static enum conv_status set_sparse(struct conv_tar_pax *pax, const char *key, size_t key_size,
                                   const char *value, size_t size, struct conv_err *err)
{
    struct conv_tar_sparse *sparse = &pax->sparse;
    uint64_t number = 0;
    pax->is_sparse = true;
    if (IS("map"))
        return read_list(sparse, value, size, err);
    if (!parse_whole(&number, value, size))
        return refuse(err);
    if (IS("major"))
        sparse->is_at_content = number > 0;
    if (IS("size") || IS("realsize"))
        sparse->size = number;
    if (IS("offset")) {
        sparse->offset = number;
        sparse->has_offset = true;
    }
    if (!IS("numbytes"))
        return CONV_OK;
    if (!sparse->has_offset)
        return refuse(err);
    sparse->has_offset = false;
    return add_part(sparse, sparse->offset, number, err);
}

// A value that makes no sense costs no more than itself, unless name, size or content depend on it.
static enum conv_status set_value(struct conv_tar_pax *pax, const char *key, size_t key_size,
                                  const char *value, size_t size, struct conv_err *err)
{
    if (IS("GNU.sparse.name"))
        pax->has_sparse_name = true;
    if ((IS("path") && !pax->has_sparse_name) || IS("GNU.sparse.name"))
        return set_text(&pax->name, value, size, err);
    if (IS("linkpath"))
        return set_text(&pax->link, value, size, err);
    if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
        return set_sparse(pax, key + 11, key_size - 11, value, size, err);
    if (IS("uname"))
        (void)set_text(&pax->uname, value, size, NULL);
    else if (IS("gname"))
        (void)set_text(&pax->gname, value, size, NULL);
    else if (IS("uid"))
        pax->has_uid = parse_whole(&pax->uid, value, size);
    else if (IS("gid"))
        pax->has_gid = parse_whole(&pax->gid, value, size);
    else if (IS("mtime"))
        pax->has_mtime = parse_time(&pax->mtime, value, size);
    else if (IS("size"))
        pax->has_size = parse_whole(&pax->size, value, size);
    bool good = !IS("size") || size == 0 || pax->has_size; // an empty value stands for none
    return good ? CONV_OK : refuse(err);
}
#undef IS

// --- records -------------------------------------------------------------------------------------

struct record {
    uint64_t size; // of all of it
    const char *key;
    size_t key_size; // 0 if there is no '=' within the bytes
};

// Reads the beginning of a record in a header that has `left` bytes from there.
static bool parse_record(struct record *record, const char *data, size_t size, uint64_t left)
{
    size_t digits = parse_digits(&record->size, data, size);
    if (digits == 0 || record->size > left || record->size < digits + 3 || digits == size ||
        data[digits] != ' ')
        return false;
    record->key = data + digits + 1;
    size_t rest = record->size < size ? (size_t)record->size - digits - 2 : size - digits - 1;
    const char *equals = memchr(record->key, '=', rest);
    record->key_size = equals ? (size_t)(equals - record->key) : 0;
    return true;
}

// `data` has all of it.
static enum conv_status set_record(struct conv_tar_pax *pax, const struct record *record,
                                   const char *data, struct conv_err *err)
{
    const char *value = record->key + record->key_size + 1, *end = data + record->size - 1;
    if (record->key_size == 0 || *end != '\n')
        return refuse(err);
    return set_value(pax, record->key, record->key_size, value, (size_t)(end - value), err);
}

// Whether a member can be read without this record.
static bool may_skip(const struct record *record)
{
    static const char *const needed[] = {"path", "linkpath", "size", "GNU.sparse."};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (strncmp(record->key, needed[i], strlen(needed[i])) == 0)
            return false;
    return true;
}

// A record that is longer than what can be looked at at once.
static enum conv_status read_long(struct conv_tar_pax *pax, struct conv_archive_input *input,
                                  const struct record *record, struct conv_err *err)
{
    if (record->size > CONV_TAR_MOST_PAX) {
        if (!may_skip(record))
            (void)refuse_length(record->size, &pax->bad);
        return conv_archive_input_skip(input, record->size, err) < 0 ? err->status : CONV_OK;
    }
    struct record whole;
    char *data = malloc((size_t)record->size);
    if (!data)
        return conv_err_memory(err, "no memory for a header of the archive");
    ssize_t got = conv_archive_input_read(input, data, (size_t)record->size, err);
    enum conv_status status = got < 0 ? err->status : CONV_OK;
    if ((uint64_t)got == record->size && parse_record(&whole, data, (size_t)got, record->size))
        (void)set_record(pax, &whole, data, &pax->bad);
    free(data);
    return status;
}

enum conv_status conv_tar_pax_read(struct conv_tar_pax *pax, struct conv_archive_input *input,
                                   uint64_t *left, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    while (*left > 0 && !status) {
        const uint8_t *data;
        struct record record;
        uint64_t start = input->at;
        size_t size = *left < CONV_ARCHIVE_INPUT_PEEK ? (size_t)*left : CONV_ARCHIVE_INPUT_PEEK;
        ssize_t got = conv_archive_input_peek(input, &data, size, err);
        if (got < (ssize_t)size)
            return got < 0 ? err->status : CONV_OK;
        const char *text = (const char *)data;
        size_t at = 0;
        while (at < size) {
            if (!parse_record(&record, text + at, size - at, *left - at)) {
                if (at > 0 && size < *left)
                    break; // in its first digits
                (void)refuse(&pax->bad);
                return CONV_OK;
            }
            if (record.size > size - at)
                break;
            (void)set_record(pax, &record, text + at, &pax->bad);
            at += (size_t)record.size;
        }
        if (at > 0)
            status = conv_archive_input_skip(input, at, err) < 0 ? err->status : CONV_OK;
        else
            status = read_long(pax, input, &record, err);
        *left -= input->at - start;
    }
    return status;
}

enum conv_status conv_tar_pax_read_name(struct conv_tar_pax *pax, char **to,
                                        struct conv_archive_input *input, uint64_t *left,
                                        struct conv_err *err)
{
    if (*left > CONV_TAR_MOST_PAX) {
        (void)refuse_length(*left, &pax->bad);
        return CONV_OK;
    }
    char *text = calloc(1, (size_t)*left + 1);
    if (!text)
        return conv_err_memory(err, "no memory for a header of the archive");
    ssize_t got = conv_archive_input_read(input, text, (size_t)*left, err);
    if (got >= 0) {
        *left -= (uint64_t)got;
        (void)set_text(to, text, strlen(text), &pax->bad);
    }
    free(text);
    return got < 0 ? err->status : CONV_OK;
}

void conv_tar_pax_clear(struct conv_tar_pax *pax)
{
    free(pax->name);
    free(pax->link);
    free(pax->uname);
    free(pax->gname);
    free(pax->sparse.parts);
    memset(pax, 0, offsetof(struct conv_tar_pax, bad)); // its text is long
    pax->bad.status = CONV_OK;
}

void conv_tar_pax_apply(const struct conv_tar_pax *pax, struct conv_archive_member *member)
{
    member->name = pax->name ? pax->name : member->name;
    member->link = pax->link ? pax->link : member->link;
    member->uname = pax->uname ? pax->uname : member->uname;
    member->gname = pax->gname ? pax->gname : member->gname;
    member->size = pax->has_size ? pax->size : member->size;
    member->uid = pax->has_uid ? pax->uid : member->uid;
    member->gid = pax->has_gid ? pax->gid : member->gid;
    member->mtime = pax->has_mtime ? pax->mtime : member->mtime;
}
