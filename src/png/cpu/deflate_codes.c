// SPDX-License-Identifier: MIT
// Huffman codes in linear time, since one is built for each block, every ten microseconds or so:
// the symbols are radix-sorted by count, and sorted leaves need two queues only.
#include "png/cpu/deflate_internal.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define SYMBOL_BITS 9 // CONV_HUFFMAN_MAX_SYMBOLS <= 512
#define SYMBOL_MASK ((1u << SYMBOL_BITS) - 1)
#define RADIX_BITS 7 // at most

// The count in the upper bits, the symbol in the lowest SYMBOL_BITS.
typedef uint64_t leaf;

// Sorts by `width` bits.
static void sort_pass(leaf *dst, const leaf *src, size_t n, unsigned shift, unsigned width)
{
    uint32_t start[1 << RADIX_BITS];
    uint32_t mask = (1u << width) - 1;
    memset(start, 0, sizeof *start << width);
    for (size_t i = 0; i < n; i++)
        start[src[i] >> shift & mask]++;
    for (uint32_t i = 0, sum = 0; i <= mask; i++) {
        uint32_t count = start[i];
        start[i] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        dst[start[src[i] >> shift & mask]++] = src[i];
}

// Sorts the symbols in use by count, then by symbol; returns their number. Passes go in pairs, so
// that the result is in the first array; most blocks need one pair, of as few bits as possible.
static size_t sorted_leaves(leaf *leaves, const uint32_t *counts, size_t symbols)
{
    leaf other[CONV_HUFFMAN_MAX_SYMBOLS];
    uint32_t bits = 0;
    size_t n = 0;
    for (size_t s = 0; s < symbols; s++) {
        leaves[n] = (leaf)counts[s] << SYMBOL_BITS | s;
        n += counts[s] > 0;
        bits |= counts[s];
    }
    assert(bits < 1u << 24);
    unsigned width = RADIX_BITS;
    while (width > 1 && bits >> (2 * width - 2) == 0)
        width--;
    for (unsigned shift = SYMBOL_BITS; bits > 0; bits >>= 2 * width, shift += 2 * width) {
        sort_pass(other, leaves, n, shift, width);
        sort_pass(leaves, other, n, shift + width, width);
    }
    return n;
}

// Joins the two lightest leaves or nodes until one is left. Sets parent[i] for the i-th node made;
// the last one, of index n - 2, is the root. n >= 2. Both queues are in order: each node is at
// least as heavy as the one before. The choice is no branch, since it would be mispredicted, and
// one choice for both children halves the latency.
static void join_nodes(uint16_t *parent, const leaf *leaves, size_t n)
{
    const uint32_t none = UINT32_MAX; // heavier than all leaves together
    uint32_t leaf_weight[CONV_HUFFMAN_MAX_SYMBOLS + 2];
    uint32_t weight[CONV_HUFFMAN_MAX_SYMBOLS + 1];
    for (size_t i = 0; i < n; i++)
        leaf_weight[i] = (uint32_t)(leaves[i] >> SYMBOL_BITS);
    leaf_weight[n] = leaf_weight[n + 1] = none;
    weight[0] = weight[1] = none;
    for (size_t made = 0, leaf_at = 0, node_at = 0; made < n - 1; made++) {
        uint32_t leaf0 = leaf_weight[leaf_at], leaf1 = leaf_weight[leaf_at + 1];
        uint32_t node0 = weight[node_at], node1 = weight[node_at + 1];
        size_t two_leaves = leaf1 <= node0, two_nodes = node1 < leaf0;
        uint32_t first = leaf0 <= node0 ? leaf0 : node0;
        uint32_t second = leaf0 <= node0 ? node0 : leaf0; // of the two heads
        second = leaf1 < second ? leaf1 : second;
        second = node1 < second ? node1 : second;
        // Nodes that are not taken get their parent later.
        parent[node_at] = parent[node_at + 1] = (uint16_t)made;
        node_at += 1 - two_leaves + two_nodes;
        leaf_at += 1 + two_leaves - two_nodes;
        weight[made] = first + second;
        weight[made + 1] = weight[made + 2] = none;
    }
}

// Counts the leaves of Huffman's tree at each depth, those deeper than `limit` as at the limit.
// n >= 2. A node that was made later is not deeper, so the nodes of a depth are consecutive.
static void count_depths(int *at_depth, const leaf *leaves, size_t n, int limit)
{
    uint16_t parent[CONV_HUFFMAN_MAX_SYMBOLS + 1];
    join_nodes(parent, leaves, n);
    size_t from = n - 2, to = n - 1; // the nodes of a depth, at first the root
    for (int depth = 1; to > from; depth++) {
        size_t below = from;
        while (below > 0 && parent[below - 1] >= from)
            below--;
        // What is below these nodes are leaves and the nodes of the next depth.
        at_depth[depth < limit ? depth : limit] += (int)(2 * (to - from) - (from - below));
        to = from;
        from = below;
    }
}

// Moving deep leaves up to the limit makes the Kraft sum exceed 1. Each step moves a leaf from the
// limit next to the deepest leaf above it, which moves down a level: the sum falls by 2^-limit.
static void repair(int *at_depth, int limit)
{
    int units = 0; // of 2^-limit
    for (int d = 1; d <= limit; d++)
        units += at_depth[d] << (limit - d);
    for (; units > 1 << limit; units--) {
        int d = limit - 1;
        while (at_depth[d] == 0)
            d--;
        at_depth[limit]--;
        at_depth[d]--;
        at_depth[d + 1] += 2;
    }
}

void conv_huffman_lengths(uint8_t *lengths, const uint32_t *counts, size_t symbols, int limit)
{
    assert(symbols >= 2 && symbols <= CONV_HUFFMAN_MAX_SYMBOLS);
    assert(limit <= CONV_HUFFMAN_MAX_BITS && symbols <= (size_t)1 << limit);
    leaf leaves[CONV_HUFFMAN_MAX_SYMBOLS];
    size_t n = sorted_leaves(leaves, counts, symbols);
    memset(lengths, 0, symbols);
    if (n < 2) {
        size_t used = n == 1 ? (size_t)(leaves[0] & SYMBOL_MASK) : 0;
        lengths[used] = 1;
        lengths[used == 0] = 1;
        return;
    }
    int at_depth[CONV_HUFFMAN_MAX_BITS + 1] = {0};
    count_depths(at_depth, leaves, n, limit);
    repair(at_depth, limit);
    const leaf *next = leaves;
    for (int d = limit; d > 0; d--) {
        for (int k = 0; k < at_depth[d]; k++)
            lengths[*next++ & SYMBOL_MASK] = (uint8_t)d;
    }
}

// Codewords are counted in the upper bits of 16, so that only all 16 have to be reversed.
void conv_huffman_codes(uint16_t *codes, const uint8_t *lengths, size_t symbols)
{
    unsigned count[CONV_HUFFMAN_MAX_BITS + 1] = {0};
    uint16_t next[CONV_HUFFMAN_MAX_BITS + 1] = {0}; // [0] stays 0: no codeword
    for (size_t s = 0; s < symbols; s++)
        count[lengths[s]]++;
    unsigned code = 0;
    for (int bits = 1; bits <= CONV_HUFFMAN_MAX_BITS; bits++) {
        next[bits] = (uint16_t)code;
        code += count[bits] << (16 - bits);
    }
    for (size_t s = 0; s < symbols; s++) {
        codes[s] = next[lengths[s]];
        next[lengths[s]] = (uint16_t)(codes[s] + (1u << (16 - lengths[s])));
    }
    for (size_t s = 0; s < symbols; s++) {
        unsigned x = codes[s];
        x = (x >> 1 & 0x5555) | (x & 0x5555) << 1;
        x = (x >> 2 & 0x3333) | (x & 0x3333) << 2;
        x = (x >> 4 & 0x0f0f) | (x & 0x0f0f) << 4;
        codes[s] = (uint16_t)(x >> 8 | x << 8);
    }
}

// --- the header of a dynamic block ---------------------------------------------------------------

// The header of a dynamic block: the code lengths of both its codes (RFC 1951, 3.2.7).

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
    struct conv_bits o = *out; // by value: see deflate_fast.c
    for (int i = 0; i < folded.count; i++) {
        unsigned symbol = folded.item[i] & 0xff, extra = folded.item[i] >> 8;
        conv_bits_put(&o, code[symbol] | (uint64_t)extra << bits[symbol], width[symbol]);
        if (i % 4 == 3) // four take at most 4 x (7 + 7) bits
            conv_bits_flush(&o);
    }
    conv_bits_flush(&o);
    *out = o;
}
