// SPDX-License-Identifier: MIT
// The search goes bit by bit, as in rapidgzip (Knespel and Brunst, 2023), with two tables: one maps
// the next 15 bits to the distance of the next possible begin, the other adds up a precode, four
// lengths at a time.
#include "png/cpu/inflate_find.h"

#include <pthread.h>
#include <stdbool.h>

#include "png/cpu/inflate_symbols.h"

enum {
    SEEN = 15,  // bits that index the first table
    PARTS = 12, // and the second: four lengths
    FIXED = 17, // bits of a header before the precode
    LEAST = 24, // bytes from the start of a header: 17 bits and 57, read 8 bytes at a time
    MOST_LITLENS = 29,
    MOST_DISTANCES = 29,
    COMPLETE = 128, // the sum of 2^(7 - length) in a complete code of lengths up to 7
};

static uint8_t to_next[1 << SEEN];
static uint16_t sum_of[1 << PARTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

// True unless the lowest `count` bits are not those of a header of a dynamic block.
static bool may_begin(unsigned bits, unsigned count)
{
    if (bits & 1 || (count >= 2 && bits & 2) || (count >= 3 && !(bits & 4)))
        return false;
    return (count < 8 || (bits >> 3 & 31) <= MOST_LITLENS) &&
           (count < 13 || (bits >> 8 & 31) <= MOST_DISTANCES);
}

static void make_tables(void)
{
    for (unsigned bits = 0; bits < 1u << SEEN; bits++) {
        unsigned skip = 0;
        while (skip < SEEN && !may_begin(bits >> skip, SEEN - skip))
            skip++;
        to_next[bits] = (uint8_t)skip;
    }
    for (unsigned bits = 0; bits < 1u << PARTS; bits++) {
        unsigned sum = 0;
        for (unsigned shift = 0; shift < PARTS; shift += 3) {
            unsigned length = bits >> shift & 7;
            sum += length > 0 ? (unsigned)COMPLETE >> length : 0;
        }
        sum_of[bits] = (uint16_t)sum;
    }
}

static uint64_t read_bits(const uint8_t *data, size_t bit) // 57 of them are valid
{
    return conv_inflate_load64(data + bit / 8) >> bit % 8;
}

static bool has_precode(const uint8_t *data, size_t bit)
{
    unsigned count = 4 + (unsigned)(read_bits(data, bit) >> 13 & 15);
    uint64_t lengths = read_bits(data, bit + FIXED) & (((uint64_t)1 << 3 * count) - 1);
    unsigned sum = 0;
    for (; lengths; lengths >>= PARTS)
        sum += sum_of[lengths & ((1 << PARTS) - 1)];
    return sum == COMPLETE;
}

size_t conv_inflate_find(const uint8_t *data, size_t size, size_t from, size_t to)
{
    pthread_once(&once, make_tables);
    size_t end = size < LEAST ? 0 : 8 * (size - LEAST);
    to = to < end ? to : end;
    for (size_t bit = from; bit < to;) {
        unsigned skip = to_next[read_bits(data, bit) & ((1 << SEEN) - 1)];
        bit += skip;
        if (skip > 0)
            continue;
        if (has_precode(data, bit))
            return bit;
        bit++;
    }
    return CONV_INFLATE_NOWHERE;
}
