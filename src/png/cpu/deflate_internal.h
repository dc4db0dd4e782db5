// SPDX-License-Identifier: MIT
// Shared by the files of the deflate writers, deflate*.c.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "png/cpu/deflate.h"

// --- matches -------------------------------------------------------------------------------------

static inline uint32_t conv_match_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t conv_match_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

// The number of equal bytes at a and b before `end`; a < b < end, and they may overlap.
static inline size_t conv_match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end)
{
    const uint8_t *start = b;
    while (end - b >= 8) {
        uint64_t different = conv_match_load64(a) ^ conv_match_load64(b);
        if (different)
            return (size_t)(b - start) + (size_t)__builtin_ctzll(different) / 8;
        a += 8;
        b += 8;
    }
    while (b < end && *a == *b) {
        a++;
        b++;
    }
    return (size_t)(b - start);
}

// --- deflate_codes.c: codes ----------------------------------------------------------------------

// Prefix codes of limited length for deflate (RFC 1951, 3.2).

#define CONV_HUFFMAN_MAX_SYMBOLS 288
#define CONV_HUFFMAN_MAX_BITS 15

// Sets the code lengths for symbols that occur counts[] times, each count below 2^24. They are
// optimal if none reaches `limit`, else nearly so. A symbol that does not occur gets 0. The code is
// always complete (Kraft sum 1), since decoders differ about incomplete ones: with fewer than two
// symbols in use, the first unused ones get a codeword. 2 <= symbols <= CONV_HUFFMAN_MAX_SYMBOLS,
// symbols <= 2^limit, limit <= CONV_HUFFMAN_MAX_BITS.
void conv_huffman_lengths(uint8_t *lengths, const uint32_t *counts, size_t symbols, int limit);

// Sets the canonical codewords of these lengths, with their bits reversed: deflate sends the first
// bit of a codeword in the lowest bit of a byte.
void conv_huffman_codes(uint16_t *codes, const uint8_t *lengths, size_t symbols);

// --- blocks --------------------------------------------------------------------------------------

// Shared by the files of the deflate writers, deflate_*.c.

enum { CONV_DEFLATE_STORED = 0, CONV_DEFLATE_DYNAMIC = 2 }; // kinds of block

#define CONV_DEFLATE_LITLENS 286
#define CONV_DEFLATE_DISTANCES 30
#define CONV_DEFLATE_END 256

// Longest codeword; the format's own limit. A lower one would allow simpler tables, but residuals
// of photographs have a long tail of rare values: with 12 the files are 2 % larger.
#define CONV_DEFLATE_LIMIT 15

#define CONV_DEFLATE_MATCH_LEAST 4 // 3 is possible; the hashes take 4 bytes
#define CONV_DEFLATE_MATCH_MOST 258
#define CONV_DEFLATE_WINDOW 32768u

// The symbols of both codes in one array: distances come after literals and lengths.
#define CONV_DEFLATE_SYMBOLS (CONV_DEFLATE_LITLENS + CONV_DEFLATE_DISTANCES)

// A token is a symbol in bits 0-15 and its extra bits in bits 16-31. A match is two tokens, so a
// block has at most as many tokens as bytes.
#define CONV_DEFLATE_TOKEN(symbol, extra) ((uint32_t)(symbol) | (uint32_t)(extra) << 16)

// Literals are copied this many at a time, with garbage after the last one: loops of unpredictable
// length are mispredicted. With 32 icons took 1.02 times as long, with 16 1.06 times.
#define CONV_DEFLATE_COPY 64

// The literals and matches of a block, stored until its codes can be made. `features` and
// `length_token` are conv_deflate_init_tokens'.
struct conv_deflate_tokens {
    unsigned features;
    const uint8_t *data; // of the block
    size_t size;
    size_t done; // bytes covered by the tokens
    size_t count;
    uint32_t length_token[CONV_DEFLATE_MATCH_MOST + 1];
    uint32_t token[CONV_DEFLATE_BLOCK + CONV_DEFLATE_COPY];
};

// The codewords of a block and their lengths.
struct conv_deflate_codes {
    uint16_t litlen[CONV_DEFLATE_LITLENS];
    uint16_t distance[CONV_DEFLATE_DISTANCES];
    uint8_t litlen_bits[CONV_DEFLATE_LITLENS];
    uint8_t distance_bits[CONV_DEFLATE_DISTANCES];
};

#define CONV_DEFLATE_HASH_BITS 12

struct conv_deflate {
    struct conv_deflate_codes codes;
    uint32_t pair[1 << 16];                     // deflate_fast.c: codewords of two literals
    uint32_t head[1 << CONV_DEFLATE_HASH_BITS]; // last position of each hash
    struct conv_deflate_tokens tokens;
};

// --- deflate_fast.c ------------------------------------------------------------------------------

// True if the output since `start`, made from `size` bytes, is no longer than a stored block.
bool conv_deflate_is_short(const struct conv_bits *out, const struct conv_bits *start, size_t size);

