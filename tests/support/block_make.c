// SPDX-License-Identifier: MIT
#include "support/block_make.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "png/cpu/huffman.h"

static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                       67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

static void make_room(uint8_t **bytes, size_t *room, size_t needed)
{
    if (needed <= *room)
        return;
    *room = 2 * needed + 4096;
    *bytes = realloc(*bytes, *room);
    if (!*bytes)
        abort();
}

static void put_bits(struct block_maker *maker, unsigned value, unsigned count)
{
    maker->bits |= (uint64_t)value << maker->bit_count;
    maker->bit_count += count;
    make_room(&maker->stream, &maker->stream_room, maker->stream_size + 8);
    for (; maker->bit_count >= 8; maker->bit_count -= 8, maker->bits >>= 8)
        maker->stream[maker->stream_size++] = (uint8_t)maker->bits;
}

static void align(struct block_maker *maker)
{
    put_bits(maker, 0, -maker->bit_count & 7);
}

static void put_plain(struct block_maker *maker, uint8_t byte)
{
    make_room(&maker->plain, &maker->plain_room, maker->plain_size + 1);
    maker->plain[maker->plain_size++] = byte;
}

static void check(bool right)
{
    if (!right)
        abort();
}

// --- codes ---------------------------------------------------------------------------------------

void block_make_fixed(struct block_codes *codes)
{
    uint8_t *lengths = codes->litlen_lengths;
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 256 - 144);
    memset(lengths + 256, 7, 280 - 256);
    memset(lengths + 280, 8, 288 - 280);
    memset(codes->distance_lengths, 5, 32);
    conv_huffman_codes(codes->litlen, lengths, 288);
    conv_huffman_codes(codes->distance, codes->distance_lengths, 32);
}

static int count_used(const uint8_t *lengths, int count, int least)
{
    while (count > least && lengths[count - 1] == 0)
        count--;
    return count;
}

void block_make_codes(struct block_codes *codes, const uint32_t litlens[BLOCK_LITLENS],
                      const uint32_t distances[BLOCK_DISTANCES])
{
    *codes = (struct block_codes){0};
    conv_huffman_lengths(codes->litlen_lengths, litlens, BLOCK_LITLENS, 15);
    conv_huffman_lengths(codes->distance_lengths, distances, BLOCK_DISTANCES, 15);
    conv_huffman_codes(codes->litlen, codes->litlen_lengths, BLOCK_LITLENS);
    conv_huffman_codes(codes->distance, codes->distance_lengths, BLOCK_DISTANCES);
    codes->litlen_count = count_used(codes->litlen_lengths, BLOCK_LITLENS, 257);
    codes->distance_count = count_used(codes->distance_lengths, BLOCK_DISTANCES, 1);
}

// --- the header of a dynamic block ---------------------------------------------------------------

// Symbols of the code length code, with their extra bits.
struct item {
    uint8_t symbol, extra, extra_bits;
};

static int list_items(struct item *items, const uint8_t *lengths, int total, bool plainly)
{
    int count = 0;
    for (int at = 0, run; at < total; at += run) {
        uint8_t length = lengths[at];
        for (run = 1; at + run < total && lengths[at + run] == length; run++)
            ;
        if (!plainly && length == 0 && run >= 11) {
            run = run < 138 ? run : 138;
            items[count++] = (struct item){18, (uint8_t)(run - 11), 7};
        } else if (!plainly && length == 0 && run >= 3) {
            items[count++] = (struct item){17, (uint8_t)(run - 3), 3};
        } else if (!plainly && run >= 4) {
            run = run < 7 ? run : 7;
            items[count++] = (struct item){length, 0, 0};
            items[count++] = (struct item){16, (uint8_t)(run - 4), 2};
        } else {
            run = 1;
            items[count++] = (struct item){length, 0, 0};
        }
    }
    return count;
}

