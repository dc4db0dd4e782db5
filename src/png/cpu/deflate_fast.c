// SPDX-License-Identifier: MIT
// What a block becomes, and the parts that all blocks share. The room a block can take:
// - conv_deflate_store writes 5 bytes for each STORED_MOST bytes, and the bits that wait before;
// - any other block is replaced by a stored one when it turns out longer, so in the end no block
//   takes more than that. While it is being written it takes at most the header (17 bits, 19
//   lengths of 3 bits, 316 lengths of 7 bits: a folded run is cheaper), CONV_DEFLATE_LIMIT bits for
//   each byte and for its end (a match takes 15 + 5 + 15 + 13 bits, less than the 4 literals that
//   it stands for at the least), and what a flush writes ahead.
#include "png/cpu/deflate_fast.h"

#include <stdlib.h>

#include "base/features.h"
#include "png/cpu/deflate_internal.h"
#include "png/cpu/huffman.h"

#define STORED_MOST 65535u
#define HEADER_MOST 300

size_t conv_deflate_bound(size_t size, size_t block)
{
    size_t blocks = size / block + 1;
    size_t stored = size + 5 * (size / STORED_MOST + blocks + 1) + 1;
    size_t largest = size < CONV_DEFLATE_BLOCK ? size : CONV_DEFLATE_BLOCK;
    size_t ahead = (largest + 8) / 8 * CONV_DEFLATE_LIMIT + HEADER_MOST + CONV_BITS_SLACK;
    return stored + ahead;
}

struct conv_deflate *conv_deflate_open(unsigned features)
{
    struct conv_deflate *deflate = malloc(sizeof *deflate);
    if (deflate)
        deflate->features = features;
    return deflate;
}

void conv_deflate_close(struct conv_deflate *deflate)
{
    free(deflate);
}

void conv_deflate_store(struct conv_bits *out, const uint8_t *data, size_t size, bool last)
{
    do {
        size_t count = size < STORED_MOST ? size : STORED_MOST;
        conv_bits_put(out, last && count == size, 1);
        conv_bits_put(out, DEFLATE_STORED, 2);
        conv_bits_align(out);
        conv_bits_put(out, count | (count ^ 0xffff) << 16, 32);
        conv_bits_flush(out);
        memcpy(out->at, data, count);
        out->at += count;
        data += count;
        size -= count;
    } while (size > 0);
}

// --- the header of a block with codes of its own ------------------------------------------------

#define LENGTH_SYMBOLS 19
#define LENGTH_LIMIT 7
enum { REPEAT_LAST = 16, REPEAT_ZERO = 17, REPEAT_ZERO_LONG = 18 };

// Code lengths with runs folded (RFC 1951, 3.2.7): a symbol and, above it, its extra bits.
struct folded {
    uint16_t item[CONV_DEFLATE_LITLENS + CONV_DEFLATE_DISTANCES];
    int count;
    uint32_t uses[LENGTH_SYMBOLS];
};

static void add_item(struct folded *folded, unsigned symbol, int extra)
{
    folded->item[folded->count++] = (uint16_t)(symbol | (unsigned)extra << 8);
    folded->uses[symbol]++;
}

static void fold_run(struct folded *folded, unsigned length, int run)
{
    if (length == 0) {
        for (; run >= 11; run -= run < 138 ? run : 138)
            add_item(folded, REPEAT_ZERO_LONG, (run < 138 ? run : 138) - 11);
        if (run >= 3) {
            add_item(folded, REPEAT_ZERO, run - 3);
            run = 0;
        }
    } else {
        add_item(folded, length, 0);
        for (run--; run >= 3; run -= run < 6 ? run : 6)
            add_item(folded, REPEAT_LAST, (run < 6 ? run : 6) - 3);
    }
    for (; run > 0; run--)
        add_item(folded, length, 0);
}

static void fold(struct folded *folded, const uint8_t *lengths, int count)
{
    for (int i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && lengths[i + run] == lengths[i]; run++) {
        }
        fold_run(folded, lengths[i], run);
    }
}

static int used_symbols(const uint8_t *lengths, int most, int least)
{
    while (most > least && lengths[most - 1] == 0)
        most--;
    return most;
}

