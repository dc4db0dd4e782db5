// SPDX-License-Identifier: MIT
// What the SSE4.1 and the AVX2 variant share: the same steps, compiled for either. A filter that
// looks to the left goes pixel by pixel, and what counts is the number of steps from one pixel to
// the next; what does not depend on the left pixel overlaps.
#ifndef CONV_PNG_CPU_UNFILTER_X86_H
#define CONV_PNG_CPU_UNFILTER_X86_H

#include <immintrin.h>
#include <string.h>

#include "png/cpu/interleave.h"
#include "png/cpu/unfilter.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// A pixel in the lowest bytes; of 3 or 6 bytes, with the next byte or two above it.
ALWAYS_INLINE __m128i load_pixel(const uint8_t *p, size_t bpp)
{
    if (bpp > 4)
        return _mm_loadl_epi64((const __m128i *)(const void *)p);
    int value;
    memcpy(&value, p, sizeof value);
    return _mm_cvtsi32_si128(value);
}

// Writes 4 or 8 bytes: those beyond the pixel are the next pixel's, which is written later.
ALWAYS_INLINE void store_pixel(uint8_t *p, __m128i pixel, size_t bpp)
{
    if (bpp > 4) {
        _mm_storel_epi64((__m128i *)(void *)p, pixel);
    } else {
        int value = _mm_cvtsi128_si32(pixel);
        memcpy(p, &value, sizeof value);
    }
}

ALWAYS_INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

ALWAYS_INLINE void store16(uint8_t *p, __m128i value)
{
    _mm_storeu_si128((__m128i *)(void *)p, value);
}

static void none(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)
{
    (void)up;
    memcpy(dst, src, size);
}

ALWAYS_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    __m128i a = _mm_setzero_si128();
    for (size_t i = 0; i < size; i += bpp) {
        a = _mm_add_epi8(a, load_pixel(src + i, bpp));
        store_pixel(dst + i, a, bpp);
    }
}

// Pixels of 1 or 2 bytes: sums over 16 bytes by doubling steps, the last pixel carried on.
ALWAYS_INLINE void sub_small(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    const __m128i last = bpp == 1 ? _mm_set1_epi8(15) : _mm_set1_epi16(0x0f0e);
    __m128i carry = _mm_setzero_si128();
    for (size_t i = 0; i < size; i += 16) {
        __m128i x = load16(src + i);
        if (bpp == 1)
            x = _mm_add_epi8(x, _mm_slli_si128(x, 1));
        x = _mm_add_epi8(x, _mm_slli_si128(x, 2));
        x = _mm_add_epi8(x, _mm_slli_si128(x, 4));
        x = _mm_add_epi8(x, _mm_slli_si128(x, 8));
        x = _mm_add_epi8(x, carry);
        store16(dst + i, x);
        carry = _mm_shuffle_epi8(x, last);
    }
}

// pavgb rounds up; of complements it gives the complement of the mean rounded down. So the left
// pixel is kept as its complement na, and since ~(x + p) = ~p - x two steps lead to the next one.
ALWAYS_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size,
                           size_t bpp)
{
    const __m128i ones = _mm_set1_epi8(-1);
    __m128i na = ones;
    for (size_t i = 0; i < size; i += bpp) {
        __m128i nb = _mm_xor_si128(load_pixel(up + i, bpp), ones);
        na = _mm_sub_epi8(_mm_avg_epu8(na, nb), load_pixel(src + i, bpp));
        store_pixel(dst + i, _mm_xor_si128(na, ones), bpp);
    }
}

