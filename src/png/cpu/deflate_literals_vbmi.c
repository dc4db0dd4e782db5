// SPDX-License-Identifier: MIT
// Literals with AVX-512 VBMI: 64 codewords are looked up in registers and joined by shifts to
// groups of eight, or of four where eight are too long, before they are written.
#include "png/cpu/deflate_internal.h"
#include "png/cpu/deflate_vbmi.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2")))
#define VBMI_INLINE                                                                                \
    static inline                                                                                  \
        __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2"), always_inline))
#define WIDTH 64
// Longest group in bits: a flush leaves up to 7 bits pending.
#define GROUP_MOST 56

// A byte for each of the 256 literals.
struct table {
    __m512i part[4];
};

VBMI_INLINE struct table load_table(const uint8_t *bytes)
{
    struct table table;
    for (int i = 0; i < 4; i++)
        table.part[i] = _mm512_loadu_si512(bytes + WIDTH * i);
    return table;
}

// 64 codewords in groups of eight if all of these fit, else in groups of four.
struct groups {
    uint64_t even[8], odd[8]; // fours 0, 2, 4, ... and 1, 3, 5, ...
    uint32_t bits[16];        // lengths of the fours, in order
    uint64_t eight[8], eight_bits[8];
    bool fours_fit, eights_fit;
};

// Joins codewords in 16-bit lanes to pairs in 32-bit lanes, and pairs to fours in 64-bit lanes: the
// second of two is shifted by the length of the first.
VBMI_INLINE void join_codes(struct groups *groups, __m512i low, __m512i high, __m512i bits)
{
    const __m512i low8 = _mm512_set1_epi16(0xff), low16 = _mm512_set1_epi32(0xffff);
    const __m512i low32 = _mm512_set1_epi64(0xffffffff), most = _mm512_set1_epi64(GROUP_MOST);
    __m512i even = _mm512_or_si512(_mm512_and_si512(low, low8), _mm512_slli_epi16(high, 8));
    __m512i odd = _mm512_or_si512(_mm512_srli_epi16(low, 8), _mm512_andnot_si512(low8, high));
    __m512i even_bits = _mm512_and_si512(bits, low8);
    __m512i pair_bits = _mm512_add_epi16(even_bits, _mm512_srli_epi16(bits, 8));

    __m512i first = _mm512_or_si512(
        _mm512_and_si512(even, low16),
        _mm512_sllv_epi32(_mm512_and_si512(odd, low16), _mm512_and_si512(even_bits, low16)));
    __m512i second = _mm512_or_si512(
        _mm512_srli_epi32(even, 16),
        _mm512_sllv_epi32(_mm512_srli_epi32(odd, 16), _mm512_srli_epi32(even_bits, 16)));
    __m512i first_bits = _mm512_and_si512(pair_bits, low16);
    __m512i four_bits = _mm512_add_epi32(first_bits, _mm512_srli_epi32(pair_bits, 16));

    __m512i even_fours = _mm512_or_si512(
        _mm512_and_si512(first, low32),
        _mm512_sllv_epi64(_mm512_and_si512(second, low32), _mm512_and_si512(first_bits, low32)));
    __m512i odd_fours = _mm512_or_si512(
        _mm512_srli_epi64(first, 32),
        _mm512_sllv_epi64(_mm512_srli_epi64(second, 32), _mm512_srli_epi64(first_bits, 32)));
    __m512i even_four_bits = _mm512_and_si512(four_bits, low32);
    __m512i odd_four_bits = _mm512_srli_epi64(four_bits, 32);
    __m512i eight_bits = _mm512_add_epi64(even_four_bits, odd_four_bits);
    groups->eights_fit = _mm512_cmpgt_epu64_mask(eight_bits, most) == 0;
    if (groups->eights_fit) {
        __m512i eights = _mm512_or_si512(even_fours, _mm512_sllv_epi64(odd_fours, even_four_bits));
        _mm512_storeu_si512(groups->eight, eights);
        _mm512_storeu_si512(groups->eight_bits, eight_bits);
        return;
    }
    groups->fours_fit = _mm512_cmpgt_epu64_mask(even_four_bits, most) == 0 &&
                        _mm512_cmpgt_epu64_mask(odd_four_bits, most) == 0;
    _mm512_storeu_si512(groups->even, even_fours);
    _mm512_storeu_si512(groups->odd, odd_fours);
    _mm512_storeu_si512(groups->bits, four_bits);
}

VBMI_INLINE struct conv_bits put_group(struct conv_bits out, uint64_t group, unsigned bits)
{
    conv_bits_put(&out, group, bits);
    conv_bits_flush(&out);
    return out;
}

static struct conv_bits put_singly(struct conv_bits out, const struct conv_deflate_codes *codes,
                                   const uint8_t *data)
{
    for (int i = 0; i < WIDTH; i++) {
        conv_bits_put(&out, codes->litlen[data[i]], codes->litlen_bits[data[i]]);
        conv_bits_flush(&out);
    }
    return out;
}

VBMI size_t conv_deflate_put_vbmi(struct conv_bits *out, const struct conv_deflate_codes *codes,
                                  const uint8_t *data, size_t size)
{
    uint8_t low_bytes[256], high_bytes[256];
    for (int s = 0; s < 256; s++) {
        low_bytes[s] = (uint8_t)codes->litlen[s];
        high_bytes[s] = (uint8_t)(codes->litlen[s] >> 8);
    }
    const struct table low = load_table(low_bytes), high = load_table(high_bytes);
    const struct table bits = load_table(codes->litlen_bits);
    struct conv_bits o = *out; // by value: see deflate_literals.c
    size_t at = 0;
    for (; size - at >= WIDTH; at += WIDTH) {
        struct groups groups;
        __m512i literals = _mm512_loadu_si512(data + at);
        __mmask64 upper_half = _mm512_movepi8_mask(literals);
        join_codes(&groups, conv_deflate_look_up(low.part, literals, upper_half),
                   conv_deflate_look_up(high.part, literals, upper_half),
                   conv_deflate_look_up(bits.part, literals, upper_half));
        if (groups.eights_fit) {
            for (int i = 0; i < 8; i++)
                o = put_group(o, groups.eight[i], (unsigned)groups.eight_bits[i]);
        } else if (groups.fours_fit) {
            for (int i = 0; i < 8; i++) {
                o = put_group(o, groups.even[i], groups.bits[2 * i]);
                o = put_group(o, groups.odd[i], groups.bits[2 * i + 1]);
            }
        } else {
            o = put_singly(o, codes, data + at);
        }
    }
    *out = o;
    return at;
}

#endif
