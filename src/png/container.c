// SPDX-License-Identifier: MIT
// The header of a PNG, and whether its image data can be enough. Nothing is decompressed here, and
// lengths are checked against the file's size.
#include "png/chunk.h"

#include <libdeflate.h>
#include <string.h>

#define MAX_PALETTE 256

// Upper bound of the image data per byte of filtered rows. Rows of two bytes that are flushed one
// by one take about 12 per row; more than that can only be empty blocks, which cost time and
// produce no pixels. The bound applies beyond the first MiB.
#define MOST_DATA_PER_BYTE 16
#define MOST_DATA_UNCHECKED ((size_t)1 << 20)

static const uint8_t signature[CONV_PNG_SIGNATURE_SIZE] = {0x89, 'P',  'N',  'G',
                                                           '\r', '\n', 0x1a, '\n'};

enum conv_status conv_png_check_head(const uint8_t *data, size_t size, struct conv_err *err)
{
    if (size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "empty file");
    if (memcmp(data, signature, size < CONV_PNG_SIGNATURE_SIZE ? size : CONV_PNG_SIGNATURE_SIZE) !=
        0)
        return conv_format_refuse("PNG", data, size, err);
    if (size < CONV_PNG_SIGNATURE_SIZE)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the signature");
    return CONV_OK;
}

bool conv_chunk_crc_is_right(const struct conv_chunk *chunk)
{
    uint32_t crc = libdeflate_crc32(0, chunk->data - 4, (size_t)chunk->length + 4);
    return crc == conv_chunk_read_u32(chunk->data + chunk->length);
}

// Reports why there is no complete chunk at `at`.
static enum conv_status refuse_chunk(const uint8_t *data, size_t size, size_t at,
                                     struct conv_err *err)
{
    if (at == size)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends before the image data");
    if (size - at >= 4 && conv_chunk_read_u32(data + at) > CONV_CHUNK_MAX_FIELD)
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: impossible chunk length at byte %zu",
                            at);
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "truncated: ends inside the chunk that starts at byte %zu", at);
}

static bool depth_is_valid(int color_type, int depth)
{
    // Depths are powers of two: a set of them is their sum.
    static const int allowed[] = {
        [CONV_COLOR_GRAY] = 1 + 2 + 4 + 8 + 16, [CONV_COLOR_RGB] = 8 + 16,
        [CONV_COLOR_PALETTE] = 1 + 2 + 4 + 8,   [CONV_COLOR_GRAY_ALPHA] = 8 + 16,
        [CONV_COLOR_RGB_ALPHA] = 8 + 16,
    };
    bool known = color_type < (int)(sizeof allowed / sizeof allowed[0]);
    bool single = depth != 0 && (depth & (depth - 1)) == 0;
    return known && single && (depth & allowed[color_type]) != 0;
}

static enum conv_status read_header(const struct conv_chunk *chunk,
                                    struct conv_image_header *header, struct conv_err *err)
{
    const uint8_t *p = chunk->data;
    if (chunk->type != CONV_CHUNK_IHDR)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: the first chunk is not IHDR");
    if (chunk->length != 13)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %u bytes instead of 13",
                            (unsigned)chunk->length);
    if (!conv_chunk_crc_is_right(chunk))
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: wrong CRC");
    uint32_t width = conv_chunk_read_u32(p), height = conv_chunk_read_u32(p + 4);
    if (width == 0 || height == 0 || width > CONV_CHUNK_MAX_FIELD || height > CONV_CHUNK_MAX_FIELD)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %u x %u pixels", (unsigned)width,
                            (unsigned)height);
    if (!depth_is_valid(p[9], p[8]))
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: colour type %d with %d bits", p[9],
                            p[8]);
    if (p[10] != 0 || p[11] != 0 || p[12] > 1)
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "bad header: unknown method (compression %d, filter %d, interlace %d)",
                            p[10], p[11], p[12]);
    *header = (struct conv_image_header){
        .shape = {.width = (int)width, .height = (int)height},
        .png = {.bit_depth = p[8], .color_type = p[9], .interlaced = p[12] == 1},
    };
    return CONV_OK;
}

