// SPDX-License-Identifier: MIT
// Compiled for SSE4.1 and for AVX2 (CMakeLists.txt), whose three-operand instructions save register
// moves. A filter that uses the left pixel works pixel by pixel: its speed is determined by the
// dependent operations from one pixel to the next, and the rest overlaps.
#if defined CONV_ISA_SSE41 || defined CONV_ISA_AVX2
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/features.h"
#include "png/cpu/unfilter_table.h"

// A pixel in the lowest bytes; above one of 3 or 6 bytes come one or two bytes of the next pixel.
CONV_UNFILTER_INLINE __m128i load_pixel(const uint8_t *p, size_t bpp)
{
    if (bpp > 4)
        return _mm_loadl_epi64((const __m128i *)(const void *)p);
    int value;
    memcpy(&value, p, sizeof value);
    return _mm_cvtsi32_si128(value);
}

// Writes 4 or 8 bytes: those after the pixel belong to the next one, which is written later.
CONV_UNFILTER_INLINE void store_pixel(uint8_t *p, __m128i pixel, size_t bpp)
{
    if (bpp > 4) {
        _mm_storel_epi64((__m128i *)(void *)p, pixel);
    } else {
        int value = _mm_cvtsi128_si32(pixel);
        memcpy(p, &value, sizeof value);
    }
}

CONV_UNFILTER_INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

CONV_UNFILTER_INLINE void store16(uint8_t *p, __m128i value)
{
    _mm_storeu_si128((__m128i *)(void *)p, value);
}

CONV_UNFILTER_INLINE void sub_large(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    __m128i a = _mm_setzero_si128();
    for (size_t i = 0; i < size; i += bpp) {
        a = _mm_add_epi8(a, load_pixel(src + i, bpp));
        store_pixel(dst + i, a, bpp);
    }
}

// Pixels of 1 or 2 bytes: prefix sums over 16 bytes in doubling steps, plus the last pixel before.
CONV_UNFILTER_INLINE void sub_small(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
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

CONV_UNFILTER_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    if (bpp <= 2)
        sub_small(dst, src, size, bpp);
    else
        sub_large(dst, src, size, bpp);
}

// pavgb rounds up; applied to complements it computes the complement of the mean rounded down. So
// the left pixel is stored as its complement na, and since ~(x + p) = ~p - x, two dependent
// operations lead to the next one.
CONV_UNFILTER_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size,
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

// True if the 8 x bpp bytes at p are 0.
CONV_UNFILTER_INLINE bool is_zero(const uint8_t *p, size_t bpp)
{
    uint64_t any = 0;
    for (size_t k = 0; k < bpp; k++) {
        uint64_t word;
        memcpy(&word, p + 8 * k, sizeof word);
        any |= word;
    }
    return any == 0;
}

// True if the pixels in 16-bit lanes are equal.
CONV_UNFILTER_INLINE bool equals(__m128i a, __m128i b, size_t bpp)
{
    const int all = (1 << 2 * bpp) - 1;
    return (_mm_movemask_epi8(_mm_cmpeq_epi16(a, b)) & all) == all;
}

// predict() of unfilter.c in 16-bit lanes, whose upper bytes stay 0, and the filtered pixel x. It
// is added to all three candidates while they are compared, which leaves four dependent operations
// per pixel.
CONV_UNFILTER_INLINE __m128i paeth_step(__m128i a, __m128i b, __m128i c, __m128i x)
{
    __m128i early = _mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(c, c), c), b);
    // Without this GCC adds a and b first: three dependent operations instead of one.
    __asm__("" : "+x"(early));
    __m128i t = _mm_sub_epi16(early, a);
    __m128i low = _mm_min_epi16(a, b), high = _mm_max_epi16(a, b);
    __m128i below_high = _mm_cmpgt_epi16(high, t), above_low = _mm_cmpgt_epi16(t, low);
    a = _mm_blendv_epi8(_mm_add_epi8(low, x), _mm_add_epi8(c, x), below_high);
    return _mm_blendv_epi8(_mm_add_epi8(high, x), a, above_low);
}

