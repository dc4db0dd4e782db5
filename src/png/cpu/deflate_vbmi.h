// SPDX-License-Identifier: MIT
// Tables of 256 bytes in registers, for AVX-512 VBMI.
#ifndef CONV_PNG_CPU_DEFLATE_VBMI_H
#define CONV_PNG_CPU_DEFLATE_VBMI_H

#if defined(__x86_64__)

#include <immintrin.h>

// The byte of the table at each byte of `index`. upper_half: where that is 128 or more.
static inline __attribute__((target("avx512f,avx512bw,avx512vbmi"), always_inline)) __m512i
conv_deflate_look_up(const __m512i table[4], __m512i index, __mmask64 upper_half)
{
    __m512i low = _mm512_permutex2var_epi8(table[0], index, table[1]);
    __m512i high = _mm512_permutex2var_epi8(table[2], index, table[3]);
    return _mm512_mask_blend_epi8(upper_half, low, high);
}

#endif
#endif
