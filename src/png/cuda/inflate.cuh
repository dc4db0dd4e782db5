// SPDX-License-Identifier: MIT
// State shared by the threads of a block, which inflate one image together: shared memory, the
// stream and the position; and the tables of a DEFLATE block, which they make together.
#pragma once

#include <cuda_pipeline.h>

#include "png/cuda/cuda_png.h"
#include "png/cuda/launches.cuh"
#include "png/cuda/symbols.cuh"

#define LANES 32
#define FILTERS 5
#define ALL_LANES 0xffffffffu

// Words after the last thread's bits: its last match may begin there, and two words are read ahead.
#define STAGE_SLACK 4

// States of an output byte:
//   0 to 0x7fff     as a token: a match begins here, whose distance is 1 more; later: the byte is
//                   the same as the one at this place of the window
//   0x8000 + byte   the byte
//   INSIDE          nothing yet: within a match, or not in the window
#define LITERAL 0x8000u
#define INSIDE 0xffffu
#define INSIDE_TWICE 0xffffffffu

// Bytes of the output that are written at once, and places of the window for them.
#define WINDOW_ALIGN 8

// Results of one thread for all threads, written before a barrier and read after it.
#define PARTS_STOPPED UINT32_MAX // in place of a number of parts: the host has set d_stop
struct agreement {
    uint32_t at, bytes, stop, parts, result;
};

// Per length of codewords: their number, and the index of the first one in the sorted table.
struct sorting {
    uint32_t count[MOST_LENGTH + 1], first[MOST_LENGTH + 1];
};

// Used only while tables are made.
struct making {
    struct code litlen, distance;
    uint16_t litlens[LITLENS], distances[DISTANCES]; // sorted by codeword
    struct sorting sorting[2];
    uint8_t lengths[LITLENS + DISTANCES];
};

// The longest head of a block: 17 bits, 19 lengths of 3 bits, 316 lengths of 14 bits, and 31 bits
// before it in its word; two words are read ahead.
#define HEAD_WORDS 146

#define SHARE_BITS 17 // for the position of a bit of the stage

template <int THREADS> struct block_memory {
    // Shares per part: a part is counted by one thread, and its symbols are stored by one thread
    // per share. Longer parts need fewer corrections, but leave more threads idle while parts are
    // counted. Half of the threads then write the previous window.
    static constexpr int SHARES = 2;
    // Bits of input per share, limited by shared memory and by SHARE_BITS.
    static constexpr uint32_t SHARE_MOST = THREADS < 512 ? 280 : 248;
    static_assert(THREADS * THREAD_ROOM % (4 * LANES) == 0, "refer() stays within the window");
    static_assert(32 + THREADS * SHARE_MOST + 64 < 1 << SHARE_BITS, "the bits fit");
    alignas(16) uint2 window[THREADS * THREAD_ROOM / 4]; // four places each
    union {
        uint32_t stage[THREADS * SHARE_MOST / 32 + STAGE_SLACK]; // input
        struct {
            uint32_t head[HEAD_WORDS]; // input as well
            struct making making;
        };
    };
    uint32_t entries[ENTRIES]; // literals and lengths, then distances
    uint32_t ends[2][THREADS / LANES], sums[2][THREADS / LANES]; // one per warp
    uint32_t shares[THREADS + 1]; // per thread: bytes before its share << SHARE_BITS | first bit
    struct agreement agreed;
};

// The address from which the inflate kernel reads whether an image has been decoded in parts.
__device__ __forceinline__ uint32_t *result_of(const struct conv_decode_image &image)
{
    return (uint32_t *)(image.d_rows + conv_decode_result_at(image.rows_bytes));
}

// The compressed bytes as aligned words: the first byte is at bit 8 * lead.
struct stream {
    const uint32_t *words;
    uint32_t lead, bytes; // bytes of the first word before the stream; bytes of the stream
    uint32_t end;         // the bit after the last one of the DEFLATE data
};

__device__ __forceinline__ uint32_t stream_byte(const struct stream &stream, uint32_t i)
{
    return ((const uint8_t *)stream.words)[stream.lead + i];
}

// Returns zeros outside of the stream; no byte outside of it is accessed.
__device__ __forceinline__ uint32_t stream_word(const struct stream &stream, uint32_t i)
{
    int32_t first = (int32_t)(4 * i) - (int32_t)stream.lead;
    if (first >= 0 && (uint32_t)first + 4 <= stream.bytes)
        return stream.words[i];
    uint32_t word = 0;
    for (int b = 0; b < 4; b++)
        if (first + b >= 0 && (uint32_t)(first + b) < stream.bytes)
            word |= stream_byte(stream, (uint32_t)(first + b)) << 8 * b;
    return word;
}

#define LINE_WORDS 32 // of the second-level cache
__device__ __forceinline__ void prefetch_line(const uint32_t *words)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(words));
}

// Copies `count` words, from that of bit `at` on, to the stage. They are valid after the next
// barrier; the previous ones must not be read any more.
template <int THREADS>
__device__ inline void fill_stage(struct block_memory<THREADS> &shared, const struct stream &stream,
                                  uint32_t at, uint32_t count)
{
    uint32_t first = at / 32, last = (stream.lead + stream.bytes) / 4 - 1;
    if (4 * first >= stream.lead && 4 * (first + count) <= stream.lead + stream.bytes) {
        for (uint32_t i = threadIdx.x; i < count; i += THREADS) // these loads overlap
            __pipeline_memcpy_async(shared.stage + i, stream.words + first + i, sizeof(uint32_t));
        __pipeline_commit();
        // The next window may need the words after these: prefetch them.
        for (uint32_t i = threadIdx.x; LINE_WORDS * i < count; i += THREADS)
            prefetch_line(stream.words + min(first + count + LINE_WORDS * i, last));
        __pipeline_wait_prior(0);
        return;
    }
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        shared.stage[i] = stream_word(stream, first + i);
}

// Words of input for a window whose first part begins at bit `at` of the stage.
template <int THREADS>
__device__ __forceinline__ uint32_t stage_words(uint32_t at, uint32_t part_bits)
{
    return (at + THREADS / block_memory<THREADS>::SHARES * part_bits) / 32 + STAGE_SLACK;
}

// The sum of `value` over the threads before this one; *total over all. Contains a barrier;
// sums[turn] is free again after the next one.
template <int THREADS>
__device__ inline uint32_t sum_before(struct block_memory<THREADS> &shared, uint32_t value,
                                      int turn, uint32_t *total)
{
    uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, sum = value;
    for (uint32_t step = 1; step < LANES; step *= 2) {
        uint32_t before = __shfl_sync(ALL_LANES, sum, (int)(lane - step) & (LANES - 1));
        if (lane >= step)
            sum += before;
    }
    if (lane == LANES - 1)
        shared.sums[turn][warp] = sum;
    __syncthreads();
    uint32_t all = 0, earlier = 0;
    for (uint32_t w = 0; w < THREADS / LANES; w++) {
        earlier += w < warp ? shared.sums[turn][w] : 0;
        all += shared.sums[turn][w];
    }
    *total = all;
    return earlier + sum - value;
}

// --- a block's tables ----------------------------------------------------------------------------

// Makes a DEFLATE block's tables from its head, with all threads of a block.

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
