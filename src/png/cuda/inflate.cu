// SPDX-License-Identifier: MIT
// A block of threads inflates an image. DEFLATE blocks are decoded in order, each in windows of
// input whose output fits shared memory. For each window, all threads find the symbols
// (speculate.cuh), store them and turn them into bytes (window.cuh).
//
// Shared memory is what limits how many images are in flight: 27.4 KB for 128 threads, so that
// eight blocks fit on an SM that has 228 KB, 1024 images on 128 SMs. The fewer images, the more
// threads for each.
#include <cuda_runtime_api.h>

#include "png/cuda/adler.cuh"
#include "png/cuda/inflate.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/speculate.cuh"
#include "png/cuda/tables.cuh"
#include "png/cuda/window.cuh"

#define SYSTEM_SHARED 1024 // bytes of each block's shared memory that the system reserves
#define FILTERS 5
#define SM_SHARED (228 << 10) // of compute capability 9.0 and 10.0

// The cost of a DEFLATE block's head, in microseconds of 128 threads on an H200. Measured: 0.5 to
// 0.7 for a stored block, 8.8 for a fixed one, 15.6 for a dynamic one with a head of 90 bits, 117
// with 2270. One megabyte of empty blocks takes a GPU up to 7 s and holds up its whole batch; one
// core of a CPU reads it in milliseconds. So each stream has a budget: FREE_COST, and 1 for every
// BYTES_PER_COST bytes of output so far. A stream that exceeds it is left to the CPU. Ordinary
// encoders stay far below it: zlib's default is 16 K symbols per block (a budget of 410 or more for
// each), libdeflate's least block is 5,000 bytes (125).
#define STORED_COST 1
#define FIXED_COST 9
#define DYNAMIC_COST 16
#define HEAD_BITS_PER_COST 24
#define FREE_COST 2048
#define BYTES_PER_COST 40
static_assert(8 * (sizeof(struct block_memory<128>) + SYSTEM_SHARED) <= SM_SHARED,
              "eight blocks of 128 threads fit");

// The position in stream and output; equal in all threads.
struct progress {
    uint32_t at;          // bit of the stream
    uint32_t out;         // bytes made
    uint32_t thread_bits; // of input for each thread in the next window
    uint32_t cost;        // of the heads of blocks so far
    uint32_t windows;     // so far, of blocks that have codes
};

// True if the host has set d_stop: thread 0 reads it once per POLL_EACH windows. A read of host
// memory takes 1 to 2 us, POLL_EACH windows 1 ms or more. Images of fewer than FIRST_POLL windows
// never poll.
#define POLL_EACH 64
#define FIRST_POLL 3
__device__ __forceinline__ bool is_stopped(const struct progress &progress,
                                           const volatile uint32_t *stop)
{
    return threadIdx.x == 0 && stop && progress.windows % POLL_EACH == FIRST_POLL && *stop;
}

// --- windows -------------------------------------------------------------------------------------

// Determines the threads whose bytes form the window: those before the first one that does not
// begin where its predecessor ends, does not fit, or comes after the end of the block.
template <int THREADS>
__device__ inline void agree(struct block_memory<THREADS> &shared, const struct part &part,
                             bool right, bool stopped, uint32_t skip, uint32_t *before)
{
    uint32_t bytes = 0, total, lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (int p = 0; p < SEGMENTS; p++)
        bytes += part.bytes[p];
    *before = sum_before(shared, bytes, 0, &total);
    bool fits = right && skip + *before + bytes <= THREADS * THREAD_ROOM;
    uint32_t refused = __ballot_sync(ALL_LANES, !fits);
    if (lane == 0)
        shared.sums[1][warp] = refused ? (uint32_t)__ffs((int)refused) - 1 : LANES;
    __syncthreads();
    uint32_t threads = 0; // in a row, from the first on
    for (uint32_t w = 0; w < THREADS / LANES && threads == w * LANES; w++)
        threads += shared.sums[1][w];
    if (threadIdx.x + 1 == threads) {
        uint32_t place = part.places[SEGMENTS - 1];
        shared.agreed.at = place & PLACE_BIT;
        shared.agreed.bytes = *before + bytes;
        shared.agreed.stop = place & ~PLACE_BIT;
    }
    if (threadIdx.x == 0)
        shared.agreed.threads = stopped ? THREADS_STOPPED : threads;
    __syncthreads();
}

