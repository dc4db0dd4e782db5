// SPDX-License-Identifier: MIT
// The entries of two symbols in a table of literals and lengths, for inflate_code.c: a pair whose
// codewords have n bits together is entered like a codeword of n bits, so doubling the table writes
// most of the entries. Looking each index up took three times as long.
#ifndef CONV_PNG_CPU_INFLATE_JOIN_H
#define CONV_PNG_CPU_INFLATE_JOIN_H

#include <stdint.h>

#include "png/cpu/inflate_code.h"

// Lengths that an entry with a distance may hold, with their extra bits as part of the codeword.
#define CONV_INFLATE_SHORT_LENGTHS (CONV_INFLATE_NEAR - 2)

// A codeword with its first bit lowest.
struct conv_inflate_codeword {
    uint64_t entry; // of the symbol alone, or what a second symbol adds to it
    uint32_t index;
};

// Codewords of n bits: from first[n] to first[n + 1].
struct conv_inflate_join {
    struct conv_inflate_codeword literals[256];
    struct conv_inflate_codeword distances[30];
    struct conv_inflate_codeword lengths[CONV_INFLATE_LITLEN_BITS + 2][CONV_INFLATE_SHORT_LENGTHS];
    uint8_t length_count[CONV_INFLATE_LITLEN_BITS + 2];
    uint16_t first_literal[CONV_INFLATE_LITLEN_BITS + 2];
    uint16_t first_distance[CONV_INFLATE_LITLEN_BITS + 2];
};

static inline void conv_inflate_join_add_literal(struct conv_inflate_join *join, unsigned n,
                                                 unsigned index, uint64_t entry)
{
    join->literals[join->first_literal[n + 1]++] = (struct conv_inflate_codeword){entry, index};
}

static inline void conv_inflate_join_add_distance(struct conv_inflate_join *join, unsigned n,
                                                  unsigned index, uint32_t entry)
{
    join->distances[join->first_distance[n + 1]++] = (struct conv_inflate_codeword){entry, index};
}

// `entry`: of the length alone.
static inline void conv_inflate_join_add_length(struct conv_inflate_join *join, unsigned n,
                                                unsigned index, uint64_t entry)
{
    unsigned base = (unsigned)(entry >> 32), bits = CONV_INFLATE_DROP(entry);
    if (bits > CONV_INFLATE_LITLEN_BITS)
        return;
    for (unsigned extra = 0; extra < 1u << (bits - n) && base + extra <= CONV_INFLATE_NEAR; extra++)
        join->lengths[bits][join->length_count[bits]++] =
            (struct conv_inflate_codeword){base + extra, index | extra << n};
}

// The sums of first ones and second ones of `bits` bits at the indices of both.
static inline void conv_inflate_join_literals(const struct conv_inflate_join *join, uint64_t *table,
                                              unsigned bits, unsigned second_bits)
{
    const struct conv_inflate_codeword *first = join->literals + join->first_literal[bits];
    const struct conv_inflate_codeword *second = join->literals + join->first_literal[second_bits];
    unsigned firsts = join->first_literal[bits + 1] - join->first_literal[bits];
    unsigned seconds = join->first_literal[second_bits + 1] - join->first_literal[second_bits];
    // What the second adds: a literal, its bits, its byte.
    const uint64_t counts = (uint64_t)0xff << 24 | 0xff << 16 | 0xff;
    if (firsts < seconds) { // the longer loop is the inner one
        for (unsigned i = 0; i < firsts; i++) {
            for (unsigned j = 0; j < seconds; j++) {
                uint64_t next = second[j].entry;
                table[first[i].index | second[j].index << bits] =
                    first[i].entry + (next & counts) + ((next >> 32 & 0xff) << 40);
            }
        }
        return;
    }
    for (unsigned j = 0; j < seconds; j++) {
        uint64_t next = second[j].entry;
        uint64_t more = (next & counts) + ((next >> 32 & 0xff) << 40);
        for (unsigned i = 0; i < firsts; i++)
            table[first[i].index | second[j].index << bits] = first[i].entry + more;
    }
}

static inline void conv_inflate_join_distances(const struct conv_inflate_join *join,
                                               uint64_t *table, unsigned bits,
                                               unsigned distance_bits)
{
    unsigned from = join->first_distance[distance_bits];
    unsigned to = join->first_distance[distance_bits + 1];
    for (unsigned i = 0; i < join->length_count[bits]; i++) {
        const struct conv_inflate_codeword *length = &join->lengths[bits][i];
        for (unsigned d = from; d < to; d++) {
            const struct conv_inflate_codeword *distance = &join->distances[d];
            unsigned drop = CONV_INFLATE_DROP(distance->entry);
            table[length->index | distance->index << bits] =
                distance->entry >> 16 << 48 | (uint64_t)(bits + distance_bits) << 16 |
                length->entry << 8 | (bits + drop);
        }
    }
}

// Enters all pairs of n bits. The symbols of fewer bits were added.
static inline void conv_inflate_join_pairs(const struct conv_inflate_join *join, uint64_t *table,
                                           unsigned n)
{
    for (unsigned bits = 1; bits < n; bits++) {
        conv_inflate_join_literals(join, table, bits, n - bits);
        conv_inflate_join_distances(join, table, bits, n - bits);
    }
}

#endif
