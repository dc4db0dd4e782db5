// SPDX-License-Identifier: MIT
#include "cli/bench_kernels_pictures.h"

#include <stdint.h>
#include <string.h>

#define MIX_WIDTH 4000
#define MIX_HEIGHT 3000

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

// 1 to `most`, each octave as likely as the others.
static int random_side(uint32_t *state, int most)
{
    double octaves = 0, fraction = next_random(state) / 4294967296.0;
    while ((int)(1u << ((int)octaves + 1)) <= most)
        octaves++;
    double at = fraction * (octaves + 1);
    int low = 1 << (int)at;
    int side = low + (int)((at - (int)at) * low);
    return side < most ? side : most;
}

double conv_bench_pictures_shape(struct conv_image *shapes, int count, int width, int height,
                                 int depth)
{
    uint32_t state = 0x9E3779B9u;
    double pixels = 0;
    for (int i = 0; i < count; i++) {
        struct conv_image shape = {
            .width = width, .height = height, .channels = CONV_BENCH_CHANNELS, .depth = depth};
        if (width == 0) {
            shape.width = i == 0 ? MIX_WIDTH : random_side(&state, MIX_WIDTH);
            shape.height = i == 0 ? MIX_HEIGHT : random_side(&state, MIX_HEIGHT);
        }
        pixels += (double)shape.width * shape.height;
        shapes[i] = shape;
    }
    return pixels;
}

// Noise around a gradient: rounding and clamping both happen, and nothing compresses.
void conv_bench_pictures_fill(const struct conv_group *group)
{
    uint32_t state = 0x2545F491u;
    for (int p = 0; p < group->plane_count; p++) {
        const struct conv_group_plane *plane = &group->planes[p];
        size_t stride = conv_image_stride(plane->width, plane->depth);
        for (int y = 0; y < plane->height; y++) {
            uint8_t *row = group->h_in + plane->offset + (size_t)y * stride;
            for (int x = 0; x < plane->width; x++) {
                uint32_t noise = next_random(&state);
                uint32_t value = (uint32_t)(x + y) / 2 % 192 + (noise >> 26);
                if (plane->depth == 16)
                    ((uint16_t *)(void *)row)[x] = (uint16_t)(value << 8 | (noise & 255));
                else
                    row[x] = (uint8_t)value;
            }
        }
    }
}

void conv_bench_pictures_interleave(const struct conv_group_plane *planes, int count,
                                    uint8_t *bytes, const struct conv_group *wide_group,
                                    uint8_t *wide, bool split)
{
    for (int p = 0; p < count; p++) {
        const struct conv_group_plane *plane = &planes[p];
        const struct conv_group_plane *picture = &wide_group->planes[p / CONV_BENCH_CHANNELS];
        size_t size = (size_t)plane->depth / 8, channel = (size_t)(p % CONV_BENCH_CHANNELS);
        size_t stride = conv_image_stride(plane->width, plane->depth);
        size_t wide_stride = conv_image_stride(picture->width, picture->depth);
        for (int y = 0; y < plane->height; y++) {
            uint8_t *row = bytes + plane->offset + (size_t)y * stride;
            uint8_t *pixels = wide + picture->offset + (size_t)y * wide_stride + channel * size;
            for (int x = 0; x < plane->width; x++) {
                uint8_t *sample = row + (size_t)x * size;
                uint8_t *pixel = pixels + (size_t)x * CONV_BENCH_CHANNELS * size;
                memcpy(split ? sample : pixel, split ? pixel : sample, size);
            }
        }
    }
}
