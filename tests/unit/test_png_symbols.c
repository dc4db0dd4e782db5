// SPDX-License-Identifier: MIT
// The parts of the device's PNG decoder that need no device: codes, tables and symbols, on the
// CPU against zlib and the definitions of the standard.
#include <zlib.h>

#include "png/cuda/symbols.cuh"
#include "support/deflate_make.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/rows.h"
#include "support/unit.h"

#define MOST 60000 // bytes of data

static uint64_t seed;
static unsigned joined_matches, joined_literals; // entries for two codewords that were used

// --- what a block of threads does, one after the other -------------------------------------------

struct codes {
    struct code litlen, distance;
    uint16_t litlens[LITLENS], distances[LITLENS];
    uint32_t entries[ENTRIES];
};

static bool sort_code(struct code *code, uint16_t *sorted, const uint8_t *lengths, unsigned symbols,
                      bool sparse)
{
    uint32_t count[MOST_LENGTH + 1] = {0}, first[MOST_LENGTH + 1];
    for (unsigned s = 0; s < symbols; s++)
        count[lengths[s]]++;
    count[0] = 0;
    if (!fill_code(code, first, count, sparse))
        return false;
    for (unsigned s = 0; s < symbols; s++)
        if (lengths[s])
            sorted[first[lengths[s]]++] = (uint16_t)s;
    return true;
}

// Returns where the second tables end.
static uint32_t make_table(uint32_t *entries, const struct table *table)
{
    uint32_t size = 1u << table->bits, at = table->second;
    for (uint32_t i = 0; i < size; i++)
        entries[table->begin + i] = make_entry(table, i, 0, table->bits);
    for (uint32_t prefix = first_prefix(table); prefix < size; prefix++) {
        uint32_t more = prefix_bits(table, prefix);
        if (more == 0)
            continue;
        assert_true(at + (1u << more) <= table->last);
        link_prefix(entries, table, prefix, more, at);
        fill_prefix(entries, table, prefix, 0, 1);
        at += 1u << more;
    }
    return at;
}

static bool make_codes(struct codes *codes, const uint8_t *lengths)
{
    if (!sort_code(&codes->litlen, codes->litlens, lengths, LITLENS, true) ||
        !sort_code(&codes->distance, codes->distances, lengths + LITLENS, DISTANCES, true))
        return false;
    struct table litlen = litlen_table(&codes->litlen, codes->litlens);
    struct table distance = distance_table(&codes->distance, codes->distances);
    make_table(codes->entries, &litlen);
    make_table(codes->entries, &distance);
    // Downwards: what is joined to an entry has an index below it.
    for (uint32_t i = 1 << LITLEN_BITS; i-- > 0;)
        codes->entries[i] = join_entries(codes->entries, i);
    return true;
}

static bool read_head(struct codes *codes, struct bits *bits, uint32_t type)
{
    uint8_t lengths[LITLENS + DISTANCES] = {0}, precodes[PRECODES] = {0};
    struct length_counts counts;
    struct code precode;
    uint16_t sorted[PRECODES];
    uint32_t table[1 << PRECODE_BITS];
    for (uint32_t i = 0; type == 1 && i < sizeof lengths; i++)
        lengths[i] = (uint8_t)fixed_length(i);
    if (type == 2) {
        if (!read_length_counts(bits, &counts))
            return false;
        for (uint32_t i = 0; i < counts.precodes; i++)
            precodes[precode_symbol(i)] = (uint8_t)take_bits(bits, 3);
        if (!sort_code(&precode, sorted, precodes, PRECODES, false))
            return false;
        for (uint32_t i = 0; i < 1 << PRECODE_BITS; i++)
            table[i] = find_symbol(&precode, sorted, i, 1, PRECODE_BITS);
        struct lengths_part part = {0, NO_LENGTH};
        if (!read_lengths(&part, bits, lengths, table, &counts, UINT32_MAX) ||
            !lengths[END_OF_BLOCK])
            return false;
    }
    return make_codes(codes, lengths);
}

