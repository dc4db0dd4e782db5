// SPDX-License-Identifier: MIT
// unfilter_x86.h compiled for AVX2, whose three-operand instructions save register moves.
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

const struct conv_unfilter conv_unfilter_avx2 = {
    .name = "avx2",
    .needs = CONV_CPU_AVX2,
    .reverse = CONV_UNFILTER_ALL,
    .pair = PAIRS,
    .split = split,
};
#endif
