// SPDX-License-Identifier: MIT
// Makes decoding tables from the lengths of codewords. A code is valid if zlib accepts it.
#include "png/cpu/inflate_code.h"

#include <pthread.h>
#include <string.h>

enum {
    MAX_LENGTH = 15, // bits of a codeword
    END_OF_BLOCK = 256,
    FIRST_LENGTH = 257,
    LITLEN_COUNT = 286, // symbols that may be used
    DISTANCE_COUNT = 30,
    PRECODE_COUNT = 19,
    ALL_LITLENS = 288, // with those that only the fixed code has
    ALL_DISTANCES = 32,
    MIXED_SHARE =
        (1 << 15) / 16, // share of matches among symbols from which branchless decoding pays
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

// The entry of each symbol without the bits that depend on the length of its codeword.
static uint64_t litlen_entries[ALL_LITLENS];
static uint32_t distance_entries[ALL_DISTANCES];
static struct conv_inflate_tables fixed_tables;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Sorts the symbols by codeword. False unless the code is complete or, if `sparse`, has one
// codeword of one bit or none: zlib's rules. Four quarters of the symbols are counted and placed in
// turn, since increments of one counter depend on each other.
static bool sort_code(struct conv_inflate_code *code, const uint8_t *lengths, unsigned symbols,
                      bool sparse)
{
    enum { QUARTERS = 4 };
    uint16_t next[QUARTERS][MAX_LENGTH + 1] = {{0}};
    unsigned quarter = symbols / QUARTERS, rest = QUARTERS * quarter;
    for (unsigned s = 0; s < quarter; s++) {
        for (unsigned q = 0; q < QUARTERS; q++)
            next[q][lengths[s + q * quarter]]++;
    }
    for (unsigned s = rest; s < symbols; s++)
        next[QUARTERS - 1][lengths[s]]++;
    int left = 1; // unused codewords of this length
    unsigned used = 0;
    code->count[0] = 0;
    for (unsigned n = 1; n <= MAX_LENGTH; n++) {
        unsigned before = used;
        for (unsigned q = 0; q < QUARTERS; q++) {
            unsigned count = next[q][n];
            next[q][n] = (uint16_t)used;
            used += count;
        }
        code->count[n] = (uint16_t)(used - before);
        left = 2 * left - code->count[n];
        if (left < 0)
            return false;
    }
    if (left > 0 && !(sparse && (used == 0 || (used == 1 && code->count[1] == 1))))
        return false;
    for (unsigned s = 0; s < quarter; s++) {
        for (unsigned q = 0; q < QUARTERS; q++) {
            unsigned symbol = s + q * quarter, n = lengths[symbol];
            if (n != 0)
                code->sorted[next[q][n]++] = (uint16_t)symbol;
        }
    }
    for (unsigned s = rest; s < symbols; s++) {
        if (lengths[s] != 0)
            code->sorted[next[QUARTERS - 1][lengths[s]]++] = (uint16_t)s;
    }
    return true;
}

static inline unsigned reverse_bits(unsigned x) // the lowest 16
{
    x = (x >> 1 & 0x5555) | (x & 0x5555) << 1;
    x = (x >> 2 & 0x3333) | (x & 0x3333) << 2;
    x = (x >> 4 & 0x0f0f) | (x & 0x0f0f) << 4;
    return (x >> 8 & 0xff) | (x & 0xff) << 8;
}

static inline uint32_t precode_entry(unsigned symbol, unsigned length)
{
    return symbol << 16 | length;
}

#define SPECIAL(kind, length) ((kind) << 8 | (length))

static uint64_t make_litlen_entry(unsigned symbol)
{
    if (symbol < END_OF_BLOCK)
        return (uint64_t)CONV_INFLATE_BACK << 48 | (uint64_t)symbol << 32 | 1 << 24;
    if (symbol == END_OF_BLOCK)
        return SPECIAL(CONV_INFLATE_END, 0);
    if (symbol >= LITLEN_COUNT)
        return SPECIAL(CONV_INFLATE_INVALID, 0);
    unsigned i = symbol - FIRST_LENGTH;
    return (uint64_t)length_base[i] << 48 | CONV_INFLATE_LENGTH << 8 | length_extra[i];
}

static uint32_t make_distance_entry(unsigned symbol)
{
    if (symbol >= DISTANCE_COUNT)
        return SPECIAL(CONV_INFLATE_INVALID, 0);
    return (uint32_t)distance_base[symbol] << 16 | distance_extra[symbol];
}

// In entries that are neither match nor literal only the kind and the bits to drop are used.
static inline uint64_t litlen_entry(unsigned symbol, unsigned length)
{
    return litlen_entries[symbol] + (length << 16 | length);
}

static inline uint32_t distance_entry(unsigned symbol, unsigned length)
{
    return distance_entries[symbol] + (length << 8 | length);
}

static inline uint64_t litlen_link(unsigned first, unsigned bits)
{
    return (uint64_t)first << 48 | (((uint64_t)1 << bits) - 1) << 32 | CONV_INFLATE_LONG << 8;
}

static inline uint32_t distance_link(unsigned first, unsigned bits)
{
    return (uint32_t)bits << 28 | (uint32_t)first << 16 | CONV_INFLATE_LONG << 8;
}

// The index bits of a second table that begins with the last `count` codewords of length n: enough
// for the following codewords to fill it.
static inline unsigned extra_bits(const struct conv_inflate_code *code, unsigned bits, unsigned n,
                                  unsigned count)
{
    int left = (1 << (n - bits)) - (int)count;
    while (left > 0)
        left = 2 * left - code->count[++n];
    return n - bits;
}

// Fills a table of 1 << bits entries. The table of the codewords so far is doubled whenever they
// get longer, so each is written once; indices without a codeword stay invalid. After it come the
// second tables, one for each group of long codewords that begin with the same bits, sized for the
// longest. `codeword` has n bits, its first bit highest; the stream has the reverse order.
#define FILL_TABLE(table, bits, code, entry, link)                                                 \
    do {                                                                                           \
        const uint16_t *symbol = (code)->sorted;                                                   \
        unsigned codeword = 0, size = 1;                                                           \
        (table)[0] = SPECIAL(CONV_INFLATE_INVALID, 0);                                             \
        for (unsigned n = 1; n <= (bits); n++) {                                                   \
            memcpy((table) + size, table, size * sizeof *(table));                                 \
            size *= 2;                                                                             \
            codeword <<= 1;                                                                        \
            for (unsigned i = (code)->count[n]; i > 0; i--)                                        \
                (table)[reverse_bits(codeword++ << (16 - n))] = entry(*symbol++, n);               \
        }                                                                                          \
        unsigned left = 0, begun = 0,                                                              \
                 more = 0; /* entries left in the current second table, of 1 << more */            \
        for (unsigned n = (bits) + 1; n <= MAX_LENGTH; n++) {                                      \
            codeword <<= 1;                                                                        \
            for (unsigned i = (code)->count[n]; i > 0; i--) {                                      \
                unsigned reversed = reverse_bits(codeword++ << (16 - n));                          \
                if (left == 0) {                                                                   \
                    more = extra_bits(code, bits, n, i);                                           \
                    begun = size, left = 1u << more, size += left;                                 \
                    (table)[reversed & ((1u << (bits)) - 1)] = link(begun, more);                  \
                }                                                                                  \
                for (unsigned at = reversed >> (bits); at < 1u << more; at += 1u << (n - (bits)))  \
                    (table)[begun + at] = entry(*symbol, n), left--;                               \
                symbol++;                                                                          \
            }                                                                                      \
        }                                                                                          \
    } while (0)

// The symbol after a literal has its entry at a smaller index, hence downwards.
static void join_literals(uint64_t *litlen)
{
    const uint64_t counts = (uint64_t)0xff << 24 | 0xff << 16 | 0xff; // literals and bits
    for (unsigned i = 1u << LITLEN_BITS; i-- > 0;) {
        uint64_t first = litlen[i], next = litlen[i >> CONV_INFLATE_DROP(first)];
        uint64_t both = first + (next & counts) + ((next >> 32 & 0xff) << 40);
        // Above the index there are zeros, not the stream's bits. No branch: it would be
        // unpredictable.
        bool fits = CONV_INFLATE_LITERALS(first) & CONV_INFLATE_LITERALS(next) &
                    (CONV_INFLATE_DROP(both) <= LITLEN_BITS);
        litlen[i] = fits ? both : first;
    }
}

// Joins the entries of a length, whose extra bits are in the index, and of the distance after it.
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
        codeword <<= 1;
        for (unsigned i = code->count[n]; i > 0; i--, codeword++, symbol++) {
            if (*symbol < FIRST_LENGTH || *symbol >= LITLEN_COUNT)
                continue;
            for (unsigned at = reverse_bits(codeword << (16 - n)); at < 1u << LITLEN_BITS;
                 at += 1u << n) {
                unsigned rest = at >> CONV_INFLATE_DROP(litlen[at]);
                litlen[at] =
                    join_distance(litlen[at], distance[rest & ((1 << DISTANCE_BITS) - 1)], at);
            }
        }
    }
}

bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19])
{
    struct conv_inflate_code code;
    if (!sort_code(&code, lengths, PRECODE_COUNT, false))
        return false;
    FILL_TABLE(table, CONV_INFLATE_PRECODE_BITS, &code, precode_entry, distance_link);
    return true;
}

// A symbol with a codeword of n bits has a frequency near 2^-n: the sum for all lengths estimates
// the share of matches.
static bool expect_matches(const uint8_t *lengths, unsigned litlens)
{
    unsigned share = 0;
    for (unsigned s = FIRST_LENGTH; s < litlens; s++)
        share += (1u << 15 >> lengths[s]) & 0x7fff; // 0 where there is no codeword
    return share > MIXED_SHARE;
}

static bool make_tables(struct conv_inflate_tables *tables, const uint8_t *litlen_lengths,
                        unsigned litlens, const uint8_t *distance_lengths, unsigned distances)
{
    struct conv_inflate_code *code = &tables->litlen_code, distance_code;
    if (litlen_lengths[END_OF_BLOCK] == 0 || !sort_code(code, litlen_lengths, litlens, true) ||
        !sort_code(&distance_code, distance_lengths, distances, true))
        return false;
    FILL_TABLE(tables->litlen, LITLEN_BITS, code, litlen_entry, litlen_link);
    FILL_TABLE(tables->distance, DISTANCE_BITS, &distance_code, distance_entry, distance_link);
    tables->mixed = expect_matches(litlen_lengths, litlens);
    tables->joined = false;
    return true;
}

