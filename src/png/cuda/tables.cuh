// SPDX-License-Identifier: MIT
// Makes a DEFLATE block's tables from its head, with all threads of a block.
#ifndef CONV_PNG_CUDA_TABLES_CUH
#define CONV_PNG_CUDA_TABLES_CUH

#include "png/cuda/inflate.cuh"

// Sorts symbols by codeword. For one warp, which alone uses `sorting`. A lane takes a symbol; of
// the lanes whose codewords have the same length, the first one updates the counters. False, for
// all lanes, if zlib refuses such a code. The last step is a __syncwarp.
__device__ inline bool sort_code(struct code *code, uint16_t *sorted, struct sorting *sorting,
                                 const uint8_t *lengths, uint32_t symbols, bool sparse)
{
    uint32_t lane = threadIdx.x % LANES, below = (1u << lane) - 1;
    if (lane <= MOST_LENGTH)
        sorting->count[lane] = 0;
    __syncwarp();
    // All lanes take part in each round, because `symbols` is a multiple of 32.
    for (uint32_t s = lane; s < symbols; s += LANES) {
        uint32_t length = lengths[s], same = __match_any_sync(ALL_LANES, length);
        if (!(same & below))
            sorting->count[length] += (uint32_t)__popc(same);
        __syncwarp();
    }
    bool right = lane != 0 || fill_code(code, sorting->first, sorting->count, sparse);
    __syncwarp(); // makes lane 0's writes visible to the others
    if (!__all_sync(ALL_LANES, right))
        return false;
    for (uint32_t s = lane; s < symbols; s += LANES) {
        uint32_t length = lengths[s], same = __match_any_sync(ALL_LANES, length);
        uint32_t place = sorting->first[length] + (uint32_t)__popc(same & below);
        __syncwarp();
        if (length)
            sorted[place] = (uint16_t)s;
        if (length && !(same & below))
            sorting->first[length] += (uint32_t)__popc(same);
        __syncwarp();
    }
    return true;
}

// Assigns places to the second tables of long codewords. Called by one warp; a lane takes a prefix.
__device__ inline void link_prefixes(uint32_t *entries, const struct table &table)
{
    uint32_t lane = threadIdx.x % LANES, free = table.second;
    for (uint32_t first = first_prefix(&table); first < 1u << table.bits; first += LANES) {
        uint32_t prefix = first + lane;
        uint32_t more = prefix < 1u << table.bits ? prefix_bits(&table, prefix) : 0;
        uint32_t size = more ? 1u << more : 0, end = size;
        for (uint32_t step = 1; step < LANES; step *= 2) {
            uint32_t before = __shfl_sync(ALL_LANES, end, (int)(lane - step) & (LANES - 1));
            if (lane >= step)
                end += before;
        }
        if (size && free + end <= table.last) // always true: see LITLEN_ENTRIES
            link_prefix(entries, &table, prefix, more, free + end - size);
        free += __shfl_sync(ALL_LANES, end, LANES - 1);
    }
}

// Makes these second tables. Called by all threads; a warp takes a prefix.
template <int THREADS>
__device__ inline void fill_prefixes(uint32_t *entries, const struct table &table)
{
    for (uint32_t prefix = first_prefix(&table) + threadIdx.x / LANES; prefix < 1u << table.bits;
         prefix += THREADS / LANES)
        fill_prefix(entries, &table, prefix, threadIdx.x % LANES, LANES);
}

