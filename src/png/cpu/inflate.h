// SPDX-License-Identifier: MIT
// Decompresses a whole zlib stream whose size is known beforehand. It exists beside libdeflate for
// two reasons: one look into its table takes two literals, or a length with its distance, where
// their codewords are short, as they are in images; and it refuses what zlib refuses, where
// libdeflate is more lenient (incomplete codes, reserved symbols), so that libpng stays the judge
// of every file.
#ifndef CONV_PNG_CPU_INFLATE_H
#define CONV_PNG_CPU_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/inflate_code.h"

// Bytes behind the output that may be overwritten.
#define CONV_INFLATE_SLACK 512

// One per worker. Starts as {0}; the tables need no initialisation.
struct conv_inflate {
    struct conv_inflate_tables tables; // of the current dynamic block
    uint32_t precode[1 << CONV_INFLATE_PRECODE_BITS];
    uint8_t lengths[288 + 32];
    size_t credit; // what the blocks so far were worth, less the tables joined for it
    // Called now and then, at least once per CONV_INFLATE_STRETCH bytes of output, with the number
    // of bytes that are final; false ends the attempt. May be NULL.
    bool (*go_on)(void *context, size_t done);
    void *context;
};

#define CONV_INFLATE_STRETCH ((size_t)256 << 10)

// True if the stream holds exactly out_size bytes, ends with the input, is right in its Adler-32
// and is one that zlib accepts too. A window size below what out_size could need makes it false
// without a look. Otherwise `out` holds anything.
bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size);

#endif