// Appends the symbols of a block after out[size], byte by byte. 0 unless it ends as it should.
static uint32_t put_block(uint8_t *out, uint32_t size, const struct codes *codes, struct bits *bits)
{
    uint32_t length = 0, place = BETWEEN_SYMBOLS;
    for (;;) {
        uint32_t next = peek_bits(bits), entry;
        entry = look_up(codes->entries, place, next);
        entry = look_further(codes->entries, entry, next);
        uint32_t kind = entry & ENTRY_KIND, value = entry_value(entry, next);
        drop_bits(bits, entry & 31);
        if ((entry & 31) == 0) {
            drop_bits(bits, entry >> ENTRY_CODE & 15);
            return kind == ENTRY_END ? size : 0;
        }
        if (size + 258 > MOST)
            return 0;
        if (kind == ENTRY_LITERAL)
            for (uint32_t n = 0; n < (entry & ENTRY_BYTES) / ENTRY_BYTE; n++)
                out[size++] = (uint8_t)(value >> 8 * n);
        if (kind == ENTRY_LENGTH)
            length = value;
        else if (kind == ENTRY_DISTANCE)
            length += (entry & ENTRY_BYTES) / ENTRY_BYTE; // the length is in one of them
        joined_matches += kind == ENTRY_DISTANCE && (entry & ENTRY_BYTES);
        joined_literals += kind == ENTRY_LITERAL && (entry & ENTRY_BYTES) == 2 * ENTRY_BYTE;
        for (; kind == ENTRY_DISTANCE && length > 0; length--, size++)
            out[size] = out[size - value - 1];
        place = next_place(entry);
    }
}

// --- streams -------------------------------------------------------------------------------------

static uint8_t data[MOST], decoded[MOST];
static uint32_t words[MOST]; // a stream, followed by zeros

static void make_stream(uint32_t size, int level, int strategy)
{
    struct png_file zlib =
        png_make_zlib_as(data, size, level, strategy, 1 + (int)random_below(&seed, 9));
    assert_true(zlib.size < sizeof words - 64);
    memset(words, 0, sizeof words);
    memcpy(words, zlib.data + 2, zlib.size - 6);
    png_make_free(&zlib);
}

UNIT_TEST(test_streams)
{
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE,
                                     Z_FIXED};
    static struct codes codes;
    int blocks = 0;
    for (int i = 0; i < 120; i++) {
        seed = (uint64_t)i;
        uint32_t size = 1 + random_below(&seed, i % 10 ? 3000 : MOST - 600), made = 0;
        rows_fill(&seed, data, size, size, (int)random_below(&seed, ROWS_ALL_KINDS));
        make_stream(size, 1 + (int)random_below(&seed, 9), strategies[i % 5]);
        struct bits bits = read_bits(words, 0);
        for (uint32_t last = 0; !last; blocks++) {
            last = take_bits(&bits, 1);
            uint32_t type = take_bits(&bits, 2);
            if (type == 0) { // noise: zlib stores it
                uint32_t at = (bits.at + 7) / 8, stored = 0;
                memcpy(&stored, (uint8_t *)words + at, 2);
                memcpy(decoded + made, (uint8_t *)words + at + 4, stored);
                made += stored;
                bits = read_bits(words, 8 * (at + 4 + stored));
                continue;
            }
            assert_true(read_head(&codes, &bits, type));
            struct bits counted = bits;
            uint32_t before = made, bytes = 0;
            made = put_block(decoded, made, &codes, &bits);
            assert_int_equal(count_symbols(codes.entries, &counted, UINT32_MAX, &bytes),
                             SYMBOLS_END);
            assert_int_equal(bytes, made - before);
            assert_int_equal(counted.at, bits.at);
        }
        assert_int_equal(made, size);
        assert_memory_equal(decoded, data, size);
    }
    assert_true(blocks > 120);
    assert_true(joined_matches > 1000 && joined_literals > 1000);
}

// Counting stops at the first symbol that begins at the limit or after it, never within one.
UNIT_TEST(test_limits)
{
    static struct codes codes;
    seed = 5;
    rows_fill(&seed, data, 20000, 20000, ROWS_DELTAS);
    make_stream(20000, 9, Z_DEFAULT_STRATEGY);
    struct bits head = read_bits(words, 0);
    take_bits(&head, 3);
    assert_true(read_head(&codes, &head, 2));
    struct bits whole = head;
    uint32_t all = 0, limit = head.at, bytes = 0;
    assert_int_equal(count_symbols(codes.entries, &whole, UINT32_MAX, &all), SYMBOLS_END);
    struct bits bits = head;
    for (uint32_t stop = 0; !stop; limit += 1 + random_below(&seed, 90)) {
        uint32_t before = bits.at;
        stop = count_symbols(codes.entries, &bits, limit, &bytes);
        assert_true(stop || (bits.at >= limit && (bits.at < limit + 48 || bits.at == before)));
    }
    assert_int_equal(bytes, all);
    assert_int_equal(bits.at, whole.at);
}

