// SPDX-License-Identifier: MIT
// From the lengths of codewords to tables. The rules for what a code may be are zlib's.
#include "png/inflate_code.h"

#include <string.h>

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
// of one bit, or none; the latter two only if `sparse`. The table will be indexed by `bits`.
static bool sort_code(struct conv_inflate_code *code, const uint8_t *lengths, unsigned symbols,
                      unsigned bits, bool sparse)
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
        if (n == bits + 1) {
            code->long_first = (uint16_t)((1 << n) - left - code->count[n]);
            code->long_index = (uint16_t)used;
        }
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

static inline uint32_t precode_entry(unsigned symbol, unsigned length)
{
    return symbol << 16 | length;
}

#define SPECIAL(kind, length) ((kind) << 8 | (length))

static inline uint64_t litlen_entry(unsigned symbol, unsigned length)
{
    uint64_t codeword = length << 16 | length;
    if (symbol < END_OF_BLOCK)
        return (uint64_t)CONV_INFLATE_BACK << 48 | (uint64_t)symbol << 32 | 1 << 24 | codeword;
    if (symbol == END_OF_BLOCK)
        return SPECIAL(CONV_INFLATE_END, length);
    if (symbol >= LITLEN_COUNT)
        return SPECIAL(CONV_INFLATE_INVALID, 0);
    unsigned i = symbol - FIRST_LENGTH;
    return (uint64_t)length_base[i] << 48 | CONV_INFLATE_LENGTH << 8 | (codeword + length_extra[i]);
}

static inline uint32_t distance_entry(unsigned symbol, unsigned length)
{
    if (symbol >= DISTANCE_COUNT)
        return SPECIAL(CONV_INFLATE_INVALID, 0);
    return (uint32_t)distance_base[symbol] << 16 | length << 8 | (length + distance_extra[symbol]);
}

