// SPDX-License-Identifier: MIT
#include "bench/bench_workload.h"

#include <stdlib.h>
#include <string.h>

#include "image/image.h"

#define MOST_WIDTH 4000
#define MOST_HEIGHT 3000

// --- sizes ---------------------------------------------------------------------------------------

// 1 to `most`, each octave as likely as the others.
static int random_side(uint32_t *state, int most)
{
    double octaves = 0, fraction = conv_bench_random(state) / 4294967296.0;
    while ((int)(1u << ((int)octaves + 1)) <= most)
        octaves++;
    double at = fraction * (octaves + 1);
    int low = 1 << (int)at;
    int side = low + (int)((at - (int)at) * low);
    return side < most ? side : most;
}

void conv_bench_mix(struct conv_bench_size *sizes, int count)
{
    uint32_t state = 0x9E3779B9u;
    for (int i = 0; i < count; i++) {
        sizes[i].width = i == 0 ? MOST_WIDTH : random_side(&state, MOST_WIDTH);
        sizes[i].height = i == 0 ? MOST_HEIGHT : random_side(&state, MOST_HEIGHT);
    }
}

// Sizes with each side equally likely; the smallest size first, then the largest. Half of 500
// are larger than 2.7 megapixels; their sum is 1,668.
// A generator of its own (Numerical Recipes' linear congruential one), because the figures in
// kernels/README.md were measured with these sizes.
static void mix_uniform(struct conv_bench_size *sizes, int count)
{
    uint32_t state = 1;
    for (int i = 0; i < count; i++) {
        if (i < 2) {
            sizes[i].width = i == 0 ? 1 : MOST_WIDTH;
            sizes[i].height = i == 0 ? 1 : MOST_HEIGHT;
            continue;
        }
        state = state * 1664525u + 1013904223u;
        sizes[i].width = 1 + (int)((state >> 8) % MOST_WIDTH);
        state = state * 1664525u + 1013904223u;
        sizes[i].height = 1 + (int)((state >> 8) % MOST_HEIGHT);
    }
}

// --- images --------------------------------------------------------------------------------------

// Fills the images so that both rounding and clamping happen and nothing compresses.
static void fill(const struct conv_bench_workload *workload)
{
    uint32_t state = 0x2545F491u;
    for (int p = 0; p < workload->plane_count; p++) {
        const struct conv_bench_plane *plane = &workload->planes[p];
        size_t stride = conv_image_stride(plane->width, workload->depth);
        for (int y = 0; y < plane->height; y++) {
            uint8_t *row = workload->source + plane->offset + (size_t)y * stride;
            for (int x = 0; x < plane->width; x++) {
                uint32_t noise = conv_bench_random(&state);
                uint32_t value = (uint32_t)(x + y) / 2 % 192 + (noise >> 26);
                if (workload->depth == 32)
                    ((float *)(void *)row)[x] = (float)(value << 8 | (noise & 255)) / 65535;
                else if (workload->depth == 16)
                    ((uint16_t *)(void *)row)[x] = (uint16_t)(value << 8 | (noise & 255));
                else
                    row[x] = (uint8_t)value;
            }
        }
    }
}

static size_t add_plane(struct conv_bench_plane *plane, size_t offset, int width, int height,
                        int depth)
{
    *plane = (struct conv_bench_plane){.offset = offset, .width = width, .height = height};
    return offset + conv_image_plane_bytes(width, height, depth);
}

static void lay_out(struct conv_bench_workload *workload, const struct conv_bench_size *sizes)
{
    for (int i = 0; i < workload->images; i++) {
        int width = sizes ? sizes[i].width : workload->width;
        int height = sizes ? sizes[i].height : workload->height;
        for (int c = 0; c < CONV_BENCH_CHANNELS; c++)
            workload->bytes = add_plane(&workload->planes[CONV_BENCH_CHANNELS * i + c],
                                        workload->bytes, width, height, workload->depth);
        workload->wide_bytes = add_plane(&workload->wide[i], workload->wide_bytes,
                                         CONV_BENCH_CHANNELS * width, height, workload->depth);
        workload->pixels += (double)width * height;
    }
}