// --- codes ---------------------------------------------------------------------------------------

// zlib's verdict on a block with these lengths, of which all codewords are written out, without
// runs.
static bool zlib_takes(const uint8_t *lengths)
{
    uint8_t stream[4096], out[8];
    struct deflate_make make = {.data = stream, .room = sizeof stream};
    deflate_make_bits(&make, 5, 3); // the last block, type 2
    deflate_make_bits(&make, 286 - 257, 5);
    deflate_make_bits(&make, 30 - 1, 5);
    deflate_make_bits(&make, 15, 4);
    for (uint32_t i = 0; i < PRECODES; i++)
        deflate_make_bits(&make, precode_symbol(i) < 16 ? 4 : 0, 3);
    for (int i = 0; i < 286 + 30; i++) {
        uint8_t length = lengths[i < 286 ? i : i - 286 + LITLENS];
        for (int bit = 3; bit >= 0; bit--)
            deflate_make_bits(&make, length >> bit & 1, 1);
    }
    deflate_make_end(&make, 0);
    z_stream z = {.next_in = stream, .avail_in = (uInt)make.size, .next_out = out, .avail_out = 8};
    assert_int_equal(inflateInit2(&z, -15), Z_OK);
    int result = Z_OK; // up to the end of the block's head, or an error
    while (result == Z_OK && !(z.data_type & 256))
        result = inflate(&z, Z_TREES);
    inflateEnd(&z);
    return result == Z_OK;
}

// Lengths of a complete code: a codeword is split until there are enough.
static void split_codewords(uint8_t *lengths, unsigned symbols, unsigned used)
{
    memset(lengths, 0, symbols);
    lengths[0] = 0;
    for (unsigned made = 1; made < used; made++) {
        unsigned which = random_below(&seed, made);
        if (random_below(&seed, 3) == 0)
            which = made - 1; // long ones, too
        while (lengths[which] == MOST_LENGTH)
            which = (which + 1) % made;
        lengths[made] = ++lengths[which];
    }
    for (unsigned i = symbols - 1; i > 0; i--) {
        unsigned j = random_below(&seed, i + 1);
        uint8_t length = lengths[i];
        lengths[i] = lengths[j];
        lengths[j] = length;
    }
}

// Codes that zlib accepts, and the same with some lengths changed.
UNIT_TEST(test_codes)
{
    static struct codes codes;
    int taken = 0, refused = 0;
    for (int i = 0; i < 3000; i++) {
        seed = (uint64_t)i * 77;
        uint8_t lengths[LITLENS + DISTANCES] = {0};
        split_codewords(lengths, 286, 2 + random_below(&seed, 285));
        split_codewords(lengths + LITLENS, 30, random_below(&seed, 31));
        if (random_below(&seed, 4) == 0)
            lengths[LITLENS + random_below(&seed, 30)] = (uint8_t)random_below(&seed, 16);
        if (random_below(&seed, 4) == 0)
            lengths[random_below(&seed, 286)] = (uint8_t)random_below(&seed, 16);
        if (random_below(&seed, 20) == 0) {
            memset(lengths, 0, 286);
            lengths[256] = (uint8_t)(1 + random_below(&seed, 2));
        }
        bool mine = lengths[END_OF_BLOCK] && make_codes(&codes, lengths);
        assert_int_equal(mine, zlib_takes(lengths));
        taken += mine;
        refused += !mine;
    }
    assert_true(taken > 300 && refused > 300);
}

// Every codeword leads to its symbol. Codewords of distances with more than 13 bits, and with them
// the largest second tables, are rare in streams.
static void look_up_codewords(const uint32_t *entries, const struct table *table)
{
    for (int i = 0; i < 100; i++) {
        uint32_t bits = random_below(&seed, 1u << MOST_LENGTH), place = BETWEEN_SYMBOLS;
        if (table->far)
            place = WITHIN_MATCH;
        uint32_t entry = look_further(entries, look_up(entries, place, bits), bits);
        assert_int_equal(entry, make_entry(table, bits, 0, MOST_LENGTH));
    }
}