// True if libpng would accept the tRNS chunk; otherwise it is ignored here as well.
static bool makes_alpha(const struct conv_chunk *chunk, const struct conv_image_header *header,
                        uint32_t palette_size)
{
    switch (header->png.color_type) {
    case CONV_COLOR_GRAY:
        return chunk->length == 2 && conv_chunk_crc_is_right(chunk);
    case CONV_COLOR_RGB:
        return chunk->length == 6 && conv_chunk_crc_is_right(chunk);
    case CONV_COLOR_PALETTE:
        return chunk->length > 0 && chunk->length <= palette_size && conv_chunk_crc_is_right(chunk);
    default:
        return false;
    }
}

static void complete_header(struct conv_image_header *header)
{
    bool color = header->png.color_type & 2;
    bool alpha = header->png.color_type & 4 || header->png.transparency;
    header->shape.channels = (color ? 3 : 1) + (alpha ? 1 : 0);
    header->shape.depth = header->png.bit_depth == 16 ? 16 : 8;
    header->shape.alpha = alpha;
    header->device_stream = !header->png.interlaced && !header->png.transparency &&
                            header->png.bit_depth >= 8 && !(header->png.color_type & 1);
}

enum conv_status conv_png_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                struct conv_err *err)
{
    enum conv_status status = conv_png_check_head(data, size, err);
    if (status)
        return status;
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    if (!conv_chunk_next(&chunk, data, size, &at))
        return refuse_chunk(data, size, at, err);
    status = read_header(&chunk, header, err);
    if (status)
        return status;

