// SPDX-License-Identifier: MIT
// Filters with AVX-512, 64 bytes at a time. What is after the end of a row or before its start is
// masked, and reads as 0.
#include "png/cpu/filter_rows.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>

#include "base/features.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AVX512_INLINE                                                                              \
    static inline __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), always_inline))
#define WIDTH 64

// Of each column: its sample, and those to the left, above and above left.
struct samples {
    __m512i here, left, above, corner;
};

// The samples of up to `n` columns. `has_left`: there is a column before them.
AVX512_INLINE struct samples load(const uint8_t *row, const uint8_t *above, size_t n, bool has_left)
{
    __mmask64 keep = n < WIDTH ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
    __mmask64 keep_left = has_left ? keep : keep & ~(uint64_t)1;
    return (struct samples){
        .here = _mm512_maskz_loadu_epi8(keep, row),
        .left = _mm512_maskz_loadu_epi8(keep_left, row - 1),
        .above = _mm512_maskz_loadu_epi8(keep, above),
        .corner = _mm512_maskz_loadu_epi8(keep_left, above - 1),
    };
}

AVX512_INLINE __m512i difference(__m512i a, __m512i b)
{
    return _mm512_sub_epi8(_mm512_max_epu8(a, b), _mm512_min_epu8(a, b));
}

AVX512_INLINE __m512i predict_average(__m512i a, __m512i b)
{
    // _mm512_avg_epu8 rounds up; PNG rounds down.
    __m512i odd = _mm512_and_si512(_mm512_xor_si512(a, b), _mm512_set1_epi8(1));
    return _mm512_sub_epi8(_mm512_avg_epu8(a, b), odd);
}

// See predict_paeth() of filter_rows_avx2.c.
AVX512_INLINE __m512i predict_paeth(__m512i a, __m512i b, __m512i c)
{
    __m512i to_a = difference(b, c), to_b = difference(a, c), to_c = difference(to_a, to_b);
    __m512i low = _mm512_min_epu8(a, b), high = _mm512_max_epu8(a, b);
    __mmask64 b_wins = _mm512_cmpgt_epu8_mask(to_a, to_b);
    __mmask64 inside =
        _mm512_mask_cmple_epu8_mask(_mm512_cmple_epu8_mask(low, c), c, high); // c between a and b
    __mmask64 c_wins = _mm512_mask_cmplt_epu8_mask(inside, to_c, _mm512_min_epu8(to_a, to_b));
    return _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(a, b_wins, b), c_wins, c);
}

AVX512_INLINE __m512i make_residuals(enum conv_row_filter type, struct samples s)
{
    switch (type) {
    case CONV_ROW_SUB:
        return _mm512_sub_epi8(s.here, s.left);
    case CONV_ROW_UP:
        return _mm512_sub_epi8(s.here, s.above);
    case CONV_ROW_AVERAGE:
        return _mm512_sub_epi8(s.here, predict_average(s.left, s.above));
    case CONV_ROW_PAETH:
        return _mm512_sub_epi8(s.here, predict_paeth(s.left, s.above, s.corner));
    default:
        return s.here;
    }
}

AVX512_INLINE void filter_as(uint8_t *dst, enum conv_row_filter type, const uint8_t *row,
                             const uint8_t *above, size_t n)
{
    for (size_t x = 0; x < n; x += WIDTH) {
        __mmask64 keep = n - x < WIDTH ? ((uint64_t)1 << (n - x)) - 1 : ~(uint64_t)0;
        struct samples samples = load(row + x, above + x, n - x, x > 0);
        _mm512_mask_storeu_epi8(dst + x, keep, make_residuals(type, samples));
    }
}

AVX512 static void filter(uint8_t *dst, enum conv_row_filter type, const uint8_t *row,
                          const uint8_t *above, size_t n)
{
    CONV_ROW_DISPATCH(type, CONV_ROW_FILTER_AS);
}

