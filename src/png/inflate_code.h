// SPDX-License-Identifier: MIT
// A code of DEFLATE, ready to be decoded: what inflate.c looks up.
#ifndef CONV_PNG_INFLATE_CODE_H
#define CONV_PNG_INFLATE_CODE_H

#include <stdbool.h>
#include <stdint.h>

// A table is indexed by so many of the next bits. Larger ones hold more but take longer to build
// and leave the first cache: measured on photographs.
#define CONV_INFLATE_LITLEN_BITS 11
#define CONV_INFLATE_DISTANCE_BITS 9
#define CONV_INFLATE_PRECODE_BITS 7

// An entry of the tables, from its lowest bit:
//   bits 0-5   bits to drop: codewords, and the extra bits of a length or distance
//   bits 6-7   literals, 1 or 2; 0: something else
// literals:
//   bits 8-23  their bytes, in order
// length or distance:
//   bits 8-11  bits of the codeword alone
//   bits 16-31 base, to which the extra bits are added
// otherwise bits 16-31 are 0 and bits 12-13 say what it is:
#define CONV_INFLATE_LONG (1u << 12) // the codeword is longer than the index
#define CONV_INFLATE_END (2u << 12)
#define CONV_INFLATE_INVALID (3u << 12)

#define CONV_INFLATE_DROP(entry) ((entry)&63)
#define CONV_INFLATE_LITERALS(entry) ((entry) >> 6 & 3)

// Codewords that are longer than the index are found by their canonical order.
struct conv_inflate_code {
    uint16_t count[16];   // codewords of each length
    uint16_t sorted[288]; // symbols in the order of their codewords
};

// Each fills *code and a table of 1 << bits entries from the lengths of the symbols' codewords.
// False if zlib refuses such a code. An entry of the precode is its symbol << 16 | bits to drop.
bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19]);
bool conv_inflate_code_litlen(struct conv_inflate_code *code, uint32_t *table,
                              const uint8_t *lengths, unsigned symbols);
bool conv_inflate_code_distance(struct conv_inflate_code *code, uint32_t *table,
                                const uint8_t *lengths, unsigned symbols);

// The entry for the codeword at the front of `bits` where the table says CONV_INFLATE_LONG.
uint32_t conv_inflate_code_find_litlen(const struct conv_inflate_code *code, uint64_t bits);
uint32_t conv_inflate_code_find_distance(const struct conv_inflate_code *code, uint64_t bits);

#endif
