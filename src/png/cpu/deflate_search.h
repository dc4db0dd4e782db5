// SPDX-License-Identifier: MIT
// The deflate writer of the middle levels. It prices each literal of a block and takes a match only
// for the bits that it saves: in filtered images most short matches save none.
#ifndef CONV_PNG_CPU_DEFLATE_SEARCH_H
#define CONV_PNG_CPU_DEFLATE_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/bit_writer.h"

// Longest block, in bytes of data.
#define CONV_DEFLATE_SEARCH_BLOCK ((size_t)64 << 10)

// Scratch memory of one worker, about 1.5 MB.
struct conv_deflate_search;

// `candidates` (1 or more) are tried at each position. After every 2^skip_shift bytes without a
// match one more position is skipped per step: smaller is faster. NULL: out of memory.
struct conv_deflate_search *conv_deflate_search_open(int candidates, int skip_shift);
void conv_deflate_search_close(struct conv_deflate_search *search); // NULL is fine

// Appends a whole deflate stream for data[0 .. size), size > 0. Must be free at out->at:
// conv_deflate_bound(size, CONV_DEFLATE_SEARCH_BLOCK / 2) bytes. Leaves an incomplete stream soon
// after conv_cancel_is_asked(stop).
void conv_deflate_search_put(struct conv_deflate_search *search, struct conv_bits *out,
                             const uint8_t *data, size_t size, const atomic_int *stop);

#endif
