// SPDX-License-Identifier: MIT
// A deflate (RFC 1951) writer for the filtered rows of images, where speed counts most: noise and
// detail become literals with a Huffman code that fits the block, flat and repeating parts become
// matches, and what does not compress is stored.
#ifndef CONV_PNG_CPU_DEFLATE_FAST_H
#define CONV_PNG_CPU_DEFLATE_FAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/bit_writer.h"

// Most bytes of a block.
#define CONV_DEFLATE_BLOCK ((size_t)256 << 10)

// Scratch memory of one worker, about 3 MB for most of which no page is touched by photographs.
struct conv_deflate;

struct conv_deflate *
conv_deflate_open(unsigned features);                  // of conv_cpu_features(); NULL: no memory
void conv_deflate_close(struct conv_deflate *deflate); // NULL is fine

// Bytes that must be free at out->at so that `size` bytes, cut into blocks that hold at least
// `block` bytes each but for the last, can be written without a check: see deflate_fast.c.
size_t conv_deflate_bound(size_t size, size_t block);

// Appends blocks for data[0 .. size), 0 < size <= CONV_DEFLATE_BLOCK.
void conv_deflate_block(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, bool last);

// The same without compression.
void conv_deflate_store(struct conv_bits *out, const uint8_t *data, size_t size, bool last);

#endif