// Writes the header of a dynamic block with these codes; `last`: it is the stream's last block.
void conv_deflate_put_header(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             bool last);

// --- deflate_runs.c, deflate_avx512.c ------------------------------------------------------------

// Writes the codewords of the first literals, a multiple of 64; returns their number. Needs
// AVX-512 VBMI.
size_t conv_deflate_put_vbmi(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             const uint8_t *data, size_t size);

// Writes a block with many runs, of single bytes or of pixels of `pixel` bytes. False if it is
// longer than a stored block; the caller then has to reset *out, to which a part may have been
// written.
bool conv_deflate_put_runs(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                           size_t size, size_t pixel, bool last);

// --- deflate_tokens.c ----------------------------------------------------------------------------

// The symbol of a length (3 to 258) and the number of its extra bits.
unsigned conv_deflate_length_symbol(unsigned length, unsigned *extra_bits);

// The same for a distance (1 to 32768). Each power of two has two symbols.
static inline unsigned conv_deflate_distance_symbol(unsigned distance, unsigned *extra_bits)
{
    unsigned v = distance - 1;
    unsigned log2 = 31u - (unsigned)__builtin_clz(v | 2);
    *extra_bits = log2 - 1;
    return 2 * *extra_bits + (v >> *extra_bits);
}

// deflate_avx512.c: writes the first tokens, a multiple of 16; returns their number.
// `written`: for each symbol its codeword in bits 0-15, its length in bits 16-23, and the length
// with extra bits in bits 24-31. Needs AVX-512.
size_t conv_deflate_put_avx512(struct conv_bits *out, const uint32_t *written,
                               const uint32_t *token, size_t count);
// The same, a multiple of 64. Needs AVX-512 VBMI.
size_t conv_deflate_put_tokens_vbmi(struct conv_bits *out, const uint32_t *written,
                                    const uint32_t *token, size_t count);

// Once, before the first block. `features`: CONV_CPU_* bits that may be used.
void conv_deflate_init_tokens(struct conv_deflate_tokens *tokens, unsigned features);

// Begins a block, to which matches are added in order of position `at`; a match may be longer than
// CONV_DEFLATE_MATCH_MOST. All bytes outside of matches are literals.
void conv_deflate_start_tokens(struct conv_deflate_tokens *tokens, const uint8_t *data,
                               size_t size);
void conv_deflate_add_match(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                            size_t distance);
// Writes the block and sets *codes to its codes. False as above.
bool conv_deflate_put_tokens(struct conv_bits *out, struct conv_deflate_codes *codes,
                             struct conv_deflate_tokens *tokens, bool last);

static inline uint32_t conv_deflate_distance_token(unsigned distance)
{
    unsigned extra_bits, symbol = conv_deflate_distance_symbol(distance, &extra_bits);
    return CONV_DEFLATE_TOKEN(CONV_DEFLATE_LITLENS + symbol,
                              (distance - 1) & ((1u << extra_bits) - 1));
}

// Makes tokens of CONV_DEFLATE_COPY literals.
typedef void (*conv_deflate_copy_fn)(uint32_t *to, const uint8_t *from);

static inline void conv_deflate_copy_plain(uint32_t *to, const uint8_t *from)
{
    for (size_t k = 0; k < CONV_DEFLATE_COPY; k++)
        to[k] = from[k];
}

// Makes tokens of the literals from tokens->done to `end`.
static inline __attribute__((always_inline)) void
conv_deflate_add_literals(struct conv_deflate_tokens *tokens, size_t end, conv_deflate_copy_fn copy)
{
    const uint8_t *from = tokens->data + tokens->done;
    uint32_t *to = tokens->token + tokens->count;
    size_t count = end - tokens->done, i = 0;
    tokens->count += count;
    if (tokens->size - tokens->done >= count + CONV_DEFLATE_COPY) {
        do { // usually once: most stretches of literals are short
            copy(to + i, from + i);
            i += CONV_DEFLATE_COPY;
        } while (i < count);
    }
    for (; i < count; i++)
        to[i] = from[i];
    tokens->done = end;
}

// Makes tokens of the literals before position `at` and of the match there.
static inline __attribute__((always_inline)) void
conv_deflate_add_tokens(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                        uint32_t distance_token, conv_deflate_copy_fn copy)
{
    conv_deflate_add_literals(tokens, at, copy);
    tokens->done = at + length;
    uint32_t *to = tokens->token + tokens->count;
    while (length > CONV_DEFLATE_MATCH_MOST) {
        // The rest must not be shorter than a match can be.
        size_t part = length >= CONV_DEFLATE_MATCH_MOST + CONV_DEFLATE_MATCH_LEAST
                          ? CONV_DEFLATE_MATCH_MOST
                          : length - CONV_DEFLATE_MATCH_LEAST;
        *to++ = tokens->length_token[part];
        *to++ = distance_token;
        length -= part;
    }
    to[0] = tokens->length_token[length];
    to[1] = distance_token;
    tokens->count = (size_t)(to + 2 - tokens->token);
}
