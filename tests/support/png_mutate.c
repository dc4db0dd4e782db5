// SPDX-License-Identifier: MIT
#include "support/png_mutate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "support/deflate_random.h"
#include "support/oracle.h"
#include "support/random.h"

#define MOST_CHUNKS 400
#define ROOM ((size_t)1 << 17) // bytes of a file while it is changed
#define GROWTH 64              // bytes that a chunk may gain

struct piece {
    char type[4];
    uint8_t *data; // of `room` bytes
    size_t size, room;
};

struct file {
    struct piece pieces[MOST_CHUNKS];
    int count;
    size_t size; // of all pieces
    uint64_t random;
    png_mutate_bytes_fn mutate_bytes;
};

static unsigned draw(struct file *file, unsigned n)
{
    return random_below(&file->random, n);
}

// --- pieces --------------------------------------------------------------------------------------

static void insert(struct file *file, int at, const char *type, const uint8_t *data, size_t size)
{
    if (file->count == MOST_CHUNKS || file->size + size > ROOM)
        return;
    struct piece piece = {.data = malloc(size + GROWTH), .size = size, .room = size + GROWTH};
    if (!piece.data)
        abort();
    memcpy(piece.type, type, 4);
    if (size > 0)
        memcpy(piece.data, data, size);
    memmove(file->pieces + at + 1, file->pieces + at,
            (size_t)(file->count - at) * sizeof file->pieces[0]);
    file->pieces[at] = piece;
    file->count++;
    file->size += size;
}

static void remove_at(struct file *file, int at)
{
    file->size -= file->pieces[at].size;
    free(file->pieces[at].data);
    file->count--;
    memmove(file->pieces + at, file->pieces + at + 1,
            (size_t)(file->count - at) * sizeof file->pieces[0]);
}

static void parse(struct file *file, const uint8_t *data, size_t size)
{
    for (size_t at = 8; at < size && size - at >= 12;) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                        (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > size - at - 12)
            break;
        char type[4];
        memcpy(type, data + at + 4, 4);
        insert(file, file->count, type, data + at + 8, length);
        at += length + 12;
    }
}

// Without sums. 0 if they do not fit.
static size_t put_file(const struct file *file, uint8_t *data, size_t room)
{
    size_t size = 8;
    if (size + file->size + 12 * (size_t)file->count > room)
        return 0;
    memcpy(data, "\x89PNG\r\n\x1a\n", size);
    for (int i = 0; i < file->count; i++) {
        const struct piece *piece = &file->pieces[i];
        for (int shift = 24; shift >= 0; shift -= 8)
            data[size++] = (uint8_t)(piece->size >> shift);
        memcpy(data + size, piece->type, 4);
        if (piece->size > 0)
            memcpy(data + size + 4, piece->data, piece->size);
        memset(data + size + 4 + piece->size, 0, 4);
        size += piece->size + 8;
    }
    return size;
}

// The number of a random IDAT, -1 if there is none.
static int draw_idat(struct file *file)
{
    int found = -1, seen = 0;
    for (int i = 0; i < file->count; i++)
        if (memcmp(file->pieces[i].type, "IDAT", 4) == 0 && draw(file, (unsigned)++seen) == 0)
            found = i;
    return found;
}

static int draw_piece(struct file *file)
{
    return (int)draw(file, (unsigned)file->count);
}

// --- chunks --------------------------------------------------------------------------------------

static void delete_chunk(struct file *file)
{
    if (file->count > 1)
        remove_at(file, draw_piece(file));
}

static void double_chunk(struct file *file)
{
    struct piece piece = file->pieces[draw_piece(file)];
    insert(file, draw_piece(file), piece.type, piece.data, piece.size);
}

static void swap_chunks(struct file *file)
{
    int a = draw_piece(file), b = draw(file, 2) && a > 0 ? a - 1 : draw_piece(file);
    struct piece piece = file->pieces[a];
    file->pieces[a] = file->pieces[b];
    file->pieces[b] = piece;
}

