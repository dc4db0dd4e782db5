// SPDX-License-Identifier: MIT
// The list of other libraries, and those that decode PNG: the one file that includes stb_image and
// libspng. `static` keeps stb's names out of the program.
#include "bench/bench_competitor.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "png/cpu/interleave.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
// Without a matching pop: the compiler reports unused functions at the end of the file.
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>

#if CONV_HAVE_SPNG
#include <spng.h>
#endif

// stb allocates the pixels itself: its buffer replaces the previous one.
static enum conv_status decode_stb(struct conv_buffer *pixels, const uint8_t *data, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err)
{
    int width, height, channels;
    if (header->shape.depth != 8 || size > INT_MAX)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "measured with 8 bits only");
    uint8_t *made =
        stbi_load_from_memory(data, (int)size, &width, &height, &channels, header->shape.channels);
    if (!made)
        return conv_err_set(err, CONV_ERR_FORMAT, "%s", stbi_failure_reason());
    conv_buffer_free(pixels);
    pixels->data = made;
    pixels->size = pixels->capacity =
        conv_interleave_bytes(&header->shape) * (size_t)header->shape.height;
    return CONV_OK;
}

static const struct conv_competitor competitor_stb = {
    .name = "stb",
    .summary = "stb_image",
    .decode = decode_stb,
};

#if CONV_HAVE_SPNG
static enum conv_status decode_spng(struct conv_buffer *pixels, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header, struct conv_err *err)
{
    static const int formats[] = {0, SPNG_FMT_G8, SPNG_FMT_GA8, SPNG_FMT_RGB8, SPNG_FMT_RGBA8};
    const struct conv_image *shape = &header->shape;
    if (shape->depth != 8 || (shape->channels <= 2 && header->png.color_type != 0))
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "not measured for this kind of image");
    pixels->size = conv_interleave_bytes(shape) * (size_t)header->shape.height;
    if (!conv_buffer_reserve(pixels, pixels->size))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    spng_ctx *spng = spng_ctx_new(0);
    if (!spng)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    int failed = spng_set_png_buffer(spng, data, size);
    if (!failed)
        failed = spng_decode_image(spng, pixels->data, pixels->size, formats[shape->channels],
                                   header->png.transparency ? SPNG_DECODE_TRNS : 0);
    spng_ctx_free(spng);
    return failed ? conv_err_set(err, CONV_ERR_FORMAT, "%s", spng_strerror(failed)) : CONV_OK;
}

static const struct conv_competitor competitor_spng = {
    .name = "libspng",
    .summary = "libspng",
    .decode = decode_spng,
};
#endif

const struct conv_competitor *const *conv_competitors(int *count)
{
    static const struct conv_competitor *const competitors[] = {
#if CONV_HAVE_NPP
        &conv_competitor_npp,
        &conv_competitor_npp_passes,
#endif
        &competitor_stb,
#if CONV_HAVE_SPNG
        &competitor_spng,
#endif
    };
    *count = sizeof competitors / sizeof competitors[0];
    return competitors;
}