void conv_inflate_code_join(struct conv_inflate_tables *tables)
{
    join_literals(tables->litlen);
    join_matches(tables->litlen, tables->distance, &tables->litlen_code);
    tables->joined = true;
}

static void make_constants(void)
{
    uint8_t lengths[ALL_LITLENS], distance_lengths[ALL_DISTANCES];
    for (unsigned s = 0; s < ALL_LITLENS; s++)
        litlen_entries[s] = make_litlen_entry(s);
    for (unsigned s = 0; s < ALL_DISTANCES; s++)
        distance_entries[s] = make_distance_entry(s);
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 256 - 144);
    memset(lengths + 256, 7, 280 - 256);
    memset(lengths + 280, 8, 288 - 280);
    memset(distance_lengths, 5, sizeof distance_lengths);
    make_tables(&fixed_tables, lengths, ALL_LITLENS, distance_lengths, ALL_DISTANCES);
    conv_inflate_code_join(&fixed_tables);
}

const struct conv_inflate_tables *conv_inflate_code_fixed(void)
{
    pthread_once(&once, make_constants);
    return &fixed_tables;
}

bool conv_inflate_code_tables(struct conv_inflate_tables *tables, const uint8_t *litlen_lengths,
                              unsigned litlens, const uint8_t *distance_lengths, unsigned distances)
{
    pthread_once(&once, make_constants);
    return make_tables(tables, litlen_lengths, litlens, distance_lengths, distances);
}
