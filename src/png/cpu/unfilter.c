// SPDX-License-Identifier: MIT
// The plain definition of PNG's filters (section 9 of the standard), which every variant is held
// against, and the choice among variants.
#include "png/cpu/unfilter.h"

#include <string.h>

#include "base/features.h"
#include "png/cpu/interleave.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static void none(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)
{
    (void)up;
    memcpy(dst, src, size);
}

static void up(uint8_t *restrict dst, const uint8_t *restrict src, const uint8_t *restrict above,
               size_t size)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + above[i]);
}

// Left of the first pixel, a (left) and c (above left) are 0.

ALWAYS_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + (i < bpp ? 0 : dst[i - bpp]));
}

ALWAYS_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                           size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp];
        dst[i] = (uint8_t)(src[i] + (a + above[i]) / 2);
    }
}

// The nearest of a, b and c to a + b - c, the first of them if they are equally near. With
// t = 3c - a - b this is: the smaller of a and b if t is not below the larger one, the larger if t
// is not above the smaller one, else c. (As in stb_image; without a branch to guess wrong.)
ALWAYS_INLINE int predict(int a, int b, int c)
{
    int t = 3 * c - (a + b), low = a < b ? a : b, high = a < b ? b : a;
    int p = high <= t ? low : c;
    return t <= low ? high : p;
}

ALWAYS_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                         size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp], c = i < bpp ? 0 : above[i - bpp];
        dst[i] = (uint8_t)(src[i] + predict(a, above[i], c));
    }
}

#define FOR_PIXELS_OF(bpp)                                                                         \
    static void sub_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)     \
    {                                                                                              \
        (void)above;                                                                               \
        sub(dst, src, size, bpp);                                                                  \
    }                                                                                              \
    static void average_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size) \
    {                                                                                              \
        average(dst, src, above, size, bpp);                                                       \
    }                                                                                              \
    static void paeth_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)   \
    {                                                                                              \
        paeth(dst, src, above, size, bpp);                                                         \
    }

FOR_PIXELS_OF(1)
FOR_PIXELS_OF(2)
FOR_PIXELS_OF(3)
FOR_PIXELS_OF(4)
FOR_PIXELS_OF(6)
FOR_PIXELS_OF(8)

#define ROW(bpp)                                                                                   \
    {                                                                                              \
        none, sub_##bpp, up, average_##bpp, paeth_##bpp                                            \
    }

const struct conv_unfilter conv_unfilter_plain = {
    .name = "plain",
    .reverse = {ROW(1), ROW(2), ROW(3), ROW(4), ROW(6), ROW(8)},
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

const struct conv_unfilter *conv_unfilter_choose(unsigned features)
{
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    while ((*variants)->needs & ~features)
        variants++;
    return *variants;
}
