// SPDX-License-Identifier: MIT
// Huffman codes in linear time, since one is built for each block, every ten microseconds or so:
// the symbols are radix-sorted by count, and sorted leaves need two queues only.
#include "png/cpu/huffman.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define SYMBOL_BITS 9 // CONV_HUFFMAN_MAX_SYMBOLS <= 512
#define SYMBOL_MASK ((1u << SYMBOL_BITS) - 1)
#define RADIX_BITS 7
#define RADIX (1 << RADIX_BITS)

// The count in the upper bits, the symbol in the lowest SYMBOL_BITS.
typedef uint64_t leaf;

static void sort_pass(leaf *dst, const leaf *src, size_t n, int shift)
{
    size_t start[RADIX] = {0};
    for (size_t i = 0; i < n; i++)
        start[src[i] >> shift & (RADIX - 1)]++;
    for (size_t i = 0, sum = 0; i < RADIX; i++) {
        size_t count = start[i];
        start[i] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        dst[start[src[i] >> shift & (RADIX - 1)]++] = src[i];
}

// Sorts the symbols in use by count, then by symbol; returns their number. Passes go in pairs, so
// that the result is in the first array; most blocks need one pair.
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
    for (int shift = SYMBOL_BITS; bits > 0; bits >>= 2 * RADIX_BITS, shift += 2 * RADIX_BITS) {
        sort_pass(other, leaves, n, shift);
        sort_pass(leaves, other, n, shift + RADIX_BITS);
    }
    return n;
}

// Counts the leaves of Huffman's tree at each depth, those deeper than `limit` as at the limit.
// n >= 2. Leaves come first, then the joined nodes, with an entry between them that stands for no
// leaf. The choice between a leaf and a node is no branch, since it would be mispredicted.
static void count_depths(int *at_depth, const leaf *leaves, size_t n, int limit)
{
    const uint32_t none = UINT32_MAX; // heavier than all leaves together
    uint32_t weight[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    uint16_t parent[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    uint16_t depth[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    for (size_t i = 0; i < n; i++)
        weight[i] = (uint32_t)(leaves[i] >> SYMBOL_BITS);
    weight[n] = none;
    // Leaves are taken in order, and so are joined nodes: each is at least as heavy as the one
    // before.
    size_t leaf_at = 0, node_at = n + 1, root = 2 * n - 1;
    for (size_t made = n + 1; made <= root; made++) {
        uint32_t sum = 0;
        weight[made] = none;
        for (int k = 0; k < 2; k++) {
            uint32_t of_leaf = weight[leaf_at], of_node = weight[node_at];
            size_t is_leaf = of_leaf <= of_node;
            parent[node_at ^ ((leaf_at ^ node_at) & (0 - is_leaf))] = (uint16_t)made;
            sum += of_leaf < of_node ? of_leaf : of_node;
            leaf_at += is_leaf;
            node_at += 1 - is_leaf;
        }
        weight[made] = sum;
    }
    depth[root] = 0;
    for (size_t i = root; i-- > n + 1;)
        depth[i] = (uint16_t)(depth[parent[i]] + 1);
    for (size_t i = 0; i < n; i++) {
        int d = depth[parent[i]] + 1;
        at_depth[d < limit ? d : limit]++;
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
    leaf leaves[CONV_HUFFMAN_MAX_SYMBOLS] = {0};
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
