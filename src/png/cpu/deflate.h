// SPDX-License-Identifier: MIT
// Writers of deflate streams (RFC 1951) for the filtered rows of images.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// --- bits ----------------------------------------------------------------------------------------

// Writes bits to memory, lowest first, in deflate's order (RFC 1951, 3.1.1). Nothing here checks
// for space: callers reserve an upper bound.

struct conv_bits {
    uint8_t *at;   // where the next whole byte goes
    uint64_t bits; // pending; those above `count` are 0
    unsigned count;
};

// Most bits that may be put between two flushes: a flush leaves up to 7 pending.
#define CONV_BITS_BETWEEN_FLUSHES 56
// Bytes after the last bit that conv_bits_flush may overwrite.
#define CONV_BITS_SLACK 8

static inline void conv_bits_put(struct conv_bits *out, uint64_t value, unsigned count)
{
    out->bits |= value << out->count;
    out->count += count;
}

// Writes the whole bytes. At most 63 bits are pending.
static inline void conv_bits_flush(struct conv_bits *out)
{
    memcpy(out->at, &out->bits, sizeof out->bits);
    out->at += out->count >> 3;
    out->bits >>= out->count & ~7u;
    out->count &= 7;
}

// Fills the last byte with 0 bits and writes it.
static inline void conv_bits_align(struct conv_bits *out)
{
    out->count = (out->count + 7) & ~7u;
    conv_bits_flush(out);
}

// --- the fast writer -----------------------------------------------------------------------------

// A deflate (RFC 1951) writer for the filtered rows of images, made for speed. Noise and detail
// become literals with a Huffman code made for the block, flat and repeating parts become matches,
// and incompressible blocks are stored.

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

// --- the writer of the middle levels -------------------------------------------------------------

// The deflate writer of the middle levels. It prices each literal of a block and takes a match only
// for the bits that it saves: in filtered images most short matches save none.

// Bytes of data whose literals have one price; at least a block, unless the stream ends.
#define CONV_DEFLATE_SEARCH_BLOCK ((size_t)64 << 10)

// Scratch memory of one worker, about 1.7 MB.
struct conv_deflate_search;

struct conv_deflate_search *conv_deflate_search_open(void);         // NULL: out of memory
void conv_deflate_search_close(struct conv_deflate_search *search); // NULL is fine

// `candidates` (1 or more) are tried at each position. After every 2^skip_shift bytes without a
// match one more position is skipped per step: smaller is faster. Before the first stream.
void conv_deflate_search_set_effort(struct conv_deflate_search *search, int candidates,
                                    int skip_shift);

// The bytes of `data` from `from` to `to`, at least one. Matches may begin in the window before
// `from`.
struct conv_deflate_part {
    const uint8_t *data;
    size_t from, to;
    bool last; // the stream ends with it
};

// Appends the blocks of a part. At out->at, conv_deflate_bound(bytes of the part,
// CONV_DEFLATE_SEARCH_BLOCK / 2) bytes must be free. Leaves an incomplete stream soon after
// conv_cancel_is_asked(stop).
void conv_deflate_search_put(struct conv_deflate_search *search, struct conv_bits *out,
                             const struct conv_deflate_part *part, const atomic_int *stop);
