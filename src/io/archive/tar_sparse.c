// SPDX-License-Identifier: MIT
// The formats are those of "Storing Sparse Files" in the manual of GNU tar.
#include "io/archive/tar.h"

#include <stdlib.h>
#include <string.h>

// In a header of type 'S' and in the blocks after it: parts of two numbers of 12 bytes each, then a
// byte that says whether another block follows, and in the header the size of the file.
enum { NUMBER = 12, HEADER_PARTS = 4, HEADER_AT = 386, HEADER_MORE = 482, HEADER_SIZE = 483 };
enum { BLOCK_PARTS = 21, BLOCK_MORE = 504 };

static enum conv_status refuse_map(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_FORMAT, "the map of a sparse file is malformed");
}

void conv_tar_sparse_free(struct conv_tar_sparse *sparse)
{
    free(sparse->parts);
    *sparse = (struct conv_tar_sparse){0};
}

enum conv_status conv_tar_sparse_add(struct conv_tar_sparse *sparse, uint64_t at, uint64_t size,
                                     struct conv_err *err)
{
    if (sparse->count == CONV_TAR_MOST_PARTS)
        return conv_err_set(err, CONV_ERR_LIMIT, "a sparse file of more than %zu parts is not read",
                            CONV_TAR_MOST_PARTS);
    if (sparse->count == sparse->capacity) {
        size_t capacity = sparse->capacity ? 2 * sparse->capacity : 16;
        struct conv_tar_part *parts = realloc(sparse->parts, capacity * sizeof *parts);
        if (!parts)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the map of a sparse file");
        sparse->parts = parts;
        sparse->capacity = capacity;
    }
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
        enum conv_status status = conv_tar_sparse_add(sparse, (uint64_t)at, (uint64_t)size, err);
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
                           : conv_err_set(err, CONV_ERR_FORMAT,
                                          "truncated archive: it ends inside a header");
        more = block[BLOCK_MORE] != 0;
        if (!status)
            status = add_entries(sparse, block, BLOCK_PARTS, err);
    }
    return status;
}

// --- maps in PAX headers -------------------------------------------------------------------------

enum conv_status conv_tar_sparse_list(struct conv_tar_sparse *sparse, const char *text, size_t size,
                                      struct conv_err *err)
{
    uint64_t numbers[2] = {0, 0};
    int count = 0;
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i <= size && !status; i++) {
        if (i == size || text[i] == ',') {
            if (i == 0 || text[i - 1] == ',')
                return refuse_map(err);
            if (++count % 2 == 0) {
                status = conv_tar_sparse_add(sparse, numbers[0], numbers[1], err);
                numbers[0] = numbers[1] = 0;
            }
            continue;
        }
        uint64_t *number = &numbers[count % 2];
        if (text[i] < '0' || text[i] > '9' || *number > (INT64_MAX - 9) / 10)
            return refuse_map(err);
        *number = 10 * *number + (uint64_t)(text[i] - '0');
    }
    return !status && count % 2 ? refuse_map(err) : status;
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
            status = conv_tar_sparse_add(sparse, at, size, err);
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
