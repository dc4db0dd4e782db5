// SPDX-License-Identifier: MIT
// A code is built for each block of a picture, some ten microseconds of pixels apart: the symbols
// are sorted by radix, and with sorted leaves Huffman's tree takes two queues and linear time.
#include "png/huffman.h"

#include <assert.h>
#include <string.h>

#define SYMBOL_BITS 9 // CONV_HUFFMAN_MAX_SYMBOLS <= 512
#define SYMBOL_MASK ((1u << SYMBOL_BITS) - 1)
#define RADIX_BITS 8
#define RADIX (1 << RADIX_BITS)

// A leaf before the tree is built: the count above, the symbol below.
typedef uint64_t leaf;

static void sort_pass(leaf *dst, const leaf *src, int n, int shift)
{
    int start[RADIX] = {0};
    for (int i = 0; i < n; i++)
        start[src[i] >> shift & (RADIX - 1)]++;
    for (int i = 0, sum = 0; i < RADIX; i++) {
        int count = start[i];
        start[i] = sum;
        sum += count;
    }
    for (int i = 0; i < n; i++)
        dst[start[src[i] >> shift & (RADIX - 1)]++] = src[i];
}

// The symbols in use by rising count, equal counts by rising symbol.
static int sorted_leaves(leaf *leaves, const uint32_t *counts, int symbols)
{
    leaf other[CONV_HUFFMAN_MAX_SYMBOLS];
    int n = 0;
    for (int s = 0; s < symbols; s++) {
        assert(counts[s] < 1u << 24);
        other[n] = (leaf)counts[s] << SYMBOL_BITS | (unsigned)s;
        n += counts[s] > 0;
    }
    sort_pass(leaves, other, n, SYMBOL_BITS);
    sort_pass(other, leaves, n, SYMBOL_BITS + RADIX_BITS);
    sort_pass(leaves, other, n, SYMBOL_BITS + 2 * RADIX_BITS);
    return n;
}

// How many of n >= 2 leaves Huffman's tree has at each depth; those deeper than `limit` count there.
static void count_depths(int *at_depth, const leaf *leaves, int n, int limit)
{
    uint32_t weight[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    uint16_t parent[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    uint16_t depth[2 * CONV_HUFFMAN_MAX_SYMBOLS];
    for (int i = 0; i < n; i++)
        weight[i] = (uint32_t)(leaves[i] >> SYMBOL_BITS);
    // Leaves are taken in order; so are the joined nodes, whose weights rise as they are made.
    int next_leaf = 0, next_node = n;
    for (int made = n; made < 2 * n - 1; made++) {
        weight[made] = 0;
        for (int k = 0; k < 2; k++) {
            int take = next_node == made || (next_leaf < n && weight[next_leaf] <= weight[next_node])
                           ? next_leaf++
                           : next_node++;
            weight[made] += weight[take];
            parent[take] = (uint16_t)made;
        }
    }
    depth[2 * n - 2] = 0;
    for (int i = 2 * n - 3; i >= 0; i--)
        depth[i] = (uint16_t)(depth[parent[i]] + 1);
    for (int i = 0; i < n; i++)
        at_depth[depth[i] < limit ? depth[i] : limit]++;
}

// Cutting deep leaves off at the limit made the code too dense to be one. Each step takes a leaf
// from the limit and puts it beside the deepest one above, which moves down a level: the sum of
// 2^-length falls by one unit of the limit.
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

void conv_huffman_lengths(uint8_t *lengths, const uint32_t *counts, int symbols, int limit)
{
    assert(symbols >= 2 && symbols <= CONV_HUFFMAN_MAX_SYMBOLS);
    assert(limit <= CONV_HUFFMAN_MAX_BITS && symbols <= 1 << limit);
    leaf leaves[CONV_HUFFMAN_MAX_SYMBOLS];
    int n = sorted_leaves(leaves, counts, symbols);
    memset(lengths, 0, (size_t)symbols);
    if (n < 2) {
        int used = n == 1 ? (int)(leaves[0] & SYMBOL_MASK) : 0;
        lengths[used] = 1;
        lengths[used == 0] = 1;
        return;
    }
    int at_depth[CONV_HUFFMAN_MAX_BITS + 1] = {0};
    count_depths(at_depth, leaves, n, limit);
    repair(at_depth, limit);
    for (int d = limit, i = 0; d > 0; d--) {
        for (int k = 0; k < at_depth[d]; k++)
            lengths[leaves[i++] & SYMBOL_MASK] = (uint8_t)d;
    }
}

static unsigned reverse(unsigned code, unsigned bits)
{
    unsigned reversed = 0;
    for (; bits > 0; bits--, code >>= 1)
        reversed = reversed << 1 | (code & 1);
    return reversed;
}

void conv_huffman_codes(uint16_t *codes, const uint8_t *lengths, int symbols)
{
    unsigned next[CONV_HUFFMAN_MAX_BITS + 2] = {0};
    for (int s = 0; s < symbols; s++)
        next[lengths[s] + 1]++;
    next[1] = 0; // symbols without a code
    for (int bits = 1; bits <= CONV_HUFFMAN_MAX_BITS; bits++)
        next[bits + 1] = (next[bits] + next[bits + 1]) << 1;
    for (int s = 0; s < symbols; s++)
        codes[s] = lengths[s] ? (uint16_t)reverse(next[lengths[s]]++, lengths[s]) : 0;
}