// Reads the lengths of the precode's codewords, one per lane, and makes its table where the block's
// entries will be. Called by the first warp.
template <int THREADS>
__device__ inline bool read_precode(struct block_memory<THREADS> &shared, struct bits *bits,
                                    uint32_t precodes)
{
    uint32_t lane = threadIdx.x, from = bits->at + 3 * lane;
    shared.making.lengths[lane] = 0;
    __syncwarp();
    if (lane < precodes)
        shared.making.lengths[precode_symbol(lane)] =
            (uint8_t)((shared.head[from / 32] >> from % 32 | (uint64_t)shared.head[from / 32 + 1]
                                                                 << (32 - from % 32)) &
                      7);
    __syncwarp();
    *bits = read_bits(shared.head, bits->at + 3 * precodes);
    struct code *code = &shared.making.litlen;
    uint16_t *sorted = shared.making.litlens;
    if (!sort_code(code, sorted, &shared.making.sorting[0], shared.making.lengths, LANES, false))
        return false;
    for (uint32_t i = lane; i < 1 << PRECODE_BITS; i += LANES)
        shared.entries[i] = find_symbol(code, sorted, i, 1, PRECODE_BITS);
    shared.making.lengths[lane] = 0;
    __syncwarp();
    return true;
}

// Bits of the list of lengths per lane. Codewords of the precode are short, so a lane that begins
// at a wrong bit soon synchronises.
#define LENGTHS_LANE_BITS 32

// Reads the lengths of all codewords, beginning at bit `at`; `limit` is the end of the head's
// memory. Each lane reads some of the items and guesses where they begin, as in inflate_window.cuh.
// False, for all lanes, if zlib refuses the head.
__device__ inline bool guess_lengths(const uint32_t *head, uint32_t *at, uint8_t *lengths,
                                     const uint32_t *precode, const struct length_counts *counts,
                                     uint32_t limit)
{
    uint32_t lane = threadIdx.x % LANES, below = (1u << lane) - 1;
    uint32_t total = counts->litlens + counts->distances;
    struct lengths_part before = {0, NO_LENGTH}; // what the rounds before this one have read
    while (before.done < total) {
        uint32_t first = min(*at + LENGTHS_LANE_BITS * lane, limit);
        uint32_t last = min(first + LENGTHS_LANE_BITS, limit), start = first;
        struct lengths_part own = {0, NO_LENGTH};
        struct bits bits = read_bits(head, start);
        bool wrong = true;
        do { // each round, at least one more lane begins at the right bit
            if (wrong) {
                own.done = 0;
                own.former = NO_LENGTH;
                bits = read_bits(head, start);
                count_lengths(&own, &bits, precode, last);
            }
            uint32_t end = __shfl_sync(ALL_LANES, bits.at, (int)(lane - 1) & (LANES - 1));
            wrong = lane > 0 && end != start;
            start = wrong ? end : start;
        } while (__ballot_sync(ALL_LANES, wrong));
        uint32_t sum = own.done;
        for (uint32_t step = 1; step < LANES; step *= 2) {
            uint32_t former = __shfl_sync(ALL_LANES, sum, (int)(lane - step) & (LANES - 1));
            if (lane >= step)
                sum += former;
        }
        uint32_t known = __ballot_sync(ALL_LANES, own.former != NO_LENGTH), nearest = known & below;
        uint32_t former = __shfl_sync(ALL_LANES, own.former, LANES - 1 - __clz((int)nearest));
        uint32_t latest = __shfl_sync(ALL_LANES, own.former, LANES - 1 - __clz((int)known));
        struct lengths_part part = {before.done + sum - own.done, nearest ? former : before.former};
        bits = read_bits(head, start);
        bool mine = part.done < total;
        bool right = !mine || read_lengths(&part, &bits, lengths, precode, counts, last);
        if (!__all_sync(ALL_LANES, right) || *at >= limit)
            return false;
        uint32_t ended = __ballot_sync(ALL_LANES, mine && part.done == total);
        *at = __shfl_sync(ALL_LANES, bits.at, ended ? __ffs((int)ended) - 1 : LANES - 1);
        before.done += __shfl_sync(ALL_LANES, sum, LANES - 1);
        before.former = known ? latest : before.former;
        if (ended)
            break;
    }
    __syncwarp();
    return lengths[END_OF_BLOCK] != 0;
}

