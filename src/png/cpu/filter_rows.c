// SPDX-License-Identifier: MIT
// The reference implementation, also used if there is no faster one. Its loops have no branches on
// pixels, so compilers vectorise them for the base architecture.
#include "png/cpu/filter_rows.h"

#include <assert.h>
#include <string.h>

#include "base/features.h"

static inline uint8_t difference(uint8_t a, uint8_t b)
{
    return a > b ? (uint8_t)(a - b) : (uint8_t)(b - a);
}

// With p = a + b - c the distances of the standard are |p - a| = |b - c|, |p - b| = |a - c| and
// |p - c| = |(a - c) + (b - c)|.
static inline uint8_t paeth(uint8_t a, uint8_t b, uint8_t c)
{
    int to_a = difference(b, c), to_b = difference(a, c);
    int both = a + b - 2 * c, to_c = both < 0 ? -both : both;
    uint8_t near = to_a <= to_b ? a : b;
    return to_c < to_a && to_c < to_b ? c : near;
}

static void filter_sub(uint8_t *restrict dst, const uint8_t *restrict row, size_t n)
{
    dst[0] = row[0];
    for (size_t x = 1; x < n; x++)
        dst[x] = (uint8_t)(row[x] - row[x - 1]);
}

static void filter_up(uint8_t *restrict dst, const uint8_t *restrict row,
                      const uint8_t *restrict above, size_t n)
{
    for (size_t x = 0; x < n; x++)
        dst[x] = (uint8_t)(row[x] - above[x]);
}

static void filter_average(uint8_t *restrict dst, const uint8_t *restrict row,
                           const uint8_t *restrict above, size_t n)
{
    dst[0] = (uint8_t)(row[0] - above[0] / 2);
    for (size_t x = 1; x < n; x++)
        dst[x] = (uint8_t)(row[x] - (row[x - 1] + above[x]) / 2);
}

static void filter_paeth(uint8_t *restrict dst, const uint8_t *restrict row,
                         const uint8_t *restrict above, size_t n)
{
    dst[0] = (uint8_t)(row[0] - above[0]);
    for (size_t x = 1; x < n; x++)
        dst[x] = (uint8_t)(row[x] - paeth(row[x - 1], above[x], above[x - 1]));
}

static void filter(uint8_t *dst, enum conv_row_filter type, const uint8_t *row,
                   const uint8_t *above, size_t n)
{
    switch (type) {
    case CONV_ROW_SUB:
        filter_sub(dst, row, n);
        break;
    case CONV_ROW_UP:
        filter_up(dst, row, above, n);
        break;
    case CONV_ROW_AVERAGE:
        filter_average(dst, row, above, n);
        break;
    case CONV_ROW_PAETH:
        filter_paeth(dst, row, above, n);
        break;
    default:
        memcpy(dst, row, n);
        break;
    }
}

static uint64_t sum_of_magnitudes(const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i] < 128 ? bytes[i] : 256u - bytes[i];
    return sum;
}

static void add_costs(uint64_t cost[CONV_ROW_FILTERS], const uint8_t *row, const uint8_t *above,
                      size_t n)
{
    // In blocks, each with the byte before it.
    enum { PIECE = 1024 };
    uint8_t filtered[PIECE + 1];
    for (size_t x = 0; x < n; x += PIECE) {
        size_t before = x > 0, count = (n - x < PIECE ? n - x : PIECE) + before;
        for (int f = 0; f < CONV_ROW_FILTERS; f++) {
            filter(filtered, (enum conv_row_filter)f, row + x - before, above + x - before, count);
            cost[f] += sum_of_magnitudes(filtered + before, count - before);
        }
    }
}

static inline __attribute__((always_inline)) void
join_planes(uint8_t *restrict row, const uint8_t *const *plane, int planes, size_t n)
{
    for (size_t x = 0; x < n; x++) {
        for (int p = 0; p < planes; p++)
            row[x * (size_t)planes + (size_t)p] = plane[p][x];
    }
}

static void join(uint8_t *row, const uint8_t *const *plane, int planes, size_t n)
{
    assert(planes >= 1 && planes <= CONV_ROW_MAX_PLANES);
    switch (planes) { // a constant lets the compiler unroll the inner loop
    case 1:
        memcpy(row, plane[0], n);
        break;
    case 2:
        join_planes(row, plane, 2, n);
        break;
    case 3:
        join_planes(row, plane, 3, n);
        break;
    case 4:
        join_planes(row, plane, 4, n);
        break;
    case 6:
        join_planes(row, plane, 6, n);
        break;
    default:
        join_planes(row, plane, planes, n);
        break;
    }
}

static void halve(uint8_t *restrict high, uint8_t *restrict low, const uint16_t *restrict samples,
                  size_t n)
{
    for (size_t x = 0; x < n; x++) {
        high[x] = (uint8_t)(samples[x] >> 8);
        low[x] = (uint8_t)samples[x];
    }
}

const struct conv_filter_rows conv_filter_rows_plain = {"plain", 0,    filter, add_costs,
                                                        join,    NULL, halve};

const struct conv_filter_rows *conv_filter_rows_choose(unsigned features)
{
#if defined(__x86_64__)
    const unsigned avx512 = conv_filter_rows_avx512.needs;
    if ((features & avx512) == avx512)
        return &conv_filter_rows_avx512;
#endif
#if defined(__x86_64__) || defined(__i386__)
    if (features & CONV_CPU_AVX2)
        return &conv_filter_rows_avx2;
#else
    (void)features;
#endif
    return &conv_filter_rows_plain;
}
