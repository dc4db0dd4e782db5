// SPDX-License-Identifier: MIT
// The reference implementation of PNG's filters (section 9 of the standard), and the choice among
// implementations.
#include "png/cpu/unfilter.h"

#include <stdbool.h>

#include "base/features.h"
#include "png/cpu/unfilter_table.h"

static void up(uint8_t *restrict dst, const uint8_t *restrict src, const uint8_t *restrict above,
               size_t size)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + above[i]);
}

// Left of the first pixel, a (left) and c (above left) are 0.

CONV_UNFILTER_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + (i < bpp ? 0 : dst[i - bpp]));
}

CONV_UNFILTER_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *above,
                                  size_t size, size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp];
        dst[i] = (uint8_t)(src[i] + (a + above[i]) / 2);
    }
}

// The one of a, b and c nearest to a + b - c, the first of those equally near. With t = 3c - a - b
// this is the smaller of a and b if t is at least the larger one, the larger if t is at most the
// smaller one, else c. From stb_image; it needs no branch.
CONV_UNFILTER_INLINE int predict(int a, int b, int c)
{
    int t = 3 * c - (a + b), low = a < b ? a : b, high = a < b ? b : a;
    int p = high <= t ? low : c;
    return t <= low ? high : p;
}

CONV_UNFILTER_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                                size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp], c = i < bpp ? 0 : above[i - bpp];
        dst[i] = (uint8_t)(src[i] + predict(a, above[i], c));
    }
}

CONV_UNFILTER_FUNCTIONS

const struct conv_unfilter conv_unfilter_plain = {
    .name = "plain",
    .reverse = CONV_UNFILTER_ALL,
    .split = conv_interleave_split,
};

const struct conv_unfilter *const *conv_unfilter_variants(int *count)
{
    static const struct conv_unfilter *const variants[] = {
#ifdef __x86_64__
        &conv_unfilter_avx2,
        &conv_unfilter_sse41,
#elif defined(__aarch64__)
        &conv_unfilter_neon,
#endif
        &conv_unfilter_plain,
    };
    *count = sizeof variants / sizeof variants[0];
    return variants;
}

// True if there are zeros at one of some places: reverse() copies pixels there.
static bool is_flat(const uint8_t *row, size_t size)
{
    enum { PLACES = 8 };
    bool flat = false;
    for (size_t i = 0; i < PLACES; i++) {
        uint64_t word;
        memcpy(&word, row + i * (size / PLACES), sizeof word);
        flat |= word == 0;
    }
    return flat;
}

conv_unfilter_pair_fn conv_unfilter_find_pair(const struct conv_unfilter *unfilter, int pixel,
                                              const uint8_t *first, const uint8_t *second,
                                              size_t size)
{
    if (first[0] != second[0] || first[0] >= CONV_UNFILTER_COUNT || size < CONV_UNFILTER_PAIR_LEAST)
        return NULL;
    conv_unfilter_pair_fn pair = unfilter->pair[conv_unfilter_index(pixel)][first[0]];
    bool copies = pair && first[0] == CONV_UNFILTER_PAETH &&
                  (is_flat(first + 1, size) || is_flat(second + 1, size));
    return copies ? NULL : pair;
}

const struct conv_unfilter *conv_unfilter_choose(unsigned features)
{
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    while ((*variants)->needs & ~features)
        variants++;
    return *variants;
}
