// SPDX-License-Identifier: MIT
// A length-limited Huffman code, made by one warp: the symbols are sorted in registers (a bitonic
// network), one lane joins the two lightest nodes repeatedly, all lanes find the depths by jumping
// from parent to parent, and lengths beyond the limit are corrected (deflate.cuh).
#ifndef CONV_PNG_CUDA_HUFFMAN_CUH
#define CONV_PNG_CUDA_HUFFMAN_CUH

#include "png/cuda/encode_internal.cuh"

#define SYMBOL_BITS 9
#define SYMBOL_MASK ((1u << SYMBOL_BITS) - 1)
#define UNUSED 0xffffffffu
#define MOST_SYMBOLS 288

// Shared memory of one warp.
struct huffman_space {
    uint32_t sorted[MOST_SYMBOLS]; // by rising count: the count above, the symbol below
    uint32_t weight[MOST_SYMBOLS]; // of joined nodes, in the order in which they are made
    uint32_t jump[MOST_SYMBOLS];   // of joined nodes: how far up, and the node there
    uint16_t leaf_parent[MOST_SYMBOLS];
    uint32_t at_depth[DEFLATE_LIMIT + 1];
    uint32_t next[DEFLATE_LIMIT + 1]; // codes
};

// Sorts 32 * PER_LANE keys, key e = PER_LANE * lane + i in keys[i].
template <int PER_LANE> __device__ inline void sort_keys(uint32_t keys[PER_LANE])
{
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (int size = 2; size <= WARP * PER_LANE; size *= 2) {
#pragma unroll
        for (int step = size / 2; step > 0; step /= 2) {
            if (step >= PER_LANE) {
                int lanes = step / PER_LANE;
                bool up = (lane * PER_LANE & (uint32_t)size) == 0;
                bool keep_less = ((lane & (uint32_t)lanes) == 0) == up;
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) {
                    uint32_t other = __shfl_xor_sync(ALL_LANES, keys[i], lanes);
                    keys[i] = keep_less ? min(keys[i], other) : max(keys[i], other);
                }
            } else {
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) {
                    if (i & step)
                        continue;
                    bool up = ((lane * PER_LANE + (uint32_t)i) & (uint32_t)size) == 0;
                    uint32_t less = min(keys[i], keys[i + step]);
                    uint32_t more = max(keys[i], keys[i + step]);
                    keys[i] = up ? less : more;
                    keys[i + step] = up ? more : less;
                }
            }
        }
    }
}

// The next node to join: the lighter of the next leaf and the next joined node, the leaf if they
// weigh the same, so that codes are as short as they can be.
struct queues {
    uint32_t leaf, node;               // how many are taken
    uint32_t leaf_weight, node_weight; // of the next ones, UNUSED if there is none
};

__device__ inline uint32_t take_lightest(struct huffman_space *space, struct queues *queues,
                                         uint32_t leaves, uint32_t made)
{
    uint32_t weight;
    if (queues->leaf_weight <= queues->node_weight) {
        weight = queues->leaf_weight;
        space->leaf_parent[queues->leaf++] = (uint16_t)made;
        queues->leaf_weight =
            queues->leaf < leaves ? space->sorted[queues->leaf] >> SYMBOL_BITS : UNUSED;
    } else {
        weight = queues->node_weight;
        space->jump[queues->node++] = 1u << 16 | made;
        queues->node_weight = queues->node < made ? space->weight[queues->node] : UNUSED;
    }
    return weight;
}

// One lane: joins n >= 2 sorted leaves; nodes are numbered from 0 to the root, n - 2.
__device__ inline void join_leaves(struct huffman_space *space, uint32_t n)
{
    struct queues queues = {0, 0, space->sorted[0] >> SYMBOL_BITS, UNUSED};
    for (uint32_t made = 0; made < n - 1; made++) {
        uint32_t weight = take_lightest(space, &queues, n, made);
        weight += take_lightest(space, &queues, n, made);
        space->weight[made] = weight;
        if (queues.node == made) // the only one left
            queues.node_weight = weight;
    }
    space->jump[n - 2] = n - 2;
}

// Depths of nodes below the root, by pointer jumping: each jump is extended by the jump of the node
// that it reaches. A depth of 2^5 would need more than 2^21 uses (Fibonacci), a block has fewer.
#define JUMPS 5