static void insert_known(struct file *file)
{
    static const struct {
        const char *type, *data;
        size_t size;
    } known[] = {
        {"IDAT", "", 0},
        {"IDAT", "x", 1},
        {"tEXt", "a\0b", 3},
        {"tRNS", "\0\1", 2},
        {"tRNS", "\0\1\0\2\0\3", 6},
        {"tRNS", "\200", 1},
        {"PLTE", "abcdefghijkl", 12},
        {"PLTE", "abcd", 4},
        {"bKGD", "\0\1", 2},
        {"bKGD", "\0\1\0\2\0\3", 6},
        {"acTL", "\0\0\0\2\0\0\0\0", 8},
        {"fcTL", "\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\1\0\1\0\0", 26},
        {"fdAT", "\0\0\0\1x", 5},
        {"iCCP", "p\0\0x", 4},
        {"gAMA", "\0\0\1\0", 4},
        {"sBIT", "\5", 1},
        {"hIST", "\0\1", 2},
        {"prVt", "x", 1},
        {"prvt", "x", 1},
        {"PRVT", "x", 1},
        {"IEND", "", 0},
        {"IEND", "x", 1},
    };
    unsigned k = draw(file, sizeof known / sizeof known[0]);
    for (unsigned more = draw(file, 8) ? 1 : draw(file, 30); more > 0; more--)
        insert(file, (int)draw(file, (unsigned)file->count + 1), known[k].type,
               (const uint8_t *)known[k].data, known[k].size);
}

static void change_type(struct file *file)
{
    file->pieces[draw_piece(file)].type[draw(file, 4)] ^= draw(file, 4) ? 0x20 : 1;
}

static void change_header(struct file *file)
{
    static const uint8_t depths[] = {1, 2, 4, 8, 16, 3}, types[] = {0, 2, 3, 4, 6, 1};
    uint8_t *data = file->pieces[0].data;
    if (file->pieces[0].size != 13)
        return;
    switch (draw(file, 5)) {
    case 0:
        data[3] = (uint8_t)(draw(file, 40));
        break;
    case 1:
        data[7] = (uint8_t)(draw(file, 40));
        break;
    case 2:
        data[8] = depths[draw(file, sizeof depths)];
        break;
    case 3:
        data[9] = types[draw(file, sizeof types)];
        break;
    default:
        data[12] ^= 1;
    }
}

static void change_bytes(struct file *file)
{
    struct piece *piece = &file->pieces[draw_piece(file)];
    size_t before = piece->size;
    if (file->mutate_bytes && file->size + GROWTH <= ROOM)
        piece->size = file->mutate_bytes(piece->data, piece->size, piece->room);
    else if (piece->size > 0)
        piece->data[draw(file, (unsigned)piece->size)] ^= (uint8_t)(1u << draw(file, 8));
    file->size = file->size - before + piece->size;
}

static void cut_bytes(struct file *file)
{
    struct piece *piece = &file->pieces[draw_piece(file)];
    size_t cut = piece->size > 0 ? draw(file, (unsigned)piece->size) + 1 : 0;
    if (draw(file, 2) && cut > 4)
        cut = 1 + draw(file, 4);
    piece->size -= cut;
    file->size -= cut;
}

// --- image data ----------------------------------------------------------------------------------

static void split_idat(struct file *file)
{
    for (unsigned more = draw(file, 4) ? 1 : draw(file, 40); more > 0; more--) {
        int i = draw_idat(file);
        if (i < 0 || file->count == MOST_CHUNKS)
            return;
        struct piece *piece = &file->pieces[i];
        size_t at = draw(file, (unsigned)piece->size + 1), rest = piece->size - at;
        piece->size = at;
        file->size -= rest;
        insert(file, i + 1, "IDAT", piece->data + at, rest);
    }
}

// Empty IDATs and another chunk before, within or after the image data.
static void insert_between(struct file *file)
{
    int i = draw_idat(file);
    if (i < 0)
        return;
    i += (int)draw(file, 2);
    for (unsigned empty = draw(file, 4); empty > 0; empty--)
        insert(file, i, "IDAT", NULL, 0);
    if (draw(file, 2))
        insert(file, i, "tEXt", (const uint8_t *)"a\0b", 3);
    for (unsigned empty = draw(file, 4); empty > 0; empty--)
        insert(file, i, "IDAT", NULL, 0);
}

// All image data in one piece of `room` bytes, whose chunks are deleted if `take`; the place of the
// first one, -1 if there is none.
static int join_idats(struct file *file, uint8_t *stream, size_t *size, bool take)
{
    int first = -1;
    *size = 0;
    for (int i = 0; i < file->count; i++) {
        struct piece *piece = &file->pieces[i];
        if (memcmp(piece->type, "IDAT", 4) != 0)
            continue;
        if (piece->size > 0)
            memcpy(stream + *size, piece->data, piece->size);
        *size += piece->size;
        first = first < 0 ? i : first;
        if (take)
            remove_at(file, i--);
    }
    return first;
}

