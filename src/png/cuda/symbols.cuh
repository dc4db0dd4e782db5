// SPDX-License-Identifier: MIT
// DEFLATE's codes (RFC 1951, 3.2) in the form that the kernels use, the step from one symbol to the
// next, and the parts of a block's head that one thread reads. Threads do not depend on each other
// here, so it is plain C, which unit tests compile for the CPU as well.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ANYWHERE static __host__ __device__ __forceinline__
#else
#define ANYWHERE static inline
#endif

#define LITLENS 288    // symbols of the fixed code; the last two are unused
#define DISTANCES 32   // likewise
#define PRECODES 19    // symbols of the code in which the lengths of the others are written
#define MOST_LENGTH 15 // bits of a codeword
#define END_OF_BLOCK 256

// --- reading bits --------------------------------------------------------------------------------

// Reads the bits of an array of words, lowest first. `low` and `high` are the word that contains
// `at` and the next one; `ahead` points to the word after them.
struct bits {
    const uint32_t *ahead;
    uint32_t at;
    uint32_t low, high;
};

ANYWHERE struct bits read_bits(const uint32_t *words, uint32_t at)
{
    struct bits bits = {words + at / 32 + 2, at, words[at / 32], words[at / 32 + 1]};
    return bits;
}

// The next 32.
ANYWHERE uint32_t peek_bits(const struct bits *bits)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_r(bits->low, bits->high, bits->at);
#else
    return (uint32_t)(((uint64_t)bits->high << 32 | bits->low) >> (bits->at & 31));
#endif
}

// At most 32.
ANYWHERE void drop_bits(struct bits *bits, uint32_t count)
{
    uint32_t next = bits->at + count;
    if ((next ^ bits->at) & ~31u) {
        bits->low = bits->high;
        bits->high = *bits->ahead++;
    }
    bits->at = next;
}

ANYWHERE uint32_t take_bits(struct bits *bits, uint32_t count) // at most 31
{
    uint32_t value = peek_bits(bits) & ((1u << count) - 1);
    drop_bits(bits, count);
    return value;
}

// --- codes ---------------------------------------------------------------------------------------

// A canonical code. The codewords of n bits, padded with zeros to 15 bits, are from limit[n - 1] to
// limit[n] - 1. The symbol of a codeword of n bits is sorted[codeword + offset[n]].
struct code {
    uint16_t limit[MOST_LENGTH + 1];
    int16_t offset[MOST_LENGTH + 1];
};

#define NO_SYMBOL 0xffffffffu

// Makes a code from the number of codewords of each length. first[n] becomes the index of the first
// symbol of n bits in its table `sorted`. Returns false for codes that zlib refuses: a code must be
// complete or, if `sparse`, may have a single codeword of one bit, or none.
ANYWHERE bool fill_code(struct code *code, uint32_t *first, const uint32_t *count, bool sparse)
{
    uint32_t codeword = 0, used = 0;
    code->limit[0] = 0;
    code->offset[0] = 0;
    for (int n = 1; n <= MOST_LENGTH; n++) {
        codeword *= 2;
        first[n] = used;
        code->offset[n] = (int16_t)((int32_t)used - (int32_t)codeword);
        codeword += count[n];
        used += count[n];
        if (codeword > 1u << n)
            return false;
        code->limit[n] = (uint16_t)(codeword << (MOST_LENGTH - n));
    }
    return codeword == 1u << MOST_LENGTH || (sparse && (used == 0 || (used == 1 && count[1] == 1)));
}

ANYWHERE uint32_t reverse_bits(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __brev(bits);
#else
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
#endif
}

// Finds the symbol whose codeword, of `least` to `most` bits, is at the front of `bits`. Returns
// symbol << 8 | bits of the codeword; NO_SYMBOL if there is none.
ANYWHERE uint32_t find_symbol(const struct code *code, const uint16_t *sorted, uint32_t bits,
                              int least, int most)
{
    uint32_t codeword = reverse_bits(bits) >> (32 - MOST_LENGTH);
    int n = least; // limits never decrease, so no branch is needed and all loads overlap
    for (int shorter = least; shorter <= most; shorter++)
        n += codeword >= code->limit[shorter];
    if (n > most)
        return NO_SYMBOL;
    int32_t place = (int32_t)(codeword >> (MOST_LENGTH - n)) + code->offset[n];
    return (uint32_t)sorted[place] << 8 | (uint32_t)n;
}

