// SPDX-License-Identifier: MIT
// Writes the output of each part of a split stream (split.cuh), in the windows that were counted:
// bytes, and markers for bytes that come from before the part.
#include <cuda_runtime_api.h>

#include "png/cuda/inflate_window.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/split.cuh"
#include "png/cuda/window.cuh"

struct split_image {
    static constexpr uint32_t FINAL = STATE_BYTE;
    static __device__ inline uint32_t literal(uint32_t token)
    {
        return token == INSIDE ? INSIDE : STATE_BYTE | (token & 255); // INSIDE: after the window
    }
    static __device__ inline uint32_t earlier(const struct window &window, uint32_t at)
    {
        return at >= window.first ? window.states[at] : STATE_MARKER + (window.first - 1 - at);
    }
};

// Writes the states, and leaves the window empty for the next one.
template <int THREADS>
__device__ inline void write_states(struct block_memory<THREADS> &shared,
                                    const struct window &window)
{
    uint16_t *out = window.states + (window.start - window.skip);
    uint4 *groups = (uint4 *)shared.window;
    const uint4 empty = make_uint4(INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE);
    for (uint32_t i = threadIdx.x; 8 * i < referred_end(window); i += THREADS) {
        uint4 places = groups[i];
        groups[i] = empty;
        if (8 * i >= window.skip && 8 * i + 8 <= window.end) {
            ((uint4 *)out)[i] = places;
            continue;
        }
        const uint32_t pairs[] = {places.x, places.y, places.z, places.w};
#pragma unroll
        for (uint32_t b = 0; b < 8; b++)
            if (8 * i + b >= window.skip && 8 * i + b < window.end)
                out[8 * i + b] = (uint16_t)(pairs[b / 2] >> 16 * (b % 2));
    }
}

// False if a match refers to bytes before the first one.
template <int THREADS>
__device__ inline bool put_window(struct block_memory<THREADS> &shared, const struct stream &stream,
                                  const struct split_window &counted, const struct window &window)
{
    uint32_t origin = counted.at / 32 * 32, at = counted.at - origin;
    fill_stage(shared, stream, origin, stage_words<THREADS>(at, counted.bits));
    for (uint32_t i = threadIdx.x; i < THREADS + 1; i += THREADS)
        shared.shares[i] = counted.shares[i];
    __syncthreads();
    put_share(shared, counted.parts, window.skip);
    __syncthreads();
    if (__syncthreads_or(refer<split_image>(shared, window)))
        return false;
    follow_references<split_image::FINAL>(shared, window);
    write_states(shared, window);
    __syncthreads(); // the next window reads them
    return true;
}

template <int THREADS>
__device__ inline bool put_part(struct block_memory<THREADS> &shared, const struct stream &stream,
                                const struct split &split, const struct split_part &part)
{
    uint32_t out = part.out, codes = SPLIT_NONE;
    for (uint32_t i = threadIdx.x; i < THREADS * THREAD_ROOM / 4; i += THREADS)
        shared.window[i] = make_uint2(INSIDE_TWICE, INSIDE_TWICE);
    for (uint32_t w = part.window; w != SPLIT_NONE; w = split.windows[w].next) {
        const struct split_window &counted = split.windows[w];
        if (counted.codes == SPLIT_NONE) {
            for (uint32_t i = threadIdx.x; i < counted.bytes; i += THREADS)
                split.states[out + i] =
                    (uint16_t)(STATE_BYTE | stream_byte(stream, counted.at + i));
            __syncthreads(); // later windows read them
            out += counted.bytes;
            continue;
        }
        if (counted.codes != codes) {
            codes = counted.codes;
            for (uint32_t i = threadIdx.x; i < LITLENS + DISTANCES; i += THREADS)
                shared.making.lengths[i] = split.codes[codes].lengths[i];
            __syncthreads();
            make_tables(shared);
        }
        struct window window = open_window(nullptr, out, counted.bytes);
        window.states = split.states;
        window.first = part.out;
        if (!put_window(shared, stream, counted, window))
            return false;
        out += counted.bytes;
    }
    return true;
}

static __global__ void __launch_bounds__(SPLIT_THREADS, 1024 / SPLIT_THREADS)
    split_put(const struct conv_decode_image *images)
{
    extern __shared__ uint4 memory[];
    struct block_memory<SPLIT_THREADS> &shared = *(struct block_memory<SPLIT_THREADS> *)memory;
    struct conv_decode_image image = images[blockIdx.y];
    if (blockIdx.x >= image.parts)
        return;
    struct split split = find_split(image);
    const struct split_part part = split.state->parts[blockIdx.x];
    // Another block may set `failed` meanwhile: one thread reads it for all, so that all take part
    // in the barriers of put_part() or none. Decoding more of a failed image is harmless.
    bool failed = threadIdx.x == 0 && *(volatile uint32_t *)&split.state->failed;
    if (__syncthreads_or(failed) || part.out == SPLIT_NONE)
        return;
    if (!put_part(shared, open_stream(image), split, part) && threadIdx.x == 0)
        *(volatile uint32_t *)&split.state->failed = 1;
}

enum conv_status conv_cuda_split_put(const struct conv_decode_batch *batch, const char **name)
{
    const int bytes = (int)sizeof(struct block_memory<SPLIT_THREADS>);
    dim3 grid(conv_cuda_split_most_parts(batch), (unsigned)batch->count);
    if (cudaFuncSetAttribute((const void *)split_put, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             bytes))
        return CONV_ERR_DEVICE;
    split_put<<<grid, SPLIT_THREADS, (size_t)bytes, (cudaStream_t)batch->stream>>>(batch->d_images);
    *name = "split_put";
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
