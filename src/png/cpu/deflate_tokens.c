// SPDX-License-Identifier: MIT
// Collects a block's literals and matches and writes them with the best code for them.
#include "base/features.h"
#include "png/cpu/deflate_internal.h"

// --- length and distance symbols (RFC 1951, 3.2.5) ----------------------------------------------

static unsigned log2_floor(unsigned v)
{
    return 31u - (unsigned)__builtin_clz(v);
}

// Lengths 3 to 10 have a symbol each, then four symbols share each power of two; 258 has its own.
unsigned conv_deflate_length_symbol(unsigned length, unsigned *extra_bits)
{
    *extra_bits = 0;
    if (length == 258)
        return 285;
    unsigned v = length - 3;
    if (v < 8)
        return 257 + v;
    *extra_bits = log2_floor(v) - 2;
    return 257 + 4 * *extra_bits + (v >> *extra_bits);
}

// --- collecting ---------------------------------------------------------------------------------

void conv_deflate_init_tokens(struct conv_deflate_tokens *tokens, unsigned features)
{
    tokens->features = features;
    for (unsigned length = 3; length <= CONV_DEFLATE_MATCH_MOST; length++) {
        unsigned extra_bits, symbol = conv_deflate_length_symbol(length, &extra_bits);
        tokens->length_token[length] =
            CONV_DEFLATE_TOKEN(symbol, (length - 3) & ((1u << extra_bits) - 1));
    }
}

void conv_deflate_start_tokens(struct conv_deflate_tokens *tokens, const uint8_t *data, size_t size)
{
    tokens->data = data;
    tokens->size = size;
    tokens->count = tokens->done = 0;
}

void conv_deflate_add_match(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                            size_t distance)
{
    conv_deflate_add_tokens(tokens, at, length, conv_deflate_distance_token((unsigned)distance),
                            conv_deflate_copy_plain);
}

// --- writing ------------------------------------------------------------------------------------

// Counts the symbols in four arrays, since an increment would wait for the one before if that is of
// the same symbol.
static void count_symbols(uint32_t *uses, const struct conv_deflate_tokens *tokens)
{
    uint32_t counts[4][CONV_DEFLATE_SYMBOLS] = {{0}};
    const uint32_t *token = tokens->token, *end = token + tokens->count;
    for (; end - token >= 4; token += 4) {
        for (int i = 0; i < 4; i++)
            counts[i][token[i] & 0xffff]++;
    }
    for (; token < end; token++)
        counts[0][*token & 0xffff]++;
    for (size_t s = 0; s < CONV_DEFLATE_SYMBOLS; s++)
        uses[s] = counts[0][s] + counts[1][s] + counts[2][s] + counts[3][s];
    uses[CONV_DEFLATE_END] = 1;
}

static unsigned extra_bits_of(unsigned symbol)
{
    if (symbol >= CONV_DEFLATE_LITLENS) {
        symbol -= CONV_DEFLATE_LITLENS;
        return symbol < 4 ? 0 : symbol / 2 - 1;
    }
    return symbol < 265 || symbol == 285 ? 0 : (symbol - 261) / 4;
}

// What is written for each symbol: the codeword in bits 0-15, its length in bits 16-23, and the
// length with extra bits in bits 24-31. Returns the bits of the block without its header.
static uint64_t join_codes(uint32_t *written, const struct conv_deflate_codes *codes,
                           const uint32_t *uses)
{
    uint64_t total = 0;
    for (unsigned s = 0; s < CONV_DEFLATE_SYMBOLS; s++) {
        bool distance = s >= CONV_DEFLATE_LITLENS;
        unsigned i = distance ? s - CONV_DEFLATE_LITLENS : s;
        uint32_t bits = distance ? codes->distance_bits[i] : codes->litlen_bits[i];
        uint32_t all = bits + extra_bits_of(s);
        written[s] = (distance ? codes->distance[i] : codes->litlen[i]) | bits << 16 | all << 24;
        total += (uint64_t)uses[s] * all;
    }
    return total;
}