// Turns the symbols stored in the window into bytes. Called by all threads.
template <int THREADS>
__device__ inline bool finish_window(struct block_memory<THREADS> &shared,
                                     const struct window &window, struct adler *adler)
{
    __syncthreads();
    if (__syncthreads_or(refer(shared, window)))
        return false;
    follow_references(shared, window);
    write_window(shared, window, adler);
    return true;
}

// One window of a block that has codes. *ended is set at the block's end.
template <int THREADS>
__device__ inline uint32_t inflate_window(struct block_memory<THREADS> &shared,
                                          const struct stream &stream, uint8_t *rows,
                                          uint32_t rows_bytes, struct progress *progress,
                                          struct adler *adler, const uint32_t *stop, bool *ended)
{
    if (progress->at >= stream.end)
        return CONV_DECODE_TRUNCATED;
    uint32_t origin = progress->at / 32 * 32, at = progress->at - origin;
    uint32_t bits = progress->thread_bits, end = stream.end - origin;
    fill_stage(shared, stream, origin, (at + THREADS * bits) / 32 + STAGE_SLACK);
    __syncthreads();
    bool stopped = is_stopped(*progress, stop);
    progress->windows++;
    struct part part;
    bool right = count_parts(shared, &part, at, bits, end);
    uint32_t skip = progress->out % 4, before;
    agree(shared, part, right, stopped, skip, &before);
    struct agreement agreed = shared.agreed;
    if (agreed.threads - 1 >= THREADS) {
        progress->thread_bits = LEAST_THREAD_BITS; // none: too much for the window
        return agreed.threads == 0 ? CONV_DECODE_DECODED : CONV_DECODE_STOPPED;
    }
    if (agreed.bytes > rows_bytes - progress->out)
        return CONV_DECODE_SIZE;
    if (agreed.stop & PLACE_INVALID)
        return CONV_DECODE_SYMBOL;
    struct window window = open_window(rows, progress->out, agreed.bytes);
    if (threadIdx.x < agreed.threads)
        put_symbols(shared, part.start, min(at + (threadIdx.x + 1) * bits, end), skip + before);
    if (!finish_window(shared, window, adler))
        return CONV_DECODE_DISTANCE;
    if (agreed.bytes > 0)
        progress->thread_bits = choose_thread_bits(agreed.at - at, agreed.bytes);
    progress->at = origin + agreed.at;
    progress->out += agreed.bytes;
    *ended = agreed.stop != 0;
    return CONV_DECODE_DECODED;
}

// --- blocks of DEFLATE ---------------------------------------------------------------------------

template <int THREADS>
__device__ inline uint32_t
copy_stored(struct block_memory<THREADS> &shared, const struct stream &stream, uint8_t *rows,
            uint32_t rows_bytes, struct progress *progress, struct adler *adler)
{
    uint32_t first = (progress->at + 7) / 8 - stream.lead, end = stream.bytes - 4;
    if (first > end || end - first < 4)
        return CONV_DECODE_TRUNCATED;
    uint32_t size = stream_byte(stream, first) | stream_byte(stream, first + 1) << 8;
    uint32_t check = stream_byte(stream, first + 2) | stream_byte(stream, first + 3) << 8;
    if (size != (check ^ 0xffff))
        return CONV_DECODE_BLOCK;
    first += 4;
    if (size > end - first)
        return CONV_DECODE_TRUNCATED;
    if (size > rows_bytes - progress->out)
        return CONV_DECODE_SIZE;
    uint16_t *places = (uint16_t *)shared.window;
    progress->at = 8 * (stream.lead + first + size);
    while (size > 0) {
        uint32_t part = min(size, (uint32_t)(THREADS * THREAD_ROOM - 4));
        struct window window = open_window(rows, progress->out, part);
        __syncthreads(); // the window is empty
        for (uint32_t i = threadIdx.x; i < part; i += THREADS)
            places[window.skip + i] = (uint16_t)(LITERAL | stream_byte(stream, first + i));
        __syncthreads();
        write_window(shared, window, adler);
        first += part;
        progress->out += part;
        size -= part;
    }
    return CONV_DECODE_DECODED;
}

