// SPDX-License-Identifier: MIT
// Filters with AVX2, 32 bytes at a time. The last vector of a row overlaps the one before. Paeth
// needs no wider type: see predict_paeth().
#include "png/cpu/filter_rows.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>

#include "base/features.h"

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))
#define WIDTH 32

AVX2_INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

AVX2_INLINE void store(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

// The bytes to the left of those at p, where p is the start of a row: 0 for the first.
AVX2_INLINE __m256i load_left_of_start(const uint8_t *p)
{
    __m256i v = load(p);
    __m256i low_half_up = _mm256_permute2x128_si256(v, v, 0x08);
    return _mm256_alignr_epi8(v, low_half_up, 15);
}

AVX2_INLINE __m256i difference(__m256i a, __m256i b)
{
    return _mm256_or_si256(_mm256_subs_epu8(a, b), _mm256_subs_epu8(b, a));
}

AVX2_INLINE __m256i predict_average(__m256i a, __m256i b)
{
    // _mm256_avg_epu8 rounds up; PNG rounds down.
    __m256i odd = _mm256_and_si256(_mm256_xor_si256(a, b), _mm256_set1_epi8(1));
    return _mm256_sub_epi8(_mm256_avg_epu8(a, b), odd);
}

// a left, b above, c above left. The distances are |b - c| to a, |a - c| to b and
// |(a - c) + (b - c)| to c. If c is outside of a..b, both terms have the same sign and c is
// farthest; if it is between them, they have opposite signs and the distance to c is the difference
// of the other two.
AVX2_INLINE __m256i predict_paeth(__m256i a, __m256i b, __m256i c)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i to_a = difference(b, c), to_b = difference(a, c);
    __m256i nearest = _mm256_min_epu8(to_a, to_b);
    __m256i b_wins = _mm256_cmpeq_epi8(_mm256_subs_epu8(to_a, to_b), zero); // inverted
    __m256i low = _mm256_min_epu8(a, b), high = _mm256_max_epu8(a, b);
    __m256i outside = _mm256_or_si256(_mm256_subs_epu8(low, c), _mm256_subs_epu8(c, high));
    __m256i inside = _mm256_cmpeq_epi8(outside, zero);
    __m256i to_c = difference(to_a, to_b);
    __m256i c_loses = _mm256_cmpeq_epi8(_mm256_subs_epu8(nearest, to_c), zero);
    __m256i near = _mm256_blendv_epi8(b, a, b_wins);
    return _mm256_blendv_epi8(near, c, _mm256_andnot_si256(c_loses, inside));
}

AVX2_INLINE __m256i predict(enum conv_row_filter type, __m256i a, __m256i b, __m256i c)
{
    switch (type) {
    case CONV_ROW_SUB:
        return a;
    case CONV_ROW_UP:
        return b;
    case CONV_ROW_AVERAGE:
        return predict_average(a, b);
    case CONV_ROW_PAETH:
        return predict_paeth(a, b, c);
    default:
        return _mm256_setzero_si256();
    }
}

AVX2_INLINE void filter_as(uint8_t *dst, enum conv_row_filter type, const uint8_t *row,
                           const uint8_t *above, size_t n)
{
    __m256i a = load_left_of_start(row), c = load_left_of_start(above);
    store(dst, _mm256_sub_epi8(load(row), predict(type, a, load(above), c)));
    for (size_t x = WIDTH; x < n; x += WIDTH) {
        if (x > n - WIDTH)
            x = n - WIDTH;
        __m256i prediction = predict(type, load(row + x - 1), load(above + x), load(above + x - 1));
        store(dst + x, _mm256_sub_epi8(load(row + x), prediction));
    }
}

AVX2 static void filter(uint8_t *dst, enum conv_row_filter type, const uint8_t *row,
                        const uint8_t *above, size_t n)
{
    if (n < WIDTH) {
        conv_filter_rows_plain.filter(dst, type, row, above, n);
        return;
    }
    CONV_ROW_DISPATCH(type, CONV_ROW_FILTER_AS);
}

