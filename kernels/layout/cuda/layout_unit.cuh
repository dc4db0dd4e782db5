// SPDX-License-Identifier: MIT
// Units of an image row: reads one from any layout into registers, by channel, and writes one to
// any layout. A unit has as many pixels as fit into 16 bytes of a channel; each lane of a warp
// holds one.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/layout/layout.h"

// --- runs ----------------------------------------------------------------------------------------

// Runs: pieces of rows at any address, moved between global and shared memory by a warp in aligned
// words of 16 bytes. Bytes outside the run are not touched in global memory.

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

// -------------------------------------------------------------------------------------------------

#define CHANNELS CONV_LAYOUT_MAX_CHANNELS

// How the samples of a view are accessed.
enum access {
    ACCESS_PLANES,  // units of planes, aligned
    ACCESS_RUNS,    // rows of planes at any address
    ACCESS_PACKED,  // channels of a pixel one after another, pixels without gaps
    ACCESS_STRIDED, // sample by sample
};

struct job_view {
    uint8_t *channel[CHANNELS];
    int64_t row, column;
    uint8_t channels, access;
    bool padded;
};

// --- samples of a unit ---------------------------------------------------------------------------

template <int SRC, int DST> struct unit {
    static constexpr int PIXELS = 16 / (SRC > DST ? SRC : DST);
    static constexpr int SRC_WORDS = PIXELS * SRC / 4, DST_WORDS = PIXELS * DST / 4;
};

// The unit that a lane works on.
struct place {
    int row;      // of the tile
    int64_t x, y; // first pixel of the unit
    int pixels;   // of the unit within the image; 0: none
    int64_t first_x, first_y;
    int rows, run_pixels; // of the whole tile
    int unit;             // in the tile's row
};

template <int BYTES> __device__ inline uint32_t get_sample(const uint32_t *words, int i)
{
    if (BYTES == 4)
        return words[i];
    return words[i * BYTES / 4] >> (8 * (i * BYTES % 4)) & (BYTES == 1 ? 0xffu : 0xffffu);
}

// The words must be 0 before.
template <int BYTES> __device__ inline void put_sample(uint32_t *words, int i, uint32_t value)
{
    words[i * BYTES / 4] |= value << (8 * (i * BYTES % 4));
}

template <int BYTES> __device__ inline uint32_t load_sample(const uint8_t *at)
{
    return BYTES == 1 ? *at : BYTES == 2 ? *(const uint16_t *)at : *(const uint32_t *)at;
}

template <int BYTES> __device__ inline void store_sample(uint8_t *at, uint32_t value)
{
    if (BYTES == 1)
        *at = (uint8_t)value;
    else if (BYTES == 2)
        *(uint16_t *)at = (uint16_t)value;
    else
        *(uint32_t *)at = value;
}

template <int SRC, int DST> __device__ inline uint32_t convert_sample(uint32_t value)
{
    if (DST == 4 && SRC < 4)
        return __float_as_uint((float)value);
    if (SRC == 2 && DST == 1)
        return (value + 128) / 257;
    return SRC == 1 && DST == 2 ? value * 257 : value;
}

// Words of a unit of one channel from those of a packed unit, and back: sample i of channel c is
// sample i * COUNT + c there. All indices are constants once the loops are unrolled.
template <int BYTES, int COUNT, int WORDS>
__device__ inline void split_channel(uint32_t *channel, const uint32_t *packed, int c)
{
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        int i = w * 4 / BYTES * COUNT + c; // the word's first sample
        if (BYTES == 4) {
            channel[w] = packed[i];
        } else if (BYTES == 2) {
            int j = i + COUNT;
            channel[w] = __byte_perm(packed[i / 2], packed[j / 2],
                                     (i % 2 ? 0x32 : 0x10) | (j % 2 ? 0x7600 : 0x5400));
        } else {
            int j = i + COUNT, k = j + COUNT, l = k + COUNT;
            uint32_t low = __byte_perm(packed[i / 4], packed[j / 4], i % 4 | (4 + j % 4) << 4);
            uint32_t high = __byte_perm(packed[k / 4], packed[l / 4], k % 4 | (4 + l % 4) << 4);
            channel[w] = __byte_perm(low, high, 0x5410);
        }
    }
}

