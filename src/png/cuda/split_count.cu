// SPDX-License-Identifier: MIT
// Counts the output of each part of a split stream (split.cuh), from the block that was found in it
// to the block that was found in a later part, and stores where each thread's symbols begin. A
// second kernel follows the parts from the first on: those that it reaches form the stream.
#include <cuda_runtime_api.h>

#include "png/cuda/inflate_window.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/split.cuh"

// Counting fails after this many times the size of a part: decoding from a wrong begin rarely
// reaches a right one, and one block of threads decodes DEFLATE blocks this large as fast.
#define MOST_PART_SIZES 16
// Counting fails if fewer than one part in this many has a begin: the DEFLATE blocks are too large.
#define PARTS_PER_BEGIN 5

// Places of a window reserved before its bytes, because their alignment is not known yet.
#define MOST_SKIP (WINDOW_ALIGN - 1)

// The tables of a part that is being counted, the same in all threads.
struct counting {
    struct split split;
    struct progress progress;
    uint32_t *link;  // receives the number of the next window
    uint32_t window; // reserved number of the next window; SPLIT_NONE if none is reserved
    uint32_t codes;  // number of this block's codes
};

// Reserves the next number below `most`, which all threads get; SPLIT_NONE if there is none left.
// Contains barriers.
template <int THREADS>
__device__ inline uint32_t reserve(struct block_memory<THREADS> &shared, uint32_t *used,
                                   uint32_t most)
{
    __syncthreads();
    if (threadIdx.x == 0)
        shared.agreed.result = atomicAdd(used, 1u);
    __syncthreads();
    uint32_t number = shared.agreed.result;
    return number < most ? number : SPLIT_NONE;
}

// Describes the reserved window, except for `shares`, and appends it to the part's list.
__device__ inline void note_window(struct counting *counting, uint32_t codes, uint32_t at,
                                   uint32_t bits, uint32_t parts, uint32_t bytes)
{
    struct split_window *window = &counting->split.windows[counting->window];
    if (threadIdx.x == 0) {
        window->next = SPLIT_NONE;
        window->codes = codes;
        window->at = at;
        window->bits = bits;
        window->parts = parts;
        window->bytes = bytes;
        *counting->link = counting->window;
    }
    counting->link = &window->next;
    counting->window = SPLIT_NONE;
}

template <int THREADS>
__device__ inline bool reserve_window(struct block_memory<THREADS> &shared,
                                      struct counting *counting)
{
    if (counting->window == SPLIT_NONE)
        counting->window =
            reserve(shared, &counting->split.state->windows, counting->split.most_windows);
    return counting->window != SPLIT_NONE;
}

// Counts a block that has codes. False if the part cannot be counted.
template <int THREADS>
__device__ inline bool count_symbols_of(struct block_memory<THREADS> &shared,
                                        const struct stream &stream, struct counting *counting,
                                        uint32_t end)
{
    struct progress *progress = &counting->progress;
    counting->codes = reserve(shared, &counting->split.state->codes, counting->split.most_codes);
    if (counting->codes == SPLIT_NONE)
        return false;
    uint8_t *lengths = counting->split.codes[counting->codes].lengths;
    for (uint32_t i = threadIdx.x; i < LITLENS + DISTANCES; i += THREADS)
        lengths[i] = shared.making.lengths[i];
    for (bool ended = false; !ended;) {
        if (progress->at >= end || !reserve_window(shared, counting))
            return false;
        __syncthreads(); // the lengths, or the stage, are no longer read
        uint32_t bits = progress->part_bits;
        count_window(shared, stream, progress, MOST_SKIP, nullptr, [] {});
        struct agreement agreed = shared.agreed;
        if (agreed.parts == 0) {
            progress->part_bits = LEAST_PART_BITS;
            continue;
        }
        if (agreed.stop & PLACE_INVALID)
            return false;
        uint32_t *shares = counting->split.windows[counting->window].shares;
        for (uint32_t i = threadIdx.x; i < THREADS + 1; i += THREADS)
            shares[i] = shared.shares[i];
        note_window(counting, counting->codes, progress->at, bits, agreed.parts, agreed.bytes);
        ended = advance<THREADS>(progress, agreed);
    }
    return true;
}

template <int THREADS>
__device__ inline bool count_stored(struct block_memory<THREADS> &shared,
                                    const struct stream &stream, struct counting *counting)
{
    uint32_t first, size;
    if (read_stored(stream, counting->progress.at, &first, &size) ||
        !reserve_window(shared, counting))
        return false;
    note_window(counting, SPLIT_NONE, first, 0, 0, size);
    counting->progress.at = 8 * (stream.lead + first + size);
    counting->progress.out += size;
    return true;
}