enum conv_status conv_bench_workload_open(struct conv_bench_workload *workload,
                                          enum conv_bench_sizes sizes, int width, int height,
                                          int images, int depth, struct conv_err *err)
{
    bool one = sizes == CONV_BENCH_SIZES_ONE;
    size_t count = (size_t)(images ? images : one ? 1 : CONV_BENCH_MIX_IMAGES);
    *workload = (struct conv_bench_workload){
        .sizes = sizes,
        .width = one ? width : 0,
        .height = one ? height : 0,
        .images = (int)count,
        .depth = depth,
        .plane_count = CONV_BENCH_CHANNELS * (int)count,
    };
    struct conv_bench_size *list = one ? NULL : calloc(count, sizeof *list);
    workload->planes = calloc(CONV_BENCH_CHANNELS * count, sizeof *workload->planes);
    workload->wide = calloc(count, sizeof *workload->wide);
    if ((one || list) && workload->planes && workload->wide) {
        if (sizes == CONV_BENCH_SIZES_MIX)
            conv_bench_mix(list, (int)count);
        else if (sizes == CONV_BENCH_SIZES_UNIFORM)
            mix_uniform(list, (int)count);
        lay_out(workload, list);
        workload->source = calloc(workload->bytes, 1);
    }
    free(list);
    if (!workload->source)
        return conv_err_memory(err, "no memory for %zu images", count);
    fill(workload);
    return CONV_OK;
}

void conv_bench_workload_close(struct conv_bench_workload *workload)
{
    free(workload->planes);
    free(workload->wide);
    free(workload->source);
    workload->planes = workload->wide = NULL;
    workload->source = NULL;
}

void conv_bench_workload_interleave(const struct conv_bench_workload *workload, uint8_t *planes,
                                    uint8_t *wide, bool split)
{
    size_t size = (size_t)workload->depth / 8;
    for (int p = 0; p < workload->plane_count; p++) {
        const struct conv_bench_plane *plane = &workload->planes[p];
        const struct conv_bench_plane *image = &workload->wide[p / CONV_BENCH_CHANNELS];
        size_t channel = (size_t)(p % CONV_BENCH_CHANNELS) * size;
        size_t stride = conv_image_stride(plane->width, workload->depth);
        size_t wide_stride = conv_image_stride(image->width, workload->depth);
        for (int y = 0; y < plane->height; y++) {
            uint8_t *sample = planes + plane->offset + (size_t)y * stride;
            uint8_t *pixel = wide + image->offset + (size_t)y * wide_stride + channel;
            for (int x = 0; x < plane->width; x++) {
                memcpy(split ? sample : pixel, split ? pixel : sample, size);
                sample += size;
                pixel += CONV_BENCH_CHANNELS * size;
            }
        }
    }
}

void conv_bench_workload_describe(const struct conv_bench_workload *workload, const char *times,
                                  bool named, char *text, size_t size)
{
    const char *images = !named ? "" : workload->images == 1 ? " image" : " images";
    if (workload->width)
        snprintf(text, size, "%d%s of %d%s%d", workload->images, images, workload->width, times,
                 workload->height);
    else
        snprintf(text, size, "%d%s from 1%s1 to 4000%s3000%s", workload->images, images, times,
                 times, workload->sizes == CONV_BENCH_SIZES_UNIFORM ? ", uniform" : "");
}

static double sample_at(const uint8_t *row, int x, int depth)
{
    float real;
    if (depth < 32)
        return conv_image_get(row, depth, x);
    memcpy(&real, row + sizeof real * (size_t)x, sizeof real);
    return real;
}

enum conv_status conv_bench_workload_compare(const struct conv_bench_workload *workload,
                                             const uint8_t *expected, const uint8_t *result,
                                             const char *name, struct conv_err *err)
{
    int depth = workload->depth;
    size_t size = (size_t)depth / 8;
    for (int p = 0; p < workload->plane_count; p++) {
        const struct conv_bench_plane *plane = &workload->planes[p];
        size_t stride = conv_image_stride(plane->width, depth);
        for (int y = 0; y < plane->height; y++) {
            const uint8_t *a = expected + plane->offset + (size_t)y * stride;
            const uint8_t *b = result + (a - expected);
            int x = 0;
            if (memcmp(a, b, size * (size_t)plane->width) == 0)
                continue;
            while (memcmp(a + size * (size_t)x, b + size * (size_t)x, size) == 0)
                x++;
            return conv_err_set(err, CONV_ERR_DEVICE,
                                "%s is wrong: plane %d, x %d, y %d: %.9g, not %.9g", name, p, x, y,
                                sample_at(b, x, depth), sample_at(a, x, depth));
        }
    }
    return CONV_OK;
}
