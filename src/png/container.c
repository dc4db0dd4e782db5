// SPDX-License-Identifier: MIT
// The chunk walk: what a PNG says about itself before a pixel is decoded, and which of its chunks
// travel on. Nothing is decompressed here and nothing is believed that lies beyond the data.
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "image/format.h"
#include "png/buffer.h"
#include "png/png.h"

#define FRAME_SIZE 12        // length, type and CRC around a chunk's data
#define MAX_FIELD 0x7fffffff // the standard's limit for lengths, widths and heights
#define MAX_PALETTE 256

// What a byte of DEFLATE makes at most: a match of 258 bytes takes a length and a distance, and no
// code of either is shorter than one bit (RFC 1951, 3.2.7: a single distance code takes one bit).
#define MAX_EXPANSION (258 * 8 / 2)

// The most image data that is looked at. Rows of two bytes, each flushed by its encoder, take
// about 12; more is nothing but empty blocks, which cost time and make no pixels.
#define MOST_DATA_A_BYTE 16
#define MOST_DATA_ANYWAY ((size_t)1 << 20)

#define TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))
#define IHDR TYPE('I', 'H', 'D', 'R')
#define PLTE TYPE('P', 'L', 'T', 'E')
#define TRNS TYPE('t', 'R', 'N', 'S')
#define IDAT TYPE('I', 'D', 'A', 'T')
#define IEND TYPE('I', 'E', 'N', 'D')
#define BKGD TYPE('b', 'K', 'G', 'D')

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGB_ALPHA = 6 };

static const uint8_t signature[CONV_PNG_SIGNATURE_SIZE] = {0x89, 'P',  'N',  'G',
                                                           '\r', '\n', 0x1a, '\n'};

struct chunk {
    uint32_t type;
    uint32_t length;
    const uint8_t *data; // inside the file, with the 8 bytes of length and type before it
};

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_u32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

// Steps over the chunk at *at; false if it does not lie wholly within the file.
static bool next_chunk(struct chunk *chunk, const uint8_t *file, size_t size, size_t *at)
{
    size_t left = size - *at;
    if (left < FRAME_SIZE)
        return false;
    chunk->length = read_u32(file + *at);
    chunk->type = read_u32(file + *at + 4);
    chunk->data = file + *at + 8;
    if (chunk->length > MAX_FIELD || chunk->length > left - FRAME_SIZE)
        return false;
    *at += FRAME_SIZE + (size_t)chunk->length;
    return true;
}

static bool crc_is_right(const struct chunk *chunk)
{
    // The CRC covers type and data.
    uint32_t crc = libdeflate_crc32(0, chunk->data - 4, (size_t)chunk->length + 4);
    return crc == read_u32(chunk->data + chunk->length);
}

static enum conv_status refuse_signature(const uint8_t *data, size_t size, struct conv_err *err)
{
    const char *format = conv_format_of_bytes(data, size);
    if (!format || strcmp(format, "PNG") == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "not a PNG (bad signature)");
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "%s %s; conv reads PNG only (vips copy INPUT OUTPUT.png converts it)",
                        conv_format_article(format), format);
}

enum conv_status conv_png_check_signature(const uint8_t *data, size_t size, struct conv_err *err)
{
    if (size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "empty file");
    if (memcmp(data, signature, size < CONV_PNG_SIGNATURE_SIZE ? size : CONV_PNG_SIGNATURE_SIZE) !=
        0)
        return refuse_signature(data, size, err);
    if (size < CONV_PNG_SIGNATURE_SIZE)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the signature");
    return CONV_OK;
}

// Says why there is no whole chunk at `at`.
static enum conv_status refuse_chunk(const uint8_t *data, size_t size, size_t at,
                                     struct conv_err *err)
{
    if (at == size)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends before the image data");
    if (size - at >= 4 && read_u32(data + at) > MAX_FIELD)
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: impossible chunk length at byte %zu",
                            at);
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "truncated: ends inside the chunk that starts at byte %zu", at);
}

static bool depth_is_valid(int color_type, int depth)
{
    // Depths are powers of two, so that a set of them is their sum.
    static const int allowed[] = {
        [GRAY] = 1 + 2 + 4 + 8 + 16, [RGB] = 8 + 16,       [PALETTE] = 1 + 2 + 4 + 8,
        [GRAY_ALPHA] = 8 + 16,       [RGB_ALPHA] = 8 + 16,
    };
    bool known = color_type < (int)(sizeof allowed / sizeof allowed[0]);
    bool single = depth != 0 && (depth & (depth - 1)) == 0;
    return known && single && (depth & allowed[color_type]) != 0;
}

