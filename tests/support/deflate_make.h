// SPDX-License-Identifier: MIT
// Writes zlib streams block by block, including valid and invalid ones that no encoder writes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEFLATE_LITLENS = 286, DEFLATE_DISTANCES = 30, DEFLATE_END = 256, DEFLATE_FIRST_LENGTH };
// With the symbols that only the fixed code has.
enum { DEFLATE_ALL_LITLENS = 288, DEFLATE_ALL_DISTANCES = 32, DEFLATE_PRECODES = 19 };

// A stream in progress. With `data` and `room` set by the caller, bytes that do not fit are dropped
// and `full` is set. With `grows`, the maker allocates `data` and also `plain`, the bytes that the
// stream decompresses to; deflate_make_free frees both.
struct deflate_make {
    uint8_t *data;
    size_t size, room;
    bool grows, full;
    uint8_t *plain;
    size_t plain_size, plain_room;
    uint64_t bits;
    unsigned bit_count;
    const struct deflate_codes *codes; // of the block in progress
};

// Both codes of a block; codewords have their bits in the order in which they are sent.
struct deflate_codes {
    uint8_t litlen_lengths[DEFLATE_ALL_LITLENS], distance_lengths[DEFLATE_ALL_DISTANCES];
    uint16_t litlen[DEFLATE_ALL_LITLENS], distance[DEFLATE_ALL_DISTANCES];
    int litlen_count, distance_count; // lengths in the header of a dynamic block
};

// Sets both codewords from the lengths. If the lengths are not those of a code, only the low bits
// of the codewords are right.
void deflate_make_number(struct deflate_codes *codes);
// The codes of fixed blocks; codes made for symbols of these frequencies.
void deflate_make_fixed_codes(struct deflate_codes *codes);
void deflate_make_codes(struct deflate_codes *codes, const uint32_t litlens[DEFLATE_LITLENS],
                        const uint32_t distances[DEFLATE_DISTANCES]);

// The symbols of a length (3 to 258) and of a distance (1 to 32768).
int deflate_make_length_symbol(size_t length);
int deflate_make_distance_symbol(size_t distance);

// The header of a zlib stream. `window`: 8 to 15, the logarithm of its size.
void deflate_make_start(struct deflate_make *make, int window);

// At most 32 bits, for what the functions below do not write.
void deflate_make_bits(struct deflate_make *make, unsigned value, unsigned count);

// A whole stored block, of less than 64 KiB.
void deflate_make_stored(struct deflate_make *make, const uint8_t *data, size_t size, bool last);

// The header of a block, which literals and matches and deflate_make_end_block have to follow.
// `fixed` is deflate_make_fixed_codes'. `plainly`: runs of equal lengths are not folded.
void deflate_make_fixed(struct deflate_make *make, const struct deflate_codes *fixed, bool last);
void deflate_make_dynamic(struct deflate_make *make, const struct deflate_codes *codes,
                          bool plainly, bool last);
void deflate_make_literal(struct deflate_make *make, uint8_t byte);
void deflate_make_match(struct deflate_make *make, size_t length, size_t distance);
void deflate_make_end_block(struct deflate_make *make);

// A dynamic header with lengths and a precode chosen by the caller: `runs` are the symbols of the
// precode with their extra bits, `sent` the number of its lengths that are sent (4 to 19).
struct deflate_run {
    uint8_t symbol, extra, extra_bits;
};
void deflate_make_header(struct deflate_make *make, const struct deflate_codes *codes,
                         const struct deflate_run *runs, int count,
                         const uint8_t precode[DEFLATE_PRECODES], int sent, bool last);
extern const uint8_t deflate_make_order[DEFLATE_PRECODES]; // in which its lengths are sent

// Fills the last byte and adds the Adler-32.
void deflate_make_end(struct deflate_make *make, uint32_t adler);

void deflate_make_free(struct deflate_make *make);
