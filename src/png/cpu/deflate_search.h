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

#endif
