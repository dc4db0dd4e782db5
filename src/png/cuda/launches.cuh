// SPDX-License-Identifier: MIT
// Launchers of the kernels of PNG decoding, for decode.cu.
#pragma once

#include "png/cuda/cuda_png.h"
#include "png/cuda/symbols.cuh"

// After the filtered rows come zeros, which the unfilter kernel may read, and the result of
// decoding the image in parts.
#define CONV_DECODE_SLACK 80

#define CONV_SPLIT_MOST_PARTS 256

ANYWHERE size_t conv_decode_result_at(uint32_t rows_bytes)
{
    return ((size_t)rows_bytes + CONV_DECODE_SLACK + 3) / 4 * 4;
}

// After the result comes what warps that unfilter bands of the same image share: a counter of the
// bands taken, the bytes of the rows that are ready and the last row of a band, each
// word with a band's number.
ANYWHERE size_t conv_decode_bands_at(uint32_t rows_bytes)
{
    return (conv_decode_result_at(rows_bytes) + sizeof(uint32_t) + 7) / 8 * 8;
}

// Words from there on: the two counters, and a row with its numbers, rounded up to a step of up to
// 16 words.
ANYWHERE uint32_t conv_decode_bands_words(uint32_t row_bytes)
{
    return 2 + 2 * (row_bytes / 4 + 16);
}

extern "C" {
// Each enqueues one launch and sets *name to its name. This one inflates, checks the Adler-32 and
// the filter bytes, and writes d_status. Its name is that of the next two launches.
enum conv_status conv_cuda_inflate(const struct conv_decode_batch *batch, const char **name);
// These four inflate images that have parts, with many blocks of threads per image.
// conv_cuda_inflate, which runs after them, decodes the images that they cannot.
enum conv_status conv_cuda_split_find(const struct conv_decode_batch *batch, const char **name);
enum conv_status conv_cuda_split_count(const struct conv_decode_batch *batch, const char **name);
enum conv_status conv_cuda_split_put(const struct conv_decode_batch *batch, const char **name);
enum conv_status conv_cuda_split_resolve(const struct conv_decode_batch *batch, const char **name);
// The largest number of parts, and of bytes of rows, among the batch's images that have parts.
uint32_t conv_cuda_split_most_parts(const struct conv_decode_batch *batch);
uint32_t conv_cuda_split_most_bytes(const struct conv_decode_batch *batch);
// Whether filters are reversed while images are inflated: only if the device decodes nothing else,
// because warps that wait for rows take shared memory from the inflating blocks of other streams.
// In runs with 12 streams this took half as much time again (60,000 photographs, H100: 3.0 s
// instead of 2.1).
static inline bool conv_decode_is_alone(const struct conv_decode_batch *batch)
{
    return batch->at_once > 0 && batch->at_once <= batch->count;
}
// Sets *used to whether those four are used for the batch.
enum conv_status conv_cuda_split_is_used(const struct conv_decode_batch *batch, bool *used);
// Reverses the filters of the images that are inflated, if it can while they are. Must be the next
// launch of the stream after conv_cuda_inflate.
enum conv_status conv_cuda_unfilter(const struct conv_decode_batch *batch);
}

// --- rows that are ready -------------------------------------------------------------------------

// How far an image is inflated, for warps that reverse its filters meanwhile: a word with the
// number of bytes of the rows that are ready. It never decreases.

#define READY_FAILED (1u << 31) // no more rows follow: the image is not decoded
#define READY_PAUSE 500         // nanoseconds between two looks

__device__ __forceinline__ uint32_t *ready_of(const struct conv_decode_image &image)
{
    return (uint32_t *)(image.d_rows + conv_decode_bands_at(image.rows_bytes)) + 1;
}

// Lets the unfilter kernel start once all blocks of the inflate kernel have called this or ended,
// if it was launched to do so. Without waiting for that kernel's end, it may read only what is
// reported below. PTX ISA: "griddepcontrol".
__device__ __forceinline__ void start_unfilter(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the inflate kernel has ended, so that what follows the unfilter kernel in the stream
// comes after both.
__device__ __forceinline__ void wait_for_inflate(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Reports that the first `bytes` bytes of the rows are written. Called by one thread, after a
// barrier that follows the writes of the others.
__device__ __forceinline__ void report_ready(const struct conv_decode_image &image, uint32_t bytes)
{
    __threadfence();
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"((uint64_t)ready_of(image)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ uint32_t look_at_ready(const struct conv_decode_image &image)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"((uint64_t)ready_of(image))
                 : "memory");
    return value;
}

// Waits until rows up to, and without, row `y` are ready. False if they never will be. Called by
// all lanes of a warp, which may then read the rows. What is ready stays so, even if the image
// fails later: of two warps the one that asks for fewer rows is never the only one to fail.
__device__ inline bool wait_ready(const struct conv_decode_image &image, uint32_t y)
{
    uint32_t bytes = min(y, (uint32_t)image.height) * (image.row_bytes + 1), ready = 0;
    for (;;) {
        if (threadIdx.x == 0)
            ready = look_at_ready(image);
        ready = __shfl_sync(0xffffffffu, ready, 0);
        if ((ready & ~READY_FAILED) >= bytes)
            break;
        if (ready & READY_FAILED)
            return false;
        __nanosleep(READY_PAUSE);
    }
    __threadfence(); // also makes this SM forget older copies of the rows
    __syncwarp();
    return true;
}
