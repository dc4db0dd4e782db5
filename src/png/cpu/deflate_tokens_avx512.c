// SPDX-License-Identifier: MIT
// Tokens with AVX-512: 16 codewords at once are joined by shifts to groups of four, or of two where
// four are too long, before they are written. They are looked up one by one, some time before: on a
// Zen 5 a gather takes as long as all of the scalar code, and vectors cannot be loaded at once from
// what was just stored by parts.
#include "png/cpu/deflate_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,bmi2")))
#define AVX512_INLINE static inline __attribute__((target("avx512f,avx512bw,bmi2"), always_inline))
#define WIDTH 16
#define BATCH 1024 // tokens whose codewords are looked up; with 128 icons took 1.02 times as long
// Longest group in bits: a flush leaves up to 7 bits pending.
#define GROUP_MOST 56

// `codes`: the entries of 16 tokens in conv_deflate_put_avx512's `written`.
AVX512_INLINE struct conv_bits put_16(struct conv_bits out, __m512i tokens, __m512i codes)
{
    const __m512i low8 = _mm512_set1_epi32(0xff), low16 = _mm512_set1_epi32(0xffff);
    const __m512i low32 = _mm512_set1_epi64(0xffffffff), most = _mm512_set1_epi64(GROUP_MOST);
    const __mmask8 even = 0x55;
    uint64_t group[8], group_bits[8];
    __m512i code_bits = _mm512_and_si512(_mm512_srli_epi32(codes, 16), low8);
    __m512i extra = _mm512_sllv_epi32(_mm512_srli_epi32(tokens, 16), code_bits);
    __m512i value = _mm512_or_si512(_mm512_and_si512(codes, low16), extra);
    __m512i bits = _mm512_srli_epi32(codes, 24);

    // Two in each 64-bit lane: at most 2 x (15 + 13) bits.
    __m512i first_bits = _mm512_and_si512(bits, low32);
    __m512i second = _mm512_sllv_epi64(_mm512_srli_epi64(value, 32), first_bits);
    __m512i two = _mm512_or_si512(_mm512_and_si512(value, low32), second);
    __m512i two_bits = _mm512_add_epi64(first_bits, _mm512_srli_epi64(bits, 32));

    // Four in each even lane.
    __m512i four_bits = _mm512_add_epi64(two_bits, _mm512_unpackhi_epi64(two_bits, two_bits));
    if (__builtin_expect(_mm512_mask_cmpgt_epu64_mask(even, four_bits, most), 0)) {
        _mm512_storeu_si512(group, two);
        _mm512_storeu_si512(group_bits, two_bits);
        for (int i = 0; i < 8; i++) {
            conv_bits_put(&out, group[i], (unsigned)group_bits[i]);
            conv_bits_flush(&out);
        }
        return out;
    }
    __m512i upper = _mm512_sllv_epi64(_mm512_unpackhi_epi64(two, two), two_bits);
    _mm512_storeu_si512(group, _mm512_or_si512(two, upper));
    _mm512_storeu_si512(group_bits, four_bits);
    for (int i = 0; i < 8; i += 2) {
        conv_bits_put(&out, group[i], (unsigned)group_bits[i]);
        conv_bits_flush(&out);
    }
    return out;
}

AVX512_INLINE void look_up_16(uint32_t *codes, const uint32_t *written, const uint32_t *token)
{
    for (int i = 0; i < WIDTH; i++) {
        uint32_t code = written[token[i] & 0xffff];
        // Without this GCC extracts the symbols from a vector and inserts the codes into another,
        // which takes twice as many operations.
        __asm__("" : "+r"(code));
        codes[i] = code;
    }
}

AVX512 size_t conv_deflate_put_avx512(struct conv_bits *out, const uint32_t *written,
                                      const uint32_t *token, size_t count)
{
    struct conv_bits o = *out; // by value: see deflate_literals.c
    size_t whole = count / WIDTH * WIDTH;
    uint32_t codes[BATCH];
    for (size_t at = 0; at < whole; at += BATCH) {
        size_t batch = whole - at < BATCH ? whole - at : BATCH;
        for (size_t i = 0; i < batch; i += WIDTH)
            look_up_16(codes + i, written, token + at + i);
        for (size_t i = 0; i < batch; i += WIDTH)
            o = put_16(o, _mm512_loadu_si512(token + at + i), _mm512_loadu_si512(codes + i));
    }
    *out = o;
    return whole;
}

#endif