template <int BYTES, int COUNT, int WORDS>
__device__ inline void join_channels(uint32_t *packed, const uint32_t (*channels)[WORDS])
{
#pragma unroll
    for (int w = 0; w < WORDS * COUNT; w++) {
        uint32_t part[4]; // the word that holds each sample of the packed word
        int at[4];        // the sample's place in it
#pragma unroll
        for (int i = 0; i < 4 / BYTES; i++) {
            int sample = w * 4 / BYTES + i, c = sample % COUNT, in_channel = sample / COUNT;
            part[i] = channels[c][in_channel * BYTES / 4];
            at[i] = in_channel * BYTES % 4;
        }
        if (BYTES == 4) {
            packed[w] = part[0];
        } else if (BYTES == 2) {
            packed[w] =
                __byte_perm(part[0], part[1], (at[0] ? 0x32 : 0x10) | (at[1] ? 0x7600 : 0x5400));
        } else {
            uint32_t low = __byte_perm(part[0], part[1], at[0] | (4 + at[1]) << 4);
            uint32_t high = __byte_perm(part[2], part[3], at[2] | (4 + at[3]) << 4);
            packed[w] = __byte_perm(low, high, 0x5410);
        }
    }
}

// --- reading -------------------------------------------------------------------------------------

template <int BYTES, int WORDS>
__device__ inline void load_samples(uint32_t *words, const struct job_view &view, int c,
                                    const struct place &place)
{
    const uint8_t *from = view.channel[c] + place.y * view.row + place.x * view.column;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        words[w] = 0;
#pragma unroll
    for (int i = 0; i < WORDS * 4 / BYTES; i++)
        if (i < place.pixels)
            put_sample<BYTES>(words, i, load_sample<BYTES>(from + i * view.column));
}

template <int BYTES, int WORDS>
__device__ inline void load_plane(uint32_t *words, const struct job_view &view, int c,
                                  const struct place &place)
{
    if (place.pixels == WORDS * 4 / BYTES || (place.pixels > 0 && view.padded))
        load_words<WORDS>(words, view.channel[c] + place.y * view.row + place.x * BYTES);
    else
        load_samples<BYTES, WORDS>(words, view, c, place);
}

template <int BYTES, int WORDS>
__device__ inline void load_run(uint32_t *words, const struct job_view &view, int c,
                                const struct place &place, uint8_t *shared)
{
    const uint8_t *from =
        view.channel[c] + place.first_y * view.row + place.first_x * (int64_t)BYTES;
    int pitch = run_in<2>(shared, from, view.row, place.rows, place.run_pixels * BYTES);
    __syncwarp();
    if (place.pixels > 0)
        read_run<WORDS>(words, shared + place.row * pitch,
                        run_phase(from + place.row * view.row) + place.unit * WORDS * 4);
    __syncwarp();
}

template <int BYTES, int WORDS, int COUNT>
__device__ inline void load_packed(uint32_t (*channels)[WORDS], const struct job_view &view,
                                   const struct place &place, uint8_t *shared)
{
    const uint8_t *from =
        view.channel[0] + place.first_y * view.row + place.first_x * (int64_t)(BYTES * COUNT);
    int pitch =
        run_in<COUNT + 1>(shared, from, view.row, place.rows, place.run_pixels * BYTES * COUNT);
    __syncwarp();
    if (place.pixels > 0) {
        uint32_t packed[WORDS * COUNT];
        read_run<WORDS * COUNT>(packed, shared + place.row * pitch,
                                run_phase(from + place.row * view.row) +
                                    place.unit * WORDS * COUNT * 4);
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            split_channel<BYTES, COUNT, WORDS>(channels[c], packed, c);
    }
    __syncwarp();
}

