// SPDX-License-Identifier: MIT
#include "kernels/alpha.h"

typedef uint32_t (*scale_fn)(uint32_t colour, uint32_t alpha, uint32_t max);

// max is odd, so there are no ties here.
static inline uint32_t multiply(uint32_t colour, uint32_t alpha, uint32_t max)
{
    return (colour * alpha + max / 2) / max;
}

// At most 65535^2 + 32767 < 2^32.
static inline uint32_t divide(uint32_t colour, uint32_t alpha, uint32_t max)
{
    if (alpha == 0)
        return 0;
    uint32_t value = (colour * max + alpha / 2) / alpha;
    return value < max ? value : max;
}

static inline void scale_row8(uint8_t *colour, const uint8_t *alpha, int width, scale_fn scale)
{
    for (int x = 0; x < width; x++)
        colour[x] = (uint8_t)scale(colour[x], alpha[x], 255);
}

static inline void scale_row16(uint16_t *colour, const uint16_t *alpha, int width, scale_fn scale)
{
    for (int x = 0; x < width; x++)
        colour[x] = (uint16_t)scale(colour[x], alpha[x], 65535);
}

// Inlined into its two callers, where `scale` is a constant.
static inline void scale_colours(const struct conv_image *image, scale_fn scale)
{
    if (!image->alpha)
        return;
    const struct conv_plane *alpha = &image->plane[image->channels - 1];
    for (int c = 0; c < image->channels - 1; c++) {
        for (int y = 0; y < image->height; y++) {
            uint8_t *colour_row = image->plane[c].data + y * image->plane[c].stride;
            const uint8_t *alpha_row = alpha->data + y * alpha->stride;
            if (image->depth == 16)
                scale_row16((uint16_t *)(void *)colour_row,
                            (const uint16_t *)(const void *)alpha_row, image->width, scale);
            else
                scale_row8(colour_row, alpha_row, image->width, scale);
        }
    }
}

void conv_alpha_multiply(const struct conv_image *image)
{
    scale_colours(image, multiply);
}

void conv_alpha_divide(const struct conv_image *image)
{
    scale_colours(image, divide);
}
