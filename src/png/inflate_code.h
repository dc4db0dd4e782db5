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

// An entry of the table of literals and lengths, from its lowest bit. A match is there whole where
// the index holds both of its codewords and the extra bits of the length:
//   bits 0-7   bits to drop: codewords and extra bits
//   bits 8-15  length of the match, 0 for literals; above CONV_INFLATE_NEAR, what else it is
//   bits 16-23 bits to drop but for the extra bits that are still to be read, which come last
//   bits 24-31 literals, 1 or 2
//   bits 32-47 their bytes, in order
//   bits 48-63 base of the distance (of the length, if it is alone), to which the extra bits are
//              added. With literals CONV_INFLATE_BACK, from where nothing is copied: a distance
//              that is long enough not to wait for what has just been written
#define CONV_INFLATE_NEAR 16   // the longest match in the table: as much as one copy takes
#define CONV_INFLATE_LENGTH 17 // its distance is to be looked up
#define CONV_INFLATE_LONG 18   // the codeword is longer than the index
#define CONV_INFLATE_END 19
#define CONV_INFLATE_INVALID 20
#define CONV_INFLATE_BACK 2048

#define CONV_INFLATE_DROP(entry) ((unsigned)((entry)&63))
#define CONV_INFLATE_KIND(entry) ((unsigned)(entry) >> 8 & 255)
#define CONV_INFLATE_LITERALS(entry) ((unsigned)(entry) >> 24)

// An entry of the table of distances:
//   bits 0-7   bits to drop
//   bits 8-15  bits of the codeword alone; above CONV_INFLATE_NEAR, what else it is
//   bits 16-31 base

// Codewords that are longer than the index are found by their canonical order.
struct conv_inflate_code {
    uint16_t count[16];   // codewords of each length
    uint16_t sorted[288]; // symbols in the order of their codewords
    uint16_t long_first;  // the first codeword that is longer than the index, if there is one,
    uint16_t long_index;  // and its place in sorted[]
};

// Each fills *code and a table of 1 << bits entries from the lengths of the symbols' codewords.
// False if zlib refuses such a code. An entry of the precode is its symbol << 16 | bits to drop.
bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19]);
bool conv_inflate_code_litlen(struct conv_inflate_code *code, uint64_t *table,
                              const uint8_t *lengths, unsigned symbols);
bool conv_inflate_code_distance(struct conv_inflate_code *code, uint32_t *table,
                                const uint8_t *lengths, unsigned symbols);

// Makes one entry of two literals, or of a length and its distance, where an index holds both.
void conv_inflate_code_join(uint64_t *litlen, const uint32_t *distance,
                            const struct conv_inflate_code *litlen_code);

// The entry for the codeword at the front of `bits` where the table says CONV_INFLATE_LONG.
uint64_t conv_inflate_code_find_litlen(const struct conv_inflate_code *code, uint64_t bits);
uint32_t conv_inflate_code_find_distance(const struct conv_inflate_code *code, uint64_t bits);

#endif
