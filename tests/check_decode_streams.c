// SPDX-License-Identifier: MIT
// Streams for checking the decoder: images of all kinds, with all filters and settings of zlib, and
// damaged copies.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/png_predict.h"
#include "support/random.h"

#define MOST_HEAD 400 // bytes of zlib's head, of a block's head, and of the Adler-32
#ifndef CHECK_BLOCKS
#define CHECK_BLOCKS SIZE_MAX // about as many a stream has at most
#endif

static uint64_t state;

void check_decode_seed(uint64_t seed)
{
    state = seed;
}

unsigned check_decode_random(unsigned below)
{
    return random_below(&state, below);
}

static uint8_t *allocate(size_t size)
{
    uint8_t *memory = malloc(size ? size : 1);
    if (!memory)
        abort();
    return memory;
}

// --- images ------------------------------------------------------------------------------------

static size_t pixel_bytes(const struct check_stream *stream)
{
    return (size_t)stream->channels * (size_t)stream->depth / 8;
}

static size_t row_bytes(const struct check_stream *stream)
{
    return (size_t)stream->width * pixel_bytes(stream);
}

static void choose_shape(struct check_stream *stream, unsigned most)
{
    stream->channels = 1 + (int)check_decode_random(4);
    stream->depth = check_decode_random(4) ? 8 : 16;
    unsigned pixels = 1 + most / (unsigned)stream->channels;
    unsigned width = 1 + check_decode_random(1u << (1 + check_decode_random(9)));
    if (width > pixels)
        width = pixels;
    unsigned height = 1 + check_decode_random(pixels / width);
    bool turned = check_decode_random(4) == 0;
    stream->width = (int)(turned ? height : width);
    stream->height = (int)(turned ? width : height);
}

enum content { NOISE, FLAT, GRADIENT, PHOTOGRAPH, TILES, EVEN, RARE, CONTENTS };

// Bytes of the plain rows, in the file's order.
static void draw(uint8_t *bytes, size_t size, size_t row, enum content content)
{
    uint8_t flat = (uint8_t)check_decode_random(256), tile[16];
    for (int i = 0; i < 16; i++)
        tile[i] = (uint8_t)check_decode_random(256);
    unsigned grain = 1 + check_decode_random(12);
    for (size_t i = 0; i < size; i++) {
        size_t x = i % row, y = i / row;
        switch (content) {
        case NOISE:
            bytes[i] = (uint8_t)check_decode_random(256);
            break;
        case FLAT:
            bytes[i] = flat;
            break;
        case GRADIENT:
            bytes[i] = (uint8_t)(x / 5 + 3 * y);
            break;
        case PHOTOGRAPH:
            bytes[i] =
                (uint8_t)(x / 3 + y + check_decode_random(grain) + check_decode_random(grain));
            break;
        case TILES:
            bytes[i] = tile[(x / 7 + y / 5) % 16];
            break;
        case EVEN: // almost all codewords have 7 bits: a decoder at a wrong start does not
                   // synchronise
            bytes[i] = (uint8_t)check_decode_random(127);
            break;
        default: // codewords of all lengths, up to the longest
            bytes[i] = (uint8_t)(__builtin_ctz(check_decode_random(1u << 16) | 1u << 15) * 16 +
                                 (int)check_decode_random(2));
        }
    }
}

static void filter_row(uint8_t *to, const uint8_t *row, const uint8_t *above, size_t size,
                       size_t pixel, int filter)
{
    *to++ = (uint8_t)filter;
    for (size_t i = 0; i < size; i++) {
        int a = i >= pixel ? row[i - pixel] : 0, b = above ? above[i] : 0;
        int c = above && i >= pixel ? above[i - pixel] : 0;
        to[i] = (uint8_t)(row[i] - png_predict(filter, a, b, c));
    }
}

static uint8_t *filter_rows(const struct check_stream *stream, const uint8_t *plain,
                            enum content content)
{
    size_t row = row_bytes(stream), height = (size_t)stream->height;
    uint8_t *rows = allocate(height * (row + 1));
    // From 5 on: a different filter in each row.
    unsigned filter = content == EVEN ? 0 : check_decode_random(8);
    for (size_t y = 0; y < height; y++)
        filter_row(rows + y * (row + 1), plain + y * row, y ? plain + (y - 1) * row : NULL, row,
                   pixel_bytes(stream), filter < 5 ? (int)filter : (int)check_decode_random(5));
    return rows;
}

static void split_planes(struct conv_image *planes, const struct check_stream *stream,
                         const uint8_t *plain)
{
    size_t sample = (size_t)stream->depth / 8, channels = (size_t)stream->channels;
    check_alloc_planes(planes, stream);
    for (int y = 0; y < stream->height; y++)
        for (size_t i = 0; i < (size_t)stream->width * channels; i++) {
            const struct conv_plane *plane = &planes->plane[i % channels];
            uint8_t *to = plane->data + y * plane->stride + i / channels * sample;
            if (sample == 1) {
                *to = *plain++;
            } else {
                uint16_t value = (uint16_t)(plain[0] << 8 | plain[1]);
                memcpy(to, &value, sizeof value);
                plain += 2;
            }
        }
}

// --- zlib ----------------------------------------------------------------------------------------