// In each 128-bit lane the sums of pairs of 64 bits of a, and of b.
AVX512_INLINE __m512i add_pairs(__m512i a, __m512i b)
{
    return _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

AVX512 static void add_costs(uint64_t cost[CONV_ROW_FILTERS], const uint8_t *row,
                             const uint8_t *above, size_t n)
{
    __m512i sum[CONV_ROW_FILTERS];
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        sum[f] = _mm512_setzero_si512();
    for (size_t x = 0; x < n; x += WIDTH) {
        struct samples samples = load(row + x, above + x, n - x, x > 0);
        for (int f = 0; f < CONV_ROW_FILTERS; f++) {
            __m512i residual = make_residuals((enum conv_row_filter)f, samples);
            __m512i sums = _mm512_sad_epu8(_mm512_abs_epi8(residual), _mm512_setzero_si512());
            sum[f] = _mm512_add_epi64(sum[f], sums);
        }
    }
    __m512i low = add_pairs(sum[0], sum[1]), high = add_pairs(sum[2], sum[3]);
    __m512i all = _mm512_add_epi64(_mm512_shuffle_i64x2(low, high, 0x44),
                                   _mm512_shuffle_i64x2(low, high, 0xee));
    all = _mm512_add_epi64(all, _mm512_shuffle_i64x2(all, all, 0xb1)); // each lane twice
    uint64_t sums[8];
    _mm512_storeu_si512(sums, all);
    cost[0] += sums[0];
    cost[1] += sums[1];
    cost[2] += sums[4];
    cost[3] += sums[5];
    cost[4] += (uint64_t)_mm512_reduce_add_epi64(sum[4]);
}

// --- filtering and joining at once ---------------------------------------------------------------

AVX512_INLINE __m512i repeat(__m128i lane)
{
    return _mm512_broadcast_i32x4(lane);
}

AVX512_INLINE __m512i merge3(__m512i a, __m512i b, __m512i c)
{
    return _mm512_or_si512(_mm512_or_si512(a, b), c);
}

// 64 pixels. In each lane, three vectors of 16 bytes combine shuffled bytes of all planes; an index
// of -1 gives 0 in the places of the other planes.
AVX512_INLINE void join3(uint8_t *dst, const __m512i v[3])
{
    const __m512i a0 =
        repeat(_mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5));
    const __m512i a1 =
        repeat(_mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1));
    const __m512i a2 =
        repeat(_mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1));
    const __m512i b0 =
        repeat(_mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1));
    const __m512i b1 =
        repeat(_mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10));
    const __m512i b2 =
        repeat(_mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1));
    const __m512i c0 =
        repeat(_mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1));
    const __m512i c1 =
        repeat(_mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1));
    const __m512i c2 =
        repeat(_mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15));
    __m512i r0 = merge3(_mm512_shuffle_epi8(v[0], a0), _mm512_shuffle_epi8(v[1], b0),
                        _mm512_shuffle_epi8(v[2], c0));
    __m512i r1 = merge3(_mm512_shuffle_epi8(v[0], a1), _mm512_shuffle_epi8(v[1], b1),
                        _mm512_shuffle_epi8(v[2], c1));
    __m512i r2 = merge3(_mm512_shuffle_epi8(v[0], a2), _mm512_shuffle_epi8(v[1], b2),
                        _mm512_shuffle_epi8(v[2], c2));
    // The lanes in order: the first of r0, r1 and r2, the second of each, and so on. An index of 8
    // or more selects from the second vector.
    const __m512i r0r1_0 = _mm512_setr_epi64(0, 1, 8, 9, 0, 0, 2, 3);
    const __m512i r2_0 = _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 6, 7);
    const __m512i r0r1_1 = _mm512_setr_epi64(10, 11, 0, 0, 4, 5, 12, 13);
    const __m512i r2_1 = _mm512_setr_epi64(0, 1, 10, 11, 4, 5, 6, 7);
    const __m512i r0r1_2 = _mm512_setr_epi64(0, 0, 6, 7, 14, 15, 0, 0);
    const __m512i r2_2 = _mm512_setr_epi64(12, 13, 2, 3, 4, 5, 14, 15);
    __m512i out0 = _mm512_permutex2var_epi64(r0, r0r1_0, r1);
    __m512i out1 = _mm512_permutex2var_epi64(r0, r0r1_1, r1);
    __m512i out2 = _mm512_permutex2var_epi64(r0, r0r1_2, r1);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi64(out0, r2_0, r2));
    _mm512_storeu_si512(dst + WIDTH, _mm512_permutex2var_epi64(out1, r2_1, r2));
    _mm512_storeu_si512(dst + 2 * WIDTH, _mm512_permutex2var_epi64(out2, r2_2, r2));
}

