// SPDX-License-Identifier: MIT
// The inner loops of the deflate writers for AVX-512 and its VBMI.
#include "png/cpu/deflate_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,bmi2")))
#define AVX512_INLINE static inline AVX512 __attribute__((always_inline))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi,bmi2")))
#define VBMI_INLINE static inline VBMI __attribute__((always_inline))
#define VBMI_VL __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2")))
#define VBMI_VL_INLINE static inline VBMI_VL __attribute__((always_inline))
// Longest group in bits: a flush leaves up to 7 bits pending.
#define GROUP_MOST 56

// The byte of the table at each byte of `index`. upper_half: where that is 128 or more.
VBMI_INLINE __m512i look_up(const __m512i table[4], __m512i index, __mmask64 upper_half)
{
    __m512i low = _mm512_permutex2var_epi8(table[0], index, table[1]);
    __m512i high = _mm512_permutex2var_epi8(table[2], index, table[3]);
    return _mm512_mask_blend_epi8(upper_half, low, high);
}

// --- literals ------------------------------------------------------------------------------------

// Literals with AVX-512 VBMI: 64 codewords are looked up in registers and joined by shifts to
// groups of eight, or of four where eight are too long, before they are written.

#define BYTES 64

// A byte for each of the 256 literals.
struct table {
    __m512i part[4];
};