// Reads the lengths of all codewords to shared.making.lengths, which is all zeros. Called by the
// first warp. *at is the bit of the stage after the block's type and, on return, after its head.
// False if zlib refuses the head.
template <int THREADS>
__device__ inline bool read_dynamic(struct block_memory<THREADS> &shared, uint32_t *at)
{
    struct bits bits = read_bits(shared.head, *at);
    struct length_counts counts;
    if (!read_length_counts(&bits, &counts) || !read_precode(shared, &bits, counts.precodes))
        return false;
    *at = bits.at;
    return guess_lengths(shared.head, at, shared.making.lengths, shared.entries, &counts,
                         32 * (HEAD_WORDS - 3));
}

// Reads the lengths of all codewords of a block of type 1 or 2 to shared.making.lengths. Its head
// is on the stage, and *at is the bit after its type. Returns CONV_DECODE_DECODED or
// CONV_DECODE_CODE to all threads, with the place of the first symbol in *at.
template <int THREADS>
__device__ inline uint32_t read_codes(struct block_memory<THREADS> &shared, bool fixed,
                                      uint32_t *at)
{
    for (uint32_t i = threadIdx.x; i < LITLENS + DISTANCES; i += THREADS)
        shared.making.lengths[i] = fixed ? (uint8_t)fixed_length(i) : 0;
    if (threadIdx.x == 0)
        shared.agreed.result = CONV_DECODE_DECODED;
    __syncthreads();
    if (threadIdx.x < LANES && !fixed) {
        uint32_t after = *at;
        bool right = read_dynamic(shared, &after);
        if (threadIdx.x == 0) {
            shared.agreed.at = after;
            if (!right)
                shared.agreed.result = CONV_DECODE_CODE;
        }
    }
    __syncthreads();
    if (!fixed)
        *at = shared.agreed.at;
    return shared.agreed.result;
}

// Makes the tables of the codes whose lengths are in shared.making. Called by all threads after a
// barrier, and ends with one. CONV_DECODE_DECODED or CONV_DECODE_CODE.
template <int THREADS> __device__ inline uint32_t make_tables(struct block_memory<THREADS> &shared)
{
    bool right = true;
    struct making *making = &shared.making;
    if (threadIdx.x < LANES)
        right = sort_code(&making->litlen, making->litlens, &making->sorting[0], making->lengths,
                          LITLENS, true);
    else if (threadIdx.x < 2 * LANES)
        right = sort_code(&making->distance, making->distances, &making->sorting[1],
                          making->lengths + LITLENS, DISTANCES, true);
    if (__syncthreads_or(!right))
        return CONV_DECODE_CODE;
    const struct table litlen = litlen_table(&making->litlen, making->litlens);
    const struct table distance = distance_table(&making->distance, making->distances);
    for (uint32_t i = threadIdx.x; i < 1 << LITLEN_BITS; i += THREADS)
        shared.entries[i] = make_entry(&litlen, i, 0, LITLEN_BITS);
    for (uint32_t i = threadIdx.x; i < 1 << DISTANCE_BITS; i += THREADS)
        shared.entries[DISTANCES_BEGIN + i] = make_entry(&distance, i, 0, DISTANCE_BITS);
    __syncthreads();
    // Joining reads other entries, so none is replaced before all are joined.
    uint32_t joined[(1 << LITLEN_BITS) / THREADS];
#pragma unroll
    for (uint32_t i = 0; i < (1 << LITLEN_BITS) / THREADS; i++) {
        joined[i] = join_entries(shared.entries, i * THREADS + threadIdx.x);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < (1 << LITLEN_BITS) / THREADS; i++)
        shared.entries[i * THREADS + threadIdx.x] = joined[i];
    __syncthreads();
    if (threadIdx.x < LANES)
        link_prefixes(shared.entries, litlen);
    else if (threadIdx.x < 2 * LANES)
        link_prefixes(shared.entries, distance);
    __syncthreads();
    fill_prefixes<THREADS>(shared.entries, litlen);
    fill_prefixes<THREADS>(shared.entries, distance);
    __syncthreads();
    return CONV_DECODE_DECODED;
}

#endif
