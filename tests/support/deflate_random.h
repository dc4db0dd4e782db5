// SPDX-License-Identifier: MIT
// Random zlib streams of given bytes, with blocks of every kind, empty ones too, and random Huffman
// codes, valid or wrong in a chosen way.
#pragma once

#include "support/deflate_make.h"

enum deflate_block { DEFLATE_STORED, DEFLATE_FIXED, DEFLATE_DYNAMIC, DEFLATE_BLOCKS };

// What is odd about a block. zlib accepts the first three.
enum deflate_oddity {
    DEFLATE_NORMAL,
    DEFLATE_ONE_DISTANCE, // one distance symbol, of one bit: the other codeword is unused
    DEFLATE_NO_DISTANCE,  // no distance symbol and so no match
    DEFLATE_INCOMPLETE,   // unused codewords
    DEFLATE_OVERSUBSCRIBED,
    DEFLATE_NO_END,   // no codeword for the end of the block
    DEFLATE_RESERVED, // codewords for the symbols 286, 287, and 30, 31 of the distances
    DEFLATE_FAR,      // a match from before the first byte
    DEFLATE_ODDITIES,
};

// Writes a block with the bytes raw[from .. to), which may be none, in several blocks if they are
// many. `random` is the state of random.h.
void deflate_random_block(struct deflate_make *make, uint64_t *random, enum deflate_block kind,
                          enum deflate_oddity oddity, const uint8_t *raw, size_t from, size_t to,
                          bool last);

// Writes a whole stream of random blocks; one stream in eight has an oddity somewhere.
void deflate_random_stream(struct deflate_make *make, uint64_t *random, const uint8_t *raw,
                           size_t size);

// Adds the Adler-32 of raw, which ends a stream.
void deflate_random_end(struct deflate_make *make, const uint8_t *raw, size_t size);