static enum conv_status read_header(const struct chunk *chunk, struct conv_png_header *header,
                                    struct conv_err *err)
{
    const uint8_t *p = chunk->data;
    if (chunk->type != IHDR)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: the first chunk is not IHDR");
    if (chunk->length != 13)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %u bytes instead of 13",
                            (unsigned)chunk->length);
    if (!crc_is_right(chunk))
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: wrong CRC");
    uint32_t width = read_u32(p), height = read_u32(p + 4);
    if (width == 0 || height == 0 || width > MAX_FIELD || height > MAX_FIELD)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %u x %u pixels", (unsigned)width,
                            (unsigned)height);
    if (!depth_is_valid(p[9], p[8]))
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: colour type %d with %d bits", p[9],
                            p[8]);
    if (p[10] != 0 || p[11] != 0 || p[12] > 1)
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "bad header: unknown method (compression %d, filter %d, interlace %d)",
                            p[10], p[11], p[12]);
    *header = (struct conv_png_header){
        .width = (int)width,
        .height = (int)height,
        .bit_depth = p[8],
        .color_type = p[9],
        .interlaced = p[12] == 1,
    };
    return CONV_OK;
}

// A tRNS chunk counts if libpng would accept it: the others are ignored by both.
static bool makes_alpha(const struct chunk *chunk, const struct conv_png_header *header,
                        uint32_t palette_size)
{
    switch (header->color_type) {
    case GRAY:
        return chunk->length == 2 && crc_is_right(chunk);
    case RGB:
        return chunk->length == 6 && crc_is_right(chunk);
    case PALETTE:
        return chunk->length > 0 && chunk->length <= palette_size && crc_is_right(chunk);
    default:
        return false;
    }
}

static struct conv_image make_shape(const struct conv_png_header *header)
{
    bool color = header->color_type & 2, alpha = header->color_type & 4 || header->transparency;
    return (struct conv_image){
        .width = header->width,
        .height = header->height,
        .channels = (color ? 3 : 1) + (alpha ? 1 : 0),
        .depth = header->bit_depth == 16 ? 16 : 8,
        .alpha = alpha,
    };
}

enum conv_status conv_png_probe(const uint8_t *data, size_t size, struct conv_png_header *header,
                                struct conv_err *err)
{
    enum conv_status status = conv_png_check_signature(data, size, err);
    if (status)
        return status;
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct chunk chunk;
    if (!next_chunk(&chunk, data, size, &at))
        return refuse_chunk(data, size, at, err);
    status = read_header(&chunk, header, err);
    if (status)
        return status;

