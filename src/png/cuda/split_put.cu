// SPDX-License-Identifier: MIT
// Writes the output of each part of a split stream (split.cuh), in the windows that were counted:
// bytes, and markers for bytes that come from before the part.
#include <cuda_runtime_api.h>

#include "png/cuda/inflate_window.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/split.cuh"
#include "png/cuda/sums.cuh"
#include "png/cuda/window.cuh"

// --- bytes and markers ---------------------------------------------------------------------------

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

// --- resolving markers ---------------------------------------------------------------------------

// Turns the states of split images (split.cuh) into bytes: replaces each marker by the byte that it
// refers to, which may be a marker of an earlier part itself. Checks the Adler-32 and the filter
// bytes.

#define RESOLVE_THREADS 256
#define WORDS_EACH 4
#define SHARE (4 * WORDS_EACH * RESOLVE_THREADS) // bytes of output for each block of threads
static_assert(4 * WORDS_EACH * 255 <= ADLER_BYTES, "a thread's bytes, for add_adler");

struct resolve_memory {
    uint32_t outs[CONV_SPLIT_MOST_PARTS];
    uint32_t bytes, weighted, wrong;
};

// A state, and the part to which it belongs.
struct trail {
    uint32_t state, part;
};

// Replaces a marker by the state that it refers to; true if that is a marker, too.
__device__ __forceinline__ bool follow_marker(const struct resolve_memory &memory,
                                              const uint16_t *states, struct trail *trail)
{
    if (trail->state < STATE_MARKER)
        return false;
    uint32_t at = memory.outs[trail->part] - 1 - (trail->state - STATE_MARKER);
    do
        trail->part--; // always an earlier part
    while (memory.outs[trail->part] > at);
    trail->state = states[at];
    return trail->state >= STATE_MARKER;
}

// Returns the bytes of the four states at byte `at` of the output, zeros from `end` on. `part`: the
// part of the first of them. The bytes replace the states, so that trails of later markers end here
// instead of leading through all earlier parts. Other threads may read the marker or the byte: both
// lead to the same byte.
__device__ __forceinline__ uint32_t resolve_word(const struct resolve_memory &memory,
                                                 const struct split &split, uint32_t at,
                                                 uint32_t end, uint32_t part, uint32_t live)
{
    uint2 both = *(const uint2 *)(split.states + at);
    struct trail trails[4];
    bool left = false;
#pragma unroll
    for (uint32_t b = 0; b < 4; b++) {
        while (part + 1 < live && memory.outs[part + 1] <= at + b)
            part++;
        uint32_t state = (b < 2 ? both.x : both.y) >> 16 * (b % 2) & 0xffff;
        trails[b].state = at + b < end ? state : 0;
        trails[b].part = part;
        left |= trails[b].state >= STATE_MARKER;
    }
    bool marked = left;
    while (left) { // the loads of the four trails overlap
        left = false;
#pragma unroll
        for (uint32_t b = 0; b < 4; b++)
            left |= follow_marker(memory, split.states, &trails[b]);
    }
    uint32_t word = 0;
#pragma unroll
    for (uint32_t b = 0; b < 4; b++)
        word |= (trails[b].state & 255) << 8 * b;
    if (marked)
        *(uint2 *)(split.states + at) = make_uint2(__byte_perm(word, STATE_BYTE, 0x5150),
                                                   __byte_perm(word, STATE_BYTE, 0x5352));
    return word;
}

