// SPDX-License-Identifier: MIT
// The head of a DEFLATE block with its own codes (RFC 1951, 3.2.7): the parts that one thread
// reads.
#ifndef CONV_PNG_CUDA_LENGTHS_CUH
#define CONV_PNG_CUDA_LENGTHS_CUH

#include "png/cuda/symbols.cuh"

// Numbers of codeword lengths that the block has.
struct length_counts {
    uint32_t litlens, distances, precodes;
};

// False if zlib refuses such a head.
ANYWHERE bool read_length_counts(struct bits *bits, struct length_counts *counts)
{
    counts->litlens = 257 + take_bits(bits, 5);
    counts->distances = 1 + take_bits(bits, 5);
    counts->precodes = 4 + take_bits(bits, 4);
    return counts->litlens <= 286 && counts->distances <= 30;
}

// The symbol whose length comes i-th in the precode: 16, 17, 18, 0, 8, 7, 9, 6, 10, ... 1, 15.
ANYWHERE uint32_t precode_symbol(uint32_t i)
{
    return i < 3 ? 16 + i : i == 3 ? 0 : i % 2 ? 8 - (i - 3) / 2 : 8 + (i - 4) / 2;
}

// An entry of the precode: its symbol << 8 | bits to drop.
#define PRECODE_BITS 7

// The next item of the list of lengths: a length (0 for repeated zeros), or NO_LENGTH to repeat the
// previous one. *repeat: how many times.
#define NO_LENGTH 16u

ANYWHERE uint32_t take_length(struct bits *bits, const uint32_t *precode, uint32_t *repeat)
{
    uint32_t next = peek_bits(bits), entry = precode[next & ((1 << PRECODE_BITS) - 1)];
    uint32_t symbol = entry >> 8, drop = entry & 255;
    uint32_t extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
    uint32_t least = symbol < 16 ? 1 : symbol == 18 ? 11 : 3;
    *repeat = least + (next >> drop & ((1u << extra) - 1));
    drop_bits(bits, drop + extra);
    return symbol <= 16 ? symbol : 0;
}

// Some of the lengths: those whose items begin before a limit.
struct lengths_part {
    uint32_t done;   // lengths before
    uint32_t former; // the length before, NO_LENGTH if it is not known
};

// Moves past the items that begin before bit `limit`, when the lengths before them are not known.
ANYWHERE void count_lengths(struct lengths_part *part, struct bits *bits, const uint32_t *precode,
                            uint32_t limit)
{
    while (bits->at < limit) {
        uint32_t repeat, length = take_length(bits, precode, &repeat);
        part->done += repeat;
        part->former = length == NO_LENGTH ? part->former : length;
    }
}

// The same when they are known: stores lengths to lengths[], which is all zeros; those of distances
// begin at LITLENS. Stops after the last one. False if zlib refuses them.
ANYWHERE bool read_lengths(struct lengths_part *part, struct bits *bits, uint8_t *lengths,
                           const uint32_t *precode, const struct length_counts *counts,
                           uint32_t limit)
{
    uint32_t total = counts->litlens + counts->distances;
    while (bits->at < limit && part->done < total) {
        uint32_t repeat, length = take_length(bits, precode, &repeat);
        part->former = length == NO_LENGTH ? part->former : length;
        if (part->former == NO_LENGTH || repeat > total - part->done)
            return false;
        uint32_t end = part->done + repeat;
        if (part->former == 0)
            part->done = end;
        for (; part->done < end; part->done++) {
            uint32_t i = part->done;
            lengths[i < counts->litlens ? i : i - counts->litlens + LITLENS] =
                (uint8_t)part->former;
        }
    }
    return true;
}

// The code lengths of blocks with the fixed codes (3.2.6).
ANYWHERE uint32_t fixed_length(uint32_t i)
{
    return i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : i < LITLENS ? 8 : 5;
}

#endif