// Codes that make the largest tables: no room is left, none is missing.
UNIT_TEST(test_largest_tables)
{
    static struct codes codes;
    uint32_t most[2] = {0, 0};
    for (int i = 0; i < 4000; i++) {
        seed = (uint64_t)i * 31;
        uint8_t lengths[LITLENS + DISTANCES] = {0};
        split_codewords(lengths, 286, 286);
        split_codewords(lengths + LITLENS, 30, 30);
        assert_true(
            sort_code(&codes.litlen, codes.litlens, lengths, LITLENS, true) &&
            sort_code(&codes.distance, codes.distances, lengths + LITLENS, DISTANCES, true));
        struct table tables[] = {litlen_table(&codes.litlen, codes.litlens),
                                 distance_table(&codes.distance, codes.distances)};
        for (int t = 0; t < 2; t++) {
            uint32_t end = make_table(codes.entries, &tables[t]);
            most[t] = end > most[t] ? end : most[t];
        }
        for (int t = 0; t < 2; t++)
            look_up_codewords(codes.entries, &tables[t]);
    }
    assert_true(most[0] > SECOND_LITLENS);
    assert_true(most[1] > SECOND_DISTANCES);
}

// RFC 1951, 3.2.5.
UNIT_TEST(test_meanings)
{
    static const uint16_t bases[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                     15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                     67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t distances[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (uint32_t i = 0; i < 29; i++) {
        uint32_t entry = litlen_entry(257 + i, 7), extra = i < 8 || i == 28 ? 0 : (i - 4) / 4;
        assert_int_equal(entry & ENTRY_KIND, ENTRY_LENGTH);
        assert_int_equal(entry & 31, 7 + extra);
        assert_int_equal(entry_value(entry, 0x7f), bases[i]);
        assert_int_equal(entry_value(entry, UINT32_MAX), bases[i] + (1u << extra) - 1);
    }
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t entry = distance_entry(i, 5), extra = i < 4 ? 0 : (i - 2) / 2;
        assert_int_equal(entry & ENTRY_KIND, ENTRY_DISTANCE);
        assert_int_equal(entry & 31, 5 + extra);
        assert_int_equal(entry_value(entry, 0x1f) + 1, distances[i]);
        assert_int_equal(entry_value(entry, UINT32_MAX) + 1, distances[i] + (1u << extra) - 1);
    }
    assert_int_equal(litlen_entry(286, 8), ENTRY_INVALID);
    assert_int_equal(litlen_entry(287, 8), ENTRY_INVALID);
    assert_int_equal(distance_entry(30, 5), ENTRY_INVALID);
    assert_int_equal(distance_entry(31, 5), ENTRY_INVALID);
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    for (uint32_t i = 0; i < PRECODES; i++)
        assert_int_equal(precode_symbol(i), order[i]);
}

// --- how much input a thread takes ---------------------------------------------------------------

// Where a window gave more than 7 bytes per bit, as flat images do, the next one took the most bits
// instead of the fewest, made more bytes than there is room for, and had to be repeated.
UNIT_TEST(test_thread_bits)
{
    const uint32_t most = 280;
    assert_int_equal(choose_part_bits(1000, 7001, 1, most), LEAST_PART_BITS);
    assert_int_equal(choose_part_bits(64, 8192, 1, most), LEAST_PART_BITS);
    assert_int_equal(choose_part_bits(1, 129, 1, most), LEAST_PART_BITS);
    assert_int_equal(choose_part_bits(512 * 248, 1, 4, 4 * most), 4 * most);
    assert_int_equal(choose_part_bits(1000, 580, 1, most), 96); // 58 bytes of output
    assert_int_equal(choose_part_bits(1000, 580, 2, 2 * most), 2 * 96 + 8);
    for (uint32_t shares = 1; shares <= 4; shares *= 2)
        for (uint32_t bits = 1; bits < 1 << 18; bits += 1 + bits / 50) {
            uint32_t former = shares * most;
            for (uint32_t bytes = 1; bytes <= 512 * THREAD_ROOM; bytes += 1 + bytes / 50) {
                uint32_t chosen = choose_part_bits(bits, bytes, shares, shares * most);
                assert_in_range(chosen, LEAST_PART_BITS, former); // falls as the bytes grow
                assert_int_equal(chosen % 8, 0);
                assert_int_not_equal(chosen % 128, 0);
                former = chosen;
            }
        }
}

UNIT_MAIN(NULL, NULL)