// 64 pixels, interleaved by unpacking 8, then 16 bits. Lane i of the four results has the pixels
// from 16 i on, so the lanes are transposed.
AVX512_INLINE void join4(uint8_t *dst, const __m512i v[4])
{
    __m512i ab_low = _mm512_unpacklo_epi8(v[0], v[1]), ab_high = _mm512_unpackhi_epi8(v[0], v[1]);
    __m512i cd_low = _mm512_unpacklo_epi8(v[2], v[3]), cd_high = _mm512_unpackhi_epi8(v[2], v[3]);
    __m512i q0 = _mm512_unpacklo_epi16(ab_low, cd_low), q1 = _mm512_unpackhi_epi16(ab_low, cd_low);
    __m512i q2 = _mm512_unpacklo_epi16(ab_high, cd_high);
    __m512i q3 = _mm512_unpackhi_epi16(ab_high, cd_high);
    __m512i even01 = _mm512_shuffle_i64x2(q0, q1, 0x88), odd01 = _mm512_shuffle_i64x2(q0, q1, 0xdd);
    __m512i even23 = _mm512_shuffle_i64x2(q2, q3, 0x88), odd23 = _mm512_shuffle_i64x2(q2, q3, 0xdd);
    _mm512_storeu_si512(dst, _mm512_shuffle_i64x2(even01, even23, 0x88));
    _mm512_storeu_si512(dst + WIDTH, _mm512_shuffle_i64x2(odd01, odd23, 0x88));
    _mm512_storeu_si512(dst + 2 * WIDTH, _mm512_shuffle_i64x2(even01, even23, 0xdd));
    _mm512_storeu_si512(dst + 3 * WIDTH, _mm512_shuffle_i64x2(odd01, odd23, 0xdd));
}

// n >= WIDTH. The last vector of a row overlaps the one before.
AVX512_INLINE void filter_join_as(uint8_t *dst, enum conv_row_filter type,
                                  const uint8_t *const *row, const uint8_t *const *above,
                                  int planes, size_t n, size_t left)
{
    for (size_t x = 0; x < n; x += WIDTH) {
        if (x > n - WIDTH)
            x = n - WIDTH;
        __m512i v[4];
        for (int p = 0; p < planes; p++)
            v[p] = make_residuals(type, load(row[p] + x, above[p] + x, WIDTH, left || x > 0));
        if (planes == 4)
            join4(dst + 4 * x, v);
        else
            join3(dst + 3 * x, v);
    }
}

AVX512 static void filter_join(uint8_t *dst, enum conv_row_filter type, const uint8_t *const *row,
                               const uint8_t *const *above, int planes, size_t n, size_t left)
{
    if (n < WIDTH) {
        conv_filter_rows_avx2.filter_join(dst, type, row, above, planes, n, left);
        return;
    }
    CONV_ROW_DISPATCH(type, CONV_ROW_FILTER_JOIN_AS);
}

// --- used less often -----------------------------------------------------------------------------

static void join(uint8_t *row, const uint8_t *const *plane, int planes, size_t n)
{
    conv_filter_rows_avx2.join(row, plane, planes, n);
}

static void halve(uint8_t *high, uint8_t *low, const uint16_t *samples, size_t n)
{
    conv_filter_rows_avx2.halve(high, low, samples, n);
}

const struct conv_filter_rows conv_filter_rows_avx512 = {
    "avx512", CONV_CPU_AVX512 | CONV_CPU_AVX2, filter, add_costs, join, filter_join, halve};

#endif