// predict() of unfilter.c in lanes of 16 bits, whose upper bytes stay 0. The filtered pixel is
// added to all three candidates beside the comparisons, which leaves four steps a pixel.
ALWAYS_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size,
                         size_t bpp)
{
    __m128i a = _mm_setzero_si128(), c = a;
    for (size_t i = 0; i < size; i += bpp) {
        __m128i b = _mm_cvtepu8_epi16(load_pixel(up + i, bpp));
        __m128i x = _mm_cvtepu8_epi16(load_pixel(src + i, bpp));
        __m128i early = _mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(c, c), c), b);
        // GCC would add a and b first and make one step into three.
        __asm__("" : "+x"(early));
        __m128i t = _mm_sub_epi16(early, a);
        __m128i low = _mm_min_epi16(a, b), high = _mm_max_epi16(a, b);
        __m128i below_high = _mm_cmpgt_epi16(high, t), above_low = _mm_cmpgt_epi16(t, low);
        a = _mm_blendv_epi8(_mm_add_epi8(low, x), _mm_add_epi8(c, x), below_high);
        a = _mm_blendv_epi8(_mm_add_epi8(high, x), a, above_low);
        c = b;
        store_pixel(dst + i, _mm_packus_epi16(a, a), bpp);
    }
}

#define FOR_PIXELS_OF(bpp)                                                                         \
    static void sub_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)        \
    {                                                                                              \
        (void)up;                                                                                  \
        if ((bpp) <= 2)                                                                            \
            sub_small(dst, src, size, bpp);                                                        \
        else                                                                                       \
            sub(dst, src, size, bpp);                                                              \
    }                                                                                              \
    static void average_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)    \
    {                                                                                              \
        average(dst, src, up, size, bpp);                                                          \
    }                                                                                              \
    static void paeth_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)      \
    {                                                                                              \
        paeth(dst, src, up, size, bpp);                                                            \
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
#define ALL_ROWS                                                                                   \
    {                                                                                              \
        ROW(1), ROW(2), ROW(3), ROW(4), ROW(6), ROW(8)                                             \
    }

// --- splitting -----------------------------------------------------------------------------------

// Each handles one vector of samples of each channel, from `row` to out[channel].

ALWAYS_INLINE void split8_2(uint8_t *const *out, const uint8_t *row)
{
    const __m128i low = _mm_set1_epi16(0xff);
    __m128i x = load16(row), y = load16(row + 16);
    store16(out[0], _mm_packus_epi16(_mm_and_si128(x, low), _mm_and_si128(y, low)));
    store16(out[1], _mm_packus_epi16(_mm_srli_epi16(x, 8), _mm_srli_epi16(y, 8)));
}

// Three channels: byte b of the row, if it is within its v-th vector.
#define PICK(v, b) (char)((b) / 16 == (v) ? (b) % 16 : -128)
// The masks that take 16 samples of 8 bits, or 8 of 16 bits with their bytes swapped.
#define MASK8(v, c)                                                                                \
    _mm_setr_epi8(PICK(v, 0 + c), PICK(v, 3 + c), PICK(v, 6 + c), PICK(v, 9 + c), PICK(v, 12 + c), \
                  PICK(v, 15 + c), PICK(v, 18 + c), PICK(v, 21 + c), PICK(v, 24 + c),              \
                  PICK(v, 27 + c), PICK(v, 30 + c), PICK(v, 33 + c), PICK(v, 36 + c),              \
                  PICK(v, 39 + c), PICK(v, 42 + c), PICK(v, 45 + c))
#define PICK2(v, s) PICK(v, 2 * (s) + 1), PICK(v, 2 * (s))
#define MASK16(v, c)                                                                               \
    _mm_setr_epi8(PICK2(v, 0 + c), PICK2(v, 3 + c), PICK2(v, 6 + c), PICK2(v, 9 + c),              \
                  PICK2(v, 12 + c), PICK2(v, 15 + c), PICK2(v, 18 + c), PICK2(v, 21 + c))
#define GATHER(MASK, c)                                                                            \
    _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, MASK(0, c)), _mm_shuffle_epi8(y, MASK(1, c))),   \
                 _mm_shuffle_epi8(z, MASK(2, c)))

ALWAYS_INLINE void split8_3(uint8_t *const *out, const uint8_t *row)
{
    __m128i x = load16(row), y = load16(row + 16), z = load16(row + 32);
    store16(out[0], GATHER(MASK8, 0));
    store16(out[1], GATHER(MASK8, 1));
    store16(out[2], GATHER(MASK8, 2));
}

ALWAYS_INLINE void split16_3(uint8_t *const *out, const uint8_t *row)
{
    __m128i x = load16(row), y = load16(row + 16), z = load16(row + 32);
    store16(out[0], GATHER(MASK16, 0));
    store16(out[1], GATHER(MASK16, 1));
    store16(out[2], GATHER(MASK16, 2));
}

