// SPDX-License-Identifier: MIT
// What the files of the fast deflate writer know of each other.
#ifndef CONV_PNG_CPU_DEFLATE_INTERNAL_H
#define CONV_PNG_CPU_DEFLATE_INTERNAL_H

#include "png/cpu/deflate_fast.h"

enum { CONV_DEFLATE_STORED = 0, CONV_DEFLATE_DYNAMIC = 2 };

#define CONV_DEFLATE_LITLENS 286
#define CONV_DEFLATE_DISTANCES 30
#define CONV_DEFLATE_END 256

// What deflate allows. Less would make tables simpler, but the residuals of a photograph have a
// long tail of rare values: a limit of 12 costs 2 % of its size.
#define CONV_DEFLATE_LIMIT 15

// Match lengths and distances are kept as they are found, until the block's codes are known.
#define CONV_DEFLATE_MATCH_LEAST 4
#define CONV_DEFLATE_MATCH_MOST 258
#define CONV_DEFLATE_WINDOW 32768u

struct conv_deflate_match {
    uint32_t literals; // before it
    uint16_t length;
    uint16_t distance;
};

struct conv_deflate_uses {
    uint32_t litlen[CONV_DEFLATE_LITLENS];
    uint32_t distance[CONV_DEFLATE_DISTANCES];
};

struct conv_deflate_tokens {
    const uint8_t *data; // of the block
    size_t size;
    size_t done; // bytes that the matches and the literals before them stand for
    size_t matches;
    struct conv_deflate_uses uses;
    struct conv_deflate_match match[CONV_DEFLATE_BLOCK / CONV_DEFLATE_MATCH_LEAST];
};

struct conv_deflate_codes {
    uint16_t litlen[CONV_DEFLATE_LITLENS];
    uint16_t distance[CONV_DEFLATE_DISTANCES];
    uint8_t litlen_bits[CONV_DEFLATE_LITLENS];
    uint8_t distance_bits[CONV_DEFLATE_DISTANCES];
};

#define CONV_DEFLATE_HASH_BITS 12

struct conv_deflate {
    unsigned features;
    struct conv_deflate_codes codes;
    uint32_t pair[1 << 16];                     // literals.c: the codes of two literals in a row
    uint32_t head[1 << CONV_DEFLATE_HASH_BITS]; // matches.c: where a hash was seen last
    struct conv_deflate_tokens tokens;
};

struct conv_deflate_sample {
    uint32_t count[256];
    size_t bytes; // sum of the counts
    size_t flat;  // of these, in words that are all 0
};

// Whether what has been written since `start` for `size` bytes is no longer than their stored
// block.
bool conv_deflate_is_short(const struct conv_bits *out, const struct conv_bits *start, size_t size);

void conv_deflate_put_header(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             bool last);

// A block of literals only, by a code made for the sample. False: not worth it, nothing or
// something has been written.
bool conv_deflate_put_literals(struct conv_deflate *deflate, struct conv_bits *out,
                               const struct conv_deflate_sample *sample, const uint8_t *data,
                               size_t size, bool last);

// The codes of as many literals as a loop of its own likes; how many those were. AVX-512 VBMI.
size_t conv_deflate_put_vbmi(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             const uint8_t *data, size_t size);

// A block of literals and matches. As above.
bool conv_deflate_put_matches(struct conv_deflate *deflate, struct conv_bits *out,
                              const uint8_t *data, size_t size, bool last);

// --- tokens.c -----------------------------------------------------------------------------------

// The symbol of a length (3 to 258) or distance (1 to 32768), and how many extra bits follow it.
unsigned conv_deflate_length_symbol(unsigned length, unsigned *extra_bits);
unsigned conv_deflate_distance_symbol(unsigned distance, unsigned *extra_bits);

// A block begins; matches are added in order; what lies between them is literals.
void conv_deflate_start_tokens(struct conv_deflate_tokens *tokens, const uint8_t *data,
                               size_t size);
void conv_deflate_add_match(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                            size_t distance);
// Writes the block; `codes` is scratch and holds its codes afterwards. As
// conv_deflate_put_literals.
bool conv_deflate_put_tokens(struct conv_bits *out, struct conv_deflate_codes *codes,
                             struct conv_deflate_tokens *tokens, bool last);

#endif
