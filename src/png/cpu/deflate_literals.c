// SPDX-License-Identifier: MIT
// Blocks of literals only, the best form for most filtered rows of photographs. Two literals are
// looked up at a time, in a table of codeword pairs built for each block.
#include "base/features.h"
#include "png/cpu/deflate_internal.h"

// An entry holds two codewords and, in its top 6 bits, their length together. If they are longer
// than PAIR_MOST, which takes two rare literals, it holds the length ESCAPE instead: the sum of two
// entries' lengths then exceeds that of any two pairs that fit.
#define PAIR_SHIFT 26
#define PAIR_MOST 26
#define PAIR_MASK ((1u << PAIR_SHIFT) - 1)
#define ESCAPE 63u

#define INLINE static inline __attribute__((always_inline))

// Makes codewords for all 256 literals, since one that the sample lacks may still occur.
static void make_codes(struct conv_deflate_codes *codes, const struct conv_deflate_sample *sample)
{
    uint32_t counts[CONV_DEFLATE_LITLENS] = {0};
    static const uint32_t no_distance[CONV_DEFLATE_DISTANCES];
    for (int s = 0; s < 256; s++)
        counts[s] = 4 * sample->count[s] + 1;
    counts[CONV_DEFLATE_END] = 1;
    conv_huffman_lengths(codes->litlen_bits, counts, CONV_DEFLATE_LITLENS, CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->litlen, codes->litlen_bits, CONV_DEFLATE_LITLENS);
    conv_huffman_lengths(codes->distance_bits, no_distance, CONV_DEFLATE_DISTANCES,
                         CONV_DEFLATE_LIMIT);
}

// A gain below 1/64 is not worth it: stored bytes are faster to write and to read.
static bool gains(const struct conv_deflate_codes *codes, const struct conv_deflate_sample *sample)
{
    uint64_t bits = 0;
    for (int s = 0; s < 256; s++)
        bits += (uint64_t)sample->count[s] * codes->litlen_bits[s];
    return bits + bits / 64 < 8 * (uint64_t)sample->bytes;
}

INLINE void make_pairs(uint32_t *restrict pair, const struct conv_deflate_codes *restrict codes)
{
    uint32_t second[256], second_bits[256];
    for (int s = 0; s < 256; s++) {
        second[s] = codes->litlen[s];
        second_bits[s] = codes->litlen_bits[s];
    }
    for (int first = 0; first < 256; first++) {
        uint32_t bits = codes->litlen_bits[first];
        uint32_t base = codes->litlen[first] | bits << PAIR_SHIFT;
        uint32_t *row = pair + 256 * first;
        for (int s = 0; s < 256; s++) {
            uint32_t entry = base + (second[s] << bits) + (second_bits[s] << PAIR_SHIFT);
            row[s] = bits + second_bits[s] > PAIR_MOST ? ESCAPE << PAIR_SHIFT : entry;
        }
    }
}

INLINE uint64_t load_first_highest(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// The writer is passed by value here and below. Through a pointer, stores to out.at might alias it,
// and the compiler would keep it in memory instead of in registers.
static struct conv_bits put_singly(struct conv_bits out, const struct conv_deflate_codes *codes,
                                   const uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        conv_bits_put(&out, codes->litlen[data[i]], codes->litlen_bits[data[i]]);
        conv_bits_flush(&out);
    }
    return out;
}

// Puts four literals, given the table entries of both pairs. Eight at once where they fit was 4 %
// faster on photographs and 12 % slower on embossed ones.
INLINE struct conv_bits put_four(struct conv_bits out, const struct conv_deflate_codes *codes,
                                 uint32_t first, uint32_t second, const uint8_t *data)
{
    unsigned first_bits = first >> PAIR_SHIFT, bits = first_bits + (second >> PAIR_SHIFT);
    if (__builtin_expect(bits > 2 * PAIR_MOST, 0))
        return put_singly(out, codes, data, 4);
    uint64_t four = (first & PAIR_MASK) | (uint64_t)(second & PAIR_MASK) << first_bits;
    conv_bits_put(&out, four, bits);
    conv_bits_flush(&out);
    return out;
}

INLINE void put_words(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                      size_t words)
{
    const struct conv_deflate_codes *codes = &deflate->codes;
    const uint32_t *pair = deflate->pair;
    struct conv_bits o = *out;
    make_pairs(deflate->pair, codes);
    for (; words > 0; words--, data += 8) {
        uint64_t word = load_first_highest(data);
        o = put_four(o, codes, pair[word >> 48], pair[word >> 32 & 0xffff], data);
        o = put_four(o, codes, pair[word >> 16 & 0xffff], pair[word & 0xffff], data + 4);
    }
    *out = o;
}

static void put_words_plain(struct conv_deflate *deflate, struct conv_bits *out,
                            const uint8_t *data, size_t words)
{
    put_words(deflate, out, data, words);
}

#if defined(__x86_64__)
// The same, compiled with variable shifts and wider vectors.
__attribute__((target("avx2,bmi2"))) static void put_words_avx2(struct conv_deflate *deflate,
                                                                struct conv_bits *out,
                                                                const uint8_t *data, size_t words)
{
    put_words(deflate, out, data, words);
}
#endif

bool conv_deflate_put_literals(struct conv_deflate *deflate, struct conv_bits *out,
                               const struct conv_deflate_sample *sample, const uint8_t *data,
                               size_t size, bool last)
{
    struct conv_deflate_codes *codes = &deflate->codes;
    make_codes(codes, sample);
    if (!gains(codes, sample))
        return false;
    conv_deflate_put_header(out, codes, last);
    size_t done = size / 8 * 8;
#if defined(__x86_64__)
    if (deflate->tokens.features & CONV_CPU_VBMI)
        done = conv_deflate_put_vbmi(out, codes, data, size);
    else if (deflate->tokens.features & CONV_CPU_AVX2)
        put_words_avx2(deflate, out, data, size / 8);
    else
#endif
        put_words_plain(deflate, out, data, size / 8);
    *out = put_singly(*out, codes, data + done, size - done);
    conv_bits_put(out, codes->litlen[CONV_DEFLATE_END], codes->litlen_bits[CONV_DEFLATE_END]);
    conv_bits_flush(out);
    return true;
}
