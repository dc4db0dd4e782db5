// SPDX-License-Identifier: MIT
// DEFLATE's codes (RFC 1951, 3.2) in the form that the kernels use, and the step from one symbol to
// the next. Threads do not depend on each other here, so it is plain C, which unit tests compile
// for the CPU as well.
#ifndef CONV_PNG_CUDA_SYMBOLS_CUH
#define CONV_PNG_CUDA_SYMBOLS_CUH

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

// A canonical code. The codewords of n bits, filled up with zeros to 15, lie between limit[n - 1]
// and limit[n]; sorted[codeword + offset[n]] is the symbol of one.
struct code {
    uint16_t limit[MOST_LENGTH + 1];
    int16_t offset[MOST_LENGTH + 1];
};

#define NO_SYMBOL 0xffffffffu

// Makes a code from the number of codewords of each length; first[n] becomes the place of the first
// symbol of n bits in its table `sorted`. The rules are zlib's: a code is complete, or it has one
// codeword of one bit, or none; the latter two only if `sparse`.
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

// The symbol at the front of `bits` << 8 | the bits of its codeword, which are `least` to `most`;
// NO_SYMBOL if there is none.
ANYWHERE uint32_t find_symbol(const struct code *code, const uint16_t *sorted, uint32_t bits,
                              int least, int most)
{
    uint32_t codeword = reverse_bits(bits) >> (32 - MOST_LENGTH);
    int n = least; // limits do not fall: no branch, and all loads at once
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
//   bits 0-4   bits to drop: codeword and extra bits
//   bits 5-6   of ENTRY_LITERAL, the number of bytes: 1, or 2 where the index holds two codewords
//   bits 8-12  bits of the codeword; of ENTRY_LONG, the bits that the next table is indexed by
//   bits 13-15 the kind, as below
//   bits 16-31 what the extra bits are added to: bytes, a length, a distance less 1; of ENTRY_LONG,
//              where the next table begins
#define ENTRY_BYTE (1u << 5)
#define ENTRY_BYTES (3u << 5)
#define ENTRY_LITERAL (1u << 13)
#define ENTRY_LENGTH (2u << 13)
#define ENTRY_LONG (3u << 13) // the rest of the codeword is in a second table
#define ENTRY_DISTANCE (0u << 13)
#define ENTRY_STOP (4u << 13) // no symbol follows: one of these two
#define ENTRY_END ENTRY_STOP
#define ENTRY_INVALID (5u << 13)
#define ENTRY_KIND (7u << 13)

// `length`: bits of the codeword in the table that the entry is for.
ANYWHERE uint32_t litlen_entry(uint32_t symbol, uint32_t length)
{
    if (symbol < END_OF_BLOCK)
        return symbol << 16 | ENTRY_LITERAL | length << 8 | ENTRY_BYTE | length;
    if (symbol == END_OF_BLOCK)
        return ENTRY_END | length << 8 | length;
    // 3 to 10 without extra bits, then four lengths with each number of them; 258 is alone.
    uint32_t i = symbol - 257, extra = i < 8 || i == 28 ? 0 : i / 4 - 1;
    uint32_t base = i < 8 ? 3 + i : i == 28 ? 258 : 3 + ((4 + i % 4) << extra);
    return i > 28 ? ENTRY_INVALID : base << 16 | ENTRY_LENGTH | length << 8 | (length + extra);
}

ANYWHERE uint32_t distance_entry(uint32_t symbol, uint32_t length)
{
    // 1 to 4 without extra bits, then two distances with each number of them.
    uint32_t extra = symbol < 4 ? 0 : symbol / 2 - 1;
    uint32_t base = symbol < 4 ? symbol : (2 + symbol % 2) << extra;
    return symbol > 29 ? ENTRY_INVALID
                       : base << 16 | ENTRY_DISTANCE | length << 8 | (length + extra);
}

// The base of an entry with its extra bits added.
ANYWHERE uint32_t entry_value(uint32_t entry, uint32_t bits)
{
    uint32_t both = bits & ((1u << (entry & 31)) - 1);
    return (entry >> 16) + (both >> (entry >> 8 & 31));
}

// --- tables --------------------------------------------------------------------------------------

// Bits that index a code's table. Longer codewords continue in second tables after it, one for all
// codewords with the same first bits, sized for the longest of them.
#define LITLEN_BITS 10
#define DISTANCE_BITS 8
// The most entries that any code makes, as zlib's examples/enough.c finds them ("enough 286 10 15"
// and "enough 32 8 15").
#define LITLEN_ENTRIES 1334
#define DISTANCE_ENTRIES 402
#define ENTRIES (LITLEN_ENTRIES + DISTANCE_ENTRIES)

// One of the two codes while its table is made.
struct table {
    const struct code *code;
    const uint16_t *sorted;
    uint32_t bits, begin, end; // of the index; of all entries, the table's
    bool far;                  // of distances
};

ANYWHERE struct table litlen_table(const struct code *code, const uint16_t *sorted)
{
    struct table table = {code, sorted, LITLEN_BITS, 0, LITLEN_ENTRIES, false};
    return table;
}

ANYWHERE struct table distance_table(const struct code *code, const uint16_t *sorted)
{
    struct table table = {code, sorted, DISTANCE_BITS, LITLEN_ENTRIES, ENTRIES, true};
    return table;
}

// The entry for the codeword at the front of `bits`, which has more than `known` bits and at most
// `most`, in a table for the bits after the known ones.
ANYWHERE uint32_t make_entry(const struct table *table, uint32_t bits, uint32_t known,
                             uint32_t most)
{
    uint32_t found = find_symbol(table->code, table->sorted, bits, (int)known + 1, (int)most);
    if (found == NO_SYMBOL)
        return ENTRY_INVALID;
    return table->far ? distance_entry(found >> 8, (found & 255) - known)
                      : litlen_entry(found >> 8, (found & 255) - known);
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

// One entry for two literals if the index holds both codewords (after the index there are zeros,
// not the stream's bits); else the first. 17 % fewer steps on photographs.
ANYWHERE uint32_t join_literals(uint32_t first, uint32_t second)
{
    bool fits = (first & ENTRY_KIND) == ENTRY_LITERAL && (second & ENTRY_KIND) == ENTRY_LITERAL &&
                (first & 31) + (second & 31) <= LITLEN_BITS;
    uint32_t length = (first & 31) + (second & 31);
    uint32_t both = (second >> 16 << 24) | (first & 0xff0000) | ENTRY_LITERAL | length << 8 |
                    2 * ENTRY_BYTE | length;
    return fits ? both : first;
}

// Makes the second table for a prefix, at entry `at`, and the entry that leads to it.
ANYWHERE void make_prefix(uint32_t *entries, const struct table *table, uint32_t prefix,
                          uint32_t more, uint32_t at)
{
    uint32_t bits = reverse_bits(prefix) >> (32 - table->bits);
    entries[table->begin + bits] = at << 16 | ENTRY_LONG | more << 8 | table->bits;
    for (uint32_t i = 0; i < 1u << more; i++)
        entries[at + i] =
            make_entry(table, bits | i << table->bits, table->bits, table->bits + more);
}

// --- steps ---------------------------------------------------------------------------------------

// The table of the next look-up. Between symbols it is that of literals and lengths; a distance and
// the rest of a long codeword are steps of their own.
struct step {
    uint32_t begin, bits;
};

ANYWHERE struct step first_step(void)
{
    struct step step = {0, LITLEN_BITS};
    return step;
}

ANYWHERE bool between_symbols(const struct step *step)
{
    return step->begin == 0;
}

ANYWHERE uint32_t look_up(const uint32_t *entries, const struct step *step, uint32_t bits)
{
    return entries[step->begin + (bits & ((1u << step->bits) - 1))];
}

// The entry of a long codeword contains the place of its second table, so codewords of lengths and
// of distances need no distinction.
ANYWHERE void next_step(struct step *step, uint32_t entry)
{
    uint32_t kind = entry & ENTRY_KIND;
    step->begin = kind == ENTRY_LONG ? entry >> 16 : kind == ENTRY_LENGTH ? LITLEN_ENTRIES : 0;
    step->bits = kind == ENTRY_LONG     ? entry >> 8 & 31
                 : kind == ENTRY_LENGTH ? DISTANCE_BITS
                                        : LITLEN_BITS;
}

// Moves to the first position between symbols that is at `limit` or after it. Adds the bytes on the
// way to *count. Returns 0, or the reason why it stopped: ENTRY_END (which has been dropped then)
// or ENTRY_INVALID.
ANYWHERE uint32_t count_symbols(const uint32_t *entries, struct bits *bits, uint32_t limit,
                                uint32_t *count)
{
    struct step step = first_step();
    while (!between_symbols(&step) || bits->at < limit) {
        uint32_t next = peek_bits(bits), entry = look_up(entries, &step, next);
        uint32_t kind = entry & ENTRY_KIND;
        drop_bits(bits, entry & 31);
        if (entry & ENTRY_STOP)
            return kind;
        *count += (entry & ENTRY_BYTES) / ENTRY_BYTE;
        *count += kind == ENTRY_LENGTH ? entry_value(entry, next) : 0;
        next_step(&step, entry);
    }
    return 0;
}

#endif
