// SPDX-License-Identifier: MIT
// The codes of a deflate block, from the counts of its tokens, and its header, ready to be sent.
// One warp per block.
#include "png/cuda/encode_internal.cuh"
#include "png/cuda/huffman.cuh"

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

__device__ inline uint32_t sum_lanes(uint32_t value)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
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

// The order in which the lengths of the items' code are sent.
__device__ inline uint32_t item_order(uint32_t i)
{
    // 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1 15
    return i < 3 ? 16 + i : i == 3 ? 0 : i % 2 ? 8 - (i - 3) / 2 : 8 + (i - 4) / 2;
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

    uint32_t order = lane < DEFLATE_LENGTH_SYMBOLS ? item_order(lane) : 0;
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