template <int NODES> __device__ inline void find_depths(struct huffman_space *space, uint32_t n)
{
    uint32_t lane = threadIdx.x % WARP;
    for (int round = 0; round < JUMPS; round++) {
        uint32_t far[NODES];
#pragma unroll
        for (int i = 0; i < NODES; i++) {
            uint32_t node = (uint32_t)i * WARP + lane;
            far[i] = 0;
            if (node < n - 1) {
                uint32_t jump = space->jump[node], next = space->jump[jump & 0xffff];
                far[i] = (jump & 0xffff0000u) + next;
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < NODES; i++) {
            uint32_t node = (uint32_t)i * WARP + lane;
            if (node < n - 1)
                space->jump[node] = far[i];
        }
        __syncwarp();
    }
}

// The length of the symbol of that rank: the rarest have the longest.
__device__ inline uint32_t length_of_rank(const struct huffman_space *space, uint32_t rank,
                                          uint32_t limit)
{
    uint32_t length = limit;
    for (uint32_t below = space->at_depth[length]; rank >= below; below += space->at_depth[length])
        length--;
    return length;
}

// Sets lengths[s] of `symbols` symbols (at most 16 * 32 and MOST_SYMBOLS) that are used count[s] <
// 2^23 times, at least two of them. PER_LANE is a power of two with 32 * PER_LANE >= symbols. All
// lanes call.
template <int PER_LANE>
__device__ inline void make_lengths(struct huffman_space *space, uint32_t *lengths,
                                    const uint32_t *count, uint32_t symbols, uint32_t limit)
{
    uint32_t lane = threadIdx.x % WARP, n = 0, keys[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        uint32_t s = (uint32_t)i * WARP + lane;
        uint32_t uses = s < symbols ? count[s] : 0;
        keys[i] = uses ? uses << SYMBOL_BITS | s : UNUSED;
        n += (uint32_t)__popc(__ballot_sync(ALL_LANES, uses > 0));
        if (s < symbols)
            lengths[s] = 0;
    }
    sort_keys<PER_LANE>(keys);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
        if (lane * PER_LANE + (uint32_t)i < n)
            space->sorted[lane * PER_LANE + (uint32_t)i] = keys[i];
    if (lane <= DEFLATE_LIMIT)
        space->at_depth[lane] = 0;
    __syncwarp();
    if (lane == 0)
        join_leaves(space, n);
    __syncwarp();
    find_depths<(PER_LANE * WARP < MOST_SYMBOLS ? PER_LANE : MOST_SYMBOLS / WARP)>(space, n);
    for (uint32_t i = lane; i < n; i += WARP) {
        uint32_t depth = (space->jump[space->leaf_parent[i]] >> 16) + 1;
        atomicAdd(&space->at_depth[min(depth, limit)], 1u);
    }
    __syncwarp();
    if (lane == 0)
        deflate_repair(space->at_depth, limit);
    __syncwarp();
    for (uint32_t i = lane; i < n; i += WARP)
        lengths[space->sorted[i] & SYMBOL_MASK] = length_of_rank(space, i, limit);
    __syncwarp();
}

// The canonical codes of these lengths, bit-reversed as deflate sends them.
__device__ inline void make_codes(struct huffman_space *space, uint32_t *codes,
                                  const uint32_t *lengths, uint32_t symbols)
{
    uint32_t lane = threadIdx.x % WARP;
    if (lane <= DEFLATE_LIMIT)
        space->at_depth[lane] = 0;
    __syncwarp();
    for (uint32_t s = lane; s < symbols; s += WARP)
        if (lengths[s])
            atomicAdd(&space->at_depth[lengths[s]], 1u);
    __syncwarp();
    if (lane == 0) {
        uint32_t code = 0;
        for (int bits = 1; bits <= DEFLATE_LIMIT; bits++) {
            space->next[bits] = code;
            code = (code + space->at_depth[bits]) << 1;
        }
    }
    __syncwarp();
    for (uint32_t first = 0; first < symbols; first += WARP) {
        uint32_t s = first + lane, length = s < symbols ? lengths[s] : 0;
        uint32_t equal = __match_any_sync(ALL_LANES, length);
        uint32_t code = space->next[length] + (uint32_t)__popc(equal & ((1u << lane) - 1));
        __syncwarp();
        if (s < symbols)
            codes[s] = deflate_reverse(code, length);
        if (equal >> lane == 1) // the last of them
            space->next[length] = code + 1;
        __syncwarp();
    }
}

#endif