    uint32_t palette_size = 0; // entries that the bit depth can reach
    bool trns_seen = false;
    for (;;) {
        if (!next_chunk(&chunk, data, size, &at))
            return refuse_chunk(data, size, at, err);
        if (chunk.type == IDAT)
            break;
        if (chunk.type == IEND)
            return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no image data");
        if (chunk.type == PLTE && header->color_type == PALETTE) {
            uint32_t most = 1u << header->bit_depth;
            if (chunk.length == 0 || chunk.length % 3 != 0 || chunk.length > 3 * MAX_PALETTE)
                return conv_err_set(err, CONV_ERR_FORMAT, "damaged: palette of %u bytes",
                                    (unsigned)chunk.length);
            palette_size = chunk.length / 3 < most ? chunk.length / 3 : most;
        }
        if (chunk.type == PLTE && header->color_type == RGB && chunk.length % 3 == 0 &&
            chunk.length <= 3 * MAX_PALETTE)
            header->transparency = false; // libpng cancels a tRNS chunk that comes before PLTE ...
        if (chunk.type == TRNS && !trns_seen && makes_alpha(&chunk, header, palette_size))
            header->transparency = trns_seen = true; // ... and takes the one after it for a second
    }
    if (header->color_type == PALETTE && palette_size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no palette");
    header->shape = make_shape(header);
    return CONV_OK;
}

// --- can this much image data make the image? ------------------------------------------------

// Bytes of all rows, each with its filter before it; UINT64_MAX if they are more than that.
static uint64_t filtered_size(const struct conv_png_header *header)
{
    static const int channels[] = {
        [GRAY] = 1, [RGB] = 3, [PALETTE] = 1, [GRAY_ALPHA] = 2, [RGB_ALPHA] = 4};
    static const struct {
        unsigned x, y, dx, dy;
    } passes[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                  {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}, {0, 0, 1, 1}};
    enum { INTERLACED = 7, WHOLE = 1 }; // passes; the last row of the table is the whole image
    uint64_t bits = (uint64_t)channels[header->color_type] * (uint64_t)header->bit_depth, total = 0;
    int first = header->interlaced ? 0 : INTERLACED,
        count = header->interlaced ? INTERLACED : WHOLE;
    for (int i = first; i < first + count; i++) {
        // Coordinates are below 2^31, so that nothing here leaves 64 bits but the product.
        uint64_t width = ((uint64_t)header->width + passes[i].dx - 1 - passes[i].x) / passes[i].dx;
        uint64_t height =
            ((uint64_t)header->height + passes[i].dy - 1 - passes[i].y) / passes[i].dy;
        uint64_t size;
        if (width > 0 && (__builtin_mul_overflow(height, 1 + (width * bits + 7) / 8, &size) ||
                          __builtin_add_overflow(total, size, &total)))
            return UINT64_MAX;
    }
    return total;
}

// Bytes of image data; *whole tells if the file ends with IEND or between two chunks.
static size_t data_size(const uint8_t *data, size_t size, bool *whole)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE, total = 0;
    struct chunk chunk = {0};
    while (next_chunk(&chunk, data, size, &at)) {
        if (chunk.type == IDAT)
            total += chunk.length;
        if (chunk.type == IEND)
            break;
    }
    *whole = chunk.type == IEND || at == size;
    if (!*whole && size - at >= 8 && read_u32(data + at + 4) == IDAT)
        total += size - at - 8;
    return total;
}

enum conv_status conv_png_check_size(const uint8_t *data, size_t size,
                                     const struct conv_png_header *header, struct conv_err *err)
{
    bool whole;
    size_t have = data_size(data, size, &whole);
    uint64_t filtered = filtered_size(header); // two bytes at least
    bool little = (filtered - 1) / MAX_EXPANSION >= have;
    bool much = have > MOST_DATA_ANYWAY && (have - MOST_DATA_ANYWAY) / MOST_DATA_A_BYTE > filtered;
    if (!little && !much)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_FORMAT, "%s: too %s image data (%zu B) for %d x %d pixels",
                        little && !whole ? "truncated" : "damaged", little ? "little" : "much",
                        have, header->width, header->height);
}

// --- carried chunks ------------------------------------------------------------------------------

// A PNG has one of each `single` kind. Those with a `late` place may follow the image data; the
// rest is without meaning there.
static const struct {
    uint32_t type;
    bool single, late;
} carried[] = {
    {TYPE('i', 'C', 'C', 'P'), true, false}, {TYPE('s', 'R', 'G', 'B'), true, false},
    {TYPE('g', 'A', 'M', 'A'), true, false}, {TYPE('c', 'H', 'R', 'M'), true, false},
    {TYPE('c', 'I', 'C', 'P'), true, false}, {TYPE('m', 'D', 'C', 'V'), true, false},
    {TYPE('p', 'H', 'Y', 's'), true, false}, {TYPE('o', 'F', 'F', 's'), true, false},
    {TYPE('s', 'C', 'A', 'L'), true, false}, {TYPE('s', 'T', 'E', 'R'), true, false},
    {TYPE('b', 'K', 'G', 'D'), true, false}, {TYPE('e', 'X', 'I', 'f'), true, true},
    {TYPE('t', 'E', 'X', 't'), false, true}, {TYPE('z', 'T', 'X', 't'), false, true},
    {TYPE('i', 'T', 'X', 't'), false, true},
};
enum { CARRIED_COUNT = sizeof carried / sizeof carried[0] };

static int carried_index(uint32_t type)
{
    for (int i = 0; i < CARRIED_COUNT; i++) {
        if (carried[i].type == type)
            return i;
    }
    return -1;
}

// PNG, 14.2: an editor that changes image data copies ancillary chunks that it does not know if
// their name says so, by a small fourth letter. (The third one has to be a capital.)
static bool is_safe_to_copy(uint32_t type)
{
    for (int shift = 0; shift < 32; shift += 8) {
        uint32_t letter = (type >> shift & 0xff) | 0x20;
        if (letter < 'a' || letter > 'z')
            return false;
    }
    bool ancillary = type & 0x20000000, reserved = type & 0x2000, safe = type & 0x20;
    return ancillary && !reserved && safe;
}