// --- entries -------------------------------------------------------------------------------------
// The meaning of the next bits. All kinds have the same fields, so that lanes of a warp with
// different kinds run the same code:
//   bits 0-4   bits to drop: codewords and extra bits; 0 if decoding stops here
//   bits 5-7   bytes: of a literal 1, or 2 if the index holds two codewords; of a distance the
//              length of the match if the index holds its codeword as well, else 0
//   bit 8      a length
//   bits 9-12  bits of the codewords
//   bit 13     the rest of the codeword is in a second table; bits 5-11 are the mask of its index
//   bit 14     a literal
//   bit 15     the end of the block
//   bits 16-31 what the extra bits are added to: bytes, a length, a distance less 1; where the
//              second table begins
// No kind: a distance or, if no bits are dropped, an invalid codeword.
#define ENTRY_BYTE (1u << 5)
#define ENTRY_BYTES (7u << 5)
#define ENTRY_CODE 9
#define ENTRY_DISTANCE 0u
#define ENTRY_INVALID 0u
#define ENTRY_LENGTH (1u << 8)
#define ENTRY_LONG (1u << 13)
#define ENTRY_LITERAL (1u << 14)
#define ENTRY_END (1u << 15)
#define ENTRY_KIND (ENTRY_LENGTH | ENTRY_LONG | ENTRY_LITERAL | ENTRY_END)

// `length`: bits of the codeword in the table that the entry is for.
ANYWHERE uint32_t litlen_entry(uint32_t symbol, uint32_t length)
{
    if (symbol < END_OF_BLOCK)
        return symbol << 16 | ENTRY_LITERAL | length << ENTRY_CODE | ENTRY_BYTE | length;
    if (symbol == END_OF_BLOCK)
        return ENTRY_END | length << ENTRY_CODE;
    // 3 to 10 without extra bits, then four lengths with each number of them; 258 is alone.
    uint32_t i = symbol - 257, extra = i < 8 || i == 28 ? 0 : i / 4 - 1;
    uint32_t base = i < 8 ? 3 + i : i == 28 ? 258 : 3 + ((4 + i % 4) << extra);
    return i > 28 ? ENTRY_INVALID
                  : base << 16 | ENTRY_LENGTH | length << ENTRY_CODE | (length + extra);
}

ANYWHERE uint32_t distance_entry(uint32_t symbol, uint32_t length)
{
    // 1 to 4 without extra bits, then two distances with each number of them.
    uint32_t extra = symbol < 4 ? 0 : symbol / 2 - 1;
    uint32_t base = symbol < 4 ? symbol : (2 + symbol % 2) << extra;
    return symbol > 29 ? ENTRY_INVALID
                       : base << 16 | ENTRY_DISTANCE | length << ENTRY_CODE | (length + extra);
}

// The lowest `count` % 32 bits.
ANYWHERE uint32_t low_bits(uint32_t bits, uint32_t count)
{
#ifdef __CUDA_ARCH__
    asm("szext.wrap.u32 %0, %0, %1;" : "+r"(bits) : "r"(count));
    return bits;
#else
    return bits & ((1u << (count & 31)) - 1);
#endif
}

// The base of an entry with its extra bits added.
ANYWHERE uint32_t entry_value(uint32_t entry, uint32_t bits)
{
    uint32_t both = low_bits(bits, entry);
    return (entry >> 16) + (both >> (entry >> ENTRY_CODE & 31));
}

// --- tables --------------------------------------------------------------------------------------

// Bits that index a code's table. Longer codewords continue in second tables, one for all codewords
// with the same first bits, sized for the longest of them. Both tables come first, then the second
// tables of both.
#define LITLEN_BITS 10
#define DISTANCE_BITS 8
// The most entries that any code makes, as zlib's examples/enough.c finds them ("enough 286 10 15"
// and "enough 32 8 15").
#define LITLEN_ENTRIES 1334
#define DISTANCE_ENTRIES 402
#define ENTRIES (LITLEN_ENTRIES + DISTANCE_ENTRIES)
#define DISTANCES_BEGIN (1u << LITLEN_BITS)
#define SECOND_LITLENS (DISTANCES_BEGIN + (1u << DISTANCE_BITS))
#define SECOND_DISTANCES (SECOND_LITLENS + LITLEN_ENTRIES - (1u << LITLEN_BITS))

