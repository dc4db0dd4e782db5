// SPDX-License-Identifier: MIT
// Premultiplied alpha on the CPU.
#include "kernels/stencil/alpha.h"

#include <stdbool.h>
#include <string.h>

typedef uint32_t (*scale_fn)(uint32_t colour, uint32_t alpha, uint32_t max);

static uint32_t renew(uint32_t colour, uint32_t alpha, uint32_t max)
{
    return conv_alpha_multiply_sample(conv_alpha_divide_sample(colour, alpha, max), alpha, max);
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

// Each of the scales leaves colours as they are where alpha is opaque. `bytes`: at least 1.
static bool is_opaque(const uint8_t *alpha, size_t bytes)
{
    return alpha[0] == 0xFF && memcmp(alpha, alpha + 1, bytes - 1) == 0;
}

// Inlined into its callers, where `scale` is known at compile time.
static inline void scale_plane(const struct conv_plane *colour, const struct conv_plane *alpha,
                               int width, int height, int depth, scale_fn scale)
{
    for (int y = 0; y < height; y++) {
        uint8_t *colour_row = colour->data + y * colour->stride;
        const uint8_t *alpha_row = alpha->data + y * alpha->stride;
        if (is_opaque(alpha_row, (size_t)width * (size_t)depth / 8))
            continue;
        if (depth == 16)
            scale_row16((uint16_t *)(void *)colour_row, (const uint16_t *)(const void *)alpha_row,
                        width, scale);
        else
            scale_row8(colour_row, alpha_row, width, scale);
    }
}

// Samples of alpha from where the plane's source has them.
static void restore(const struct conv_stencil_plane *plane, const struct conv_plane *alpha,
                    int depth)
{
    const uint8_t *from = alpha->data + (plane->src - plane->dst);
    for (int y = 0; y < plane->height; y++)
        memcpy(alpha->data + y * alpha->stride, from + y * alpha->stride,
               (size_t)plane->width * (size_t)depth / 8);
}

void conv_alpha_run(enum conv_alpha_step step, const struct conv_stencil_plane *plane, int depth)
{
    if (!plane->alpha)
        return;
    struct conv_plane colour = {plane->dst, (ptrdiff_t)plane->dst_stride};
    struct conv_plane alpha = {(uint8_t *)(uintptr_t)plane->alpha, colour.stride};
    int width = plane->width, height = plane->height;
    switch (step) {
    case CONV_ALPHA_NOTHING:
        break;
    case CONV_ALPHA_MULTIPLY:
        scale_plane(&colour, &alpha, width, height, depth, conv_alpha_multiply_sample);
        break;
    case CONV_ALPHA_DIVIDE:
        scale_plane(&colour, &alpha, width, height, depth, conv_alpha_divide_sample);
        break;
    case CONV_ALPHA_RENEW:
        scale_plane(&colour, &alpha, width, height, depth, renew);
        break;
    case CONV_ALPHA_RESTORE:
        restore(plane, &alpha, depth);
        break;
    }
}
