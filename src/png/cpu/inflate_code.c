// SPDX-License-Identifier: MIT
// Makes decoding tables from the lengths of codewords. A code is valid if zlib accepts it.
#include "png/cpu/inflate.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

// --- entries of two symbols ----------------------------------------------------------------------

// The entries of two symbols in a table of literals and lengths, for inflate_code.c: a pair whose
// codewords have n bits together is entered like a codeword of n bits, so doubling the table writes
// most of the entries. Looking each index up took three times as long.

// Lengths that an entry with a distance may hold, with their extra bits as part of the codeword.
#define SHORT_LENGTHS (CONV_INFLATE_NEAR - 2)

// A codeword with its first bit lowest.
struct codeword {
    uint64_t entry; // of the symbol alone, or what a second symbol adds to it
    uint32_t index;
};

// Codewords of n bits: from first[n] to first[n + 1].
struct join {
    struct codeword literals[256];
    struct codeword distances[30];
    struct codeword lengths[CONV_INFLATE_LITLEN_BITS + 2][SHORT_LENGTHS];
    uint8_t length_count[CONV_INFLATE_LITLEN_BITS + 2];
    uint16_t first_literal[CONV_INFLATE_LITLEN_BITS + 2];
    uint16_t first_distance[CONV_INFLATE_LITLEN_BITS + 2];
};

static void join_add_literal(struct join *join, unsigned n, unsigned index, uint64_t entry)
{
    join->literals[join->first_literal[n + 1]++] = (struct codeword){entry, index};
}

static void join_add_distance(struct join *join, unsigned n, unsigned index, uint32_t entry)
{
    join->distances[join->first_distance[n + 1]++] = (struct codeword){entry, index};
}

// `entry`: of the length alone.
static void join_add_length(struct join *join, unsigned n, unsigned index, uint64_t entry)
{
    unsigned base = (unsigned)(entry >> 32), bits = CONV_INFLATE_DROP(entry);
    if (bits > CONV_INFLATE_LITLEN_BITS)
        return;
    for (unsigned extra = 0; extra < 1u << (bits - n) && base + extra <= CONV_INFLATE_NEAR; extra++)
        join->lengths[bits][join->length_count[bits]++] =
            (struct codeword){base + extra, index | extra << n};
}

