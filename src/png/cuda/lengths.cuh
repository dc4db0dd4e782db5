// SPDX-License-Identifier: MIT
// The head of a DEFLATE block with codes of its own (RFC 1951, 3.2.7): what one thread reads.
#ifndef CONV_PNG_CUDA_LENGTHS_CUH
#define CONV_PNG_CUDA_LENGTHS_CUH

#include "png/cuda/symbols.cuh"

// Numbers of codeword lengths that the block has.
struct length_counts {
    uint32_t litlens, distances, precodes;
};

// False where zlib refuses.
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

// Reads the lengths of all codewords by the precode's table. lengths[] is all zeros, those of
// distances begin at LITLENS. False where zlib refuses.
ANYWHERE bool read_lengths(struct bits *bits, uint8_t *lengths, const uint32_t *precode,
                           const struct length_counts *counts)
{
    uint32_t total = counts->litlens + counts->distances, done = 0, former = 0;
    while (done < total) {
        uint32_t next = peek_bits(bits), entry = precode[next & ((1 << PRECODE_BITS) - 1)];
        uint32_t symbol = entry >> 8, drop = entry & 255, repeat = 1;
        if (symbol > 15) {
            if (symbol == 16 && done == 0)
                return false;
            uint32_t extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            repeat = (symbol == 18 ? 11 : 3) + (next >> drop & ((1u << extra) - 1));
            drop += extra;
        }
        drop_bits(bits, drop);
        former = symbol < 16 ? symbol : symbol == 16 ? former : 0;
        if (repeat > total - done)
            return false;
        uint32_t end = done + repeat;
        if (former == 0)
            done = end;
        for (; done < end; done++) {
            uint32_t place = done < counts->litlens ? done : done - counts->litlens + LITLENS;
            lengths[place] = (uint8_t)former;
        }
    }
    return lengths[END_OF_BLOCK] != 0;
}

// The code lengths of blocks with the fixed codes (3.2.6).
ANYWHERE uint32_t fixed_length(uint32_t i)
{
    return i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : i < LITLENS ? 8 : 5;
}

#endif
