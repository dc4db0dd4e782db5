// SPDX-License-Identifier: MIT
// Runs: pieces of rows at any address, moved between global and shared memory by a warp in aligned
// words of 16 bytes. Bytes outside the run are not touched in global memory.
#ifndef CONV_KERNELS_LAYOUT_CUDA_LAYOUT_RUN_CUH
#define CONV_KERNELS_LAYOUT_CUDA_LAYOUT_RUN_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define WARP 32
// Shared memory of a warp. Units of a tile have at most 32 * 64 bytes, a run of each row up to 30
// more for its alignment, in whole words: with one unit per row, 32 * 80 bytes. A read of a cut
// unit ends at most 64 + 4 bytes after its run.
#define RUN_MEMORY (32 * 80 + 80)

// The position of a run's first byte within 16 bytes is the same as in global memory.
__device__ inline int run_phase(const uint8_t *from)
{
    return (int)((uintptr_t)from % 16);
}

template <int WORDS> __device__ inline void load_words(uint32_t *words, const uint8_t *from)
{
    if (WORDS == 4) {
        uint4 all = *(const uint4 *)from;
        words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else if (WORDS == 2) {
        uint2 all = *(const uint2 *)from;
        words[0] = all.x, words[1] = all.y;
    } else {
        words[0] = *(const uint32_t *)from;
    }
}

template <int WORDS> __device__ inline void store_words(uint8_t *to, const uint32_t *words)
{
    if (WORDS == 4)
        *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
    else if (WORDS == 2)
        *(uint2 *)to = make_uint2(words[0], words[1]);
    else
        *(uint32_t *)to = words[0];
}

// Reads WORDS words from any byte of shared memory, which begins at a multiple of 16, and the word
// after them.
template <int WORDS> __device__ inline void read_run(uint32_t *words, const uint8_t *shared, int at)
{
    if (WORDS % 4 == 0 && at % 16 == 0) {
#pragma unroll
        for (int i = 0; i < WORDS / 4; i++)
            load_words<4>(words + 4 * i, shared + at + 16 * i);
        return;
    }
    const uint32_t *from = (const uint32_t *)(shared + at / 4 * 4);
    uint32_t shift = (uint32_t)at % 4 * 8, low = from[0];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        uint32_t high = from[i + 1];
        words[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

// Word `index` of the runs of a tile.
struct run_word {
    const uint8_t *row; // its run's first byte in global memory
    int in_tile;        // the row
    int word;           // in the row, from the aligned address before the run on
    int begin;          // its first byte relative to the run; may be negative
    bool inside, whole; // belongs to a run, entirely
};

__device__ inline struct run_word find_run_word(const uint8_t *global, int64_t stride, int rows,
                                                int bytes, int words_per_row, int index)
{
    struct run_word found;
    found.in_tile = rows == 1 ? 0 : index / words_per_row;
    found.word = index - found.in_tile * words_per_row;
    found.row = global + found.in_tile * stride;
    found.begin = 16 * found.word - run_phase(found.row);
    found.inside = index < rows * words_per_row && found.begin < bytes;
    found.whole = found.inside && found.begin >= 0 && found.begin + 16 <= bytes;
    return found;
}

// Words of 16 bytes that a run of `bytes` touches, at most.
__device__ inline int words_of_run(int bytes)
{
    return (bytes + 30) / 16;
}

// Copies `rows` runs of `bytes` bytes from global memory, `stride` bytes apart; returns the bytes
// from a run to the next in shared memory, where byte b of a run is at run_phase + b. ROUNDS * 32
// words are enough for all runs: tiles of 32 units of 16 * (ROUNDS - 1) bytes or less.
template <int ROUNDS>
__device__ inline int run_in(uint8_t *shared, const uint8_t *global, int64_t stride, int rows,
                             int bytes)
{
    int lane = (int)(threadIdx.x % WARP), words = words_of_run(bytes);
    uint4 value[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        struct run_word at = find_run_word(global, stride, rows, bytes, words, lane + WARP * i);
        if (at.whole)
            value[i] = *(const uint4 *)(at.row + at.begin);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        struct run_word at = find_run_word(global, stride, rows, bytes, words, lane + WARP * i);
        uint8_t *to = shared + (at.in_tile * words + at.word) * 16;
        if (at.whole)
            *(uint4 *)to = value[i];
        else if (at.inside)
            for (int b = max(at.begin, 0); b < min(at.begin + 16, bytes); b++)
                to[b - at.begin] = at.row[b];
    }
    return words * 16;
}

// Copies runs to global memory from shared memory, where each begins at a multiple of `pitch`, a
// multiple of 16. ROUNDS as above.
template <int ROUNDS>
__device__ inline void run_out(uint8_t *global, int64_t stride, const uint8_t *shared, int pitch,
                               int rows, int bytes)
{
    int lane = (int)(threadIdx.x % WARP), words = words_of_run(bytes);
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        struct run_word at = find_run_word(global, stride, rows, bytes, words, lane + WARP * i);
        uint8_t *to = (uint8_t *)at.row;
        const uint8_t *from = shared + at.in_tile * pitch;
        if (at.whole) {
            uint32_t value[4];
            read_run<4>(value, from, at.begin);
            *(uint4 *)(to + at.begin) = make_uint4(value[0], value[1], value[2], value[3]);
        } else if (at.inside) {
            for (int b = max(at.begin, 0); b < min(at.begin + 16, bytes); b++)
                to[b] = from[b];
        }
    }
}

#endif