    uint32_t palette_size = 0; // entries that the bit depth can reach
    bool trns_seen = false, space_seen = false;
    for (;;) {
        if (!conv_chunk_next(&chunk, data, size, &at))
            return refuse_chunk(data, size, at, err);
        if (chunk.type == CONV_CHUNK_IDAT)
            break;
        if (chunk.type == CONV_CHUNK_IEND)
            return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no image data");
        if (chunk.type == CONV_CHUNK_PLTE && header->png.color_type == CONV_COLOR_PALETTE) {
            uint32_t most = 1u << header->png.bit_depth;
            if (chunk.length == 0 || chunk.length % 3 != 0 || chunk.length > 3 * MAX_PALETTE)
                return conv_err_set(err, CONV_ERR_FORMAT, "damaged: palette of %u bytes",
                                    (unsigned)chunk.length);
            palette_size = chunk.length / 3 < most ? chunk.length / 3 : most;
        }
        if (chunk.type == CONV_CHUNK_PLTE && header->png.color_type == CONV_COLOR_RGB &&
            chunk.length % 3 == 0 && chunk.length <= 3 * MAX_PALETTE)
            header->png.transparency =
                false; // libpng cancels a tRNS chunk that comes before PLTE ...
        if (chunk.type == CONV_CHUNK_TYPE('g', 'A', 'M', 'A') && chunk.length == 4 &&
            conv_chunk_crc_is_right(&chunk))
            header->gamma = conv_chunk_read_u32(chunk.data);
        space_seen |= chunk.type == CONV_CHUNK_TYPE('s', 'R', 'G', 'B') ||
                      chunk.type == CONV_CHUNK_TYPE('i', 'C', 'C', 'P') ||
                      chunk.type == CONV_CHUNK_TYPE('c', 'I', 'C', 'P');
        if (chunk.type == CONV_CHUNK_TRNS && !trns_seen &&
            makes_alpha(&chunk, header, palette_size))
            header->png.transparency = trns_seen = true; // ... and ignores one after it as a second
    }
    if (header->png.color_type == CONV_COLOR_PALETTE && palette_size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no palette");
    if (space_seen)
        header->gamma = 0;
    complete_header(header);
    return CONV_OK;
}

// --- the amount of image data --------------------------------------------------------------------

// Bytes of all rows, each with its filter byte; UINT64_MAX on overflow.
static uint64_t filtered_size(const struct conv_image_header *header)
{
    static const struct {
        unsigned x, y, dx, dy;
    } passes[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                  {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}, {0, 0, 1, 1}};
    enum { INTERLACED = 7, WHOLE = 1 }; // passes; the last row of the table is the whole image
    uint64_t bits = (uint64_t)conv_chunk_channels(header->png.color_type) *
                    (uint64_t)header->png.bit_depth,
             total = 0;
    int first = header->png.interlaced ? 0 : INTERLACED,
        count = header->png.interlaced ? INTERLACED : WHOLE;
    for (int i = first; i < first + count; i++) {
        // Coordinates are below 2^31: only the product and the sum can overflow.
        uint64_t width =
            ((uint64_t)header->shape.width + passes[i].dx - 1 - passes[i].x) / passes[i].dx;
        uint64_t height =
            ((uint64_t)header->shape.height + passes[i].dy - 1 - passes[i].y) / passes[i].dy;
        uint64_t size;
        if (width > 0 && (__builtin_mul_overflow(height, 1 + (width * bits + 7) / 8, &size) ||
                          __builtin_add_overflow(total, size, &total)))
            return UINT64_MAX;
    }
    return total;
}

// Returns the bytes of image data. *whole: the file ends with IEND or between two chunks.
static size_t data_size(const uint8_t *data, size_t size, bool *whole)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE, total = 0;
    struct conv_chunk chunk = {0};
    while (conv_chunk_next(&chunk, data, size, &at)) {
        if (chunk.type == CONV_CHUNK_IDAT)
            total += chunk.length;
        if (chunk.type == CONV_CHUNK_IEND)
            break;
    }
    *whole = chunk.type == CONV_CHUNK_IEND || at == size;
    if (!*whole && size - at >= 8 && conv_chunk_read_u32(data + at + 4) == CONV_CHUNK_IDAT)
        total += size - at - 8;
    return total;
}

enum conv_status conv_png_check_size(const uint8_t *data, size_t size,
                                     const struct conv_image_header *header, struct conv_err *err)
{
    bool whole;
    size_t have = data_size(data, size, &whole);
    uint64_t filtered = filtered_size(header); // two bytes at least
    bool little = (filtered - 1) / CONV_CHUNK_MAX_EXPANSION >= have;
    bool much =
        have > MOST_DATA_UNCHECKED && (have - MOST_DATA_UNCHECKED) / MOST_DATA_PER_BYTE > filtered;
    if (!little && !much)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_FORMAT, "%s: too %s image data (%zu B) for %d x %d pixels",
                        little && !whole ? "truncated" : "damaged", little ? "little" : "much",
                        have, header->shape.width, header->shape.height);
}

size_t conv_png_end(const uint8_t *data, size_t size)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    while (conv_chunk_next(&chunk, data, size, &at))
        if (chunk.type == CONV_CHUNK_IEND)
            return at;
    return size;
}

// A valid acTL, whose first number is that of the frames, comes before the image data. In any other
// file the chunks of APNG mean nothing, and programs show a still image.
bool conv_png_is_animated(const uint8_t *data, size_t size)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    while (size > at && conv_chunk_next(&chunk, data, size, &at) && chunk.type != CONV_CHUNK_IDAT &&
           chunk.type != CONV_CHUNK_IEND) {
        if (chunk.type == CONV_CHUNK_TYPE('a', 'c', 'T', 'L') && chunk.length == 8 &&
            conv_chunk_crc_is_right(&chunk)) {
            uint32_t frames = conv_chunk_read_u32(chunk.data);
            return frames > 1 && frames <= CONV_CHUNK_MAX_FIELD;
        }
    }
    return false;
}