template <int THREADS>
__device__ inline uint32_t inflate_block(struct block_memory<THREADS> &shared,
                                         const struct stream &stream, uint8_t *rows,
                                         uint32_t rows_bytes, struct progress *progress,
                                         struct adler *adler, const uint32_t *stop, bool *final)
{
    if (progress->at + 3 > stream.end)
        return CONV_DECODE_TRUNCATED;
    __syncthreads(); // the stage is no longer read
    uint32_t origin = progress->at / 32 * 32;
    fill_stage(shared, stream, origin, HEAD_WORDS);
    __syncthreads();
    uint32_t at = progress->at - origin;
    struct bits head = read_bits(shared.stage, at);
    *final = take_bits(&head, 1);
    uint32_t type = take_bits(&head, 2);
    progress->at += 3;
    progress->cost += type == 0 ? STORED_COST : type == 1 ? FIXED_COST : DYNAMIC_COST;
    if (type == 0)
        return copy_stored(shared, stream, rows, rows_bytes, progress, adler);
    if (type == 3)
        return CONV_DECODE_BLOCK;
    at += 3;
    uint32_t result = make_tables(shared, type == 1, &at);
    progress->cost += (origin + at - progress->at) / HEAD_BITS_PER_COST;
    progress->at = origin + at;
    bool ended = false;
    // A barrier follows the tables and each window's last read of the stage, which is then free.
    while (result == CONV_DECODE_DECODED && !ended)
        result = inflate_window(shared, stream, rows, rows_bytes, progress, adler, stop, &ended);
    return result;
}

// --- streams -------------------------------------------------------------------------------------

__device__ inline uint32_t check_header(const struct stream &stream, uint32_t rows_bytes)
{
    if (stream.bytes < 2 + 4)
        return CONV_DECODE_HEADER;
    uint32_t method = stream_byte(stream, 0), flags = stream_byte(stream, 1);
    // As src/png/cpu/inflate.c: deflate, no dictionary, and a window that holds all or is the
    // largest, so that no distance is beyond it.
    bool right = (method & 15) == 8 && method >> 4 <= 7 && (method << 8 | flags) % 31 == 0 &&
                 !(flags & 32) && (method >> 4 == 7 || rows_bytes <= 256u << (method >> 4));
    return right ? CONV_DECODE_DECODED : CONV_DECODE_HEADER;
}

// Adds up the threads' parts of the Adler-32 and compares it with the stream's.
template <int THREADS>
__device__ inline bool check_adler(struct block_memory<THREADS> &shared,
                                   const struct stream &stream, struct adler adler,
                                   uint32_t rows_bytes)
{
    uint32_t bytes, weighted, expected = 0; // 512 parts below 2^16: no sum leaves 32 bits
    sum_before(shared, adler.bytes, 0, &bytes);
    sum_before(shared, adler.weighted, 1, &weighted);
    adler.bytes = bytes % ADLER_MODULUS;
    adler.weighted = weighted % ADLER_MODULUS;
    for (uint32_t i = stream.bytes - 4; i < stream.bytes; i++)
        expected = expected << 8 | stream_byte(stream, i);
    return finish_adler(&adler, rows_bytes) == expected;
}

