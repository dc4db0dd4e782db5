// SPDX-License-Identifier: MIT
#include "support/png_cost.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <png.h>

#define ALWAYS_NS 1000.0
#define REFUSED_NS 25000.0
#define REFUSED_NS_PER_BYTE 0.5

double png_cost_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

double png_cost_allowed_ns(bool good, size_t size)
{
    return ALWAYS_NS + (good ? 0 : REFUSED_NS + REFUSED_NS_PER_BYTE * (double)size);
}

struct source {
    const uint8_t *at, *end;
};

static void take_bytes(png_structp png, png_bytep bytes, size_t size)
{
    struct source *source = png_get_io_ptr(png);
    if (size > (size_t)(source->end - source->at))
        png_error(png, "truncated");
    memcpy(bytes, source->at, size);
    source->at += size;
}

static void leave(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_by_libpng(png_structp png, png_infop info, struct source *source, png_bytepp rows)
{
    png_set_read_fn(png, source, take_bytes);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_read_info(png, info);
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    else if (png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, info, PNG_INFO_tRNS))
        png_set_tRNS_to_alpha(png);
    png_read_image(png, rows);
    png_read_end(png, info);
}

static bool read_guarded(png_structp png, png_infop info, struct source *source, png_bytepp rows)
{
    if (setjmp(png_jmpbuf(png)))
        return false;
    read_by_libpng(png, info, source, rows);
    return true;
}

bool png_cost_libpng(const uint8_t *data, size_t size, uint8_t **rows)
{
    struct source source = {data, data + size};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, leave, ignore);
    png_infop info = png_create_info_struct(png);
    if (!info)
        abort();
    bool good = read_guarded(png, info, &source, rows);
    png_destroy_read_struct(&png, &info, NULL);
    return good;
}
