// SPDX-License-Identifier: MIT
// Prefix codes of limited length, as deflate (RFC 1951, 3.2) wants them.
#ifndef CONV_PNG_CPU_HUFFMAN_H
#define CONV_PNG_CPU_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

#define CONV_HUFFMAN_MAX_SYMBOLS 288
#define CONV_HUFFMAN_MAX_BITS 15

// Code lengths for symbols that occur counts[] times, each count below 2^24: optimal where no
// length exceeds `limit`, near it elsewhere. A symbol that never occurs gets 0. The code is always
// complete (its Kraft sum is 1), so that no decoder has to be asked how it takes an incomplete one:
// with fewer than two symbols in use the first unused ones get a code too. 2 <= symbols <=
// CONV_HUFFMAN_MAX_SYMBOLS, symbols <= 2^limit, limit <= CONV_HUFFMAN_MAX_BITS.
void conv_huffman_lengths(uint8_t *lengths, const uint32_t *counts, size_t symbols, int limit);

// The canonical code of these lengths, bits reversed: deflate sends the first bit of a code in the
// lowest bit of a byte.
void conv_huffman_codes(uint16_t *codes, const uint8_t *lengths, size_t symbols);

#endif
