// SPDX-License-Identifier: MIT
#include "support/deflate_make.h"

#include <stdlib.h>
#include <string.h>

#include "png/cpu/deflate_internal.h"

enum { MOST_BITS = 15 };

static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                       67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

const uint8_t deflate_make_order[DEFLATE_PRECODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                      11, 4,  12, 3, 13, 2, 14, 1, 15};

static void check(bool right)
{
    if (!right)
        abort();
}

// --- bytes and bits ------------------------------------------------------------------------------

static void make_room(uint8_t **bytes, size_t *room, size_t needed)
{
    if (needed <= *room)
        return;
    *room = 2 * needed + 4096;
    *bytes = realloc(*bytes, *room);
    check(*bytes);
}

static void put_byte(struct deflate_make *make, unsigned byte)
{
    if (make->grows)
        make_room(&make->data, &make->room, make->size + 1);
    make->full |= make->size == make->room;
    if (!make->full)
        make->data[make->size++] = (uint8_t)byte;
}

void deflate_make_bits(struct deflate_make *make, unsigned value, unsigned count)
{
    make->bits |= (uint64_t)value << make->bit_count;
    for (make->bit_count += count; make->bit_count >= 8; make->bit_count -= 8) {
        put_byte(make, make->bits & 255);
        make->bits >>= 8;
    }
}

static void align(struct deflate_make *make)
{
    deflate_make_bits(make, 0, -make->bit_count & 7);
}

static void put_plain(struct deflate_make *make, uint8_t byte)
{
    if (!make->grows)
        return;
    make_room(&make->plain, &make->plain_room, make->plain_size + 1);
    make->plain[make->plain_size++] = byte;
}

// --- codes ---------------------------------------------------------------------------------------

// Canonical codewords (RFC 1951, 3.2.2), their first bit lowest.
static void number_codewords(uint16_t *codewords, const uint8_t *lengths, int symbols)
{
    unsigned next[MOST_BITS + 2] = {0}, count[MOST_BITS + 1] = {0};
    for (int s = 0; s < symbols; s++)
        count[lengths[s]]++;
    count[0] = 0;
    for (int n = 1; n <= MOST_BITS; n++)
        next[n + 1] = (next[n] + count[n]) << 1;
    for (int s = 0; s < symbols; s++) {
        unsigned codeword = next[lengths[s]]++, turned = 0;
        for (int n = lengths[s]; n > 0; n--, codeword >>= 1)
            turned = turned << 1 | (codeword & 1);
        codewords[s] = (uint16_t)turned;
    }
}

void deflate_make_number(struct deflate_codes *codes)
{
    number_codewords(codes->litlen, codes->litlen_lengths, DEFLATE_ALL_LITLENS);
    number_codewords(codes->distance, codes->distance_lengths, DEFLATE_ALL_DISTANCES);
}

void deflate_make_fixed_codes(struct deflate_codes *codes)
{
    for (int s = 0; s < DEFLATE_ALL_LITLENS; s++)
        codes->litlen_lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    memset(codes->distance_lengths, 5, DEFLATE_ALL_DISTANCES);
    deflate_make_number(codes);
}

static int count_used(const uint8_t *lengths, int count, int least)
{
    while (count > least && lengths[count - 1] == 0)
        count--;
    return count;
}

void deflate_make_codes(struct deflate_codes *codes, const uint32_t litlens[DEFLATE_LITLENS],
                        const uint32_t distances[DEFLATE_DISTANCES])
{
    *codes = (struct deflate_codes){0};
    conv_huffman_lengths(codes->litlen_lengths, litlens, DEFLATE_LITLENS, MOST_BITS);
    conv_huffman_lengths(codes->distance_lengths, distances, DEFLATE_DISTANCES, MOST_BITS);
    deflate_make_number(codes);
    codes->litlen_count = count_used(codes->litlen_lengths, DEFLATE_LITLENS, 257);
    codes->distance_count = count_used(codes->distance_lengths, DEFLATE_DISTANCES, 1);
}

// --- headers of blocks ---------------------------------------------------------------------------

void deflate_make_header(struct deflate_make *make, const struct deflate_codes *codes,
                         const struct deflate_run *runs, int count,
                         const uint8_t precode[DEFLATE_PRECODES], int sent, bool last)
{
    uint16_t codewords[DEFLATE_PRECODES];
    number_codewords(codewords, precode, DEFLATE_PRECODES);
    deflate_make_bits(make, (unsigned)last | 2 << 1, 3);
    deflate_make_bits(make, (unsigned)codes->litlen_count - 257, 5);
    deflate_make_bits(make, (unsigned)codes->distance_count - 1, 5);
    deflate_make_bits(make, (unsigned)sent - 4, 4);
    for (int i = 0; i < sent; i++)
        deflate_make_bits(make, precode[deflate_make_order[i]], 3);
    for (int i = 0; i < count; i++) {
        deflate_make_bits(make, codewords[runs[i].symbol], precode[runs[i].symbol]);
        deflate_make_bits(make, runs[i].extra, runs[i].extra_bits);
    }
    make->codes = codes;
}

