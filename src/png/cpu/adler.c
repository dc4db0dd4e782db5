// SPDX-License-Identifier: MIT
// libdeflate 1.14 has no AVX-512. The second sum of Adler-32 adds the first one after each byte: of
// a stretch of n bytes, byte i counts n - i times.
#include "png/cpu/adler.h"

#include <libdeflate.h>
#include <stdbool.h>

#include "base/features.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define WIDTH 64
#define STEP (2 * WIDTH)
// Bytes after which the sums are reduced. Of 32 KiB that are all 255 the largest, `earlier`, is the
// sum of 256 steps' predecessors: 255 x 128 x (255 x 256 / 2), less than 2^31.
#define STRETCH ((size_t)32 << 10)

static inline __attribute__((target("avx512f"))) uint64_t add_up(__m512i sums)
{
    return (uint32_t)_mm512_reduce_add_epi32(sums);
}

// `size` is a multiple of STEP.
VNNI static uint32_t sum_up(uint32_t adler, const uint8_t *data, size_t size)
{
    static const int8_t weights[WIDTH] = {
        64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43,
        42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21,
        20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  3,  2,  1};
    const __m512i ones = _mm512_set1_epi8(1), weight = _mm512_loadu_si512(weights);
    uint64_t low = adler & 0xffff, high = adler >> 16;
    while (size > 0) {
        size_t stretch = size < STRETCH ? size : STRETCH;
        __m512i first = _mm512_setzero_si512(), second = first; // sums of each step's two vectors
        __m512i weighted_first = first, weighted_second = first;
        __m512i earlier = first; // for each step, the sums of the steps before it
        for (const uint8_t *end = data + stretch; data < end; data += STEP) {
            __m512i a = _mm512_loadu_si512(data), b = _mm512_loadu_si512(data + WIDTH);
            earlier = _mm512_add_epi32(earlier, _mm512_add_epi32(first, second));
            first = _mm512_dpbusd_epi32(first, a, ones);
            second = _mm512_dpbusd_epi32(second, b, ones);
            weighted_first = _mm512_dpbusd_epi32(weighted_first, a, weight);
            weighted_second = _mm512_dpbusd_epi32(weighted_second, b, weight);
        }
        // The bytes of a first vector count once more for each byte of the second.
        high += stretch * low + STEP * add_up(earlier) + WIDTH * add_up(first) +
                add_up(weighted_first) + add_up(weighted_second);
        low += add_up(first) + add_up(second);
        low %= CONV_ADLER_BASE;
        high %= CONV_ADLER_BASE;
        size -= stretch;
    }
    return (uint32_t)(high << 16 | low);
}

static bool may_sum_up(void)
{
    const unsigned needed = CONV_CPU_AVX512 | CONV_CPU_VNNI;
    return (conv_cpu_features() & needed) == needed;
}

#endif

uint32_t conv_png_adler(uint32_t adler, const uint8_t *data, size_t size)
{
#if defined(__x86_64__)
    size_t steps = size / STEP * STEP;
    if (steps > 0 && may_sum_up()) {
        adler = sum_up(adler, data, steps);
        data += steps;
        size -= steps;
    }
#endif
    return size > 0 ? libdeflate_adler32(adler, data, size) : adler;
}
