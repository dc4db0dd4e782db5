// SPDX-License-Identifier: MIT
// Collects a block's literals and matches and writes them with the best code for them.
#include "png/cpu/deflate_internal.h"
#include "png/cpu/huffman.h"

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

// Two symbols for each power of two.
unsigned conv_deflate_distance_symbol(unsigned distance, unsigned *extra_bits)
{
    unsigned v = distance - 1;
    *extra_bits = 0;
    if (v < 4)
        return v;
    *extra_bits = log2_floor(v) - 1;
    return 2 * *extra_bits + (v >> *extra_bits);
}

// --- collecting ---------------------------------------------------------------------------------

void conv_deflate_start_tokens(struct conv_deflate_tokens *tokens, const uint8_t *data, size_t size)
{
    tokens->data = data;
    tokens->size = size;
    tokens->matches = tokens->done = 0;
    memset(&tokens->uses, 0, sizeof tokens->uses);
    tokens->uses.litlen[CONV_DEFLATE_END] = 1;
}

static void count_literals(struct conv_deflate_tokens *tokens, size_t end)
{
    for (const uint8_t *p = tokens->data + tokens->done; p < tokens->data + end; p++)
        tokens->uses.litlen[*p]++;
}

void conv_deflate_add_match(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                            size_t distance)
{
    unsigned extra;
    count_literals(tokens, at);
    size_t literals = at - tokens->done;
    tokens->done = at + length;
    while (length > 0) {
        // The rest must not be shorter than a match can be.
        size_t part = length <= CONV_DEFLATE_MATCH_MOST ? length
                      : length >= CONV_DEFLATE_MATCH_MOST + CONV_DEFLATE_MATCH_LEAST
                          ? CONV_DEFLATE_MATCH_MOST
                          : length - CONV_DEFLATE_MATCH_LEAST;
        tokens->match[tokens->matches++] =
            (struct conv_deflate_match){(uint32_t)literals, (uint16_t)part, (uint16_t)distance};
        tokens->uses.litlen[conv_deflate_length_symbol((unsigned)part, &extra)]++;
        tokens->uses.distance[conv_deflate_distance_symbol((unsigned)distance, &extra)]++;
        literals = 0;
        length -= part;
    }
}

// --- writing ------------------------------------------------------------------------------------

static const uint8_t *put_literal_run(struct conv_bits *out, const struct conv_deflate_codes *codes,
                                      const uint8_t *p, size_t count)
{
    for (; count >= 3; count -= 3, p += 3) {
        for (int i = 0; i < 3; i++)
            conv_bits_put(out, codes->litlen[p[i]], codes->litlen_bits[p[i]]);
        conv_bits_flush(out);
    }
    for (; count > 0; count--, p++)
        conv_bits_put(out, codes->litlen[*p], codes->litlen_bits[*p]);
    conv_bits_flush(out);
    return p;
}

static void put_match(struct conv_bits *out, const struct conv_deflate_codes *codes,
                      const struct conv_deflate_match *match)
{
    unsigned extra, symbol = conv_deflate_length_symbol(match->length, &extra);
    conv_bits_put(out, codes->litlen[symbol], codes->litlen_bits[symbol]);
    conv_bits_put(out, (match->length - 3u) & ((1u << extra) - 1), extra);
    symbol = conv_deflate_distance_symbol(match->distance, &extra);
    conv_bits_put(out, codes->distance[symbol], codes->distance_bits[symbol]);
    conv_bits_put(out, (match->distance - 1u) & ((1u << extra) - 1), extra);
    conv_bits_flush(out);
}

static void put_all(struct conv_bits *out, const struct conv_deflate_codes *codes,
                    const struct conv_deflate_tokens *tokens)
{
    struct conv_bits o = *out;
    const uint8_t *p = tokens->data;
    for (size_t i = 0; i < tokens->matches; i++) {
        p = put_literal_run(&o, codes, p, tokens->match[i].literals);
        put_match(&o, codes, &tokens->match[i]);
        p += tokens->match[i].length;
    }
    put_literal_run(&o, codes, p, (size_t)(tokens->data + tokens->size - p));
    conv_bits_put(&o, codes->litlen[CONV_DEFLATE_END], codes->litlen_bits[CONV_DEFLATE_END]);
    conv_bits_flush(&o);
    *out = o;
}

// Bits of the block without its header.
static uint64_t cost(const struct conv_deflate_uses *uses, const struct conv_deflate_codes *codes)
{
    uint64_t bits = 0;
    for (int s = 0; s < CONV_DEFLATE_LITLENS; s++) {
        int extra = s < 265 || s == 285 ? 0 : (s - 261) / 4;
        bits += (uint64_t)uses->litlen[s] * (codes->litlen_bits[s] + (unsigned)extra);
    }
    for (int s = 0; s < CONV_DEFLATE_DISTANCES; s++) {
        int extra = s < 4 ? 0 : s / 2 - 1;
        bits += (uint64_t)uses->distance[s] * (codes->distance_bits[s] + (unsigned)extra);
    }
    return bits;
}

bool conv_deflate_put_tokens(struct conv_bits *out, struct conv_deflate_codes *codes,
                             struct conv_deflate_tokens *tokens, bool last)
{
    count_literals(tokens, tokens->size);
    const struct conv_deflate_uses *uses = &tokens->uses;
    conv_huffman_lengths(codes->litlen_bits, uses->litlen, CONV_DEFLATE_LITLENS,
                         CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->litlen, codes->litlen_bits, CONV_DEFLATE_LITLENS);
    conv_huffman_lengths(codes->distance_bits, uses->distance, CONV_DEFLATE_DISTANCES,
                         CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->distance, codes->distance_bits, CONV_DEFLATE_DISTANCES);
    if (cost(uses, codes) >= 8 * (uint64_t)tokens->size)
        return false;
    conv_deflate_put_header(out, codes, last);
    put_all(out, codes, tokens);
    return true;
}
