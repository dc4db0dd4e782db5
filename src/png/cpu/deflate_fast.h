// SPDX-License-Identifier: MIT
// A deflate (RFC 1951) writer for the filtered rows of images, made for speed. Noise and detail
// become literals with a Huffman code made for the block, flat and repeating parts become matches,
// and incompressible blocks are stored.
#ifndef CONV_PNG_CPU_DEFLATE_FAST_H
#define CONV_PNG_CPU_DEFLATE_FAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/bit_writer.h"

// Longest block, in bytes of data.
#define CONV_DEFLATE_BLOCK ((size_t)256 << 10)

// Scratch memory of one worker: about 1.3 MB, of which photographs touch few pages.
struct conv_deflate;

// `features`: bits of conv_cpu_features() that may be used. NULL: out of memory.
struct conv_deflate *conv_deflate_open(unsigned features);
void conv_deflate_close(struct conv_deflate *deflate); // NULL is fine

// Bytes that must be free at out->at for writing `size` bytes of data in blocks of at least `block`
// bytes, the last one excepted. Nothing below checks for space. Derived in deflate_fast.c.
size_t conv_deflate_bound(size_t size, size_t block);

// Appends a block for data[0 .. size), 0 < size <= CONV_DEFLATE_BLOCK, of pixels of `pixel` bytes,
// 1 to 8.
void conv_deflate_block(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, size_t pixel, bool last);

// True if a sample of the data holds many zeros, as filtered rows of drawings do.
bool conv_deflate_is_flat(const uint8_t *data, size_t size);

// Appends stored blocks for data[0 .. size), any size.
void conv_deflate_store(struct conv_bits *out, const uint8_t *data, size_t size, bool last);

#endif
