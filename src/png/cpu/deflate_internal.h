// SPDX-License-Identifier: MIT
// Shared by the files of the deflate writers, deflate_*.c.
#ifndef CONV_PNG_CPU_DEFLATE_INTERNAL_H
#define CONV_PNG_CPU_DEFLATE_INTERNAL_H

#include "png/cpu/deflate_fast.h"

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

struct conv_deflate_match {
    uint32_t literals; // before it
    uint16_t length;
    uint16_t distance;
};

// How often each symbol occurs in a block.
struct conv_deflate_uses {
    uint32_t litlen[CONV_DEFLATE_LITLENS];
    uint32_t distance[CONV_DEFLATE_DISTANCES];
};

// The literals and matches of a block, stored until its codes can be made.
struct conv_deflate_tokens {
    const uint8_t *data; // of the block
    size_t size;
    size_t done; // bytes covered by the matches and the literals before them
    size_t matches;
    struct conv_deflate_uses uses;
    struct conv_deflate_match match[CONV_DEFLATE_BLOCK / CONV_DEFLATE_MATCH_LEAST];
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
    unsigned features; // CONV_CPU_* bits that may be used
    struct conv_deflate_codes codes;
    uint32_t pair[1 << 16];                     // deflate_literals.c: codewords of two literals
    uint32_t head[1 << CONV_DEFLATE_HASH_BITS]; // deflate_matches.c: last position of each hash
    struct conv_deflate_tokens tokens;
};

// Counts of some of a block's bytes.
struct conv_deflate_sample {
    uint32_t count[256];
    size_t bytes; // sum of the counts
    size_t flat;  // of these, in 8-byte words that are 0
};

// --- deflate_fast.c ------------------------------------------------------------------------------

// True if the output since `start`, made from `size` bytes, is no longer than a stored block.
bool conv_deflate_is_short(const struct conv_bits *out, const struct conv_bits *start, size_t size);

// --- deflate_header.c ----------------------------------------------------------------------------

// Writes the header of a dynamic block with these codes; `last`: it is the stream's last block.
void conv_deflate_put_header(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             bool last);

// --- deflate_literals.c, deflate_literals_vbmi.c, deflate_matches.c ------------------------------

// Writes a block of literals only, with a code made from the sample. False if that is hardly
// shorter than a stored block; the caller then has to reset *out, to which some may be written.
bool conv_deflate_put_literals(struct conv_deflate *deflate, struct conv_bits *out,
                               const struct conv_deflate_sample *sample, const uint8_t *data,
                               size_t size, bool last);

// Writes the codewords of the first literals, a multiple of 64; returns their number. Needs
// AVX-512 VBMI.
size_t conv_deflate_put_vbmi(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             const uint8_t *data, size_t size);

// Writes a block of literals and matches. False as above.
bool conv_deflate_put_matches(struct conv_deflate *deflate, struct conv_bits *out,
                              const uint8_t *data, size_t size, bool last);

// --- deflate_tokens.c ----------------------------------------------------------------------------

// The symbol of a length (3 to 258) or distance (1 to 32768) and the number of its extra bits.
unsigned conv_deflate_length_symbol(unsigned length, unsigned *extra_bits);
unsigned conv_deflate_distance_symbol(unsigned distance, unsigned *extra_bits);

// Begins a block, to which matches are added in order of position `at`; a match may be longer than
// CONV_DEFLATE_MATCH_MOST. All bytes outside of matches are literals.
void conv_deflate_start_tokens(struct conv_deflate_tokens *tokens, const uint8_t *data,
                               size_t size);
void conv_deflate_add_match(struct conv_deflate_tokens *tokens, size_t at, size_t length,
                            size_t distance);
// Writes the block and sets *codes to its codes. False as above.
bool conv_deflate_put_tokens(struct conv_bits *out, struct conv_deflate_codes *codes,
                             struct conv_deflate_tokens *tokens, bool last);

#endif
