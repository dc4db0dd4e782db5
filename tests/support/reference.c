// SPDX-License-Identifier: MIT
#include "support/reference.h"

#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BLOCK ((size_t)1 << 26) // more than any file of the tests needs

struct source {
    const uint8_t *at, *end;
    size_t limit;
    bool pixels_only, damaged, too_large;
    png_bytep *row_pointers;
};

// libpng takes as much memory as an ancillary chunk claims to hold.
static png_voidp allocate(png_structp png, png_alloc_size_t size)
{
    (void)png;
    return size > MOST_BLOCK ? NULL : malloc(size);
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void on_error(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

// libpng only warns if the zlib stream is damaged after the last row. Its other warnings about IDAT
// say that there is more of it than the image needs.
static void on_warning(png_structp png, png_const_charp message)
{
    struct source *source = png_get_error_ptr(png);
    if (strncmp(message, "IDAT: ", 6) == 0 && !strstr(message, "Too many IDATs") &&
        !strstr(message, "Too much image data") && !strstr(message, "Extra compressed data"))
        source->damaged = true;
}

static void read_bytes(png_structp png, png_bytep bytes, size_t size)
{
    struct source *source = png_get_io_ptr(png);
    if (size > (size_t)(source->end - source->at))
        png_error(png, "no more bytes");
    memcpy(bytes, source->at, size);
    source->at += size;
}

static void read_image(png_structp png, png_infop info, struct source *source,
                       struct reference_image *image)
{
    png_set_read_fn(png, source, read_bytes);
    if (source->pixels_only)
        png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_read_info(png, info);
    size_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    source->too_large = width > source->limit / height;
    if (source->too_large)
        png_error(png, "too large");
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, info, PNG_INFO_tRNS))
        png_set_tRNS_to_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    image->width = (int)width;
    image->height = (int)height;
    image->channels = png_get_channels(png, info);
    image->depth = png_get_bit_depth(png, info);
    image->row_size = png_get_rowbytes(png, info);
    image->rows = calloc(height, image->row_size);
    source->row_pointers = calloc(height, sizeof *source->row_pointers);
    if (!image->rows || !source->row_pointers)
        abort();
    for (size_t y = 0; y < height; y++)
        source->row_pointers[y] = image->rows + y * image->row_size;
    png_read_image(png, source->row_pointers);
    png_read_end(png, info);
}

// A function of its own, so that the jump loses no local variable.
static bool read_guarded(png_structp png, png_infop info, struct source *source,
                         struct reference_image *image)
{
    if (setjmp(png_jmpbuf(png)))
        return false;
    read_image(png, info, source, image);
    return true;
}

static enum reference_verdict read_from(struct source *source, struct reference_image *image)
{
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, source, on_error, on_warning,
                                               NULL, allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info)
        abort();
    *image = (struct reference_image){0};
    bool taken = read_guarded(png, info, source, image);
    png_destroy_read_struct(&png, &info, NULL);
    free(source->row_pointers);
    if (!taken) {
        free(image->rows);
        image->rows = NULL;
        return source->too_large ? REFERENCE_TOO_LARGE : REFERENCE_REFUSES;
    }
    return source->damaged ? REFERENCE_WARNS : REFERENCE_TAKES;
}

enum reference_verdict reference_read(struct reference_image *image, const uint8_t *data,
                                      size_t size, size_t limit)
{
    struct source source = {.at = data, .end = data + size, .limit = limit};
    return read_from(&source, image);
}

bool reference_read_pixels(struct reference_image *image, const uint8_t *data, size_t size)
{
    struct source source = {.at = data, .end = data + size, .limit = SIZE_MAX, .pixels_only = true};
    return read_from(&source, image) >= REFERENCE_WARNS;
}
