// SPDX-License-Identifier: MIT
// A block of threads inflates an image. DEFLATE blocks are decoded in order, each in windows of
// input whose output fits shared memory. For each window, all threads find the symbols
// (inflate_window.cuh), store them and turn them into bytes (window.cuh). Those are written while
// the symbols of the next window are counted, by the threads that have no part in it.
//
// Shared memory limits the number of images in flight: 27.3 KB for 128 threads, so that eight
// blocks fit on an SM that has 228 KB, 1024 images on 128 SMs. The fewer images there are, the more
// threads each one gets.
#include <cuda_runtime_api.h>

#include "png/cuda/inflate.cuh"
#include "png/cuda/inflate_window.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/sums.cuh"
#include "png/cuda/window.cuh"

#define SYSTEM_SHARED 1024    // bytes of each block's shared memory that the system reserves
#define SM_SHARED (228 << 10) // of compute capability 9.0 and 10.0

static_assert(8 * (sizeof(struct block_memory<128>) + SYSTEM_SHARED) <= SM_SHARED,
              "eight blocks of 128 threads fit");

// Turns the symbols stored in the window into bytes. Called by all threads.
template <int THREADS>
__device__ inline bool finish_window(struct block_memory<THREADS> &shared,
                                     const struct window &window)
{
    __syncthreads();
    if (__syncthreads_or(refer<whole_image>(shared, window)))
        return false;
    follow_references<whole_image::FINAL>(shared, window);
    return true;
}

// The threads that write a window: those that do not count the next one.
template <int THREADS>
static constexpr int WRITERS = THREADS - THREADS / block_memory<THREADS>::SHARES;

// Writes what is in the window. Called by the writers, between barriers.
template <int THREADS>
__device__ __forceinline__ void write_rest(struct block_memory<THREADS> &shared, uint8_t *rows,
                                           const struct progress &progress, struct adler *adler)
{
    if (progress.written < progress.out)
        write_window<WRITERS<THREADS>>(
            shared, open_window(rows, progress.written, progress.out - progress.written), adler);
}

// The same for all threads.
template <int THREADS>
__device__ __forceinline__ void flush_window(struct block_memory<THREADS> &shared, uint8_t *rows,
                                             struct progress *progress, struct adler *adler)
{
    if (threadIdx.x >= THREADS - WRITERS<THREADS>)
        write_rest(shared, rows, *progress, adler);
    progress->written = progress->out;
}

// One window of a block that has codes. *ended is set at the block's end.
template <int THREADS>
__device__ inline uint32_t
inflate_window(struct block_memory<THREADS> &shared, const struct stream &stream,
               const struct conv_decode_image &image, struct progress *progress,
               struct adler *adler, const uint32_t *stop, bool reports, bool *ended)
{
    if (progress->at >= stream.end)
        return CONV_DECODE_TRUNCATED;
    count_window(shared, stream, progress, progress->out % WINDOW_ALIGN, stop,
                 [&] { write_rest(shared, image.d_rows, *progress, adler); });
    progress->written = progress->out;
    if (reports && threadIdx.x == THREADS - 1) // of a warp that has the least to do
        report_ready(image, progress->out);
    struct agreement agreed = shared.agreed;
    if (agreed.parts - 1 >= THREADS) {
        progress->part_bits = LEAST_PART_BITS; // if not even one part fits the window
        return agreed.parts == 0 ? CONV_DECODE_DECODED : CONV_DECODE_STOPPED;
    }
    if (agreed.bytes > image.rows_bytes - progress->out)
        return CONV_DECODE_SIZE;
    if (agreed.stop & PLACE_INVALID)
        return CONV_DECODE_SYMBOL;
    struct window window = open_window(image.d_rows, progress->out, agreed.bytes);
    put_share(shared, agreed.parts, window.skip);
    if (!finish_window(shared, window))
        return CONV_DECODE_DISTANCE;
    *ended = advance<THREADS>(progress, agreed);
    return CONV_DECODE_DECODED;
}

// --- blocks of DEFLATE ---------------------------------------------------------------------------

template <int THREADS>
__device__ inline uint32_t
copy_stored(struct block_memory<THREADS> &shared, const struct stream &stream, uint8_t *rows,
            uint32_t rows_bytes, struct progress *progress, struct adler *adler)
{
    uint32_t first, size;
    if (uint32_t result = read_stored(stream, progress->at, &first, &size))
        return result;
    if (size > rows_bytes - progress->out)
        return CONV_DECODE_SIZE;
    uint16_t *places = (uint16_t *)shared.window;
    progress->at = 8 * (stream.lead + first + size);
    flush_window(shared, rows, progress, adler);
    while (size > 0) {
        uint32_t part = min(size, (uint32_t)(THREADS * THREAD_ROOM - WINDOW_ALIGN));
        struct window window = open_window(rows, progress->out, part);
        __syncthreads(); // the window is empty
        for (uint32_t i = threadIdx.x; i < part; i += THREADS)
            places[window.skip + i] = (uint16_t)(LITERAL | stream_byte(stream, first + i));
        __syncthreads();
        write_window<THREADS>(shared, window, adler);
        first += part;
        progress->out += part;
        progress->written = progress->out;
        size -= part;
    }
    return CONV_DECODE_DECODED;
}

template <int THREADS>
__device__ inline uint32_t
inflate_block(struct block_memory<THREADS> &shared, const struct stream &stream,
              const struct conv_decode_image &image, struct progress *progress, struct adler *adler,
              const uint32_t *stop, bool reports, bool *final)
{
    uint32_t type, result = read_head(shared, stream, progress, final, &type);
    if (result == CONV_DECODE_DECODED && type == 0)
        return copy_stored(shared, stream, image.d_rows, image.rows_bytes, progress, adler);
    bool ended = false;
    // A barrier follows the making of the tables, and each window's last read of the stage.
    while (result == CONV_DECODE_DECODED && !ended)
        result = inflate_window(shared, stream, image, progress, adler, stop, reports, &ended);
    return result;
}