void block_make_dynamic_block(struct block_maker *maker, const struct block_codes *codes,
                              bool plainly, bool last)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[288 + 32], sent[19];
    uint16_t words[19];
    uint32_t counts[19] = {0};
    struct item items[288 + 32];
    memcpy(lengths, codes->litlen_lengths, (size_t)codes->litlen_count);
    memcpy(lengths + codes->litlen_count, codes->distance_lengths, (size_t)codes->distance_count);
    int count = list_items(items, lengths, codes->litlen_count + codes->distance_count, plainly);
    for (int i = 0; i < count; i++)
        counts[items[i].symbol]++;
    conv_huffman_lengths(sent, counts, 19, 7);
    conv_huffman_codes(words, sent, 19);
    int used = 19;
    while (used > 4 && sent[order[used - 1]] == 0)
        used--;
    put_bits(maker, last, 1);
    put_bits(maker, 2, 2);
    put_bits(maker, (unsigned)codes->litlen_count - 257, 5);
    put_bits(maker, (unsigned)codes->distance_count - 1, 5);
    put_bits(maker, (unsigned)used - 4, 4);
    for (int i = 0; i < used; i++)
        put_bits(maker, sent[order[i]], 3);
    for (int i = 0; i < count; i++) {
        put_bits(maker, words[items[i].symbol], sent[items[i].symbol]);
        put_bits(maker, items[i].extra, items[i].extra_bits);
    }
    maker->codes = codes;
}

// --- blocks and symbols --------------------------------------------------------------------------

void block_make_start(struct block_maker *maker)
{
    put_bits(maker, 0x0178, 16);
}

void block_make_stored(struct block_maker *maker, const uint8_t *data, size_t size, bool last)
{
    check(size < 65536);
    put_bits(maker, last, 3);
    align(maker);
    put_bits(maker, (unsigned)size | (unsigned)~size << 16, 32);
    for (size_t i = 0; i < size; i++) {
        put_bits(maker, data[i], 8);
        put_plain(maker, data[i]);
    }
}

void block_make_fixed_block(struct block_maker *maker, const struct block_codes *fixed, bool last)
{
    put_bits(maker, (unsigned)last | 1 << 1, 3);
    maker->codes = fixed;
}

static void put_litlen(struct block_maker *maker, int symbol)
{
    check(maker->codes->litlen_lengths[symbol] > 0);
    put_bits(maker, maker->codes->litlen[symbol], maker->codes->litlen_lengths[symbol]);
}

void block_make_literal(struct block_maker *maker, uint8_t byte)
{
    put_litlen(maker, byte);
    put_plain(maker, byte);
}

void block_make_match(struct block_maker *maker, size_t length, size_t distance)
{
    check(length >= 3 && length <= 258 && distance >= 1 && distance <= 32768 &&
          distance <= maker->plain_size);
    int l = 28, d = BLOCK_DISTANCES - 1;
    while (length_base[l] > length)
        l--;
    while (distance_base[d] > distance)
        d--;
    put_litlen(maker, 257 + l);
    put_bits(maker, (unsigned)length - length_base[l], length_extra[l]);
    check(maker->codes->distance_lengths[d] > 0);
    put_bits(maker, maker->codes->distance[d], maker->codes->distance_lengths[d]);
    put_bits(maker, (unsigned)distance - distance_base[d], d < 2 ? 0 : (unsigned)d / 2 - 1);
    for (size_t i = 0; i < length; i++)
        put_plain(maker, maker->plain[maker->plain_size - distance]);
}

void block_make_end(struct block_maker *maker)
{
    put_litlen(maker, BLOCK_END);
}

void block_make_finish(struct block_maker *maker, bool wrong_sum)
{
    unsigned long sum = adler32_z(adler32_z(0, NULL, 0), maker->plain, maker->plain_size);
    align(maker);
    sum ^= wrong_sum;
    for (int shift = 24; shift >= 0; shift -= 8)
        put_bits(maker, sum >> shift & 0xff, 8);
}

void block_make_free(struct block_maker *maker)
{
    free(maker->stream);
    free(maker->plain);
    *maker = (struct block_maker){0};
}
