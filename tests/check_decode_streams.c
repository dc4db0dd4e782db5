// SPDX-License-Identifier: MIT
// Streams for checking the decoder: images of all kinds, with all filters and settings of zlib, and
// damaged copies.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_codec.h"
#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/test_image.h"

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

static size_t row_bytes(const struct check_stream *stream)
{
    return (size_t)stream->width * (size_t)(stream->channels * stream->depth / 8);
}

static void choose_shape(struct conv_image *image, unsigned most)
{
    *image = (struct conv_image){.channels = 1 + (int)check_decode_random(4),
                                 .depth = check_decode_random(4) ? 8 : 16};
    unsigned pixels = 1 + most / (unsigned)image->channels;
    unsigned width = 1 + check_decode_random(1u << (1 + check_decode_random(9)));
    if (width > pixels)
        width = pixels;
    unsigned height = 1 + check_decode_random(pixels / width);
    bool turned = check_decode_random(4) == 0;
    image->width = (int)(turned ? height : width);
    image->height = (int)(turned ? width : height);
}

// Samples in the file's order.
static uint8_t *interleave(const struct conv_image *image, size_t size)
{
    uint8_t *plain = allocate(size), *to = plain;
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++)
            for (int c = 0; c < image->channels; c++) {
                unsigned sample = image_sample(image, c, x, y);
                if (image->depth == 16)
                    *to++ = (uint8_t)(sample >> 8);
                *to++ = (uint8_t)sample;
            }
    return plain;
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

// Draws the image, and returns its filtered rows and their size. From 5 on: a different filter in
// each row.
static uint8_t *draw_rows(struct check_stream *stream, struct conv_image *image,
                          enum check_kind kind, size_t *size)
{
    stream->width = image->width;
    stream->height = image->height;
    stream->channels = image->channels;
    stream->depth = image->depth;
    check_draw_image(image, kind, &state);
    size_t row = row_bytes(stream), height = (size_t)image->height;
    uint8_t *plain = interleave(image, row * height);
    uint8_t *rows = allocate(*size = height * (row + 1));
    unsigned filter = kind == CHECK_EVEN ? 0 : check_decode_random(8);
    for (size_t y = 0; y < height; y++)
        filter_row(rows + y * (row + 1), plain + y * row, y ? plain + (y - 1) * row : NULL, row,
                   row / (size_t)image->width,
                   filter < 5 ? (int)filter : (int)check_decode_random(5));
    free(plain);
    return rows;
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
    struct conv_image image;
    size_t size;
    choose_shape(&image, most);
    uint8_t *rows =
        draw_rows(&stream, &image, (enum check_kind)check_decode_random(CHECK_KINDS), &size);
    compress_rows(&stream, rows, size);
    free(rows);
    if (planes)
        *planes = image;
    else
        image_free(&image);
    return stream;
}

struct check_stream check_photo_stream(void)
{
    struct check_stream stream = {.kind = "a photograph", .result = CONV_DECODE_DECODED};
    struct conv_image image = {.width = 160,
                               .height = 120,
                               .channels = 1 + (int)check_decode_random(4),
                               .depth = check_decode_random(4) ? 8 : 16};
    size_t size;
    uint8_t *rows = draw_rows(&stream, &image, CHECK_PHOTO, &size);
    uLongf room = compressBound((uLong)size);
    stream.bytes = allocate(room);
    if (compress2(stream.bytes, &room, rows, (uLong)size, 1 + (int)check_decode_random(9)) != Z_OK)
        abort();
    stream.size = room;
    image_free(&image);
    free(rows);
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
