// SPDX-License-Identifier: MIT
// Copies between image layouts against their definition, sample by sample: random shapes, strides,
// alignments and conversions, several images per call. The whole of the destination's memory is
// compared, so that a byte written outside of the view is found.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/layout/layout.h"
#include "support/device.h"
#include "support/options.h"
#include "support/random.h"

#if CONV_HAVE_CUDA

#define MOST_IMAGES 40 // of a call

// One side of a copy: a view, in device memory and in a copy of that memory.
struct side {
    struct conv_layout_view view; // of the device
    uint8_t *d_memory, *h_memory;
    size_t bytes;
};

struct image {
    struct side dst, src;
    int width, height;
};

static int64_t round_up(int64_t value, int64_t to)
{
    return (value + to - 1) / to * to;
}

// Chooses a layout of memory for the view's channels and sample type.
static void lay_out(struct side *side, int width, int height, struct device_memory *memory,
                    uint64_t *random)
{
    struct conv_layout_view *view = &side->view;
    int64_t size = view->sample_bytes, channels = view->channels;
    int64_t lead = size * random_below(random, 40), channel, gap = size * random_below(random, 5);
    int kind = (int)random_below(random, 6);
    if (kind == 0) { // padded planes
        lead = 16 * random_below(random, 3);
        view->padded = true;
        view->column = size;
        view->row = round_up(width * size, 16) + 16 * random_below(random, 2);
        channel = view->row * height;
    } else if (kind == 1) { // aligned planes, which end with the last sample
        lead = 16 * random_below(random, 3);
        view->column = size;
        view->row = round_up(width * size, 16);
        channel = view->row * height;
    } else if (kind == 2) { // planes
        view->column = size;
        view->row = width * size + gap;
        channel = view->row * height + size * random_below(random, 3);
    } else if (kind < 5) { // interleaved
        channel = size;
        view->column = channels * size + (kind == 4 ? gap : 0);
        view->row = width * view->column + size * random_below(random, 2);
    } else { // columns one after another
        channel = size;
        view->row = channels * size;
        view->column = height * view->row + gap;
    }
    side->bytes = (size_t)(lead + (height - 1) * view->row + (width - 1) * view->column +
                           (channels - 1) * channel + size);
    if (view->padded)
        side->bytes = (size_t)round_up((int64_t)side->bytes, 16);
    side->h_memory = malloc(side->bytes);
    side->d_memory = device_take(memory, side->bytes, "view");
    if (!side->h_memory)
        abort();
    for (size_t i = 0; i < side->bytes; i++)
        side->h_memory[i] = (uint8_t)random_bits(random);
    for (int c = 0; c < view->channels; c++)
        view->channel[c] = side->d_memory + lead + c * channel;
    device_set(memory, side->d_memory, side->h_memory, side->bytes, "view");
}

static uint8_t *sample_at(const struct side *side, int c, int64_t x, int64_t y)
{
    const struct conv_layout_view *view = &side->view;
    return side->h_memory + (view->channel[c] - side->d_memory) + y * view->row + x * view->column;
}

static uint32_t read_sample(const uint8_t *at, int size)
{
    uint32_t value = 0;
    memcpy(&value, at, (size_t)size); // this machine is little-endian
    return value;
}

// The definition of a sample's copy.
static uint32_t convert(uint32_t value, int from, int to)
{
    float number = (float)value;
    if (from == to)
        return value;
    if (to == 4) {
        memcpy(&value, &number, sizeof value);
        return value;
    }
    return to == 2 ? value * 257 : (value * 2 + 257) / (2 * 257);
}

static void copy_samples(const struct image *image)
{
    const struct conv_layout_view *dst = &image->dst.view, *src = &image->src.view;
    int colors = src->channels - src->alpha;
    for (int c = 0; c < dst->channels; c++) {
        bool is_alpha = dst->alpha && c == dst->channels - 1;
        int from = is_alpha ? colors : colors == 1 ? 0 : c;
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++) {
                uint32_t value = src->sample_bytes == 1 ? 0xff : 0xffff;
                if (!is_alpha || src->alpha)
                    value = read_sample(sample_at(&image->src, from, x, y), src->sample_bytes);
                value = convert(value, src->sample_bytes, dst->sample_bytes);
                memcpy(sample_at(&image->dst, c, x, y), &value, (size_t)dst->sample_bytes);
            }
    }
}