// Counts one DEFLATE block after the other until a later part begins at the end of one. Returns the
// number of that part, `parts` at the end of the stream, or SPLIT_NONE if it fails.
template <int THREADS>
__device__ inline uint32_t count_part_of(struct block_memory<THREADS> &shared,
                                         const struct conv_decode_image &image,
                                         const struct stream &stream, struct counting *counting,
                                         uint32_t number, uint32_t free_cost)
{
    struct progress *progress = &counting->progress;
    uint64_t furthest = (uint64_t)progress->at + 8ull * MOST_PART_SIZES * image.part_bytes;
    uint32_t end = (uint32_t)min(furthest, (uint64_t)stream.end);
    for (;;) {
        bool final;
        uint32_t type;
        if (is_costly(*progress, free_cost) || read_head(shared, stream, progress, &final, &type))
            return SPLIT_NONE;
        bool right = type == 0 ? count_stored(shared, stream, counting)
                               : count_symbols_of(shared, stream, counting, end);
        if (!right || progress->out > image.rows_bytes)
            return SPLIT_NONE;
        if (final)
            return (progress->at + 7) / 8 * 8 == stream.end ? image.parts : SPLIT_NONE;
        uint32_t next = (progress->at / 8 - stream.lead) / image.part_bytes;
        if (next > number && next < image.parts &&
            counting->split.state->parts[next].start == progress->at)
            return next;
    }
}

static __global__ void __launch_bounds__(SPLIT_THREADS, 1024 / SPLIT_THREADS)
    split_count(const struct conv_decode_image *images, uint32_t free_cost)
{
    extern __shared__ uint4 memory[];
    struct block_memory<SPLIT_THREADS> &shared = *(struct block_memory<SPLIT_THREADS> *)memory;
    struct conv_decode_image image = images[blockIdx.y];
    uint32_t number = blockIdx.x;
    if (number >= image.parts)
        return;
    struct split split = find_split(image);
    struct split_part *part = &split.state->parts[number];
    uint32_t start = part->start, begins;
    if (split.state->failed || start == SPLIT_NONE)
        return;
    bool found = threadIdx.x < image.parts && split.state->parts[threadIdx.x].start != SPLIT_NONE;
    sum_before(shared, found, 0, &begins);
    if (begins * PARTS_PER_BEGIN < image.parts)
        return;
    const struct stream stream = open_stream(image);
    struct counting counting = {
        split,
        {start, 0, block_memory<SPLIT_THREADS>::SHARES * FIRST_THREAD_BITS, 0, 0, 0},
        &part->window,
        SPLIT_NONE,
        SPLIT_NONE};
    uint32_t next = count_part_of(shared, image, stream, &counting, number, free_cost);
    if (threadIdx.x == 0) {
        part->bytes = counting.progress.out;
        part->next = next;
    }
}
static_assert(CONV_SPLIT_MOST_PARTS <= SPLIT_THREADS, "a thread per part");

// Follows the parts of each image from the first on. One block per image.
static __global__ void __launch_bounds__(CONV_SPLIT_MOST_PARTS)
    split_chain(const struct conv_decode_image *images)
{
    __shared__ uint32_t next[CONV_SPLIT_MOST_PARTS];
    __shared__ uint32_t bytes[CONV_SPLIT_MOST_PARTS];
    struct conv_decode_image image = images[blockIdx.x];
    if (image.parts == 0)
        return;
    struct split_state *state = find_split(image).state;
    if (threadIdx.x < image.parts) {
        next[threadIdx.x] = state->parts[threadIdx.x].next;
        bytes[threadIdx.x] = state->parts[threadIdx.x].bytes;
    }
    __syncthreads();
    if (threadIdx.x > 0 || state->failed)
        return;
    uint32_t part = 0, live = 0;
    uint64_t out = 0;
    while (part < image.parts) {
        state->parts[part].out = state->outs[live++] = (uint32_t)out;
        out += bytes[part];
        part = next[part]; // a later one
        if (out > image.rows_bytes)
            part = SPLIT_NONE;
    }
    state->live = live;
    state->failed = part != image.parts || out != image.rows_bytes;
}

enum conv_status conv_cuda_split_count(const struct conv_decode_batch *batch, const char **name)
{
    const int bytes = (int)sizeof(struct block_memory<SPLIT_THREADS>);
    dim3 grid(conv_cuda_split_most_parts(batch), (unsigned)batch->count);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (cudaFuncSetAttribute((const void *)split_count, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             bytes))
        return CONV_ERR_DEVICE;
    split_count<<<grid, SPLIT_THREADS, (size_t)bytes, stream>>>(
        batch->d_images, batch->at_any_cost ? UINT32_MAX : FREE_COST);
    if (cudaPeekAtLastError())
        return CONV_ERR_DEVICE;
    split_chain<<<(unsigned)batch->count, CONV_SPLIT_MOST_PARTS, 0, stream>>>(batch->d_images);
    *name = "split_count";
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
