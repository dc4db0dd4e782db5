// SPDX-License-Identifier: MIT
// What the kernels of the decoder share. A batch takes these launches:
//   huffman.cu  jpeg_sync    finds where the symbols of each subsequence of the data begin
//               jpeg_link    checks that across chunks, and counts the blocks before each chunk
//               jpeg_write   decodes once more, and stores coefficients
//   blocks.cu   jpeg_dc      prefix sums of the differences of DC coefficients
//               jpeg_idct    coefficients to samples of the components
//   pixels.cu   jpeg_pixels  enlarges chroma, converts to R'G'B', reports the result
#pragma once

#include <cuda_runtime.h>

#include "jpeg/cuda/cuda_jpeg.h"
#include "kernels/common/warp.cuh"

// --- the division of work ------------------------------------------------------------------------

// A subsequence is what one thread decodes of the entropy-coded data. It is long enough that most
// threads are synchronised by its end, and short enough that one image has many.
#ifndef SUB_BYTES
#define SUB_BYTES 128
#endif
#define SUB_BITS (8 * SUB_BYTES)
// A block of threads decodes a chunk, and before that the last subsequences of the chunk before, so
// that it nearly always enters its own in the right state. In photographs of quality 90, 4:2:0, all
// but 0.3 % of the decoders are synchronised after 8 subsequences; of quality 98, after 14.
#define THREADS 256
#define WARM_SUBS 16
#define CHUNK_SUBS (THREADS - WARM_SUBS)

#define CONV_JPEG_MOST_BLOCKS 10 // of an MCU (ITU-T T.81, annex B.2.3)

#define DC_THREADS 256
#define DC_MCUS 4                        // per thread
#define TILE_MCUS (DC_THREADS * DC_MCUS) // whose sums a block of threads of jpeg_dc finds

#define IDCT_THREADS 256 // 8 of them for a block of coefficients
#define IDCT_STEPS 4
#define IDCT_BLOCKS (IDCT_THREADS / 8 * IDCT_STEPS)

#define PIXEL_THREADS 256
#define PIXEL_STEPS 4
#define PIXEL_WIDTH 16 // that a thread writes in a step
#define PIXEL_UNITS (PIXEL_THREADS * PIXEL_STEPS)

// Numbers of blocks of threads, in the order of the launches.
enum jpeg_work { WORK_CHUNKS, WORK_TILES, WORK_IDCT, WORK_PIXELS, WORKS };

// --- an image ------------------------------------------------------------------------------------

struct jpeg_result {
    uint32_t code;       // enum conv_jpeg_decode_result
    uint32_t tiles_done; // by jpeg_dc
};

// A chunk is linked with the one before if that one's last state is `entry`, or if `entry` is
// KNOWN_ENTRY because a restart segment begins in its first subsequence.
struct jpeg_chunk {
    uint32_t entry;
    uint32_t count; // of blocks; jpeg_link makes it that of all chunks before
    uint32_t fixed; // 1: it includes all blocks before
};

// The planner's part of an image; in conv_jpeg_decode_image.plan.
struct jpeg_plan {
    int16_t *coefficients; // [blocks][64], columns first; blocks in the order of the scan
    int32_t *dc;           // [blocks]: differences, then their sums within a tile
    int32_t *tiles;        // [tiles][3]: sums of the differences before a tile, per component
    uint8_t *samples;      // planes of the components, of whole MCUs
    uint32_t *states;      // [subs], after each subsequence; huffman.cuh
    struct jpeg_chunk *chunks;
    struct jpeg_result *result;
    uint32_t first[WORKS]; // block of threads of each launch
    uint32_t subs;         // at most; chunks cover them
    uint32_t mcus, mcus_x;
    uint32_t mcu_blocks, blocks;
};
static_assert(sizeof(struct jpeg_plan) <= sizeof(((struct conv_jpeg_decode_image *)0)->plan),
              "the plan has room");

__host__ __device__ static inline const struct jpeg_plan &
plan_of(const struct conv_jpeg_decode_image &image)
{
    const void *plan = image.plan;
    return *(const struct jpeg_plan *)plan;
}

__device__ __forceinline__ const struct conv_jpeg_stream &
head_of(const struct conv_jpeg_decode_image &image)
{
    return *(const struct conv_jpeg_stream *)image.d_stream;
}

// A place among the blocks of threads of a launch.
struct jpeg_place {
    const struct conv_jpeg_decode_image *image;
    uint32_t number; // of the image
    uint32_t index;  // of the block of threads, within the image
};

// Finds the image of a block of threads.
__device__ __forceinline__ struct jpeg_place find_place(const struct conv_jpeg_decode_image *images,
                                                        uint32_t count, enum jpeg_work work)
{
    int i = find_last((int)count, blockIdx.x,
                      [=](int image) { return plan_of(images[image]).first[work]; });
    struct jpeg_place place = {&images[i], (uint32_t)i,
                               blockIdx.x - plan_of(images[i]).first[work]};
    return place;
}

// A word that other blocks, or the host, may write meanwhile.
__device__ __forceinline__ uint32_t look_at(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"((uint64_t)word)
                 : "memory");
    return value;
}

// Records a failure.
__device__ __forceinline__ void fail_image(const struct jpeg_plan &plan, uint32_t code)
{
    if (look_at(&plan.result->code) == CONV_JPEG_DECODED)
        atomicMax(&plan.result->code, code);
}

// True if the image has failed before; every thread of a block gets the same answer.
__device__ __forceinline__ bool has_failed(const struct jpeg_plan &plan)
{
    return __syncthreads_or(threadIdx.x == 0 && look_at(&plan.result->code) != CONV_JPEG_DECODED);
}

// --- coefficients --------------------------------------------------------------------------------

// The place of a coefficient in a block that is stored by columns, from its place in the zigzag
// sequence (ITU-T T.81, figure A.6).
__device__ __forceinline__ uint8_t column_order(uint32_t index)
{
    static const uint8_t order[CONV_JPEG_BLOCK] = {
        0,  8,  1,  2,  9,  16, 24, 17, 10, 3,  4,  11, 18, 25, 32, 40, 33, 26, 19, 12, 5,  6,
        13, 20, 27, 34, 41, 48, 56, 49, 42, 35, 28, 21, 14, 7,  15, 22, 29, 36, 43, 50, 57, 58,
        51, 44, 37, 30, 23, 31, 38, 45, 52, 59, 60, 53, 46, 39, 47, 54, 61, 62, 55, 63};
    return order[index];
}

// --- launches ------------------------------------------------------------------------------------

extern "C" {
// Each enqueues one kernel.
void conv_jpeg_launch_sync(const struct conv_jpeg_decode_batch *batch, uint32_t blocks);
void conv_jpeg_launch_link(const struct conv_jpeg_decode_batch *batch);
void conv_jpeg_launch_write(const struct conv_jpeg_decode_batch *batch, uint32_t blocks);
void conv_jpeg_launch_dc(const struct conv_jpeg_decode_batch *batch, uint32_t blocks);
void conv_jpeg_launch_idct(const struct conv_jpeg_decode_batch *batch, uint32_t blocks);
void conv_jpeg_launch_pixels(const struct conv_jpeg_decode_batch *batch, uint32_t blocks);
}