// Resolves this block's share and checks its filter bytes. Leaves its sums in `memory`.
__device__ inline void resolve_share(struct resolve_memory &memory,
                                     const struct conv_decode_image &image,
                                     const struct split &split, uint32_t first)
{
    uint32_t live = split.state->live, part = 0, end = min(first + SHARE, image.rows_bytes);
    for (uint32_t above = live;
         above - part > 1;) { // the last part that begins at `first` or before
        uint32_t middle = (part + above) / 2;
        *(memory.outs[middle] <= first ? &part : &above) = middle;
    }
    uint32_t bytes = 0, weighted = 0;
    for (uint32_t i = threadIdx.x; first + 4 * i < end; i += RESOLVE_THREADS) {
        uint32_t at = first + 4 * i;
        while (part + 1 < live && memory.outs[part + 1] <= at)
            part++;
        uint32_t word = resolve_word(memory, split, at, end, part, live);
        if (at + 4 <= end)
            *(uint32_t *)(image.d_rows + at) = word;
        else
            for (uint32_t b = 0; at + b < end; b++)
                image.d_rows[at + b] = (uint8_t)(word >> 8 * b);
        uint32_t sum = __dp4a(word, 0x01010101u, 0u);
        bytes += sum;
        weighted += 4 * i * sum + __dp4a(word, 0x03020100u, 0u);
    }
    struct adler adler = {0, 0};
    add_adler(&adler, first, bytes, weighted);
    atomicAdd(&memory.bytes, adler.bytes); // 256 summands below 2^16
    atomicAdd(&memory.weighted, adler.weighted);
    __syncthreads();
    uint32_t row = image.row_bytes + 1;
    bool wrong = false;
    for (uint32_t y = (first + row - 1) / row + threadIdx.x;
         y < (uint32_t)image.height && (size_t)y * row < end; y += RESOLVE_THREADS)
        wrong |= image.d_rows[(size_t)y * row] >= FILTERS;
    if (wrong)
        atomicOr(&memory.wrong, 1u); // several threads may
    __syncthreads();
}

static_assert(STATE_BYTE == 0x4000, "its upper byte is byte 1 of a word");

// Called by one thread when all shares are done.
__device__ inline void finish_image(const struct conv_decode_image &image,
                                    struct split_state *state, uint32_t *status)
{
    const struct stream stream = open_stream(image);
    struct adler adler = {atomicAdd(&state->bytes, 0u) % ADLER_MODULUS,
                          atomicAdd(&state->weighted, 0u) % ADLER_MODULUS};
    uint32_t expected = 0;
    for (uint32_t i = stream.bytes - 4; i < stream.bytes; i++)
        expected = expected << 8 | stream_byte(stream, i);
    if (finish_adler(&adler, image.rows_bytes) != expected)
        atomicAdd(&state->failed, 1u);
    if (atomicAdd(&state->failed, 0u))
        return;
    for (uint32_t i = 0; i < CONV_DECODE_SLACK; i++)
        image.d_rows[image.rows_bytes + i] = 0;
    *result_of(image) = CONV_DECODE_DECODED;
    *status = CONV_DECODE_DECODED;
}

static __global__ void __launch_bounds__(RESOLVE_THREADS)
    split_resolve(const struct conv_decode_image *images, uint32_t count, uint32_t *status)
{
    __shared__ struct resolve_memory own[1];
    struct resolve_memory &memory = own[0];
    struct conv_decode_image image = images[blockIdx.x % count];
    uint32_t first = blockIdx.x / count * SHARE;
    if (image.parts == 0 || first >= image.rows_bytes)
        return;
    struct split split = find_split(image);
    struct split_state *state = split.state;
    // Thread 0 reads `failed`, which other blocks may set meanwhile, so that all threads agree.
    if (threadIdx.x == 0) {
        memory.bytes = memory.weighted = 0;
        memory.wrong = atomicAdd(&state->failed, 0u);
    }
    if (threadIdx.x < CONV_SPLIT_MOST_PARTS)
        memory.outs[threadIdx.x] = state->outs[threadIdx.x];
    __syncthreads();
    if (memory.wrong)
        return;
    resolve_share(memory, image, split, first);
    if (threadIdx.x > 0)
        return;
    if (memory.wrong)
        atomicAdd(&state->failed, 1u);
    atomicAdd(&state->bytes, memory.bytes % ADLER_MODULUS);
    atomicAdd(&state->weighted, memory.weighted % ADLER_MODULUS);
    __threadfence();
    if (atomicAdd(&state->done, 1u) == (image.rows_bytes - 1) / SHARE) {
        __threadfence();
        finish_image(image, state, &status[blockIdx.x % count]);
    }
}
static_assert(CONV_SPLIT_MOST_PARTS <= RESOLVE_THREADS, "a thread loads each");

enum conv_status conv_cuda_split_resolve(const struct conv_decode_batch *batch, const char **name)
{
    // The first shares of all images come first, then the second ones, and so on: most states that
    // a marker refers to are then resolved before it.
    uint32_t shares = (conv_cuda_split_most_bytes(batch) + SHARE - 1) / SHARE,
             count = (uint32_t)batch->count;
    split_resolve<<<shares * count, RESOLVE_THREADS, 0, (cudaStream_t)batch->stream>>>(
        batch->d_images, count, batch->d_status);
    *name = "split_resolve";
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