static void compress_rows(struct check_stream *stream, const uint8_t *rows, size_t size)
{
    static const int flushes[] = {Z_NO_FLUSH, Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_BLOCK};
    z_stream z = {0};
    int level = (int)check_decode_random(10), strategy = (int)check_decode_random(5);
    int window = check_decode_random(4) ? 15 : 9 + (int)check_decode_random(7);
    int memory = 1 + (int)check_decode_random(9);
    while (memory < 9 && size >> (memory + 6) > CHECK_BLOCKS) // a block has as many symbols
        memory++;
    if (deflateInit2(&z, level, Z_DEFLATED, window, memory, strategy) != Z_OK)
        abort();
    // Parts with flushes between them: blocks of all sizes down to empty ones.
    size_t piece = check_decode_random(3) ? size : 1 + check_decode_random((unsigned)size);
    if (size / piece > CHECK_BLOCKS)
        piece = size / CHECK_BLOCKS;
    int flush = check_decode_random(2) ? flushes[check_decode_random(5)] : -1;
    size_t room = 2 * size + 16 * (size / piece + 1) + MOST_HEAD;
    stream->bytes = allocate(room);
    z.next_in = (uint8_t *)(uintptr_t)rows;
    z.next_out = stream->bytes;
    z.avail_out = (uInt)room;
    for (size_t left = size, now; left > 0; left -= now) {
        now = left < piece ? left : piece;
        z.avail_in = (uInt)now;
        if (deflate(&z, flush < 0 ? flushes[check_decode_random(5)] : flush) == Z_STREAM_ERROR ||
            z.avail_in > 0)
            abort();
    }
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    stream->size = z.total_out;
    deflateEnd(&z);
}

struct check_stream check_make_stream(unsigned most, struct conv_image *planes)
{
    struct check_stream stream = {.kind = "good", .result = CHECK_ANY_RESULT};
    choose_shape(&stream, most);
    size_t row = row_bytes(&stream), size = row * (size_t)stream.height;
    uint8_t *plain = allocate(size);
    enum content content = (enum content)check_decode_random(CONTENTS);
    draw(plain, size, row, content);
    uint8_t *rows = filter_rows(&stream, plain, content);
    compress_rows(&stream, rows, size + (size_t)stream.height);
    if (planes)
        split_planes(planes, &stream, plain);
    free(rows);
    free(plain);
    return stream;
}

#define PHOTO_WIDTH 160
#define PHOTO_HEIGHT 120

struct check_stream check_photo_stream(void)
{
    struct check_stream stream = {
        .width = PHOTO_WIDTH,
        .height = PHOTO_HEIGHT,
        .channels = 1 + (int)check_decode_random(4),
        .depth = check_decode_random(4) ? 8 : 16,
        .kind = "a photograph",
        .result = CONV_DECODE_DECODED,
    };
    size_t row = row_bytes(&stream), size = row * (size_t)stream.height;
    uint8_t *plain = allocate(size);
    draw(plain, size, row, PHOTOGRAPH);
    uint8_t *rows = filter_rows(&stream, plain, PHOTOGRAPH);
    uLongf room = compressBound((uLong)(size + (size_t)stream.height));
    stream.bytes = allocate(room);
    if (compress2(stream.bytes, &room, rows, (uLong)(size + (size_t)stream.height),
                  1 + (int)check_decode_random(9)) != Z_OK)
        abort();
    stream.size = room;
    free(rows);
    free(plain);
    return stream;
}

// --- damages -------------------------------------------------------------------------------------

struct check_stream check_cut_stream(const struct check_stream *stream, size_t size)
{
    struct check_stream cut = *stream;
    cut.kind = "cut";
    cut.size = size;
    cut.bytes = allocate(size);
    memcpy(cut.bytes, stream->bytes, size);
    return cut;
}

// If the stream still has the right size, its Adler-32 is corrected, so that not all damages are
// found by it.
static void repair_adler(struct check_stream *stream)
{
    size_t size = (row_bytes(stream) + 1) * (size_t)stream->height;
    uint8_t *rows = allocate(size);
    z_stream z = {.next_in = stream->bytes + 2,
                  .avail_in = (uInt)stream->size - 2,
                  .next_out = rows,
                  .avail_out = (uInt)size};
    if (stream->size >= 6 && inflateInit2(&z, -15) == Z_OK) {
        if (inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0 && z.avail_in == 4) {
            uLong sum = adler32(1, rows, (uInt)size);
            for (int i = 0; i < 4; i++)
                stream->bytes[stream->size - 4 + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        }
        inflateEnd(&z);
    }
    free(rows);
}

struct check_stream check_damage_stream(const struct check_stream *stream)
{
    struct check_stream made = check_cut_stream(stream, stream->size);
    unsigned size = (unsigned)made.size, flips = 1 + check_decode_random(3);
    switch (check_decode_random(8)) {
    case 0:
        made.kind = "another byte";
        made.bytes[check_decode_random(size)] = (uint8_t)check_decode_random(256);
        break;
    case 1: // a row more than there are
        made.kind = "too short";
        made.height++;
        break;
    case 2:
        made.kind = "too long";
        made.height -= made.height > 1;
        break;
    case 3: // where the headers of blocks are
        made.kind = "another head";
        made.bytes[check_decode_random(size < 40 ? size : 40)] ^=
            (uint8_t)(1u << check_decode_random(8));
        break;
    case 4:
        made.kind = "noise behind the head";
        for (unsigned i = 2 + check_decode_random(size - 1); i < size; i++)
            made.bytes[i] = (uint8_t)check_decode_random(256);
        break;
    default:
        made.kind = "flipped bits";
        for (; flips > 0; flips--)
            made.bytes[check_decode_random(size)] ^= (uint8_t)(1u << check_decode_random(8));
    }
    if (check_decode_random(4))
        repair_adler(&made);
    return made;
}
