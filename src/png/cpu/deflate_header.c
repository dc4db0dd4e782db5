// SPDX-License-Identifier: MIT
// The header of a dynamic block: the code lengths of both its codes (RFC 1951, 3.2.7).
#include "png/cpu/deflate_internal.h"
#include "png/cpu/huffman.h"

#define LENGTH_SYMBOLS 19
#define LENGTH_LIMIT 7
#define SHORT_RUN 3 // copies of a length that a repetition cannot replace, of zeros one less
enum { REPEAT_LAST = 16, REPEAT_ZERO = 17, REPEAT_ZERO_LONG = 18 };

// Code lengths with runs folded. An item is a symbol in bits 0-7 and its extra bits above.
struct folded {
    uint16_t item[CONV_DEFLATE_SYMBOLS + SHORT_RUN];
    int count;
    uint32_t uses[LENGTH_SYMBOLS];
};

static void add_item(struct folded *folded, unsigned symbol, int extra)
{
    folded->item[folded->count++] = (uint16_t)(symbol | (unsigned)extra << 8);
    folded->uses[symbol]++;
}

// Runs of 4 or more, or of 3 zeros.
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

// Most runs are of one to three lengths: their number is no branch, since it would be mispredicted.
static void fold(struct folded *folded, const uint8_t *lengths, int count)
{
    int16_t start[CONV_DEFLATE_SYMBOLS + 1], runs = 1;
    start[0] = 0;
    for (int i = 1; i < count; i++) {
        start[runs] = (int16_t)i;
        runs = (int16_t)(runs + (lengths[i] != lengths[i - 1]));
    }
    start[runs] = (int16_t)count;
    for (int r = 0; r < runs; r++) {
        unsigned length = lengths[start[r]];
        int run = start[r + 1] - start[r];
        if (run > SHORT_RUN - (length == 0)) {
            fold_run(folded, length, run);
            continue;
        }
        for (int i = 0; i < SHORT_RUN; i++)
            folded->item[folded->count + i] = (uint16_t)length;
        folded->count += run;
        folded->uses[length] += (uint32_t)run;
    }
}

static int used_symbols(const uint8_t *lengths, int most, int least)
{
    while (most > least && lengths[most - 1] == 0)
        most--;
    return most;
}

void conv_deflate_put_header(struct conv_bits *out, const struct conv_deflate_codes *codes,
                             bool last)
{
    static const uint8_t order[LENGTH_SYMBOLS] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                  11, 4,  12, 3, 13, 2, 14, 1, 15};
    static const uint8_t extra_bits[LENGTH_SYMBOLS] = {
        [REPEAT_LAST] = 2, [REPEAT_ZERO] = 3, [REPEAT_ZERO_LONG] = 7};
    int litlens = used_symbols(codes->litlen_bits, CONV_DEFLATE_LITLENS, 257);
    int distances = used_symbols(codes->distance_bits, CONV_DEFLATE_DISTANCES, 1);
    uint8_t lengths[CONV_DEFLATE_SYMBOLS]; // a run may span both
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
    conv_bits_put(out, CONV_DEFLATE_DYNAMIC, 2);
    conv_bits_put(out, (unsigned)litlens - 257, 5);
    conv_bits_put(out, (unsigned)distances - 1, 5);
    conv_bits_put(out, (unsigned)count - 4, 4);
    conv_bits_flush(out);
    for (int i = 0; i < count; i++) {
        conv_bits_put(out, bits[order[i]], 3);
        if (i % 16 == 15)
            conv_bits_flush(out);
    }
    conv_bits_flush(out);
    uint8_t width[LENGTH_SYMBOLS];
    for (int s = 0; s < LENGTH_SYMBOLS; s++)
        width[s] = (uint8_t)(bits[s] + extra_bits[s]);
    struct conv_bits o = *out; // by value: see deflate_literals.c
    for (int i = 0; i < folded.count; i++) {
        unsigned symbol = folded.item[i] & 0xff, extra = folded.item[i] >> 8;
        conv_bits_put(&o, code[symbol] | (uint64_t)extra << bits[symbol], width[symbol]);
        if (i % 4 == 3) // four take at most 4 x (7 + 7) bits
            conv_bits_flush(&o);
    }
    conv_bits_flush(&o);
    *out = o;
}