// --- streams -------------------------------------------------------------------------------------

// Adds up the threads' parts of the Adler-32 and compares it with the stream's.
template <int THREADS>
__device__ inline bool check_adler(struct block_memory<THREADS> &shared,
                                   const struct stream &stream, struct adler adler,
                                   uint32_t rows_bytes)
{
    uint32_t bytes, weighted, expected = 0; // 512 summands below 2^16: the sums fit in 32 bits
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
                                          const uint32_t *stop, bool reports)
{
    const struct stream stream = open_stream(image);
    uint32_t result = check_header(stream, image.rows_bytes);
    if (result)
        return result;
    for (uint32_t i = threadIdx.x; i < THREADS * THREAD_ROOM / 4; i += THREADS)
        shared.window[i] = make_uint2(INSIDE_TWICE, INSIDE_TWICE);
    struct progress progress = {
        8 * (stream.lead + 2), 0, block_memory<THREADS>::SHARES * FIRST_THREAD_BITS, 0, 0, 0};
    struct adler adler = {0, 0};
    for (bool final = false; !final;) {
        if (is_costly(progress, free_cost))
            return CONV_DECODE_COSTLY;
        result = inflate_block(shared, stream, image, &progress, &adler, stop, reports, &final);
        if (result)
            return result;
    }
    if ((progress.at + 7) / 8 * 8 != stream.end || progress.out != image.rows_bytes)
        return CONV_DECODE_SIZE;
    flush_window(shared, image.d_rows, &progress, &adler);
    return check_adler(shared, stream, adler, image.rows_bytes) ? CONV_DECODE_DECODED
                                                                : CONV_DECODE_ADLER;
}

// True if all filter bytes are valid. Must be called after a barrier, when all rows are written.
template <int THREADS> __device__ inline bool filters_exist(const struct conv_decode_image &image)
{
    bool all = true;
    for (uint32_t y = threadIdx.x; y < (uint32_t)image.height; y += THREADS)
        all &= image.d_rows[(size_t)y * (image.row_bytes + 1)] < FILTERS;
    return !__syncthreads_or(!all);
}

// Prepares what the unfilter kernel reads: no band has been taken, no row is ready, and the slack
// is zeros. That kernel starts once this has been done for all images.
template <int THREADS>
__device__ inline void prepare_unfilter(const struct conv_decode_image &image)
{
    uint32_t *bands = (uint32_t *)(image.d_rows + conv_decode_bands_at(image.rows_bytes));
    for (uint32_t i = threadIdx.x; i < conv_decode_bands_words(image.row_bytes); i += THREADS)
        bands[i] = 0;
    if (threadIdx.x < CONV_DECODE_SLACK)
        image.d_rows[image.rows_bytes + threadIdx.x] = 0;
    __threadfence();
    __syncthreads();
    start_unfilter();
}

// One block per image, the longest streams first. `reports`: after each window the rows that are
// ready, and not only after the last one.
template <int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    inflate(const struct conv_decode_image *images, uint32_t *status, uint32_t free_cost,
            const uint32_t *stop, bool split, bool reports)
{
    extern __shared__ uint4 memory[];
    struct block_memory<THREADS> &shared = *(struct block_memory<THREADS> *)memory;
    uint32_t turn = images[blockIdx.x].turn;
    struct conv_decode_image image = images[turn];
    prepare_unfilter<THREADS>(image);
    if (split && image.parts && *result_of(image) == CONV_DECODE_DECODED) {
        if (threadIdx.x == 0)
            report_ready(image, image.rows_bytes);
        return;
    }
    uint32_t result = inflate_stream(shared, image, free_cost, stop, reports);
    if (result == CONV_DECODE_DECODED) {
        __syncthreads();
        if (!filters_exist<THREADS>(image))
            result = CONV_DECODE_FILTER;
    }
    if (threadIdx.x == THREADS - 1) { // the one that has reported rows
        status[turn] = result;
        if (result == CONV_DECODE_DECODED)
            report_ready(image, image.rows_bytes);
        else
            atomicOr(ready_of(image), READY_FAILED);
    }
}

// --- launches ------------------------------------------------------------------------------------

template <int THREADS> static enum conv_status launch(const struct conv_decode_batch *batch)
{
    const int bytes = (int)sizeof(struct block_memory<THREADS>);
    bool split;
    if (conv_cuda_split_is_used(batch, &split))
        return CONV_ERR_DEVICE;
    if (bytes > 48 << 10 &&
        cudaFuncSetAttribute((const void *)inflate<THREADS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return CONV_ERR_DEVICE;
    // The lowest priority, so that what other streams have inflated already is finished first.
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePriority;
    attribute.val.priority = 0;
    cudaLaunchConfig_t config = {dim3((unsigned)batch->count), dim3(THREADS), (size_t)bytes,
                                 (cudaStream_t)batch->stream,  &attribute,    1};
    uint32_t free_cost = batch->at_any_cost ? UINT32_MAX : FREE_COST;
    (void)cudaLaunchKernelEx(&config, inflate<THREADS>, batch->d_images, batch->d_status, free_cost,
                             batch->d_stop, split, conv_decode_is_alone(batch));
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// Chooses the largest block size with which all images are in flight at once, among those for which
// the device has enough shared memory.
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
        *name = "inflate_512+unfilter";
        return launch<512>(batch);
    case 256:
        *name = "inflate_256+unfilter";
        return launch<256>(batch);
    default:
        *name = "inflate_128+unfilter";
        return launch<128>(batch);
    }
}