// If the left pixel equals the one above it, the prediction is the pixel above; so where 8 filtered
// pixels are 0, as in most of an icon or a screenshot, they are copied.
CONV_UNFILTER_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size,
                                size_t bpp)
{
    const size_t eight = 8 * bpp;
    __m128i a = _mm_setzero_si128(), c = a;
    for (size_t i = 0, end; i < size;) {
        end = size - i < eight ? size : i + eight;
        if (end == i + eight && is_zero(src + i, bpp) && equals(a, c, bpp)) {
            memcpy(dst + i, up + i, eight);
            a = c = _mm_cvtepu8_epi16(load_pixel(up + end - bpp, bpp));
            i = end;
            continue;
        }
        for (; i < end; i += bpp) {
            __m128i b = _mm_cvtepu8_epi16(load_pixel(up + i, bpp));
            __m128i x = _mm_cvtepu8_epi16(load_pixel(src + i, bpp));
            a = paeth_step(a, b, c, x);
            c = b;
            store_pixel(dst + i, _mm_packus_epi16(a, a), bpp);
        }
    }
}

CONV_UNFILTER_FUNCTIONS

// --- two rows ------------------------------------------------------------------------------------

// A pixel depends on the one to its left, so a row alone is limited by the latency of a few
// operations per pixel. Of two rows, the same instructions compute pixel i of the first and pixel
// i - LAG of the second. The pixel above the latter is the first row's result of LAG steps before,
// in a register.
#define LAG 2

// Four bytes of each row.
CONV_UNFILTER_INLINE __m128i load_both(const uint8_t *first, const uint8_t *second)
{
    int value;
    memcpy(&value, second, sizeof value);
    return _mm_insert_epi32(load_pixel(first, 4), value, 1);
}

CONV_UNFILTER_INLINE void store_both(uint8_t *first, uint8_t *second, __m128i pixels)
{
    uint64_t value = (uint64_t)_mm_cvtsi128_si64(pixels);
    uint32_t low = (uint32_t)value, high = (uint32_t)(value >> 32);
    memcpy(first, &low, sizeof low);
    memcpy(second, &high, sizeof high);
}

// Bytes that are not part of a pixel, or follow a row, are computed as well and mean nothing.
CONV_UNFILTER_INLINE void average_pair(uint8_t *const dst[2], const uint8_t *const src[2],
                                       const uint8_t *up, size_t size, size_t bpp)
{
    const size_t lag = LAG * bpp;
    const uint8_t *x0 = src[0], *x1 = src[1];
    uint8_t *out0 = dst[0], *out1 = dst[1];
    const __m128i ones = _mm_set1_epi8(-1);
    average(out0, x0, up, lag, bpp);
    __m128i older = _mm_xor_si128(load_pixel(out0, 4), ones);
    __m128i na = _mm_xor_si128(load_pixel(out0 + bpp, 4), ones);
    for (size_t i = 0; i < size; i += bpp) {
        __m128i nb = _mm_xor_si128(load_pixel(up + lag + i, 4), ones);
        __m128i x = load_both(x0 + lag + i, x1 + i);
        nb = _mm_unpacklo_epi32(nb, older);
        older = na;
        na = _mm_sub_epi8(_mm_avg_epu8(na, nb), x);
        store_both(out0 + lag + i, out1 + i, _mm_xor_si128(na, ones));
    }
}

CONV_UNFILTER_INLINE void paeth_pair(uint8_t *const dst[2], const uint8_t *const src[2],
                                     const uint8_t *up, size_t size, size_t bpp)
{
    const size_t lag = LAG * bpp;
    const uint8_t *x0 = src[0], *x1 = src[1];
    uint8_t *out0 = dst[0], *out1 = dst[1];
    paeth(out0, x0, up, lag, bpp);
    __m128i older = _mm_cvtepu8_epi16(load_pixel(out0, 4));
    __m128i a = _mm_cvtepu8_epi16(load_pixel(out0 + bpp, 4));
    __m128i c = _mm_cvtepu8_epi16(load_pixel(up + bpp, 4));
    for (size_t i = 0; i < size; i += bpp) {
        __m128i b = _mm_cvtepu8_epi16(load_pixel(up + lag + i, 4));
        __m128i x = _mm_cvtepu8_epi16(load_both(x0 + lag + i, x1 + i));
        b = _mm_unpacklo_epi64(b, older);
        older = a;
        a = paeth_step(a, b, c, x);
        c = b;
        store_both(out0 + lag + i, out1 + i, _mm_packus_epi16(a, a));
    }
}