// What is known while a file's chunks are collected.
struct collection {
    const struct conv_png_header *header;
    struct conv_buffer *buffer;
    const uint8_t *palette;
    uint32_t palette_size; // entries
    bool seen[CARRIED_COUNT];
    bool late; // after the first IDAT
};

// Background samples in the colour type and depth of the output; their number, 0 if there is none.
static int convert_background(uint16_t samples[3], const struct chunk *chunk,
                              const struct collection *collection)
{
    const struct conv_png_header *header = collection->header;
    const uint8_t *p = chunk->data;
    if (header->color_type == PALETTE) {
        if (chunk->length != 1 || p[0] >= collection->palette_size)
            return 0;
        for (size_t c = 0; c < 3; c++)
            samples[c] = collection->palette[3 * (size_t)p[0] + c];
        return 3;
    }
    int count = header->color_type & 2 ? 3 : 1;
    unsigned most = (1u << header->bit_depth) - 1;
    if (chunk->length != 2 * (uint32_t)count)
        return 0;
    for (int c = 0; c < count; c++) {
        unsigned sample = (unsigned)(p[2 * c] << 8 | p[2 * c + 1]);
        if (sample > most)
            return 0;
        samples[c] = (uint16_t)(most < 255 ? sample * (255 / most) : sample);
    }
    return count;
}

static bool append_background(const struct chunk *chunk, struct collection *collection)
{
    uint16_t samples[3];
    uint8_t bytes[FRAME_SIZE + 2 * 3];
    int count = convert_background(samples, chunk, collection);
    size_t size = 2 * (size_t)count;
    if (count == 0)
        return true;
    write_u32(bytes, (uint32_t)size);
    write_u32(bytes + 4, chunk->type);
    for (int c = 0; c < count; c++) {
        bytes[8 + 2 * c] = (uint8_t)(samples[c] >> 8);
        bytes[9 + 2 * c] = (uint8_t)samples[c];
    }
    write_u32(bytes + 8 + size, libdeflate_crc32(0, bytes + 4, 4 + size));
    return conv_buffer_append(collection->buffer, bytes, FRAME_SIZE + size);
}

// False if there is no memory.
static bool collect_chunk(const struct chunk *chunk, struct collection *collection)
{
    int i = carried_index(chunk->type);
    if (chunk->type == PLTE && crc_is_right(chunk)) {
        collection->palette = chunk->data;
        collection->palette_size = chunk->length / 3;
    }
    if (i < 0
            ? !is_safe_to_copy(chunk->type)
            : (collection->late && !carried[i].late) || (collection->seen[i] && carried[i].single))
        return true;
    if (!crc_is_right(chunk))
        return true;
    if (i >= 0)
        collection->seen[i] = true;
    if (chunk->type == BKGD)
        return append_background(chunk, collection);
    return conv_buffer_append(collection->buffer, chunk->data - 8,
                              FRAME_SIZE + (size_t)chunk->length);
}

enum conv_status conv_png_meta_collect(const uint8_t *data, size_t size,
                                       const struct conv_png_header *header,
                                       struct conv_metadata *meta, struct conv_err *err)
{
    struct conv_buffer buffer = {.data = meta->data, .capacity = meta->capacity};
    struct collection collection = {.header = header, .buffer = &buffer};
    size_t at = CONV_PNG_SIGNATURE_SIZE, front = 0;
    struct chunk chunk;
    bool ok = true;
    while (ok && size > at && next_chunk(&chunk, data, size, &at) && chunk.type != IEND) {
        collection.late |= chunk.type == IDAT;
        ok = collect_chunk(&chunk, &collection);
        if (!collection.late)
            front = buffer.size;
    }
    *meta = (struct conv_metadata){buffer.data, buffer.size, buffer.capacity, front};
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

bool conv_png_is_animated(const uint8_t *data, size_t size)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct chunk chunk;
    while (size > at && next_chunk(&chunk, data, size, &at) && chunk.type != IEND) {
        if (chunk.type == TYPE('a', 'c', 'T', 'L') || chunk.type == TYPE('f', 'c', 'T', 'L') ||
            chunk.type == TYPE('f', 'd', 'A', 'T'))
            return true;
    }
    return false;
}
