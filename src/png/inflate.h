// SPDX-License-Identifier: MIT
// Decompresses a whole zlib stream whose size is known beforehand. It exists beside libdeflate for
// two reasons: one look into its table takes two literals, or a length with its distance, where
// their codewords are short, as they are in pictures; and it refuses what zlib refuses, where
// libdeflate is more lenient (incomplete codes, reserved symbols), so that libpng stays the judge
// of every file.
#ifndef CONV_PNG_INFLATE_H
#define CONV_PNG_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/inflate_code.h"

// Bytes behind the output that may be overwritten.
#define CONV_INFLATE_SLACK 512

// The tables of the present block: one a worker, about 20 KB, no need to initialise it.
struct conv_inflate {
    uint64_t litlen[1 << CONV_INFLATE_LITLEN_BITS];
    uint32_t distance[1 << CONV_INFLATE_DISTANCE_BITS];
    struct conv_inflate_code litlen_code, distance_code;
    uint8_t lengths[288 + 32];
    bool mixed; // matches are so frequent that telling them from literals is a guess
};

// True if the stream holds exactly out_size bytes, ends with the input, is right in its Adler-32
// and is one that zlib accepts too. A window size below what out_size could need makes it false
// without a look. Otherwise `out` holds anything.
bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size);

#endif
