// SPDX-License-Identifier: MIT
// The codes of a deflate block, from the counts of its tokens, and its header, ready to be sent.
// One warp per block.
#include "png/cuda/encode_internal.cuh"
#include "png/cuda/symbols.cuh"

// --- codes ---------------------------------------------------------------------------------------

// A length-limited Huffman code, made by one warp: the symbols are sorted in registers (a bitonic
// network), one lane joins the two lightest nodes repeatedly, all lanes find the depths by jumping
// from parent to parent, and lengths beyond the limit are corrected (deflate.cuh).

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

// --- kernels -------------------------------------------------------------------------------------

// The codes of a deflate block, from the counts of its tokens, and its header, ready to be sent.
// One warp per block.

#define WARPS 4
#define LENGTHS (DEFLATE_LITLENS + DISTANCES_MOST) // of literals and lengths, then of distances
#define LENGTH_WORDS ((LENGTHS + WARP - 1) / WARP)
#define FIXED_DISTANCE_BITS 5

struct space {
    struct huffman_space huffman;
    uint32_t count[MOST_SYMBOLS];
    uint32_t length[LENGTHS];
    uint32_t code[MOST_SYMBOLS];
    uint32_t starts[LENGTH_WORDS]; // a bit where a length differs from the one before it
    uint32_t item_count[DEFLATE_LENGTH_SYMBOLS];
    uint32_t item_length[DEFLATE_LENGTH_SYMBOLS];
    uint32_t item_code[DEFLATE_LENGTH_SYMBOLS];
    uint32_t header[HEADER_WORDS];
};

// Two distances have codes, of one bit each: 1, and the one of a pixel. Without the second one the
// code would be incomplete, so images of one byte per pixel have a code for 2, which is never sent.
struct pixel_distance {
    uint32_t symbol, extra_bits, extra;
};

__device__ inline struct pixel_distance find_pixel_distance(const struct conv_encode_image &image)
{
    struct pixel_distance pixel;
    pixel.symbol =
        deflate_distance_symbol(max(pixel_bytes(image), 2u), &pixel.extra_bits, &pixel.extra);
    return pixel;
}

// From counts of tokens to counts of symbols.
__device__ inline void count_symbols(struct space *space, const struct encode_block *block)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t s = lane; s < MOST_SYMBOLS; s += WARP)
        space->count[s] = s < COUNT_RUN ? block->count[s] : s == DEFLATE_END;
    __syncwarp();
    for (uint32_t i = lane; i < RUN_LENGTHS; i += WARP) {
        uint32_t count = block->count[COUNT_RUN + i], extra_bits, extra;
        if (count)
            atomicAdd(&space->count[deflate_length_symbol(RUN_LEAST + i, &extra_bits, &extra)],
                      count);
    }
    __syncwarp();
}

// --- the header ----------------------------------------------------------------------------------

// Writes bits to words in which they are 0.
__device__ inline void put_bits(uint32_t *words, uint32_t at, uint32_t value, uint32_t bits)
{
    if (bits == 0)
        return;
    atomicOr(&words[at / 32], value << at % 32);
    if (at % 32 + bits > 32)
        atomicOr(&words[at / 32 + 1], value >> (32 - at % 32));
}

// The begin and the end of the run of equal lengths that contains place i.
__device__ inline void find_run(const struct space *space, uint32_t i, uint32_t count,
                                uint32_t *begin, uint32_t *end)
{
    uint32_t word = i / WARP, bits = space->starts[word] & ~0u >> (WARP - 1 - i % WARP);
    while (bits == 0)
        bits = space->starts[--word];
    *begin = word * WARP + WARP - 1 - (uint32_t)__clz((int)bits);
    word = i / WARP;
    bits = space->starts[word] & (i % WARP == WARP - 1 ? 0 : ~0u << (i % WARP + 1));
    while (bits == 0 && ++word < LENGTH_WORDS)
        bits = space->starts[word];
    *end = bits ? min(word * WARP + (uint32_t)__ffs((int)bits) - 1, count) : count;
}