// Bytes of a row with its filter as the header has it, and of all rows, if they are few.
static size_t rows_size(const struct file *file, size_t *row)
{
    const uint8_t *p = file->pieces[0].data;
    *row = 10;
    if (file->pieces[0].size != 13 || p[0] | p[1] | p[2] | p[4] | p[5] | p[6])
        return 100;
    size_t channels = (p[9] & 2 && p[9] != 3 ? 3u : 1u) + (p[9] & 4 ? 1 : 0);
    *row = (p[3] * channels * p[8] + 7) / 8 + 1;
    return *row * p[7];
}

// The same rows, as far as they can be inflated, in other blocks.
static void write_anew(struct file *file)
{
    static uint8_t stream[ROOM], raw[ROOM], made[ROOM];
    size_t size, row, wanted = rows_size(file, &row);
    int first = join_idats(file, stream, &size, true);
    z_stream z = {.next_in = stream, .avail_in = (uInt)size, .next_out = raw, .avail_out = ROOM};
    if (inflateInit(&z) != Z_OK)
        abort();
    inflate(&z, Z_FINISH);
    size_t got = ROOM - z.avail_out;
    inflateEnd(&z);
    wanted = wanted > ROOM / 2 ? ROOM / 2 : wanted;
    for (; got < wanted; got++)
        raw[got] = (uint8_t)draw(file, got % row == 0 || draw(file, 3) ? 5 : 256);
    if (draw(file, 16))
        got = wanted;
    struct deflate_make make = {.data = made, .room = ROOM};
    deflate_random_stream(&make, &file->random, raw, got);
    insert(file, first < 0 ? file->count - (file->count > 1) : first, "IDAT", made, make.size);
}

// Flips a bit of the stream, more often near its start, where the code lengths are.
static void flip_bit(struct file *file)
{
    int i = draw_idat(file);
    if (i < 0 || file->pieces[i].size == 0)
        return;
    size_t size = file->pieces[i].size, most = draw(file, 2) && size > 40 ? 40 : size;
    file->pieces[i].data[draw(file, (unsigned)most)] ^= (uint8_t)(1u << draw(file, 8));
}

static void merge_idats(struct file *file)
{
    static uint8_t stream[ROOM];
    size_t size;
    int first = join_idats(file, stream, &size, true);
    if (first >= 0)
        insert(file, first, "IDAT", stream, size);
}

// --- all of it -----------------------------------------------------------------------------------

static void start_small(struct file *file)
{
    static const uint8_t header[13] = {[3] = 5, [7] = 4, [8] = 8, [9] = 2};
    insert(file, 0, "IHDR", header, sizeof header);
    insert(file, 1, "IEND", NULL, 0);
    write_anew(file);
}

static void change(struct file *file)
{
    static void (*const changes[])(struct file *) = {
        delete_chunk,  double_chunk, swap_chunks, insert_known, insert_known,   change_type,
        change_header, change_bytes, cut_bytes,   split_idat,   insert_between, write_anew,
        write_anew,    write_anew,   flip_bit,    merge_idats};
    changes[draw(file, sizeof changes / sizeof changes[0])](file);
}

// Sometimes damages a bit that the checksums cover, or removes the end of the file.
static size_t damage(struct file *file, uint8_t *data, size_t size)
{
    if (draw(file, 16) == 0)
        data[draw(file, (unsigned)size)] ^= (uint8_t)(1u << draw(file, 8));
    return draw(file, 16) ? size : 1 + draw(file, (unsigned)size);
}

size_t png_mutate(uint8_t *data, size_t size, size_t room, uint32_t seed,
                  png_mutate_bytes_fn mutate_bytes)
{
    static uint8_t inflated[ROOM];
    struct file file = {.random = seed, .mutate_bytes = mutate_bytes};
    parse(&file, data, size);
    for (unsigned more = 1 + draw(&file, 3); more > 0; more--) {
        if (file.count == 0)
            start_small(&file);
        change(&file);
    }
    size_t changed = put_file(&file, data, room);
    if (changed > 0) {
        oracle_repair(data, changed, inflated, ROOM);
        changed = damage(&file, data, changed);
    }
    for (int i = 0; i < file.count; i++)
        free(file.pieces[i].data);
    return changed > 0 ? changed : size;
}
