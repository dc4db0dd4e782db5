// SPDX-License-Identifier: MIT
// DEFLATE streams block by block, those that no compressor would write included.
#ifndef CONV_TESTS_BLOCK_MAKE_H
#define CONV_TESTS_BLOCK_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCK_LITLENS = 286, BLOCK_DISTANCES = 30, BLOCK_END = 256 };

// A pair of prefix codes, with the bits of each codeword in the order in which they are sent.
struct block_codes {
    uint8_t litlen_lengths[288], distance_lengths[32];
    uint16_t litlen[288], distance[32];
    int litlen_count, distance_count; // codewords that the header of a dynamic block sends
};

// A zlib stream in progress, and the bytes that it decompresses to. Starts as {0}.
struct block_maker {
    uint8_t *stream, *plain;
    size_t stream_size, stream_room, plain_size, plain_room;
    uint64_t bits;
    unsigned bit_count;
    const struct block_codes *codes; // of the block in progress
};

// The codes of a fixed block; codes for symbols of these frequencies (limited to 15 bits).
void block_make_fixed(struct block_codes *codes);
void block_make_codes(struct block_codes *codes, const uint32_t litlens[BLOCK_LITLENS],
                      const uint32_t distances[BLOCK_DISTANCES]);

void block_make_start(struct block_maker *maker); // the two bytes before the first block
void block_make_stored(struct block_maker *maker, const uint8_t *data, size_t size, bool last);
void block_make_fixed_block(struct block_maker *maker, const struct block_codes *fixed, bool last);
// `plainly`: each length is sent by a codeword of its own, repeated or not.
void block_make_dynamic_block(struct block_maker *maker, const struct block_codes *codes,
                              bool plainly, bool last);
void block_make_literal(struct block_maker *maker, uint8_t byte);
void block_make_match(struct block_maker *maker, size_t length, size_t distance);
void block_make_end(struct block_maker *maker); // of the block
void block_make_finish(struct block_maker *maker, bool wrong_sum);
void block_make_free(struct block_maker *maker);

#endif