template <int BYTES, int WORDS>
__device__ inline void load_unit(uint32_t (*channels)[WORDS], const struct job_view &view,
                                 const struct place &place, uint8_t *shared)
{
    if (view.access == ACCESS_PACKED) {
        if (view.channels == 2)
            load_packed<BYTES, WORDS, 2>(channels, view, place, shared);
        else if (view.channels == 3)
            load_packed<BYTES, WORDS, 3>(channels, view, place, shared);
        else
            load_packed<BYTES, WORDS, 4>(channels, view, place, shared);
        return;
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        if (c >= view.channels)
            break;
        if (view.access == ACCESS_PLANES)
            load_plane<BYTES, WORDS>(channels[c], view, c, place);
        else if (view.access == ACCESS_RUNS)
            load_run<BYTES, WORDS>(channels[c], view, c, place, shared);
        else
            load_samples<BYTES, WORDS>(channels[c], view, c, place);
    }
}

// --- writing -------------------------------------------------------------------------------------

template <int BYTES, int WORDS>
__device__ inline void store_samples(const struct job_view &view, int c, const struct place &place,
                                     const uint32_t *words)
{
    uint8_t *to = view.channel[c] + place.y * view.row + place.x * view.column;
#pragma unroll
    for (int i = 0; i < WORDS * 4 / BYTES; i++)
        if (i < place.pixels)
            store_sample<BYTES>(to + i * view.column, get_sample<BYTES>(words, i));
}

template <int BYTES, int WORDS>
__device__ inline void store_plane(const struct job_view &view, int c, const struct place &place,
                                   const uint32_t *words)
{
    if (place.pixels == WORDS * 4 / BYTES || (place.pixels > 0 && view.padded))
        store_words<WORDS>(view.channel[c] + place.y * view.row + place.x * BYTES, words);
    else
        store_samples<BYTES, WORDS>(view, c, place, words);
}

template <int BYTES, int WORDS>
__device__ inline void store_run(const struct job_view &view, int c, const struct place &place,
                                 const uint32_t *words, uint8_t *shared, int units)
{
    int pitch = (units * WORDS * 4 + 15) / 16 * 16;
    if (place.pixels > 0)
        store_words<WORDS>(shared + place.row * pitch + place.unit * WORDS * 4, words);
    __syncwarp();
    run_out<2>(view.channel[c] + place.first_y * view.row + place.first_x * (int64_t)BYTES,
               view.row, shared, pitch, place.rows, place.run_pixels * BYTES);
    __syncwarp();
}

template <int BYTES, int WORDS, int COUNT>
__device__ inline void store_packed(const struct job_view &view, const struct place &place,
                                    const uint32_t (*channels)[WORDS], uint8_t *shared, int units)
{
    int pitch = (units * WORDS * COUNT * 4 + 15) / 16 * 16;
    if (place.pixels > 0) {
        uint32_t packed[WORDS * COUNT];
        join_channels<BYTES, COUNT, WORDS>(packed, channels);
        uint8_t *to = shared + place.row * pitch + place.unit * WORDS * COUNT * 4;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            store_words<WORDS>(to + i * WORDS * 4, packed + i * WORDS);
    }
    __syncwarp();
    run_out<COUNT + 1>(view.channel[0] + place.first_y * view.row +
                           place.first_x * (int64_t)(BYTES * COUNT),
                       view.row, shared, pitch, place.rows, place.run_pixels * BYTES * COUNT);
}

template <int BYTES, int WORDS>
__device__ inline void store_unit(const struct job_view &view, const struct place &place,
                                  const uint32_t (*channels)[WORDS], uint8_t *shared, int units)
{
    if (view.access == ACCESS_PACKED) {
        if (view.channels == 2)
            store_packed<BYTES, WORDS, 2>(view, place, channels, shared, units);
        else if (view.channels == 3)
            store_packed<BYTES, WORDS, 3>(view, place, channels, shared, units);
        else
            store_packed<BYTES, WORDS, 4>(view, place, channels, shared, units);
        return;
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        if (c >= view.channels)
            break;
        if (view.access == ACCESS_PLANES)
            store_plane<BYTES, WORDS>(view, c, place, channels[c]);
        else if (view.access == ACCESS_RUNS)
            store_run<BYTES, WORDS>(view, c, place, channels[c], shared, units);
        else
            store_samples<BYTES, WORDS>(view, c, place, channels[c]);
    }
}