__device__ inline void mark_starts(struct space *space, uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t word = 0; word < LENGTH_WORDS; word++) {
        uint32_t i = word * WARP + lane;
        bool starts = i < count && (i == 0 || space->length[i] != space->length[i - 1]);
        uint32_t bits = __ballot_sync(ALL_LANES, starts);
        if (lane == 0)
            space->starts[word] = bits;
    }
    __syncwarp();
}

__device__ inline uint32_t item_at(const struct space *space, uint32_t i, uint32_t count,
                                   uint32_t *extra_bits, uint32_t *extra)
{
    *extra_bits = *extra = 0;
    if (i >= count)
        return DEFLATE_ITEM_NONE;
    uint32_t begin, end;
    find_run(space, i, count, &begin, &end);
    return deflate_length_item(space->length[i], i - begin, end - begin, extra_bits, extra);
}

// Writes the header of a block with codes of its own to space->header; returns its bits.
__device__ inline uint32_t make_header(struct space *space, uint32_t pixel_symbol, bool last)
{
    uint32_t lane = threadIdx.x % WARP, distances = pixel_symbol + 1;
    // The number of literals and lengths to send: up to the last one in use, at least 256.
    uint32_t used = DEFLATE_END + 1;
    for (uint32_t s = used + lane; s < DEFLATE_LITLENS; s += WARP)
        if (space->length[s])
            used = s + 1;
    for (int step = WARP / 2; step > 0; step /= 2)
        used = max(used, __shfl_xor_sync(ALL_LANES, used, step));
    uint32_t count = used + distances;
    __syncwarp();         // all lanes have read
    if (lane < distances) // in the place of symbols that are unused, or after the last one
        space->length[used + lane] = lane == 0 || lane == pixel_symbol;
    if (lane < DEFLATE_LENGTH_SYMBOLS)
        space->item_count[lane] = 0;
    for (uint32_t i = lane; i < HEADER_WORDS; i += WARP)
        space->header[i] = 0;
    __syncwarp();

    mark_starts(space, count);
    uint32_t extra_bits, extra;
    for (uint32_t i = lane; i < count; i += WARP) {
        uint32_t item = item_at(space, i, count, &extra_bits, &extra);
        if (item != DEFLATE_ITEM_NONE)
            atomicAdd(&space->item_count[item], 1u);
    }
    __syncwarp();
    make_lengths<1>(&space->huffman, space->item_length, space->item_count, DEFLATE_LENGTH_SYMBOLS,
                    DEFLATE_LENGTH_LIMIT);
    make_codes(&space->huffman, space->item_code, space->item_length, DEFLATE_LENGTH_SYMBOLS);

    uint32_t order = lane < DEFLATE_LENGTH_SYMBOLS ? precode_symbol(lane) : 0;
    uint32_t length = lane < DEFLATE_LENGTH_SYMBOLS ? space->item_length[order] : 0;
    uint32_t items = max(WARP - (uint32_t)__clz((int)__ballot_sync(ALL_LANES, length > 0)), 4u);
    if (lane == 0)
        put_bits(space->header, 0,
                 (last ? 1u : 0u) | 2u << 1 | (used - 257) << 3 | pixel_symbol << 8 |
                     (items - 4) << 13,
                 17);
    if (lane < items)
        put_bits(space->header, 17 + 3 * lane, length, 3);
    uint32_t at = 17 + 3 * items;
    for (uint32_t first = 0; first < count; first += WARP) {
        uint32_t item = item_at(space, first + lane, count, &extra_bits, &extra);
        uint32_t code_bits = item != DEFLATE_ITEM_NONE ? space->item_length[item] : 0;
        uint32_t bits = code_bits + extra_bits, until = bits;
        for (int step = 1; step < WARP; step *= 2) {
            uint32_t below = __shfl_up_sync(ALL_LANES, until, step);
            until += lane >= (uint32_t)step ? below : 0;
        }
        if (bits)
            put_bits(space->header, at + until - bits, space->item_code[item] | extra << code_bits,
                     bits);
        at += __shfl_sync(ALL_LANES, until, WARP - 1);
    }
    __syncwarp(); // all lanes have read
    if (lane < distances)
        space->length[used + lane] = 0;
    __syncwarp();
    return at;
}

