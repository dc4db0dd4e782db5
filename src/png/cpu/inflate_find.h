// SPDX-License-Identifier: MIT
// Searches the middle of a deflate stream for places where a block may begin.
#ifndef CONV_PNG_CPU_INFLATE_FIND_H
#define CONV_PNG_CPU_INFLATE_FIND_H

#include <stddef.h>
#include <stdint.h>

#define CONV_INFLATE_NOWHERE SIZE_MAX

// The first bit in [from, to) where the header of a dynamic block, not the last one, may begin: its
// counts are valid and the lengths of its precode make a complete code. About one bit in 2,000 of
// random data passes, so the caller has to read the rest of the header. Headers of which fewer than
// 24 bytes lie within `size` are not found. CONV_INFLATE_NOWHERE: none.
size_t conv_inflate_find(const uint8_t *data, size_t size, size_t from, size_t to);

#endif
