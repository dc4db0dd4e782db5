// SPDX-License-Identifier: MIT
// A chunk of the encoder of src/png/cuda/ against zlib and libpng.
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_codec.h"
#include "png/cuda/cuda_encode.h"
#include "support/png_make.h"

#define CHUNK_FRAME 12

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

size_t check_scanline_bytes(const struct conv_image *image)
{
    size_t row = (size_t)image->width * (size_t)(image->channels * (image->depth / 8)) + 1;
    return row * (size_t)image->height;
}

// By zlib the stream ends with its last byte and has all scanlines and no more.
static const char *inflate_all(const struct conv_image *image, const uint8_t *data, size_t size)
{
    size_t all = check_scanline_bytes(image);
    uint8_t *scanlines = malloc(all + 1);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size,
                       .next_out = scanlines,
                       .avail_out = (uInt)all + 1};
    const char *wrong = NULL;
    if (!scanlines || inflateInit(&stream) != Z_OK)
        wrong = "no memory to inflate";
    else if (inflate(&stream, Z_FINISH) != Z_STREAM_END)
        wrong = stream.msg ? stream.msg : "the zlib stream has no end";
    else if (stream.avail_in != 0)
        wrong = "bytes behind the zlib stream";
    else if (stream.total_out != all)
        wrong = "not as many scanlines as the image has";
    inflateEnd(&stream);
    free(scanlines);
    return wrong;
}

static const char *check_chunk(const struct conv_image *image, const uint8_t *chunk, size_t size)
{
    if (size < CHUNK_FRAME + 6 ||
        size > conv_cuda_encode_bound(image->width, image->height, image->channels, image->depth))
        return "a size out of bounds";
    if (get_u32(chunk) != size - CHUNK_FRAME)
        return "the chunk's length is not its data's";
    if (memcmp(chunk + 4, "IDAT\x78\x01", 6) != 0)
        return "no IDAT with a zlib stream";
    if (get_u32(chunk + size - 4) != crc32(0, chunk + 4, (uInt)size - 8))
        return "wrong CRC";
    return inflate_all(image, chunk + 8, size - CHUNK_FRAME);
}

struct reader {
    const struct png_file *file;
    size_t at;
};

static void read_bytes(png_structp png, png_bytep data, png_size_t size)
{
    struct reader *reader = png_get_io_ptr(png);
    if (size > reader->file->size - reader->at)
        png_error(png, "truncated");
    memcpy(data, reader->file->data + reader->at, size);
    reader->at += size;
}

static void note_message(png_structp png, png_const_charp message)
{
    snprintf(png_get_error_ptr(png), 80, "libpng: %s", message);
    png_longjmp(png, 1);
}

// True if `row` of pixels as in the file is row y of the image.
static bool same_row(const struct conv_image *image, int y, const uint8_t *row)
{
    for (int x = 0; x < image->width; x++)
        for (int c = 0; c < image->channels; c++) {
            const uint8_t *p = image->plane[c].data + y * image->plane[c].stride;
            uint16_t wide;
            if (image->depth == 8) {
                if (*row++ != p[x])
                    return false;
                continue;
            }
            memcpy(&wide, p + 2 * x, sizeof wide);
            if ((row[0] << 8 | row[1]) != wide)
                return false;
            row += 2;
        }
    return true;
}

// libpng, whose warnings count as errors, decodes every sample. *message is its error.
static bool same_pixels(const struct conv_image *image, const struct png_file *file, char *message)
{
    struct reader reader = {file, 0};
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, message, note_message, note_message);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    uint8_t *row = malloc(check_scanline_bytes(image));
    volatile bool ok = false;
    if (info && row && !setjmp(png_jmpbuf(png))) {
        png_set_read_fn(png, &reader, read_bytes);
        png_read_info(png, info);
        ok = true;
        for (int y = 0; y < image->height && ok; y++) {
            png_read_row(png, row, NULL);
            ok = same_row(image, y, row);
            if (!ok)
                snprintf(message, 80, "row %d is another", y);
        }
        if (ok) // after a wrong row libpng would report an error about the rest
            png_read_end(png, NULL);
    } else {
        ok = false;
    }
    png_destroy_read_struct(&png, &info, NULL);
    free(row);
    return ok;
}

bool check_encode_chunk(const struct conv_image *image, const uint8_t *chunk, size_t size,
                        char message[80])
{
    static const int color_types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                      PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA};
    const char *wrong = check_chunk(image, chunk, size);
    if (wrong) {
        snprintf(message, 80, "%s", wrong);
        return false;
    }
    struct png_file file = {0};
    png_make_head(&file, image->width, image->height, image->depth, color_types[image->channels]);
    png_make_bytes(&file, chunk, size);
    png_make_chunk(&file, "IEND", "", 0);
    bool ok = same_pixels(image, &file, message);
    png_make_free(&file);
    return ok;
}
