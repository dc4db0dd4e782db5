// SPDX-License-Identifier: MIT
// State shared by the threads of a block, which inflate one image together: shared memory, the
// stream and the position.
#ifndef CONV_PNG_CUDA_INFLATE_CUH
#define CONV_PNG_CUDA_INFLATE_CUH

#include <cuda_pipeline.h>

#include "png/cuda/cuda_decode.h"
#include "png/cuda/launches.cuh"
#include "png/cuda/lengths.cuh"
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

#endif