static int fold_runs(struct deflate_run *runs, const uint8_t *lengths, int total, bool plainly)
{
    int count = 0;
    for (int at = 0, run; at < total; at += run) {
        uint8_t length = lengths[at];
        for (run = 1; at + run < total && lengths[at + run] == length; run++)
            ;
        if (!plainly && length == 0 && run >= 11) {
            run = run < 138 ? run : 138;
            runs[count++] = (struct deflate_run){18, (uint8_t)(run - 11), 7};
        } else if (!plainly && length == 0 && run >= 3) {
            runs[count++] = (struct deflate_run){17, (uint8_t)(run - 3), 3};
        } else if (!plainly && run >= 4) {
            run = run < 7 ? run : 7;
            runs[count++] = (struct deflate_run){length, 0, 0};
            runs[count++] = (struct deflate_run){16, (uint8_t)(run - 4), 2};
        } else {
            run = 1;
            runs[count++] = (struct deflate_run){length, 0, 0};
        }
    }
    return count;
}

void deflate_make_dynamic(struct deflate_make *make, const struct deflate_codes *codes,
                          bool plainly, bool last)
{
    uint8_t lengths[DEFLATE_ALL_LITLENS + DEFLATE_ALL_DISTANCES], precode[DEFLATE_PRECODES];
    uint32_t counts[DEFLATE_PRECODES] = {0};
    struct deflate_run runs[DEFLATE_ALL_LITLENS + DEFLATE_ALL_DISTANCES];
    memcpy(lengths, codes->litlen_lengths, (size_t)codes->litlen_count);
    memcpy(lengths + codes->litlen_count, codes->distance_lengths, (size_t)codes->distance_count);
    int count = fold_runs(runs, lengths, codes->litlen_count + codes->distance_count, plainly);
    for (int i = 0; i < count; i++)
        counts[runs[i].symbol]++;
    conv_huffman_lengths(precode, counts, DEFLATE_PRECODES, 7);
    int sent = DEFLATE_PRECODES;
    while (sent > 4 && precode[deflate_make_order[sent - 1]] == 0)
        sent--;
    deflate_make_header(make, codes, runs, count, precode, sent, last);
}

void deflate_make_fixed(struct deflate_make *make, const struct deflate_codes *fixed, bool last)
{
    deflate_make_bits(make, (unsigned)last | 1 << 1, 3);
    make->codes = fixed;
}

// --- contents ------------------------------------------------------------------------------------

void deflate_make_start(struct deflate_make *make, int window)
{
    unsigned head = (unsigned)(window - 8) << 12 | 0x800;
    head += 31 - head % 31;
    make->size = make->plain_size = 0;
    make->full = false;
    make->bits = make->bit_count = 0;
    put_byte(make, head >> 8);
    put_byte(make, head & 255);
}

void deflate_make_stored(struct deflate_make *make, const uint8_t *data, size_t size, bool last)
{
    check(size < 65536);
    deflate_make_bits(make, last, 3);
    align(make);
    deflate_make_bits(make, (unsigned)size, 16);
    deflate_make_bits(make, (unsigned)size ^ 0xffff, 16);
    for (size_t i = 0; i < size; i++) {
        put_byte(make, data[i]);
        put_plain(make, data[i]);
    }
}

static void put_litlen(struct deflate_make *make, int symbol)
{
    deflate_make_bits(make, make->codes->litlen[symbol], make->codes->litlen_lengths[symbol]);
}

void deflate_make_literal(struct deflate_make *make, uint8_t byte)
{
    check(make->codes->litlen_lengths[byte] > 0);
    put_litlen(make, byte);
    put_plain(make, byte);
}

static int find_base(const uint16_t *bases, int count, size_t value)
{
    int i = count - 1;
    while (bases[i] > value)
        i--;
    return i;
}

int deflate_make_length_symbol(size_t length)
{
    check(length >= 3 && length <= 258);
    return DEFLATE_FIRST_LENGTH +
           find_base(length_base, sizeof length_base / sizeof length_base[0], length);
}

int deflate_make_distance_symbol(size_t distance)
{
    check(distance >= 1 && distance <= 32768);
    return find_base(distance_base, DEFLATE_DISTANCES, distance);
}

void deflate_make_match(struct deflate_make *make, size_t length, size_t distance)
{
    int l = deflate_make_length_symbol(length), d = deflate_make_distance_symbol(distance);
    check(make->codes->litlen_lengths[l] > 0 && make->codes->distance_lengths[d] > 0 &&
          (!make->grows || distance <= make->plain_size));
    put_litlen(make, l);
    l -= DEFLATE_FIRST_LENGTH;
    deflate_make_bits(make, (unsigned)length - length_base[l], length_extra[l]);
    deflate_make_bits(make, make->codes->distance[d], make->codes->distance_lengths[d]);
    deflate_make_bits(make, (unsigned)distance - distance_base[d], d < 4 ? 0 : (unsigned)d / 2 - 1);
    for (size_t i = 0; i < length && make->grows; i++)
        put_plain(make, make->plain[make->plain_size - distance]);
}

void deflate_make_end_block(struct deflate_make *make)
{
    put_litlen(make, DEFLATE_END);
}

void deflate_make_end(struct deflate_make *make, uint32_t adler)
{
    align(make);
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(make, adler >> shift & 255);
}

void deflate_make_free(struct deflate_make *make)
{
    if (make->grows) {
        free(make->data);
        free(make->plain);
    }
    *make = (struct deflate_make){0};
}