static void make_image(struct image *image, struct device_memory *memory, uint64_t *random)
{
    static const int widths[] = {1, 2, 15, 16, 17, 31, 64, 127, 128, 511, 512, 513, 700};
    static const int sizes[] = {1, 2, 4};
    struct conv_layout_copy copy;
    *image = (struct image){0};
    image->width = random_below(random, 3) ? 1 + (int)random_below(random, 90)
                                           : widths[random_below(random, 13)];
    image->height = 1 + (int)random_below(random, image->width < 40 ? 70 : 7);
    do {
        struct conv_layout_view *views[] = {&image->dst.view, &image->src.view};
        for (int i = 0; i < 2; i++) {
            views[i]->channels = 1 + (int)random_below(random, 4);
            views[i]->alpha = views[i]->channels > 1 && random_below(random, 2);
            views[i]->sample_bytes = sizes[random_below(random, 3)];
        }
        copy = (struct conv_layout_copy){image->dst.view, image->src.view, image->width,
                                         image->height};
    } while (!conv_layout_can(&copy));
    lay_out(&image->src, image->width, image->height, memory, random);
    lay_out(&image->dst, image->width, image->height, memory, random);
}

// True if the destination's memory is as expected; bytes that padding allows to change are not
// compared.
static bool is_right(const struct image *image, int index, struct device_memory *memory)
{
    const struct side *dst = &image->dst;
    uint8_t *found = malloc(dst->bytes), *expected = dst->h_memory;
    if (!found || !device_get(memory, found, dst->d_memory, dst->bytes, "view"))
        abort();
    int64_t row = (int64_t)image->width * dst->view.sample_bytes;
    for (int c = 0; dst->view.padded && c < dst->view.channels; c++)
        for (int y = 0; y < image->height; y++) {
            size_t end = (size_t)(sample_at(dst, c, 0, y) - expected + row);
            memcpy(found + end, expected + end, (size_t)(round_up(row, 16) - row));
        }
    size_t at = 0;
    while (at < dst->bytes && found[at] == expected[at])
        at++;
    bool right = at == dst->bytes;
    if (!right)
        printf("image %d, %d x %d, %d channels of %d bytes to %d of %d: byte %zu of %zu is %u, not "
               "%u (columns %lld to %lld, rows %lld to %lld)\n",
               index, image->width, image->height, image->src.view.channels,
               image->src.view.sample_bytes, dst->view.channels, dst->view.sample_bytes, at,
               dst->bytes, found[at], expected[at], (long long)image->src.view.column,
               (long long)dst->view.column, (long long)image->src.view.row,
               (long long)dst->view.row);
    free(found);
    return right;
}

static bool run_round(uint64_t *random)
{
    struct device_memory memory = {0};
    struct image images[MOST_IMAGES];
    struct conv_layout_copy copies[MOST_IMAGES];
    int count = random_below(random, 4) ? 1 + (int)random_below(random, 6) : MOST_IMAGES;
    for (int i = 0; i < count; i++) {
        make_image(&images[i], &memory, random);
        copies[i] = (struct conv_layout_copy){images[i].dst.view, images[i].src.view,
                                              images[i].width, images[i].height};
    }
    bool right = !memory.failed && conv_cuda_layout_copy(copies, count, NULL) == CONV_OK &&
                 device_finish(&memory, "copies") && device_guards_hold(&memory);
    for (int i = 0; i < count; i++) {
        copy_samples(&images[i]);
        right = right && is_right(&images[i], i, &memory);
        free(images[i].src.h_memory);
        free(images[i].dst.h_memory);
    }
    device_free(&memory);
    return right;
}

// Copies for which there is no kernel have to be refused.
static bool check_refusals(void)
{
    struct conv_layout_copy good = {{.channels = 3, .sample_bytes = 1},
                                    {.channels = 3, .sample_bytes = 1},
                                    1,
                                    1},
                            bad[4] = {good, good, good, good};
    bad[0].dst.channels = 1;     // colour to gray
    bad[1].src.sample_bytes = 4; // floats to integers
    bad[2].dst.alpha = true;     // two colours of three
    bad[3].width = 0;
    bool right = conv_layout_can(&good);
    for (int i = 0; i < 4; i++)
        right = right && !conv_layout_can(&bad[i]);
    return right;
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)time(NULL);
    int rounds = 200;
    const struct option_row rows[] = {{"--rounds", .number = &rounds}, {"--seed", .seed = &seed}};
    if (!options_parse(rows, sizeof rows / sizeof rows[0], argc, argv))
        return 2;
    const char *reason;
    if (device_capability(&reason) == 0)
        return device_missing("check_layout", reason);
    printf("seed %llu, %d rounds\n", (unsigned long long)seed, rounds);
    bool good = check_refusals();
    for (uint64_t i = 0, random; i < (uint64_t)rounds && good; i++) {
        random = seed + i;
        good = run_round(&random);
        if (!good)
            printf("--seed %llu --rounds 1\n", (unsigned long long)(seed + i));
    }
    puts(good ? "layouts: equal" : "layouts: FAILED");
    return good ? 0 : 1;
}

#else

int main(void)
{
    const char *reason;
    device_capability(&reason);
    return device_missing("check_layout", reason);
}

#endif
