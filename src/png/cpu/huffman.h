// SPDX-License-Identifier: MIT
// Prefix codes of limited length for deflate (RFC 1951, 3.2).
#ifndef CONV_PNG_CPU_HUFFMAN_H
#define CONV_PNG_CPU_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

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

#endif