// Four channels: each vector sorted by channel, then 4 x 4 groups of 4 bytes transposed.
ALWAYS_INLINE void split_4(uint8_t *const *out, const uint8_t *row, __m128i sort)
{
    __m128i x = _mm_shuffle_epi8(load16(row), sort), y = _mm_shuffle_epi8(load16(row + 16), sort);
    __m128i z = _mm_shuffle_epi8(load16(row + 32), sort);
    __m128i w = _mm_shuffle_epi8(load16(row + 48), sort);
    __m128i xy = _mm_unpacklo_epi32(x, y), zw = _mm_unpacklo_epi32(z, w);
    store16(out[0], _mm_unpacklo_epi64(xy, zw));
    store16(out[1], _mm_unpackhi_epi64(xy, zw));
    xy = _mm_unpackhi_epi32(x, y), zw = _mm_unpackhi_epi32(z, w);
    store16(out[2], _mm_unpacklo_epi64(xy, zw));
    store16(out[3], _mm_unpackhi_epi64(xy, zw));
}

ALWAYS_INLINE void split8_4(uint8_t *const *out, const uint8_t *row)
{
    split_4(out, row, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

ALWAYS_INLINE void split16_4(uint8_t *const *out, const uint8_t *row)
{
    split_4(out, row, _mm_setr_epi8(1, 0, 9, 8, 3, 2, 11, 10, 5, 4, 13, 12, 7, 6, 15, 14));
}

ALWAYS_INLINE void split16_1(uint8_t *const *out, const uint8_t *row)
{
    const __m128i swap = _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    store16(out[0], _mm_shuffle_epi8(load16(row), swap));
}

ALWAYS_INLINE void split16_2(uint8_t *const *out, const uint8_t *row)
{
    const __m128i sort = _mm_setr_epi8(1, 0, 5, 4, 9, 8, 13, 12, 3, 2, 7, 6, 11, 10, 15, 14);
    __m128i x = _mm_shuffle_epi8(load16(row), sort), y = _mm_shuffle_epi8(load16(row + 16), sort);
    store16(out[0], _mm_unpacklo_epi64(x, y));
    store16(out[1], _mm_unpackhi_epi64(x, y));
}

typedef void (*split_fn)(uint8_t *const *out, const uint8_t *row);

// The last vector overlaps the one before, so that nothing is written beyond the row.
ALWAYS_INLINE void split_row(const struct conv_image *dst, int y, const uint8_t *row,
                             size_t channels, size_t sample, split_fn step)
{
    uint8_t *out[CONV_IMAGE_MAX_CHANNELS];
    size_t bytes = (size_t)dst->width * sample;
    for (size_t at = 0; at < bytes; at += 16) {
        if (at + 16 > bytes)
            at = bytes - 16;
        for (size_t c = 0; c < channels; c++)
            out[c] = dst->plane[c].data + y * dst->plane[c].stride + at;
        step(out, row + at * channels);
    }
}

static void split(const struct conv_image *dst, int y, const uint8_t *row)
{
    size_t sample = (size_t)dst->depth / 8;
    if ((size_t)dst->width * sample < 16) {
        conv_interleave_split(dst, y, row);
        return;
    }
    switch (dst->channels * 2 + (sample == 2)) {
    case 2:
        memcpy(dst->plane[0].data + y * dst->plane[0].stride, row, (size_t)dst->width);
        break;
    case 3:
        split_row(dst, y, row, 1, 2, split16_1);
        break;
    case 4:
        split_row(dst, y, row, 2, 1, split8_2);
        break;
    case 5:
        split_row(dst, y, row, 2, 2, split16_2);
        break;
    case 6:
        split_row(dst, y, row, 3, 1, split8_3);
        break;
    case 7:
        split_row(dst, y, row, 3, 2, split16_3);
        break;
    case 8:
        split_row(dst, y, row, 4, 1, split8_4);
        break;
    case 9:
        split_row(dst, y, row, 4, 2, split16_4);
        break;
    }
}

#endif