// sum[f] holds four 64-bit sums; `keep` masks the bytes to count.
AVX2_INLINE void add_vector_costs(__m256i sum[CONV_ROW_FILTERS], __m256i v, __m256i a, __m256i b,
                                  __m256i c, __m256i keep)
{
    for (int f = 0; f < CONV_ROW_FILTERS; f++) {
        __m256i residual = _mm256_sub_epi8(v, predict((enum conv_row_filter)f, a, b, c));
        __m256i magnitude = _mm256_and_si256(_mm256_abs_epi8(residual), keep);
        sum[f] = _mm256_add_epi64(sum[f], _mm256_sad_epu8(magnitude, _mm256_setzero_si256()));
    }
}

AVX2 static void add_costs(uint64_t cost[CONV_ROW_FILTERS], const uint8_t *row,
                           const uint8_t *above, size_t n)
{
    static const uint8_t edge[2 * WIDTH] = {
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    if (n < WIDTH) {
        conv_filter_rows_plain.add_costs(cost, row, above, n);
        return;
    }
    __m256i sum[CONV_ROW_FILTERS];
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        sum[f] = _mm256_setzero_si256();
    add_vector_costs(sum, load(row), load_left_of_start(row), load(above),
                     load_left_of_start(above), _mm256_set1_epi8(-1));
    for (size_t x = WIDTH; x < n; x += WIDTH) {
        __m256i keep = _mm256_set1_epi8(-1);
        if (x > n - WIDTH) { // the first bytes have been counted already
            keep = load(edge + WIDTH - (x - (n - WIDTH)));
            x = n - WIDTH;
        }
        add_vector_costs(sum, load(row + x), load(row + x - 1), load(above + x),
                         load(above + x - 1), keep);
    }
    for (int f = 0; f < CONV_ROW_FILTERS; f++) {
        uint64_t lanes[4];
        store((uint8_t *)lanes, sum[f]);
        cost[f] += lanes[0] + lanes[1] + lanes[2] + lanes[3];
    }
}

// --- joining: whole vectors here, the rest of the row in plain C --------------------------------

AVX2_INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

AVX2_INLINE void store16(uint8_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)(void *)p, v);
}

AVX2_INLINE void store_pair(uint8_t *p, __m256i low, __m256i high)
{
    store(p, _mm256_permute2x128_si256(low, high, 0x20));
    store(p + WIDTH, _mm256_permute2x128_si256(low, high, 0x31));
}

AVX2_INLINE void join2(uint8_t *row, __m256i a, __m256i b)
{
    store_pair(row, _mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
}

// 16 pixels. Each output combines shuffled bytes of all planes; an index of -1 gives 0 in the
// places of the other planes.
AVX2_INLINE void join3(uint8_t *row, __m128i a, __m128i b, __m128i c)
{
    const __m128i a0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m128i b0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m128i c0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i a1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m128i b1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m128i c1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m128i a2 =
        _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m128i b2 =
        _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m128i c2 =
        _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
    store16(row, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, a0), _mm_shuffle_epi8(b, b0)),
                              _mm_shuffle_epi8(c, c0)));
    store16(row + 16, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, a1), _mm_shuffle_epi8(b, b1)),
                                   _mm_shuffle_epi8(c, c1)));
    store16(row + 32, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, a2), _mm_shuffle_epi8(b, b2)),
                                   _mm_shuffle_epi8(c, c2)));
}

// 32 pixels of four planes, interleaved by unpacking 8, then 16 bits.
AVX2_INLINE void join4(uint8_t *row, __m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
    __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
    __m256i q0 = _mm256_unpacklo_epi16(ab_low, cd_low), q1 = _mm256_unpackhi_epi16(ab_low, cd_low);
    __m256i q2 = _mm256_unpacklo_epi16(ab_high, cd_high);
    __m256i q3 = _mm256_unpackhi_epi16(ab_high, cd_high);
    store(row, _mm256_permute2x128_si256(q0, q1, 0x20));
    store(row + WIDTH, _mm256_permute2x128_si256(q2, q3, 0x20));
    store(row + 2 * WIDTH, _mm256_permute2x128_si256(q0, q1, 0x31));
    store(row + 3 * WIDTH, _mm256_permute2x128_si256(q2, q3, 0x31));
}

