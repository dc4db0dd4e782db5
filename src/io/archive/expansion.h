// SPDX-License-Identifier: MIT
// How far an archive may expand. Without a limit, 10 MB of deflate expand to 10 GB, and entries of
// a zip file that share their data, or a sparse file, to any size.
#ifndef CONV_ARCHIVE_EXPANSION_H
#define CONV_ARCHIVE_EXPANSION_H

#include <stdbool.h>
#include <stdint.h>

// Images are compressed already and do not expand; texts and labels compress to a twentieth. Large
// empty arrays compress better than that, so a small archive may expand up to this size in any
// case.
#define CONV_EXPANSION_FREE ((uint64_t)256 << 20)
#define CONV_EXPANSION_RATIO 200
#define CONV_EXPANSION_TEXT                                                                        \
    "the archive expands to more than 200 times its size, as a decompression bomb does"

// True if `in` bytes of an archive may have become `out` bytes of content.
static inline bool conv_expansion_allows(uint64_t in, uint64_t out)
{
    return out <= CONV_EXPANSION_FREE || (out - CONV_EXPANSION_FREE) / CONV_EXPANSION_RATIO <= in;
}

#endif