// --- the choice ----------------------------------------------------------------------------------

// Bits of all symbols, the header's and extra bits excluded, with its own codes and with the fixed
// ones.
__device__ inline void measure(const struct space *space, uint32_t *own, uint32_t *fixed)
{
    uint32_t of_own = 0, of_fixed = 0;
    for (uint32_t s = threadIdx.x % WARP; s < DEFLATE_LITLENS; s += WARP) {
        uint32_t distance = s > DEFLATE_END ? 1 : 0;
        of_own += space->count[s] * (space->length[s] + distance);
        of_fixed += space->count[s] * (deflate_fixed_bits(s) + distance * FIXED_DISTANCE_BITS);
    }
    *own = sum_lanes(of_own);
    *fixed = sum_lanes(of_fixed);
}

// Stores the table of the codes with which the block is sent. Distance 1 has zeros only.
__device__ inline void store_entries(const struct space *space, struct encode_block *block,
                                     const struct pixel_distance &pixel, bool fixed)
{
    uint32_t lane = threadIdx.x % WARP, distance_bits = fixed ? FIXED_DISTANCE_BITS : 1;
    for (uint32_t token = lane; token <= TOKEN_END; token += WARP)
        block->entry[token] = space->code[token] | space->length[token] << ENTRY_SHIFT;
    uint32_t code = fixed ? deflate_reverse(pixel.symbol, FIXED_DISTANCE_BITS) : 1;
    uint32_t of_pixel = code | pixel.extra << distance_bits;
    for (uint32_t i = lane; i < RUN_LENGTHS; i += WARP) {
        uint32_t extra_bits, extra;
        uint32_t symbol = deflate_length_symbol(RUN_LEAST + i, &extra_bits, &extra);
        uint32_t bits = space->length[symbol], value = space->code[symbol] | extra << bits;
        bits += extra_bits;
        block->entry[TOKEN_NEAR + i] = value | (bits + distance_bits) << ENTRY_SHIFT;
        block->entry[TOKEN_PIXEL + i] =
            value | of_pixel << bits | (bits + distance_bits + pixel.extra_bits) << ENTRY_SHIFT;
    }
}

// 4 warps per block of threads, one deflate block per warp.
static __global__ void __launch_bounds__(WARPS *WARP, 6)
    codes(const struct encode_scratch scratch, uint32_t blocks)
{
    __shared__ struct space spaces[WARPS];
    struct space *space = &spaces[threadIdx.x / WARP];
    uint32_t lane = threadIdx.x % WARP, index = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (index >= blocks)
        return;
    const struct conv_encode_image *images = scratch.images;
    int at = find_last(scratch.count, index, [&](int i) { return images[i].first_block; });
    bool last = index + 1 - images[at].first_block == images[at].blocks;
    struct encode_block *block = &scratch.blocks[index];

    struct pixel_distance pixel = find_pixel_distance(images[at]);
    count_symbols(space, block);
    make_lengths<16>(&space->huffman, space->length, space->count, MOST_SYMBOLS, DEFLATE_LIMIT);
    uint32_t header_bits = make_header(space, pixel.symbol, last), own, fixed;
    measure(space, &own, &fixed);
    bool is_fixed = fixed + 3 < own + header_bits;
    if (is_fixed) {
        __syncwarp();                                        // all lanes have measured
        for (uint32_t s = lane; s < MOST_SYMBOLS; s += WARP) // with the two that are never sent
            space->length[s] = deflate_fixed_bits(s);
        if (lane == 0)
            space->header[0] = (last ? 1u : 0u) | 1u << 1;
        header_bits = 3;
        __syncwarp();
    }
    make_codes(&space->huffman, space->code, space->length, MOST_SYMBOLS);
    __syncwarp();
    store_entries(space, block, pixel, is_fixed);
    for (uint32_t i = lane; i < (header_bits + 31) / 32; i += WARP)
        block->header[i] = space->header[i];
    if (lane == 0)
        block->header_bits = header_bits;
}

void conv_encode_codes(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream)
{
    codes<<<(blocks + WARPS - 1) / WARPS, WARPS * WARP, 0, stream>>>(scratch, blocks);
}
