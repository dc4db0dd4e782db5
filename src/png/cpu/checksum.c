// SPDX-License-Identifier: MIT
// Both sums with AVX-512, which libdeflate 1.14 does not have.
#include "png/chunk.h"

#include <libdeflate.h>
#include <stdbool.h>

#include "base/features.h"

// --- Adler-32 ------------------------------------------------------------------------------------

// libdeflate 1.14 has no AVX-512. The second sum of Adler-32 adds the first one after each byte: of
// a stretch of n bytes, byte i counts n - i times.

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

// --- CRC-32 --------------------------------------------------------------------------------------

// libdeflate 1.14 has no AVX-512. The method is that of Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): a block of the data is multiplied
// by a power of x modulo the polynomial, and added to the block that is that number of bits further
// on.

#if defined(__x86_64__)

#include <immintrin.h>

#define VPCLMUL __attribute__((target("avx512f,vpclmulqdq")))
#define VPCLMUL_INLINE static inline __attribute__((target("avx512f,vpclmulqdq"), always_inline))

#define LANE 16 // bytes of a block
#define WIDTH 64
#define STRIDE (4 * WIDTH) // four registers, since a multiplication takes several cycles
#define LEAST_BYTES (2 * STRIDE)

// The two words of a block move over n bits if they are multiplied by x^(n+63) and x^(n-1). Bit 0
// has the highest power of x, so a product of two words is one bit too low: hence not x^(n+64) and
// x^n. A factor's remainder modulo the polynomial, reflected, is in the upper half of its word.
#define MOVE(first, second)                                                                        \
    ((long long)((uint64_t)(second) << 32)), (long long)((uint64_t)(first) << 32)
#define OVER_2048 MOVE(0x7cc8e1e7, 0x03f9f863)
#define OVER_512 MOVE(0x653d9822, 0xcad38e8f)
#define OVER_384 MOVE(0x69ccfc0d, 0x2a283862)
#define OVER_256 MOVE(0x9570d495, 0x01b5fd1d)
#define OVER_128 MOVE(0x65673b46, 0x9ba54c6f)

// Moves four blocks by their factors and adds the blocks that are there.
VPCLMUL_INLINE __m512i fold(__m512i blocks, __m512i factors, __m512i there)
{
    __m512i first = _mm512_clmulepi64_epi128(blocks, factors, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(blocks, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, there, 0x96); // the sum of three bits
}

// Takes all but less than WIDTH bytes, of at least STRIDE, and returns how many. `block`: of which
// the remainder is that of the bytes taken.
VPCLMUL static size_t fold_all(uint8_t block[LANE], uint32_t crc, const uint8_t *data, size_t size)
{
    const __m512i over_2048 = _mm512_set_epi64(OVER_2048, OVER_2048, OVER_2048, OVER_2048);
    const __m512i over_512 = _mm512_set_epi64(OVER_512, OVER_512, OVER_512, OVER_512);
    const __m512i to_last = _mm512_set_epi64(0, 0, OVER_128, OVER_256, OVER_384);
    __m512i sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = _mm512_loadu_si512(data + WIDTH * i);
    sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    size_t at = STRIDE;
    for (; size - at >= STRIDE; at += STRIDE)
        for (int i = 0; i < 4; i++)
            sum[i] = fold(sum[i], over_2048, _mm512_loadu_si512(data + at + WIDTH * i));
    for (int i = 1; i < 4; i++)
        sum[i] = fold(sum[i - 1], over_512, sum[i]);
    for (; size - at >= WIDTH; at += WIDTH)
        sum[3] = fold(sum[3], over_512, _mm512_loadu_si512(data + at));
    // The last of the four blocks stays where it is.
    __m512i moved = fold(sum[3], to_last, _mm512_maskz_mov_epi64(0xc0, sum[3]));
    __m128i block_sum = _mm_xor_si128(
        _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 0), _mm512_extracti32x4_epi32(moved, 1)),
        _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(moved, 3)));
    _mm_storeu_si128((__m128i *)(void *)block, block_sum);
    return at;
}

static bool may_fold(void)
{
    return (conv_cpu_features() & CONV_CPU_AVX512) && __builtin_cpu_supports("vpclmulqdq");
}

#endif

uint32_t conv_png_crc(uint32_t crc, const uint8_t *data, size_t size)
{
#if defined(__x86_64__)
    uint8_t block[LANE];
    if (size >= LEAST_BYTES && may_fold()) {
        size_t done = fold_all(block, crc, data, size);
        // `crc` is in the block already; a CRC of all ones stands for an empty register.
        crc = libdeflate_crc32(UINT32_MAX, block, LANE);
        data += done;
        size -= done;
    }
#endif
    return libdeflate_crc32(crc, data, size);
}