VBMI_VL_INLINE struct table load_table(const uint8_t *bytes)
{
    struct table table;
    for (int i = 0; i < 4; i++)
        table.part[i] = _mm512_loadu_si512(bytes + BYTES * i);
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
VBMI_VL_INLINE void join_codes(struct groups *groups, __m512i low, __m512i high, __m512i bits)
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

VBMI_VL_INLINE struct conv_bits put_group(struct conv_bits out, uint64_t group, unsigned bits)
{
    conv_bits_put(&out, group, bits);
    conv_bits_flush(&out);
    return out;
}

static struct conv_bits put_singly(struct conv_bits out, const struct conv_deflate_codes *codes,
                                   const uint8_t *data)
{
    for (int i = 0; i < BYTES; i++) {
        conv_bits_put(&out, codes->litlen[data[i]], codes->litlen_bits[data[i]]);
        conv_bits_flush(&out);
    }
    return out;
}

VBMI_VL size_t conv_deflate_put_vbmi(struct conv_bits *out, const struct conv_deflate_codes *codes,
                                     const uint8_t *data, size_t size)
{
    uint8_t low_bytes[256], high_bytes[256];
    for (int s = 0; s < 256; s++) {
        low_bytes[s] = (uint8_t)codes->litlen[s];
        high_bytes[s] = (uint8_t)(codes->litlen[s] >> 8);
    }
    const struct table low = load_table(low_bytes), high = load_table(high_bytes);
    const struct table bits = load_table(codes->litlen_bits);
    struct conv_bits o = *out; // by value: see deflate_fast.c
    size_t at = 0;
    for (; size - at >= BYTES; at += BYTES) {
        struct groups groups;
        __m512i literals = _mm512_loadu_si512(data + at);
        __mmask64 upper_half = _mm512_movepi8_mask(literals);
        join_codes(&groups, look_up(low.part, literals, upper_half),
                   look_up(high.part, literals, upper_half),
                   look_up(bits.part, literals, upper_half));
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

// --- tokens --------------------------------------------------------------------------------------

// Tokens with AVX-512: 16 codewords at once are joined by shifts to groups of four, or of two where
// four are too long, before they are written. With VBMI they are looked up in registers, 64 at a
// time. Without it they are looked up one by one, some time before: on a Zen 5 a gather takes as
// long as all of the scalar code, and vectors cannot be loaded at once from what was just stored by
// parts.

#define WIDTH 16
#define LITERALS 256
#define BATCH 1024 // tokens whose codewords are looked up; with 128 icons took 1.02 times as long

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
    struct conv_bits o = *out; // by value: see deflate_fast.c
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

// --- VBMI ----------------------------------------------------------------------------------------

// The codes of all symbols in registers: for literals each of the two bytes of the codeword and its
// length, for the other symbols the entries of `written`.
struct registers {
    __m512i low[4], high[4], bits[4];
    __m512i other[4];
};

VBMI_INLINE struct registers load_codes(const uint32_t *written)
{
    uint8_t low[LITERALS], high[LITERALS], bits[LITERALS];
    struct registers r;
    for (int s = 0; s < LITERALS; s++) {
        low[s] = (uint8_t)written[s];
        high[s] = (uint8_t)(written[s] >> 8);
        bits[s] = (uint8_t)(written[s] >> 16);
    }
    for (int i = 0; i < 4; i++) {
        r.low[i] = _mm512_loadu_si512(low + 64 * i);
        r.high[i] = _mm512_loadu_si512(high + 64 * i);
        r.bits[i] = _mm512_loadu_si512(bits + 64 * i);
        int left = CONV_DEFLATE_SYMBOLS - LITERALS - WIDTH * i;
        __mmask16 exist = (__mmask16)(left < WIDTH ? (1 << left) - 1 : 0xffff);
        r.other[i] = _mm512_maskz_loadu_epi32(exist, written + LITERALS + WIDTH * i);
    }
    return r;
}

// The code of each token that is no literal, else of `literal`.
VBMI_INLINE __m512i look_up_others(const struct registers *r, __m512i tokens, __m512i literal)
{
    __m512i low = _mm512_permutex2var_epi32(r->other[0], tokens, r->other[1]);
    __m512i high = _mm512_permutex2var_epi32(r->other[2], tokens, r->other[3]);
    __m512i other = _mm512_mask_blend_epi32(
        _mm512_test_epi32_mask(tokens, _mm512_set1_epi32(2 * WIDTH)), low, high);
    return _mm512_mask_blend_epi32(_mm512_test_epi32_mask(tokens, _mm512_set1_epi32(LITERALS)),
                                   literal, other);
}

// Of each 128 bits, the first bytes of the four tokens of vector k become bytes 4k to 4k + 3: that
// is the order that unpacking the results needs.
VBMI_INLINE void look_up_64(__m512i codes[4], const struct registers *r, const __m512i tokens[4])
{
    const int none = -1, bytes = 0x0c080400; // shuffles: no byte, bytes 0, 4, 8 and 12
    const __m128i order[4] = {
        _mm_setr_epi32(bytes, none, none, none), _mm_setr_epi32(none, bytes, none, none),
        _mm_setr_epi32(none, none, bytes, none), _mm_setr_epi32(none, none, none, bytes)};
    __m512i index = _mm512_setzero_si512();
    for (int k = 0; k < 4; k++) {
        __m512i shuffle = _mm512_broadcast_i32x4(order[k]);
        index = _mm512_or_si512(index, _mm512_shuffle_epi8(tokens[k], shuffle));
    }
    __mmask64 upper_half = _mm512_movepi8_mask(index);
    __m512i low = look_up(r->low, index, upper_half);
    __m512i high = look_up(r->high, index, upper_half);
    __m512i bits = look_up(r->bits, index, upper_half);
    __m512i words[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    // A literal has no extra bits.
    __m512i lengths[2] = {_mm512_unpacklo_epi8(bits, bits), _mm512_unpackhi_epi8(bits, bits)};
    for (int k = 0; k < 4; k++) {
        __m512i literal = k % 2 ? _mm512_unpackhi_epi16(words[k / 2], lengths[k / 2])
                                : _mm512_unpacklo_epi16(words[k / 2], lengths[k / 2]);
        codes[k] = look_up_others(r, tokens[k], literal);
    }
}

VBMI size_t conv_deflate_put_tokens_vbmi(struct conv_bits *out, const uint32_t *written,
                                         const uint32_t *token, size_t count)
{
    const struct registers registers = load_codes(written);
    struct conv_bits o = *out;
    size_t at = 0;
    for (; count - at >= 4 * WIDTH; at += 4 * WIDTH) {
        __m512i tokens[4], codes[4];
        for (int k = 0; k < 4; k++)
            tokens[k] = _mm512_loadu_si512(token + at + (size_t)(WIDTH * k));
        look_up_64(codes, &registers, tokens);
        for (int k = 0; k < 4; k++)
            o = put_16(o, tokens[k], codes[k]);
    }
    *out = o;
    return at;
}

#endif