template <int THREADS>
__device__ inline uint32_t inflate_stream(struct block_memory<THREADS> &shared,
                                          const struct conv_decode_image &image, uint32_t free_cost,
                                          const uint32_t *stop)
{
    struct stream stream;
    stream.lead = (uint32_t)((uintptr_t)image.d_stream % 4);
    stream.words = (const uint32_t *)(image.d_stream - stream.lead);
    stream.bytes = image.stream_bytes;
    stream.end = 8 * (stream.lead + stream.bytes - 4);
    uint32_t result = check_header(stream, image.rows_bytes);
    if (result)
        return result;
    for (uint32_t i = threadIdx.x; i < THREADS * THREAD_ROOM / 4; i += THREADS)
        shared.window[i] = make_uint2(INSIDE_TWICE, INSIDE_TWICE);
    struct progress progress = {8 * (stream.lead + 2), 0, FIRST_THREAD_BITS, 0, 0};
    struct adler adler = {0, 0};
    for (bool final = false; !final;) {
        if (progress.cost > free_cost && progress.cost - free_cost > progress.out / BYTES_PER_COST)
            return CONV_DECODE_COSTLY;
        result = inflate_block(shared, stream, image.d_rows, image.rows_bytes, &progress, &adler,
                               stop, &final);
        if (result)
            return result;
    }
    if ((progress.at + 7) / 8 * 8 != stream.end || progress.out != image.rows_bytes)
        return CONV_DECODE_SIZE;
    return check_adler(shared, stream, adler, image.rows_bytes) ? CONV_DECODE_DECODED
                                                                : CONV_DECODE_ADLER;
}

// Between barriers: all bytes are written.
template <int THREADS> __device__ inline bool filters_exist(const struct conv_decode_image &image)
{
    bool all = true;
    for (uint32_t y = threadIdx.x; y < (uint32_t)image.height; y += THREADS)
        all &= image.d_rows[(size_t)y * (image.row_bytes + 1)] < FILTERS;
    return !__syncthreads_or(!all);
}

// One block per image, the longest streams first.
template <int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    inflate(const struct conv_decode_image *images, uint32_t *status, uint32_t free_cost,
            const uint32_t *stop)
{
    extern __shared__ uint4 memory[];
    struct block_memory<THREADS> &shared = *(struct block_memory<THREADS> *)memory;
    uint32_t turn = images[blockIdx.x].turn;
    struct conv_decode_image image = images[turn];
    uint32_t result = inflate_stream(shared, image, free_cost, stop);
    if (result == CONV_DECODE_DECODED) {
        __syncthreads();
        if (!filters_exist<THREADS>(image))
            result = CONV_DECODE_FILTER;
    }
    if (threadIdx.x < CONV_DECODE_SLACK)
        image.d_rows[image.rows_bytes + threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        *(uint32_t *)(image.d_rows + conv_decode_result_at(image.rows_bytes)) = result;
        status[turn] = result;
    }
}

// --- launches ------------------------------------------------------------------------------------

template <int THREADS> static enum conv_status launch(const struct conv_decode_batch *batch)
{
    const int bytes = (int)sizeof(struct block_memory<THREADS>);
    if (bytes > 48 << 10 &&
        cudaFuncSetAttribute((const void *)inflate<THREADS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return CONV_ERR_DEVICE;
    inflate<THREADS>
        <<<(unsigned)batch->count, THREADS, (size_t)bytes, (cudaStream_t)batch->stream>>>(
            batch->d_images, batch->d_status, batch->at_any_cost ? UINT32_MAX : FREE_COST,
            batch->d_stop);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// Of the block sizes that the device has the shared memory for, the largest with which all images
// are in flight at once.
static enum conv_status choose_threads(int count, int *threads)
{
    int device, processors, block, processor;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ||
        cudaDeviceGetAttribute(&processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device))
        return CONV_ERR_DEVICE;
    int most =
        count <= processors * (processor / (int)(sizeof(struct block_memory<512>) + SYSTEM_SHARED))
            ? 512
        : count <=
                processors * (processor / (int)(sizeof(struct block_memory<256>) + SYSTEM_SHARED))
            ? 256
            : 128;
    if (*threads)
        most = *threads;
    *threads = most >= 512 && (int)sizeof(struct block_memory<512>) <= block   ? 512
               : most >= 256 && (int)sizeof(struct block_memory<256>) <= block ? 256
                                                                               : 128;
    return CONV_OK;
}

enum conv_status conv_cuda_inflate(const struct conv_decode_batch *batch, const char **name)
{
    int threads = batch->threads;
    if (choose_threads(batch->at_once ? batch->at_once : batch->count, &threads))
        return CONV_ERR_DEVICE;
    switch (threads) {
    case 512:
        *name = "inflate_512";
        return launch<512>(batch);
    case 256:
        *name = "inflate_256";
        return launch<256>(batch);
    default:
        *name = "inflate_128";
        return launch<128>(batch);
    }
}
