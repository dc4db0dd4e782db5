// SPDX-License-Identifier: MIT
// Decompresses a whole zlib stream of known size. It is used instead of libdeflate for two reasons:
// one table look-up yields two literals, or a length with its distance, if their codewords are
// short, as they are in images; and it refuses what zlib refuses (incomplete codes, reserved
// symbols), where libdeflate is more lenient, so files are accepted exactly if libpng accepts them.
#ifndef CONV_PNG_CPU_INFLATE_H
#define CONV_PNG_CPU_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/inflate_code.h"

// Bytes after the output that may be overwritten.
#define CONV_INFLATE_SLACK 512

// A place between two blocks.
struct conv_inflate_place {
    size_t bit;     // where the next block begins
    uint8_t *at;    // where its bytes go, with CONV_INFLATE_WINDOW before and ROOM after it
    size_t skipped; // bytes of output between the former place and this one
    bool last;      // the last block ends here
};

// One per worker. Starts as {0}; the tables need no initialisation.
struct conv_inflate {
    struct conv_inflate_tables tables; // of the current dynamic block
    uint32_t precode[1 << CONV_INFLATE_PRECODE_BITS];
    uint8_t lengths[288 + 32];
    size_t credit; // bytes of the blocks so far, less JOINED_AFTER for each joined table
    // Called at least once per CONV_INFLATE_STRETCH bytes of output: the bytes before `at` are
    // final. Returns where the next ones go: `at`, or another address with a copy of the last
    // CONV_INFLATE_WINDOW bytes before it and CONV_INFLATE_ROOM after it; NULL ends decompression.
    // May be NULL.
    uint8_t *(*next)(void *context, uint8_t *at);
    // Called before each block; place->bit counts from the start of the input. It may move the
    // decoder past blocks that were decoded elsewhere; it then sets all members of *place. False
    // ends decompression. May be NULL; if it is set, no Adler-32 is computed here.
    bool (*jump)(void *context, struct conv_inflate_place *place);
    // With jump(): returns the Adler-32 of the whole output, whose last bytes end at `at`. False:
    // the output was refused.
    bool (*sum)(void *context, uint32_t *adler, const uint8_t *at);
    void *context;
    bool ended_early; // by conv_inflate_zlib: the stream is valid, but holds fewer bytes
};

#define CONV_INFLATE_STRETCH ((size_t)256 << 10)
#define CONV_INFLATE_WINDOW ((size_t)32 << 10)
// Bytes written between two calls of next(): a stretch, and a stored block that begins in it.
#define CONV_INFLATE_ROOM (CONV_INFLATE_STRETCH + 65535 + CONV_INFLATE_SLACK)

// True if the stream holds exactly out_size bytes, ends with the input, has the right Adler-32 and
// is one that zlib accepts. False otherwise, and also for a window smaller than out_size unless it
// is the largest; `out` then holds anything. `out` has room for out_size + CONV_INFLATE_SLACK
// bytes, or for CONV_INFLATE_WINDOW + CONV_INFLATE_ROOM if next() moves on in time.
bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size);

// Positions in a deflate stream, in bits.
struct conv_inflate_end {
    size_t last_block; // where its last block begins
    size_t bits;       // its end
};

// Finds the end of a deflate stream of exactly out_size bytes. False if it is not such a stream.
bool conv_inflate_find_end(struct conv_inflate *inflate, struct conv_inflate_end *end, uint8_t *out,
                           size_t out_size, const uint8_t *data, size_t size);

#endif
