// SPDX-License-Identifier: MIT
#include "bench/bench_kernels_images.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_mix.h"

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

enum conv_status conv_bench_images_shape(struct conv_image *shapes, int count, int width,
                                         int height, int depth, double *pixels,
                                         struct conv_err *err)
{
    struct conv_bench_size *mix = width ? NULL : calloc((size_t)count, sizeof *mix);
    if (!width && !mix)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d images", count);
    if (mix)
        conv_bench_mix(mix, count);
    *pixels = 0;
    for (int i = 0; i < count; i++) {
        shapes[i] = (struct conv_image){.width = mix ? mix[i].width : width,
                                        .height = mix ? mix[i].height : height,
                                        .channels = CONV_BENCH_CHANNELS,
                                        .depth = depth};
        *pixels += (double)shapes[i].width * shapes[i].height;
    }
    free(mix);
    return CONV_OK;
}

// Noise around a gradient: rounding and clamping both happen, and nothing compresses.
void conv_bench_images_fill(const struct conv_group *group)
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

void conv_bench_images_interleave(const struct conv_group_plane *planes, int count, uint8_t *bytes,
                                  const struct conv_group *wide_group, uint8_t *wide, bool split)
{
    for (int p = 0; p < count; p++) {
        const struct conv_group_plane *plane = &planes[p];
        const struct conv_group_plane *image = &wide_group->planes[p / CONV_BENCH_CHANNELS];
        size_t size = (size_t)plane->depth / 8, channel = (size_t)(p % CONV_BENCH_CHANNELS);
        size_t stride = conv_image_stride(plane->width, plane->depth);
        size_t wide_stride = conv_image_stride(image->width, image->depth);
        for (int y = 0; y < plane->height; y++) {
            uint8_t *row = bytes + plane->offset + (size_t)y * stride;
            uint8_t *pixels = wide + image->offset + (size_t)y * wide_stride + channel * size;
            for (int x = 0; x < plane->width; x++) {
                uint8_t *sample = row + (size_t)x * size;
                uint8_t *pixel = pixels + (size_t)x * CONV_BENCH_CHANNELS * size;
                memcpy(split ? sample : pixel, split ? pixel : sample, size);
            }
        }
    }
}