#define PAIR(bpp)                                                                                  \
    static void average_pair_##bpp(uint8_t *const dst[2], const uint8_t *const src[2],             \
                                   const uint8_t *above, size_t size)                              \
    {                                                                                              \
        average_pair(dst, src, above, size, bpp);                                                  \
    }                                                                                              \
    static void paeth_pair_##bpp(uint8_t *const dst[2], const uint8_t *const src[2],               \
                                 const uint8_t *above, size_t size)                                \
    {                                                                                              \
        paeth_pair(dst, src, above, size, bpp);                                                    \
    }
PAIR(1)
PAIR(2)
PAIR(3)
PAIR(4)

#define PAIR_OF(bpp)                                                                               \
    {                                                                                              \
        NULL, NULL, NULL, average_pair_##bpp, paeth_pair_##bpp                                     \
    }
// The initialiser of conv_unfilter.pair. Pixels of 6 and 8 bytes have none.
#define PAIRS                                                                                      \
    {                                                                                              \
        PAIR_OF(1), PAIR_OF(2), PAIR_OF(3), PAIR_OF(4)                                             \
    }

// --- splitting -----------------------------------------------------------------------------------

// As conv_unfilter_vector_fn.

CONV_UNFILTER_INLINE void vector8_2(uint8_t *const *out, size_t at, const uint8_t *row)
{
    const __m128i low = _mm_set1_epi16(0xff);
    __m128i x = load16(row), y = load16(row + 16);
    store16(out[0] + at, _mm_packus_epi16(_mm_and_si128(x, low), _mm_and_si128(y, low)));
    store16(out[1] + at, _mm_packus_epi16(_mm_srli_epi16(x, 8), _mm_srli_epi16(y, 8)));
}

// Three channels: the shuffle index of byte b of the row, if that is in the row's v-th vector.
#define PICK(v, b) (char)((b) / 16 == (v) ? (b) % 16 : -128)
// Masks that collect channel c: 16 samples of 8 bits, or 8 of 16 bits with their bytes swapped.
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

CONV_UNFILTER_INLINE void vector8_3(uint8_t *const *out, size_t at, const uint8_t *row)
{
    __m128i x = load16(row), y = load16(row + 16), z = load16(row + 32);
    store16(out[0] + at, GATHER(MASK8, 0));
    store16(out[1] + at, GATHER(MASK8, 1));
    store16(out[2] + at, GATHER(MASK8, 2));
}

CONV_UNFILTER_INLINE void vector16_3(uint8_t *const *out, size_t at, const uint8_t *row)
{
    __m128i x = load16(row), y = load16(row + 16), z = load16(row + 32);
    store16(out[0] + at, GATHER(MASK16, 0));
    store16(out[1] + at, GATHER(MASK16, 1));
    store16(out[2] + at, GATHER(MASK16, 2));
}

// Four channels: each vector is sorted by channel, then the 4 x 4 groups of 4 bytes are transposed.
CONV_UNFILTER_INLINE void sort_4(uint8_t *const *out, size_t at, const uint8_t *row, __m128i sort)
{
    __m128i x = _mm_shuffle_epi8(load16(row), sort), y = _mm_shuffle_epi8(load16(row + 16), sort);
    __m128i z = _mm_shuffle_epi8(load16(row + 32), sort);
    __m128i w = _mm_shuffle_epi8(load16(row + 48), sort);
    __m128i xy = _mm_unpacklo_epi32(x, y), zw = _mm_unpacklo_epi32(z, w);
    store16(out[0] + at, _mm_unpacklo_epi64(xy, zw));
    store16(out[1] + at, _mm_unpackhi_epi64(xy, zw));
    xy = _mm_unpackhi_epi32(x, y), zw = _mm_unpackhi_epi32(z, w);
    store16(out[2] + at, _mm_unpacklo_epi64(xy, zw));
    store16(out[3] + at, _mm_unpackhi_epi64(xy, zw));
}