// One of the two codes while its table is made.
struct table {
    const struct code *code;
    const uint16_t *sorted;
    uint32_t bits, begin;  // bits of the index; the table's first entry
    uint32_t second, last; // where its second tables begin and end
    bool far;              // the code is that of distances
};

ANYWHERE struct table litlen_table(const struct code *code, const uint16_t *sorted)
{
    struct table table = {code, sorted, LITLEN_BITS, 0, SECOND_LITLENS, SECOND_DISTANCES, false};
    return table;
}

ANYWHERE struct table distance_table(const struct code *code, const uint16_t *sorted)
{
    struct table table = {code,    sorted, DISTANCE_BITS, DISTANCES_BEGIN, SECOND_DISTANCES,
                          ENTRIES, true};
    return table;
}

// The entry for the codeword at the front of `bits`, which has more than `known` bits and at most
// `most`.
ANYWHERE uint32_t make_entry(const struct table *table, uint32_t bits, uint32_t known,
                             uint32_t most)
{
    uint32_t found = find_symbol(table->code, table->sorted, bits, (int)known + 1, (int)most);
    if (found == NO_SYMBOL)
        return ENTRY_INVALID;
    return table->far ? distance_entry(found >> 8, found & 255)
                      : litlen_entry(found >> 8, found & 255);
}

// The first prefix of codewords that are longer than the index.
ANYWHERE uint32_t first_prefix(const struct table *table)
{
    return (uint32_t)table->code->limit[table->bits] >> (MOST_LENGTH - table->bits);
}

// The most bits after this prefix of the codewords that begin with it: those of the last one. 0 if
// there are none.
ANYWHERE uint32_t prefix_bits(const struct table *table, uint32_t prefix)
{
    uint32_t last = ((prefix + 1) << (MOST_LENGTH - table->bits)) - 1;
    for (uint32_t n = table->bits + 1; n <= MOST_LENGTH; n++)
        if (last < table->code->limit[n])
            return n - table->bits;
    return 0;
}

// Joins the entry of index `index` with the one for what follows, if the index holds the codewords
// of both: two literals, or the length of a match, without extra bits, and its distance. Else
// returns the first one. (What follows an index are zeros, not bits of the stream.)
ANYWHERE uint32_t join_entries(const uint32_t *entries, uint32_t index)
{
    uint32_t first = entries[index], kind = first & ENTRY_KIND, drop = first & 31;
    uint32_t rest = index >> drop, length = first >> 16;
    bool literal = kind == ENTRY_LITERAL;
    bool match = kind == ENTRY_LENGTH && drop == (first >> ENTRY_CODE & 15) &&
                 length <= ENTRY_BYTES / ENTRY_BYTE;
    if (!literal && !match)
        return first;
    uint32_t place = literal ? rest : DISTANCES_BEGIN + (rest & ((1u << DISTANCE_BITS) - 1));
    uint32_t second = entries[place], both = (second >> ENTRY_CODE & 15) + drop;
    if ((second & ENTRY_KIND) != (literal ? ENTRY_LITERAL : ENTRY_DISTANCE) || (second & 31) == 0 ||
        both > LITLEN_BITS)
        return first;
    if (literal)
        return (second >> 16 << 24) | (first & 0xff0000) | ENTRY_LITERAL | both << ENTRY_CODE |
               2 * ENTRY_BYTE | both;
    return (second & 0xffff0000u) | ENTRY_DISTANCE | both << ENTRY_CODE | length * ENTRY_BYTE |
           ((second & 31) + drop);
}

// Makes the entry of a prefix, which refers to the second table at entry `at`.
ANYWHERE void link_prefix(uint32_t *entries, const struct table *table, uint32_t prefix,
                          uint32_t more, uint32_t at)
{
    uint32_t bits = reverse_bits(prefix) >> (32 - table->bits);
    entries[table->begin + bits] = at << 16 | ENTRY_LONG | ((1u << more) - 1) << 5 | table->bits;
}

// Makes every `step`-th entry, from `first` on, of a prefix's second table, if there is one.
ANYWHERE void fill_prefix(uint32_t *entries, const struct table *table, uint32_t prefix,
                          uint32_t first, uint32_t step)
{
    uint32_t bits = reverse_bits(prefix) >> (32 - table->bits);
    uint32_t entry = entries[table->begin + bits], last = entry >> 5 & 127, at = entry >> 16;
    uint32_t more = 0;
    if (!(entry & ENTRY_LONG))
        return;
    while (last >> more)
        more++;
    for (uint32_t i = first; i <= last; i += step)
        entries[at + i] =
            make_entry(table, bits | i << table->bits, table->bits, table->bits + more);
}

