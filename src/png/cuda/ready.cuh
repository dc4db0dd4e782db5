// SPDX-License-Identifier: MIT
// How far an image is inflated, for warps that reverse its filters meanwhile: a word with the
// number of bytes of the rows that are ready. It never decreases.
#ifndef CONV_PNG_CUDA_READY_CUH
#define CONV_PNG_CUDA_READY_CUH

#include "png/cuda/launches.cuh"

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

#endif