// Bits to be put, at most CONV_BITS_BETWEEN_FLUSHES of them.
struct group {
    uint64_t bits;
    unsigned count;
};

static inline __attribute__((always_inline)) struct group token_bits(const uint32_t *written,
                                                                     uint32_t token)
{
    uint32_t code = written[token & 0xffff];
    uint64_t extra = (uint64_t)(token >> 16) << (code >> 16 & 0xff);
    return (struct group){(code & 0xffff) | extra, code >> 24};
}

// Two tokens take at most 2 x (15 + 13) bits.
static inline __attribute__((always_inline)) struct group two_tokens(const uint32_t *written,
                                                                     const uint32_t *token)
{
    struct group a = token_bits(written, token[0]), b = token_bits(written, token[1]);
    return (struct group){a.bits | b.bits << a.count, a.count + b.count};
}

// All tokens from number `done` on, and the end of the block.
static inline __attribute__((always_inline)) void put_all(struct conv_bits *out,
                                                          const uint32_t *written,
                                                          const struct conv_deflate_tokens *tokens,
                                                          size_t done)
{
    const uint32_t *token = tokens->token + done, *end = tokens->token + tokens->count;
    struct conv_bits o = *out; // by value: see deflate_fast.c
    for (; end - token >= 4; token += 4) {
        struct group a = two_tokens(written, token), b = two_tokens(written, token + 2);
        conv_bits_put(&o, a.bits, a.count);
        if (__builtin_expect(a.count + b.count > CONV_BITS_BETWEEN_FLUSHES, 0))
            conv_bits_flush(&o);
        conv_bits_put(&o, b.bits, b.count);
        conv_bits_flush(&o);
    }
    for (;; token++) {
        struct group last = token_bits(written, token < end ? *token : CONV_DEFLATE_END);
        conv_bits_put(&o, last.bits, last.count);
        conv_bits_flush(&o);
        if (token == end)
            break;
    }
    *out = o;
}

static void put_all_plain(struct conv_bits *out, const uint32_t *written,
                          const struct conv_deflate_tokens *tokens)
{
    put_all(out, written, tokens, 0);
}

#if defined(__x86_64__)
// The same, compiled with variable shifts.
__attribute__((target("bmi2"))) static void put_all_bmi2(struct conv_bits *out,
                                                         const uint32_t *written,
                                                         const struct conv_deflate_tokens *tokens,
                                                         size_t done)
{
    put_all(out, written, tokens, done);
}
#endif

bool conv_deflate_put_tokens(struct conv_bits *out, struct conv_deflate_codes *codes,
                             struct conv_deflate_tokens *tokens, bool last)
{
    uint32_t uses[CONV_DEFLATE_SYMBOLS], written[CONV_DEFLATE_SYMBOLS];
    const uint32_t *distance_uses = uses + CONV_DEFLATE_LITLENS;
    conv_deflate_add_literals(tokens, tokens->size, conv_deflate_copy_plain);
    count_symbols(uses, tokens);
    conv_huffman_lengths(codes->litlen_bits, uses, CONV_DEFLATE_LITLENS, CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->litlen, codes->litlen_bits, CONV_DEFLATE_LITLENS);
    conv_huffman_lengths(codes->distance_bits, distance_uses, CONV_DEFLATE_DISTANCES,
                         CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->distance, codes->distance_bits, CONV_DEFLATE_DISTANCES);
    if (join_codes(written, codes, uses) >= 8 * (uint64_t)tokens->size)
        return false;
    conv_deflate_put_header(out, codes, last);
#if defined(__x86_64__)
    if (tokens->features & CONV_CPU_AVX2) { // has BMI2 as well
        size_t done = 0;
        bool avx512 = tokens->features & CONV_CPU_AVX512;
        if (avx512 && tokens->features & CONV_CPU_VBMI)
            done = conv_deflate_put_tokens_vbmi(out, written, tokens->token, tokens->count);
        if (avx512)
            done +=
                conv_deflate_put_avx512(out, written, tokens->token + done, tokens->count - done);
        put_all_bmi2(out, written, tokens, done);
    } else
#endif
        put_all_plain(out, written, tokens);
    return true;
}
