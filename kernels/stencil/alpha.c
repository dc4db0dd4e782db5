// SPDX-License-Identifier: MIT
// Premultiplied alpha on the CPU.
#include "kernels/stencil/alpha.h"

#include <stdbool.h>
#include <string.h>

#include "base/features.h"

// As conv_alpha_divide_sample, by a division that vectors have, of exact numbers. While it is below
// max, the quotient is rounded by less than the 1 / alpha that it lacks of the next integer.
CONV_LOOP uint32_t divide8(uint32_t colour, uint32_t alpha)
{
    float value = (float)(int)(colour * 255 + alpha / 2) / (float)(int)(alpha + !alpha);
    return (uint32_t)(int)(value < 255 ? value : 255) & -(uint32_t)(alpha > 0);
}

CONV_LOOP uint32_t divide16(uint32_t colour, uint32_t alpha)
{
    double value = ((int)colour * 65535.0 + (int)(alpha / 2)) / (int)(alpha + !alpha);
    return (uint32_t)(int)(value < 65535 ? value : 65535) & -(uint32_t)(alpha > 0);
}

CONV_LOOP uint32_t scale(enum conv_alpha_step step, uint32_t colour, uint32_t alpha, uint32_t max)
{
    if (step != CONV_ALPHA_MULTIPLY)
        colour = max == 255 ? divide8(colour, alpha) : divide16(colour, alpha);
    return step == CONV_ALPHA_DIVIDE ? colour : conv_alpha_multiply_sample(colour, alpha, max);
}

CONV_LOOP void scale_row(uint8_t *restrict colour, const uint8_t *restrict alpha, int width,
                         int depth, enum conv_alpha_step step)
{
    uint16_t *wide = (uint16_t *)(void *)colour;
    const uint16_t *wide_alpha = (const uint16_t *)(const void *)alpha;
    if (depth == 16)
        for (int x = 0; x < width; x++)
            wide[x] = (uint16_t)scale(step, wide[x], wide_alpha[x], 65535);
    else
        for (int x = 0; x < width; x++)
            colour[x] = (uint8_t)scale(step, colour[x], alpha[x], 255);
}

// Each of the scales leaves colours as they are where alpha is opaque. `bytes`: at least 1.
static bool is_opaque(const uint8_t *alpha, size_t bytes)
{
    return alpha[0] == 0xFF && memcmp(alpha, alpha + 1, bytes - 1) == 0;
}

CONV_LOOP void conv_alpha_run_loop(enum conv_alpha_step step,
                                   const struct conv_stencil_plane *plane, int depth)
{
    size_t bytes = (size_t)plane->width * (size_t)depth / 8;
    int rows = plane->alpha && step != CONV_ALPHA_NOTHING ? plane->height : 0;
    for (int y = 0; y < rows; y++) {
        ptrdiff_t at = y * (ptrdiff_t)plane->dst_stride;
        uint8_t *alpha = (uint8_t *)(uintptr_t)plane->alpha + at;
        if (step == CONV_ALPHA_RESTORE)
            memcpy(alpha, alpha + (plane->src - plane->dst), bytes);
        else if (!is_opaque(alpha, bytes))
            scale_row(plane->dst + at, alpha, plane->width, depth, step);
    }
}
CONV_VECTORISE(conv_alpha_run,
               (enum conv_alpha_step step, const struct conv_stencil_plane *plane, int depth),
               (step, plane, depth))
