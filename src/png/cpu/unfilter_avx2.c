// SPDX-License-Identifier: MIT
// unfilter_x86.h compiled for AVX2, whose three-operand instructions save register moves; and wider
// vectors where no pixel depends on another.
#ifdef __x86_64__
#include "base/features.h"

#include "png/cpu/unfilter_x86.h"

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(src + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(above + i));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), _mm256_add_epi8(x, b));
    }
}

// --- split ---------------------------------------------------------------------------------------

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
#endif