void conv_deflate_put_header(struct conv_bits *out, const struct deflate_codes *codes, bool last)
{
    static const uint8_t order[LENGTH_SYMBOLS] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                  11, 4,  12, 3, 13, 2, 14, 1, 15};
    static const uint8_t extra_bits[LENGTH_SYMBOLS] = {
        [REPEAT_LAST] = 2, [REPEAT_ZERO] = 3, [REPEAT_ZERO_LONG] = 7};
    int litlens = used_symbols(codes->litlen_bits, CONV_DEFLATE_LITLENS, 257);
    int distances = used_symbols(codes->distance_bits, CONV_DEFLATE_DISTANCES, 1);
    uint8_t lengths[CONV_DEFLATE_LITLENS + CONV_DEFLATE_DISTANCES]; // a run may go across both
    memcpy(lengths, codes->litlen_bits, (size_t)litlens);
    memcpy(lengths + litlens, codes->distance_bits, (size_t)distances);
    struct folded folded = {.count = 0};
    fold(&folded, lengths, litlens + distances);

    uint8_t bits[LENGTH_SYMBOLS];
    uint16_t code[LENGTH_SYMBOLS];
    conv_huffman_lengths(bits, folded.uses, LENGTH_SYMBOLS, LENGTH_LIMIT);
    conv_huffman_codes(code, bits, LENGTH_SYMBOLS);
    int count = LENGTH_SYMBOLS;
    while (count > 4 && bits[order[count - 1]] == 0)
        count--;

    conv_bits_put(out, last, 1);
    conv_bits_put(out, DEFLATE_DYNAMIC, 2);
    conv_bits_put(out, (unsigned)litlens - 257, 5);
    conv_bits_put(out, (unsigned)distances - 1, 5);
    conv_bits_put(out, (unsigned)count - 4, 4);
    conv_bits_flush(out);
    for (int i = 0; i < count; i++) {
        conv_bits_put(out, bits[order[i]], 3);
        conv_bits_flush(out);
    }
    for (int i = 0; i < folded.count; i++) {
        unsigned symbol = folded.item[i] & 0xff;
        conv_bits_put(out, code[symbol], bits[symbol]);
        conv_bits_put(out, folded.item[i] >> 8, extra_bits[symbol]);
        conv_bits_flush(out);
    }
}

// --- the choice ---------------------------------------------------------------------------------

// A look at every fourth 64 bytes: what a Huffman code would gain, and how much is flat.
#define SAMPLE 64
#define SAMPLE_STEP 256

static void take_sample(struct sample *sample, const uint8_t *data, size_t size)
{
    uint32_t count[4][256] = {{0}}; // four tables: equal neighbours don't wait for each other's sum
    *sample = (struct sample){.bytes = 0};
    size_t flat = 0;
    for (size_t at = 0; at + SAMPLE <= size; at += SAMPLE_STEP) {
        for (size_t i = at; i < at + SAMPLE; i += 8) {
            uint64_t word;
            memcpy(&word, data + i, sizeof word);
            flat += word == 0;
            for (int k = 0; k < 2; k++) {
                count[0][word & 0xff]++;
                count[1][word >> 8 & 0xff]++;
                count[2][word >> 16 & 0xff]++;
                count[3][word >> 24 & 0xff]++;
                word >>= 32;
            }
        }
        sample->bytes += SAMPLE;
    }
    sample->flat = flat * 8;
    if (size < SAMPLE_STEP) { // the first bytes say too little
        memset(count, 0, sizeof count);
        sample->bytes = size;
        for (size_t i = 0; i < size; i++)
            count[0][data[i]]++;
    }
    for (int s = 0; s < 256; s++)
        sample->count[s] = count[0][s] + count[1][s] + count[2][s] + count[3][s];
}

// Of a block, to look for matches in it.
#define FLAT_PART 16

bool conv_deflate_is_short(const struct conv_bits *out, const struct conv_bits *start, size_t size)
{
    return (size_t)(out->at - start->at) <= size + 5 * (size / STORED_MOST + 1);
}

void conv_deflate_block(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, bool last)
{
    const struct conv_bits start = *out;
    struct sample sample;
    take_sample(&sample, data, size);
    bool flat = sample.flat * FLAT_PART >= sample.bytes;
    bool done = !flat && conv_deflate_put_literals(deflate, out, &sample, data, size, last);
    // What looks like noise may repeat itself.
    if (!done)
        done = conv_deflate_put_matches(deflate, out, data, size, last);
    if (!done || !conv_deflate_is_short(out, &start, size)) {
        *out = start;
        conv_deflate_store(out, data, size, last);
    }
}