// --- steps ---------------------------------------------------------------------------------------

// The table of the next look-up: the mask of its index, and the entry at which it begins. Between
// symbols this is the table of literals and lengths; after a length it is that of distances.
#define BETWEEN_SYMBOLS ((1u << LITLEN_BITS) - 1)
#define WITHIN_MATCH (DISTANCES_BEGIN | ((1u << DISTANCE_BITS) - 1))

ANYWHERE uint32_t look_up(const uint32_t *entries, uint32_t place, uint32_t bits)
{
    return entries[place & (bits | ~BETWEEN_SYMBOLS)];
}

// The entry that follows ENTRY_LONG; others are returned as they are.
ANYWHERE uint32_t look_further(const uint32_t *entries, uint32_t entry, uint32_t bits)
{
    if (!(entry & ENTRY_LONG))
        return entry;
    return entries[(entry >> 16) + (bits >> (entry & 31) & (entry >> 5 & 127))];
}

// The place of the look-up after an entry.
#if BETWEEN_SYMBOLS + ENTRY_LENGTH != WITHIN_MATCH
#error "the bit of a length leads from one table to the other"
#endif
ANYWHERE uint32_t next_place(uint32_t entry)
{
    return BETWEEN_SYMBOLS + (entry & ENTRY_LENGTH);
}

// Moves to the first position between symbols that is at `limit` or after it, and adds the bytes of
// the symbols to *count. Returns 0, or the reason why it stopped earlier: SYMBOLS_END, and the
// codeword has been dropped, or SYMBOLS_INVALID.
#define SYMBOLS_END 1
#define SYMBOLS_INVALID 2

ANYWHERE uint32_t count_symbols(const uint32_t *entries, struct bits *bits, uint32_t limit,
                                uint32_t *count)
{
    uint32_t place = BETWEEN_SYMBOLS;
    bool in_match; // a length has been read, and not its distance
    if (bits->at >= limit)
        return 0;
    do {
        uint32_t next = peek_bits(bits);
        uint32_t entry = look_further(entries, look_up(entries, place, next), next);
        uint32_t drop = entry & 31;
        if (drop == 0) {
            drop_bits(bits, entry >> ENTRY_CODE & 15);
            return entry & ENTRY_END ? SYMBOLS_END : SYMBOLS_INVALID;
        }
        drop_bits(bits, drop);
        in_match = entry & ENTRY_LENGTH;
        *count += (entry & ENTRY_BYTES) / ENTRY_BYTE;
        if (in_match)
            *count += entry_value(entry, next);
        place = next_place(entry);
    } while (in_match || bits->at < limit);
    return 0;
}

// --- bits per thread -----------------------------------------------------------------------------

// How many bits of input the threads of a block take. Valid C as well as CUDA: a unit test compiles
// it.

// One thread counts a part of the input; one or two threads write its shares.
#define THREAD_ROOM 62     // bytes of output per share that fit the window
#define EXPECTED_ROOM 58   // bytes of output per share to aim at, so that they rarely do not fit
#define LEAST_PART_BITS 56 // at most 28 matches begin there: 7,224 bytes fit 128 threads' room
#define FIRST_THREAD_BITS 224

// Bits of input per part for the next window, after `bits` (below 2^18) made `bytes` > 0. A
// multiple of 8 from LEAST_PART_BITS to `most`.
ANYWHERE uint32_t choose_part_bits(uint32_t bits, uint32_t bytes, uint32_t shares, uint32_t most)
{
    uint32_t wanted = bits * (shares * EXPECTED_ROOM) / bytes / 8 * 8;
    // DEFLATE produces up to 129 bytes from a bit, so `wanted` is 0 for flat images.
    wanted = wanted < LEAST_PART_BITS ? LEAST_PART_BITS : wanted > most ? most : wanted;
    // With a multiple of 128, the threads of a warp would begin in few banks of shared memory.
    return wanted % 128 ? wanted : wanted - 8;
}

// --- the heads of blocks -------------------------------------------------------------------------

// The head of a DEFLATE block with its own codes (RFC 1951, 3.2.7): the parts that one thread
// reads.

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