AVX2 static void join(uint8_t *row, const uint8_t *const *plane, int planes, size_t n)
{
    size_t x = 0;
    if (planes == 2) {
        for (; x + 32 <= n; x += 32)
            join2(row + 2 * x, load(plane[0] + x), load(plane[1] + x));
    } else if (planes == 3) {
        for (; x + 16 <= n; x += 16)
            join3(row + 3 * x, load16(plane[0] + x), load16(plane[1] + x), load16(plane[2] + x));
    } else if (planes == 4) {
        for (; x + 32 <= n; x += 32)
            join4(row + 4 * x, load(plane[0] + x), load(plane[1] + x), load(plane[2] + x),
                  load(plane[3] + x));
    }
    if (x < n) {
        const uint8_t *rest[CONV_ROW_MAX_PLANES];
        for (int p = 0; p < planes; p++)
            rest[p] = plane[p] + x;
        conv_filter_rows_plain.join(row + x * (size_t)planes, rest, planes, n - x);
    }
}

// --- filtering and joining at once ---------------------------------------------------------------

AVX2_INLINE __m256i make_residuals(enum conv_row_filter type, const uint8_t *row,
                                   const uint8_t *above, bool has_left)
{
    __m256i a = has_left ? load(row - 1) : load_left_of_start(row);
    __m256i c = has_left ? load(above - 1) : load_left_of_start(above);
    return _mm256_sub_epi8(load(row), predict(type, a, load(above), c));
}

AVX2_INLINE void put_joined(uint8_t *dst, enum conv_row_filter type, const uint8_t *const *row,
                            const uint8_t *const *above, int planes, size_t x, bool has_left)
{
    __m256i v[4];
    for (int p = 0; p < planes; p++)
        v[p] = make_residuals(type, row[p] + x, above[p] + x, has_left);
    dst += (size_t)planes * x;
    if (planes == 4) {
        join4(dst, v[0], v[1], v[2], v[3]);
        return;
    }
    join3(dst, _mm256_castsi256_si128(v[0]), _mm256_castsi256_si128(v[1]),
          _mm256_castsi256_si128(v[2]));
    join3(dst + 48, _mm256_extracti128_si256(v[0], 1), _mm256_extracti128_si256(v[1], 1),
          _mm256_extracti128_si256(v[2], 1));
}

AVX2_INLINE void filter_join_as(uint8_t *dst, enum conv_row_filter type, const uint8_t *const *row,
                                const uint8_t *const *above, int planes, size_t n, size_t left)
{
    if (left)
        put_joined(dst, type, row, above, planes, 0, true);
    else
        put_joined(dst, type, row, above, planes, 0, false);
    for (size_t x = WIDTH; x < n; x += WIDTH) {
        if (x > n - WIDTH)
            x = n - WIDTH;
        put_joined(dst, type, row, above, planes, x, true);
    }
}

AVX2 static void filter_join(uint8_t *dst, enum conv_row_filter type, const uint8_t *const *row,
                             const uint8_t *const *above, int planes, size_t n, size_t left)
{
    CONV_ROW_DISPATCH(type, CONV_ROW_FILTER_JOIN_AS);
}

AVX2 static void halve(uint8_t *high, uint8_t *low, const uint16_t *samples, size_t n)
{
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    size_t x = 0;
    for (; x + 32 <= n; x += 32) {
        __m256i a = load((const uint8_t *)(samples + x));
        __m256i b = load((const uint8_t *)(samples + x + 16));
        __m256i highs = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
        __m256i lows =
            _mm256_packus_epi16(_mm256_and_si256(a, low_bytes), _mm256_and_si256(b, low_bytes));
        store(high + x, _mm256_permute4x64_epi64(highs, 0xd8)); // packing works by 128-bit halves
        store(low + x, _mm256_permute4x64_epi64(lows, 0xd8));
    }
    if (x < n)
        conv_filter_rows_plain.halve(high + x, low + x, samples + x, n - x);
}

const struct conv_filter_rows conv_filter_rows_avx2 = {"avx2", CONV_CPU_AVX2, filter, add_costs,
                                                       join,   filter_join,   halve};

#endif
