// SPDX-License-Identifier: MIT
// CRC-32 with AVX-512, which libdeflate before 1.20 does not have. The method is that of Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): a
// block of the data is multiplied by a power of x modulo the polynomial, and added to the block
// that is that number of bits further on.
#include "png/chunk.h"

#include <libdeflate.h>
#include <stdbool.h>

#include "base/features.h"

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
