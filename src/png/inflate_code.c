// SPDX-License-Identifier: MIT
// From the lengths of codewords to tables. The rules for what a code may be are zlib's.
#include "png/inflate_code.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    MAX_LENGTH = 15, // bits of a codeword
    END_OF_BLOCK = 256,
    FIRST_LENGTH = 257,
    LITLEN_COUNT = 286, // symbols that may be used
    DISTANCE_COUNT = 30,
    PRECODE_COUNT = 19,
    LITLEN_BITS = CONV_INFLATE_LITLEN_BITS,
    DISTANCE_BITS = CONV_INFLATE_DISTANCE_BITS,
};

static const uint16_t length_base[LITLEN_COUNT - FIRST_LENGTH] = {
    3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[LITLEN_COUNT - FIRST_LENGTH] = {
    0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[DISTANCE_COUNT] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t distance_extra[DISTANCE_COUNT] = {0, 0, 0,  0,  1,  1,  2,  2,  3,  3,
                                                       4, 4, 5,  5,  6,  6,  7,  7,  8,  8,
                                                       9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

// Sorts the symbols by codeword. The rules are zlib's: a code is complete, or it has one codeword
// of one bit, or none; the latter two only if `sparse`.
static bool sort_code(struct conv_inflate_code *code, const uint8_t *lengths, unsigned symbols,
                      bool sparse)
{
    uint16_t next[MAX_LENGTH + 1];
    memset(code->count, 0, sizeof code->count);
    for (unsigned s = 0; s < symbols; s++)
        code->count[lengths[s]]++;
    code->count[0] = 0;
    int left = 1; // codewords of this length that are still free
    unsigned used = 0;
    for (unsigned n = 1; n <= MAX_LENGTH; n++) {
        left = 2 * left - code->count[n];
        if (left < 0)
            return false;
        next[n] = (uint16_t)used;
        used += code->count[n];
    }
    if (left > 0 && !(sparse && (used == 0 || (used == 1 && code->count[1] == 1))))
        return false;
    for (unsigned s = 0; s < symbols; s++) {
        if (lengths[s] != 0)
            code->sorted[next[lengths[s]]++] = (uint16_t)s;
    }
    return true;
}

// The codeword after this one, both with their first bit lowest, as the stream has them.
static inline unsigned next_codeword(unsigned codeword, unsigned length)
{
    unsigned zeros = ~codeword & ((1u << length) - 1);
    if (zeros == 0)
        return 0; // that was the last one
    unsigned bit = 1u << (31 - (unsigned)__builtin_clz(zeros));
    return (codeword & (bit - 1)) | bit;
}

typedef uint32_t (*entry_fn)(unsigned symbol, unsigned length);

static inline uint32_t precode_entry(unsigned symbol, unsigned length)
{
    return symbol << 16 | length;
}

static inline uint32_t litlen_entry(unsigned symbol, unsigned length)
{
    if (symbol < END_OF_BLOCK)
        return symbol << 8 | 1 << 6 | length;
    if (symbol == END_OF_BLOCK)
        return CONV_INFLATE_END | length;
    if (symbol >= LITLEN_COUNT)
        return CONV_INFLATE_INVALID;
    unsigned i = symbol - FIRST_LENGTH;
    return (uint32_t)length_base[i] << 16 | length << 8 | (length + length_extra[i]);
}

static inline uint32_t distance_entry(unsigned symbol, unsigned length)
{
    if (symbol >= DISTANCE_COUNT)
        return CONV_INFLATE_INVALID;
    return (uint32_t)distance_base[symbol] << 16 | length << 8 | (length + distance_extra[symbol]);
}

// Fills a table of 1 << bits entries. The table of the codewords so far is doubled whenever they
// get longer, so that each is written once; what no codeword leads to stays invalid.
ALWAYS_INLINE void fill_table(uint32_t *table, unsigned bits, const struct conv_inflate_code *code,
                              entry_fn entry)
{
    const uint16_t *symbol = code->sorted;
    unsigned codeword = 0, size = 1;
    table[0] = CONV_INFLATE_INVALID;
    for (unsigned n = 1; n <= bits; n++) {
        memcpy(table + size, table, size * sizeof *table);
        size *= 2;
        for (unsigned i = code->count[n]; i > 0; i--) {
            table[codeword] = entry(*symbol++, n);
            codeword = next_codeword(codeword, n);
        }
    }
    for (unsigned n = bits + 1; n <= MAX_LENGTH; n++) {
        for (unsigned i = code->count[n]; i > 0; i--) {
            table[codeword & (size - 1)] = CONV_INFLATE_LONG;
            codeword = next_codeword(codeword, n);
        }
    }
}

// Where the bits of an index hold two literals, an entry shall give both. What follows a literal
// has an entry of its own at a smaller index, hence downwards.
static void join_literals(uint32_t *table)
{
    for (unsigned i = 1u << LITLEN_BITS; i-- > 0;) {
        uint32_t first = table[i], next = table[i >> CONV_INFLATE_DROP(first)];
        uint32_t both = first + (next << 8 & 0xff0000) + CONV_INFLATE_DROP(next) + (1 << 6);
        // Beyond the index there are zeros, not the stream's bits. No branch: it would be a guess.
        uint32_t fits = CONV_INFLATE_LITERALS(first) & CONV_INFLATE_LITERALS(next) &
                        (CONV_INFLATE_DROP(both) <= LITLEN_BITS);
        table[i] = fits ? both : first;
    }
}

// The symbol at the front of `bits`, whose codeword is longer than a table's index, with its
// length. There is one: the code is complete.
static unsigned find_long(const struct conv_inflate_code *code, uint64_t bits, unsigned *length)
{
    unsigned codeword = 0, first = 0, index = 0;
    for (unsigned n = 1; n <= MAX_LENGTH; n++) {
        codeword = codeword << 1 | (unsigned)(bits & 1);
        bits >>= 1;
        if (codeword - first < code->count[n]) {
            *length = n;
            return code->sorted[index + codeword - first];
        }
        index += code->count[n];
        first = (first + code->count[n]) << 1;
    }
    *length = 0;
    return END_OF_BLOCK;
}

bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19])
{
    struct conv_inflate_code code;
    if (!sort_code(&code, lengths, PRECODE_COUNT, false))
        return false;
    fill_table(table, CONV_INFLATE_PRECODE_BITS, &code, precode_entry);
    return true;
}

bool conv_inflate_code_litlen(struct conv_inflate_code *code, uint32_t *table,
                              const uint8_t *lengths, unsigned symbols)
{
    if (lengths[END_OF_BLOCK] == 0 || !sort_code(code, lengths, symbols, true))
        return false;
    fill_table(table, LITLEN_BITS, code, litlen_entry);
    join_literals(table);
    return true;
}

bool conv_inflate_code_distance(struct conv_inflate_code *code, uint32_t *table,
                                const uint8_t *lengths, unsigned symbols)
{
    if (!sort_code(code, lengths, symbols, true))
        return false;
    fill_table(table, DISTANCE_BITS, code, distance_entry);
    return true;
}

uint32_t conv_inflate_code_find_litlen(const struct conv_inflate_code *code, uint64_t bits)
{
    unsigned length, symbol = find_long(code, bits, &length);
    return litlen_entry(symbol, length);
}

uint32_t conv_inflate_code_find_distance(const struct conv_inflate_code *code, uint64_t bits)
{
    unsigned length, symbol = find_long(code, bits, &length);
    return distance_entry(symbol, length);
}