CONV_UNFILTER_INLINE void vector8_4(uint8_t *const *out, size_t at, const uint8_t *row)
{
    sort_4(out, at, row, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

CONV_UNFILTER_INLINE void vector16_4(uint8_t *const *out, size_t at, const uint8_t *row)
{
    sort_4(out, at, row, _mm_setr_epi8(1, 0, 9, 8, 3, 2, 11, 10, 5, 4, 13, 12, 7, 6, 15, 14));
}

CONV_UNFILTER_INLINE void vector16_1(uint8_t *const *out, size_t at, const uint8_t *row)
{
    const __m128i swap = _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    store16(out[0] + at, _mm_shuffle_epi8(load16(row), swap));
}

CONV_UNFILTER_INLINE void vector16_2(uint8_t *const *out, size_t at, const uint8_t *row)
{
    const __m128i sort = _mm_setr_epi8(1, 0, 5, 4, 9, 8, 13, 12, 3, 2, 7, 6, 11, 10, 15, 14);
    __m128i x = _mm_shuffle_epi8(load16(row), sort), y = _mm_shuffle_epi8(load16(row + 16), sort);
    store16(out[0] + at, _mm_unpacklo_epi64(x, y));
    store16(out[1] + at, _mm_unpackhi_epi64(x, y));
}

CONV_UNFILTER_SPLIT(split)

// --- wider vectors, where no pixel depends on another -------------------------------------------

#ifdef CONV_ISA_AVX2

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(src + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(above + i));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), _mm256_add_epi8(x, b));
    }
}

#define STEP 32 // pixels

// 16 bytes in the lower half, and those `far` bytes after them in the upper.
CONV_UNFILTER_INLINE __m256i load_halves(const uint8_t *p, size_t far)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(p)), load16(p + far), 1);
}

CONV_UNFILTER_INLINE void store32(uint8_t *p, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)p, value);
}

// vector8_3 of 16 pixels in each half.
CONV_UNFILTER_INLINE void wide8_3(uint8_t *const *out, size_t at, const uint8_t *row)
{
    __m256i x = load_halves(row, 48), y = load_halves(row + 16, 48);
    __m256i z = load_halves(row + 32, 48);
#define WIDE(part, c) _mm256_broadcastsi128_si256(MASK8(part, c))
#define GATHER_WIDE(c)                                                                             \
    _mm256_or_si256(                                                                               \
        _mm256_or_si256(_mm256_shuffle_epi8(x, WIDE(0, c)), _mm256_shuffle_epi8(y, WIDE(1, c))),   \
        _mm256_shuffle_epi8(z, WIDE(2, c)))
    store32(out[0] + at, GATHER_WIDE(0));
    store32(out[1] + at, GATHER_WIDE(1));
    store32(out[2] + at, GATHER_WIDE(2));
#undef GATHER_WIDE
#undef WIDE
}

// vector8_4 of 16 pixels in each half.
CONV_UNFILTER_INLINE void wide8_4(uint8_t *const *out, size_t at, const uint8_t *row)
{
    const __m256i sort = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i x = _mm256_shuffle_epi8(load_halves(row, 64), sort);
    __m256i y = _mm256_shuffle_epi8(load_halves(row + 16, 64), sort);
    __m256i z = _mm256_shuffle_epi8(load_halves(row + 32, 64), sort);
    __m256i w = _mm256_shuffle_epi8(load_halves(row + 48, 64), sort);
    __m256i xy = _mm256_unpacklo_epi32(x, y), zw = _mm256_unpacklo_epi32(z, w);
    store32(out[0] + at, _mm256_unpacklo_epi64(xy, zw));
    store32(out[1] + at, _mm256_unpackhi_epi64(xy, zw));
    xy = _mm256_unpackhi_epi32(x, y), zw = _mm256_unpackhi_epi32(z, w);
    store32(out[2] + at, _mm256_unpacklo_epi64(xy, zw));
    store32(out[3] + at, _mm256_unpackhi_epi64(xy, zw));
}

// The most frequent shapes; the others as with SSE4.1.
static void split_wide(const struct conv_image *dst, int y, const uint8_t *row)
{
    bool fits = dst->depth == 8 && dst->width >= STEP;
    if (fits && dst->channels == 3)
        conv_unfilter_split_row(dst, y, row, 3, 1, STEP, wide8_3);
    else if (fits && dst->channels == 4)
        conv_unfilter_split_row(dst, y, row, 4, 1, STEP, wide8_4);
    else
        split(dst, y, row);
}

const struct conv_unfilter conv_unfilter_avx2 = {
    .name = "avx2",
    .needs = CONV_CPU_AVX2,
    .reverse = CONV_UNFILTER_ALL,
    .pair = PAIRS,
    .split = split_wide,
};

#else

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 16)
        store16(dst + i, _mm_add_epi8(load16(src + i), load16(above + i)));
}

const struct conv_unfilter conv_unfilter_sse41 = {
    .name = "sse41",
    .needs = CONV_CPU_SSE41,
    .reverse = CONV_UNFILTER_ALL,
    .pair = PAIRS,
    .split = split,
};

#endif
#endif