// Fills a table of 1 << bits entries. The table of the codewords so far is doubled whenever they
// get longer, so that each is written once; what no codeword leads to stays invalid.
#define FILL_TABLE(table, bits, code, entry)                                                       \
    do {                                                                                           \
        const uint16_t *symbol = (code)->sorted;                                                   \
        unsigned codeword = 0, size = 1;                                                           \
        (table)[0] = SPECIAL(CONV_INFLATE_INVALID, 0);                                             \
        for (unsigned n = 1; n <= (bits); n++) {                                                   \
            memcpy((table) + size, table, size * sizeof *(table));                                 \
            size *= 2;                                                                             \
            for (unsigned i = (code)->count[n]; i > 0; i--) {                                      \
                (table)[codeword] = entry(*symbol++, n);                                           \
                codeword = next_codeword(codeword, n);                                             \
            }                                                                                      \
        }                                                                                          \
        for (unsigned n = (bits) + 1; n <= MAX_LENGTH; n++) {                                      \
            for (unsigned i = (code)->count[n]; i > 0; i--) {                                      \
                (table)[codeword & (size - 1)] = SPECIAL(CONV_INFLATE_LONG, 0);                    \
                codeword = next_codeword(codeword, n);                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

// What follows a literal has an entry of its own at a smaller index, hence downwards.
static void join_literals(uint64_t *litlen)
{
    const uint64_t counts = (uint64_t)0xff << 24 | 0xff << 16 | 0xff; // literals and bits
    for (unsigned i = 1u << LITLEN_BITS; i-- > 0;) {
        uint64_t first = litlen[i], next = litlen[i >> CONV_INFLATE_DROP(first)];
        uint64_t both = first + (next & counts) + ((next >> 32 & 0xff) << 40);
        // Beyond the index there are zeros, not the stream's bits. No branch: it would be a guess.
        bool fits = CONV_INFLATE_LITERALS(first) & CONV_INFLATE_LITERALS(next) &
                    (CONV_INFLATE_DROP(both) <= LITLEN_BITS);
        litlen[i] = fits ? both : first;
    }
}

// Of a length, whose extra bits are in the index, and the distance behind it.
static inline uint64_t join_distance(uint64_t first, uint32_t distance, unsigned index)
{
    unsigned drop = CONV_INFLATE_DROP(first), codeword = distance >> 8 & 0xff;
    unsigned extra = (index & ((1u << drop) - 1)) >> (first >> 16 & 63);
    unsigned length = (unsigned)(first >> 48) + extra;
    unsigned drops = drop + CONV_INFLATE_DROP(distance);
    uint64_t both =
        (uint64_t)(distance >> 16) << 48 | (uint64_t)(drop + codeword) << 16 | length << 8 | drops;
    bool fits =
        (codeword <= MAX_LENGTH) & (drop + codeword <= LITLEN_BITS) & (length <= CONV_INFLATE_NEAR);
    return fits ? both : first;
}

static void join_matches(uint64_t *litlen, const uint32_t *distance,
                         const struct conv_inflate_code *code)
{
    const uint16_t *symbol = code->sorted;
    unsigned codeword = 0;
    for (unsigned n = 1; n <= LITLEN_BITS; n++) {
        for (unsigned i = code->count[n]; i > 0; i--) {
            bool match = *symbol >= FIRST_LENGTH && *symbol < LITLEN_COUNT;
            symbol++;
            for (unsigned at = codeword; match && at < 1u << LITLEN_BITS; at += 1u << n) {
                unsigned rest = at >> CONV_INFLATE_DROP(litlen[at]);
                litlen[at] =
                    join_distance(litlen[at], distance[rest & ((1 << DISTANCE_BITS) - 1)], at);
            }
            codeword = next_codeword(codeword, n);
        }
    }
}

static inline unsigned reverse_bits(unsigned x) // the lowest 16
{
    x = (x >> 1 & 0x5555) | (x & 0x5555) << 1;
    x = (x >> 2 & 0x3333) | (x & 0x3333) << 2;
    x = (x >> 4 & 0x0f0f) | (x & 0x0f0f) << 4;
    return (x >> 8 & 0xff) | (x & 0xff) << 8;
}

// The symbol at the front of `bits`, whose codeword is longer than a table's index of `known` bits,
// with its length. There is one: the code is complete.
static inline unsigned find_long(const struct conv_inflate_code *code, uint64_t bits,
                                 unsigned known, unsigned *length)
{
    unsigned reversed = reverse_bits((unsigned)bits & 0xffff);
    unsigned first = code->long_first, index = code->long_index;
    for (unsigned n = known + 1; n <= MAX_LENGTH; n++) {
        unsigned codeword = reversed >> (16 - n);
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
    if (!sort_code(&code, lengths, PRECODE_COUNT, CONV_INFLATE_PRECODE_BITS, false))
        return false;
    FILL_TABLE(table, CONV_INFLATE_PRECODE_BITS, &code, precode_entry);
    return true;
}

bool conv_inflate_code_litlen(struct conv_inflate_code *code, uint64_t *table,
                              const uint8_t *lengths, unsigned symbols)
{
    if (lengths[END_OF_BLOCK] == 0 || !sort_code(code, lengths, symbols, LITLEN_BITS, true))
        return false;
    FILL_TABLE(table, LITLEN_BITS, code, litlen_entry);
    return true;
}

bool conv_inflate_code_distance(struct conv_inflate_code *code, uint32_t *table,
                                const uint8_t *lengths, unsigned symbols)
{
    if (!sort_code(code, lengths, symbols, DISTANCE_BITS, true))
        return false;
    FILL_TABLE(table, DISTANCE_BITS, code, distance_entry);
    return true;
}

void conv_inflate_code_join(uint64_t *litlen, const uint32_t *distance,
                            const struct conv_inflate_code *litlen_code)
{
    join_literals(litlen);
    join_matches(litlen, distance, litlen_code);
}

uint64_t conv_inflate_code_find_litlen(const struct conv_inflate_code *code, uint64_t bits)
{
    unsigned length, symbol = find_long(code, bits, LITLEN_BITS, &length);
    return litlen_entry(symbol, length);
}

uint32_t conv_inflate_code_find_distance(const struct conv_inflate_code *code, uint64_t bits)
{
    unsigned length, symbol = find_long(code, bits, DISTANCE_BITS, &length);
    return distance_entry(symbol, length);
}
