// SPDX-License-Identifier: MIT
// Every variant of the filters' reversal and of the split against plain code, with rows that end at
// inaccessible pages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/features.h"
#include "png/cpu/unfilter.h"
#include "support/guard.h"
#include "support/random.h"

#define MOST 4096 // bytes of a row

static uint64_t seed;

static uint8_t *end_of(const struct guarded *fence, size_t size)
{
    return fence->end - size;
}

static struct guarded fences[4];

static int make_fences(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        fences[i] = guard_alloc(8 * MOST);
    return 0;
}

static int free_fences(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        guard_free(&fences[i]);
    return 0;
}

// Noise, the values at which predictions tie or wrap, and stretches of zeros.
static void fill(uint8_t *p, size_t size)
{
    static const uint8_t edges[] = {0, 1, 127, 128, 254, 255};
    unsigned kind = random_bits(&seed) % 4;
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)(kind == 0   ? random_bits(&seed)
                         : kind == 1 ? edges[random_bits(&seed) % 6]
                         : kind == 2 ? random_bits(&seed) % 64 == 0
                                     : i);
}

static void check_filters(const struct conv_unfilter *variant, int bpp, size_t width)
{
    uint8_t want[MOST + CONV_UNFILTER_SLACK];
    size_t size = width * (size_t)bpp, room = size + CONV_UNFILTER_SLACK;
    uint8_t *src = end_of(&fences[0], room), *up = end_of(&fences[1], room);
    uint8_t *dst = end_of(&fences[2], room);
    int index = conv_unfilter_index(bpp);
    for (int f = 0; f < CONV_UNFILTER_COUNT; f++) {
        fill(src, room);
        fill(up, room);
        memset(dst - 16, 0x5a, room + 16);
        conv_unfilter_plain.reverse[index][f](want, src, up, size);
        variant->reverse[index][f](dst, src, up, size);
        if (memcmp(dst, want, size) != 0)
            fail_msg("%s, filter %d, %d bytes a pixel, %zu pixels: wrong bytes", variant->name, f,
                     bpp, width);
        for (int i = 1; i <= 16; i++)
            assert_int_equal(dst[-i], 0x5a);
    }
}

static void filters_are_plain_codes(void **state)
{
    (void)state;
    static const int sizes[CONV_UNFILTER_SIZES] = {1, 2, 3, 4, 6, 8};
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    seed = 8;
    for (int v = 0; v < count; v++) {
        if (variants[v]->needs & ~conv_cpu_features()) {
            print_message("%s cannot run here\n", variants[v]->name);
            continue;
        }
        for (int s = 0; s < CONV_UNFILTER_SIZES; s++) {
            for (size_t width = 1; width <= 67; width++)
                check_filters(variants[v], sizes[s], width);
            for (int i = 0; i < 60; i++)
                check_filters(variants[v], sizes[s], 1 + random_bits(&seed) % (MOST / 8));
        }
    }
}

// The plain code itself, byte by byte from the standard's words.
static void plain_code_is_the_standard(void **state)
{
    (void)state;
    static const int sizes[CONV_UNFILTER_SIZES] = {1, 2, 3, 4, 6, 8};
    uint8_t src[240], up[240], dst[240];
    seed = 9;
    for (int round = 0; round < 400; round++) {
        size_t bpp = (size_t)sizes[round % 6];
        int f = round % CONV_UNFILTER_COUNT;
        fill(src, sizeof src);
        fill(up, sizeof up);
        conv_unfilter_plain.reverse[conv_unfilter_index((int)bpp)][f](dst, src, up, sizeof src);
        for (size_t i = 0; i < sizeof dst; i++) {
            int a = i < bpp ? 0 : dst[i - bpp], b = up[i], c = i < bpp ? 0 : up[i - bpp];
            int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
            int predictions[] = {0, a, b, (a + b) / 2, pa <= pb && pa <= pc ? a : pb <= pc ? b : c};
            assert_int_equal(dst[i], (src[i] + predictions[f]) & 255);
        }
    }
}

static void check_split(const struct conv_unfilter *variant, int channels, int depth, int width)
{
    struct conv_image image = {.width = width,
                               .height = 2,
                               .channels = channels,
                               .depth = depth,
                               .alpha = channels % 2 == 0};
    size_t bytes = (size_t)width * (size_t)depth / 8, row_size = bytes * (size_t)channels;
    uint8_t *row = end_of(&fences[3], conv_image_align(row_size + CONV_UNFILTER_SLACK, 16));
    uint8_t guard[64];
    memset(guard, 0x5a, sizeof guard);
    fill(row, row_size);
    for (int c = 0; c < channels; c++) {
        // Rows that end at a fence in three of the planes, with guard bytes in the fourth.
        uint8_t *end = c < 3 ? end_of(&fences[c], 0) : end_of(&fences[0], 4 * MOST);
        image.plane[c].stride = -(ptrdiff_t)conv_image_align(bytes + 64, 16);
        image.plane[c].data = end - bytes;
        memset(end - bytes - 64, 0x5a, 64 + bytes);
        if (c == 3)
            memset(end, 0x5a, 64);
    }
    variant->split(&image, 0, row);
    for (int c = 0; c < channels; c++) {
        const uint8_t *plane = image.plane[c].data;
        assert_memory_equal(plane - 64, guard, 64);
        if (c == 3)
            assert_memory_equal(plane + bytes, guard, 64);
        for (int x = 0; x < width; x++) {
            const uint8_t *sample = row + (size_t)(x * channels + c) * (size_t)depth / 8;
            uint16_t wide;
            memcpy(&wide, plane + (size_t)x * (size_t)depth / 8, (size_t)depth / 8);
            unsigned got = depth == 8 ? plane[x] : wide;
            unsigned want = depth == 8 ? sample[0] : (unsigned)sample[0] << 8 | sample[1];
            if (got != want)
                fail_msg("%s: %d channels of %d bits, %d pixels: channel %d at %d is %u, not %u",
                         variant->name, channels, depth, width, c, x, got, want);
        }
    }
}

static void splits_are_right(void **state)
{
    (void)state;
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    seed = 10;
    for (int v = 0; v < count; v++) {
        if (variants[v]->needs & ~conv_cpu_features())
            continue;
        for (int channels = 1; channels <= 4; channels++) {
            for (int width = 1; width <= 67; width++) {
                check_split(variants[v], channels, 8, width);
                // Samples of two bytes lie on even addresses.
                check_split(variants[v], channels, 16, width);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_code_is_the_standard),
        cmocka_unit_test(filters_are_plain_codes),
        cmocka_unit_test(splits_are_right),
    };
    return cmocka_run_group_tests(tests, make_fences, free_fences);
}