// The sums of first ones and second ones of `bits` bits at the indices of both.
static void join_literals(const struct join *join, uint64_t *table, unsigned bits,
                          unsigned second_bits)
{
    const struct codeword *first = join->literals + join->first_literal[bits];
    const struct codeword *second = join->literals + join->first_literal[second_bits];
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

static void join_distances(const struct join *join, uint64_t *table, unsigned bits,
                           unsigned distance_bits)
{
    unsigned from = join->first_distance[distance_bits];
    unsigned to = join->first_distance[distance_bits + 1];
    for (unsigned i = 0; i < join->length_count[bits]; i++) {
        const struct codeword *length = &join->lengths[bits][i];
        for (unsigned d = from; d < to; d++) {
            const struct codeword *distance = &join->distances[d];
            unsigned drop = CONV_INFLATE_DROP(distance->entry);
            table[length->index | distance->index << bits] =
                distance->entry >> 16 << 48 | (uint64_t)(bits + distance_bits) << 16 |
                length->entry << 8 | (bits + drop);
        }
    }
}

// Enters all pairs of n bits. The symbols of fewer bits were added.
static void join_pairs(const struct join *join, uint64_t *table, unsigned n)
{
    for (unsigned bits = 1; bits < n; bits++) {
        join_literals(join, table, bits, n - bits);
        join_distances(join, table, bits, n - bits);
    }
}

// --- tables --------------------------------------------------------------------------------------

// Makes decoding tables from the lengths of codewords. A code is valid if zlib accepts it.

enum {
    MAX_LENGTH = 15, // bits of a codeword
    END_OF_BLOCK = 256,
    FIRST_LENGTH = 257,
    FIRST_FAR_LENGTH = 268, // of the lengths above CONV_INFLATE_NEAR
    LITLEN_COUNT = 286,     // symbols that may be used
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
    return (uint64_t)length_base[i] << 32 | CONV_INFLATE_LENGTH << 8 | length_extra[i];
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
    return (uint64_t)bits << 44 | (uint64_t)first << 32 | CONV_INFLATE_LONG << 8;
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
// longest. stage() may enter more whenever the table has been doubled. `codeword` has n bits, its
// first bit highest; the stream has the reverse order.
#define FILL_TABLE(table, bits, code, entry, link, stage)                                          \
    do {                                                                                           \
        const uint16_t *symbol = (code)->sorted;                                                   \
        unsigned codeword = 0, size = 1;                                                           \
        (table)[0] = SPECIAL(CONV_INFLATE_INVALID, 0);                                             \
        for (unsigned n = 1; n <= (bits); n++) {                                                   \
            memcpy((table) + size, table, size * sizeof *(table));                                 \
            size *= 2;                                                                             \
            codeword <<= 1;                                                                        \
            stage(table, code, symbol, codeword, n);                                               \
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

// Lists the distances for joins.
static void add_distances(struct join *join, const struct conv_inflate_code *code)
{
    const uint16_t *symbol = code->sorted;
    unsigned codeword = 0, added = 0;
    for (unsigned n = 1; n < LITLEN_BITS; n++) {
        codeword <<= 1;
        join->first_distance[n] = join->first_distance[n + 1] = (uint16_t)added;
        for (unsigned i = code->count[n]; i > 0; i--, symbol++) {
            unsigned index = reverse_bits(codeword++ << (16 - n));
            if (*symbol < DISTANCE_COUNT)
                join_add_distance(join, n, index, distance_entry(*symbol, n));
        }
        added = join->first_distance[n + 1];
    }
}

// Enters the pairs of n bits and lists the symbols of n bits.
static void join_stage(struct join *join, uint64_t *table, const struct conv_inflate_code *code,
                       const uint16_t *symbol, unsigned codeword, unsigned n)
{
    join_pairs(join, table, n);
    join->first_literal[n + 1] = join->first_literal[n];
    for (unsigned i = code->count[n]; i > 0; i--, symbol++) {
        unsigned index = reverse_bits(codeword++ << (16 - n));
        uint64_t entry = litlen_entry(*symbol, n);
        if (CONV_INFLATE_LITERALS(entry))
            join_add_literal(join, n, index, entry);
        else if (CONV_INFLATE_KIND(entry) == CONV_INFLATE_LENGTH)
            join_add_length(join, n, index, entry);
    }
}

#define NO_STAGE(table, code, symbol, codeword, n)
#define JOIN_STAGE(table, code, symbol, codeword, n)                                               \
    join_stage(&join, table, code, symbol, codeword, n)

bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19])
{
    struct conv_inflate_code code;
    if (!sort_code(&code, lengths, PRECODE_COUNT, false))
        return false;
    FILL_TABLE(table, CONV_INFLATE_PRECODE_BITS, &code, precode_entry, distance_link, NO_STAGE);
    return true;
}

// A symbol with a codeword of n bits has a frequency near 2^-n: the sum for lengths up to
// CONV_INFLATE_NEAR estimates the share of matches that branchless decoding can handle.
static bool expect_matches(const uint8_t *lengths, unsigned litlens)
{
    unsigned share = 0, end = litlens < FIRST_FAR_LENGTH ? litlens : FIRST_FAR_LENGTH;
    for (unsigned s = FIRST_LENGTH; s < end; s++)
        share += (1u << 15 >> lengths[s]) & 0x7fff; // 0 where there is no codeword
    return share > MIXED_SHARE;
}

static bool make_tables(struct conv_inflate_tables *tables, const uint8_t *litlen_lengths,
                        unsigned litlens, const uint8_t *distance_lengths, unsigned distances,
                        bool join)
{
    struct conv_inflate_code *code = &tables->litlen_code, *distance_code = &tables->distance_code;
    if (litlen_lengths[END_OF_BLOCK] == 0 || !sort_code(code, litlen_lengths, litlens, true) ||
        !sort_code(distance_code, distance_lengths, distances, true))
        return false;
    FILL_TABLE(tables->distance, DISTANCE_BITS, distance_code, distance_entry, distance_link,
               NO_STAGE);
    tables->mixed = expect_matches(litlen_lengths, litlens);
    tables->joined = false;
    if (join)
        conv_inflate_code_join(tables);
    else
        FILL_TABLE(tables->litlen, LITLEN_BITS, code, litlen_entry, litlen_link, NO_STAGE);
    return true;
}

void conv_inflate_code_join(struct conv_inflate_tables *tables)
{
    struct join join;
    memset(join.length_count, 0, sizeof join.length_count);
    join.first_literal[1] = 0;
    add_distances(&join, &tables->distance_code);
    FILL_TABLE(tables->litlen, LITLEN_BITS, &tables->litlen_code, litlen_entry, litlen_link,
               JOIN_STAGE);
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
    make_tables(&fixed_tables, lengths, ALL_LITLENS, distance_lengths, ALL_DISTANCES, true);
}

const struct conv_inflate_tables *conv_inflate_code_fixed(void)
{
    pthread_once(&once, make_constants);
    return &fixed_tables;
}

bool conv_inflate_code_tables(struct conv_inflate_tables *tables, const uint8_t *litlen_lengths,
                              unsigned litlens, const uint8_t *distance_lengths, unsigned distances,
                              bool join)
{
    pthread_once(&once, make_constants);
    return make_tables(tables, litlen_lengths, litlens, distance_lengths, distances, join);
}
