// SPDX-License-Identifier: MIT
// Writes zlib streams that no encoder would write: blocks of every kind, empty ones too, with
// random Huffman codes, right or wrong in a chosen way.
#ifndef CONV_TESTS_DEFLATE_MAKE_H
#define CONV_TESTS_DEFLATE_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A number below n from a generator whose state is *seed.
unsigned deflate_make_random(uint32_t *seed, unsigned n);

enum deflate_block { DEFLATE_STORED, DEFLATE_FIXED, DEFLATE_DYNAMIC, DEFLATE_BLOCKS };

// What is odd about the codes of a dynamic block. zlib takes the first three.
enum deflate_oddity {
    DEFLATE_NORMAL,
    DEFLATE_ONE_DISTANCE, // one distance symbol, of one bit: the other codeword means nothing
    DEFLATE_NO_DISTANCE,  // no distance symbol and so no match
    DEFLATE_INCOMPLETE,   // codewords that mean nothing
    DEFLATE_OVERSUBSCRIBED,
    DEFLATE_NO_END,   // no codeword for the end of the block
    DEFLATE_RESERVED, // codewords for the symbols 286, 287, and 30, 31 of the distances
    DEFLATE_FAR,      // a match from before the first byte
    DEFLATE_ODDITIES,
};

struct deflate_make {
    uint8_t *data; // of `room` bytes, the caller's
    size_t size, room;
    bool full; // something did not fit: the rest is missing
    uint64_t bits;
    unsigned count;
    uint32_t seed; // of random choices
};

// The header of a zlib stream; window is 8 to 15, the logarithm of its size.
void deflate_make_start(struct deflate_make *make, int window);
// A block with the bytes raw[from .. to), which may be none. An oddity is for dynamic blocks.
void deflate_make_block(struct deflate_make *make, enum deflate_block kind,
                        enum deflate_oddity oddity, const uint8_t *raw, size_t from, size_t to,
                        bool last);
// Fills the last byte and adds the Adler-32 of raw.
void deflate_make_end(struct deflate_make *make, const uint8_t *raw, size_t size);

// A whole stream of random blocks, empty ones among them; one in eight has an oddity somewhere.
void deflate_make_stream(struct deflate_make *make, const uint8_t *raw, size_t size);

#endif
