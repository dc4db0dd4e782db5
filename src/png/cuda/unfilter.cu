// SPDX-License-Identifier: MIT
// Reverses the row filters and splits rows into planes. A block has an image and a thread a row,
// one step after the thread of the row above, which passes on the bytes of its last step. A thread
// that has finished its row takes the next free one without waiting for the others. A step is 16
// bytes of each plane, or 4 where few images leave most of the device idle.
#include <cuda_runtime_api.h>

#include "png/cuda/launches.cuh"
#include "png/cuda/unfilter.cuh"

#define WARP 32
// Bytes of each plane in a step, as words: what one store writes. An image takes about as many
// steps as it has rows and each row has steps, so narrow ones end sooner; wide ones store whole
// sectors and take fewer instructions per byte, so that many images are done sooner.
#define WIDE 4
#define NARROW 1
#define MOST_CHANNELS 4
// More warps per SM evict each other's rows from the first-level cache before they are used up.
#define MOST_WARPS 16
#define SYSTEM_SHARED 1024 // bytes of each block's shared memory reserved by the system
#define IMAGE_WARPS 8      // of an image, at most

// The bytes of a step, for each plane.
template <int CHANNELS, int WORDS> struct strip {
    uint32_t words[CHANNELS][WORDS];
};

// The words of a step of one plane in memory.
template <int WORDS> struct alignas(4 * WORDS) step_words {
    uint32_t words[WORDS];
};

// The position of a thread.
struct place {
    uint32_t y, step;
    const uint32_t *words;  // of the filtered row, from its first whole word on
    uint32_t shift, former; // bits of a word before the row's byte; the word read last
    struct row_filter filter;
};

__device__ __forceinline__ void enter_row(struct place *place,
                                          const struct conv_decode_image &image, uint32_t y)
{
    place->y = y;
    place->step = 0;
    if (y >= (uint32_t)image.height)
        return;
    const uint8_t *row = image.d_rows + (size_t)y * (image.row_bytes + 1);
    uint32_t odd = (uint32_t)((uintptr_t)(row + 1) % 4);
    place->filter = choose_filter(row[0]);
    place->words = (const uint32_t *)(row + 1 - odd);
    place->shift = 8 * odd;
    place->former = place->words[0];
}

template <int WORDS>
__device__ __forceinline__ struct step_words<WORDS> *
plane_step(const struct conv_decode_image &image, int c, uint32_t y, uint32_t step) {
    return (struct step_words<WORDS> *)(image.d_plane[c] + y * image.stride) + step;
}

template <int CHANNELS, int WORDS>
__device__ __forceinline__ void read_above(struct strip<CHANNELS, WORDS> *above,
                                           const struct conv_decode_image &image,
                                           const struct place &place)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        struct step_words<WORDS> words = {
        };
        if (place.y > 0)
            words = *plane_step<WORDS>(image, c, place.y - 1, place.step);
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            above->words[c][i] = words.words[i];
    }
}

// Loads the words of a step, which is done a step ahead. Those after the row's end are the next
// row's, or the slack.
template <int COUNT>
__device__ __forceinline__ void load_row(uint32_t *ahead, const struct place &place, uint32_t step)
{
    const uint32_t *words = place.words + step * COUNT;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        ahead[i] = words[i + 1];
}

// Turns a step's words into its bytes.
template <int COUNT>
__device__ __forceinline__ void read_row(uint32_t *bytes, struct place *place,
                                         const uint32_t *ahead)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t word = ahead[i];
        bytes[i] = __funnelshift_r(place->former, word, place->shift);
        place->former = word;
    }
}

__device__ __forceinline__ uint32_t byte_of(const uint32_t *words, int i)
{
    return words[i / 4] >> 8 * (i % 4) & 255;
}

// Unfilters a step of a row. left[] and above_left[] belong to the pixel before the step, and
// afterwards to its last pixel.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void
unfilter_step(struct strip<CHANNELS, WORDS> *out, const struct strip<CHANNELS, WORDS> &above,
              const uint32_t *bytes, const struct row_filter &filter, uint32_t *left,
              uint32_t *above_left)
{
#pragma unroll
    for (int i = 0; i < CHANNELS * WORDS; i++)
        out->words[i / WORDS][i % WORDS] = 0;
#pragma unroll
    for (int x = 0; x < 4 * WORDS / SAMPLE; x++) {
#pragma unroll
        for (int k = 0; k < CHANNELS * SAMPLE; k++) {
            // Samples of 16 bits have their high byte first in the row, last in the plane.
            int c = k / SAMPLE, at = x * SAMPLE + SAMPLE - 1 - k % SAMPLE;
            uint32_t up = byte_of(above.words[c], at);
            uint32_t byte = byte_of(bytes, x * CHANNELS * SAMPLE + k);
            left[k] = unfilter_byte(&filter, byte, left[k], up, above_left[k]) & 255;
            above_left[k] = up;
            out->words[c][at / 4] |= left[k] << 8 * (at % 4);
        }
    }
}

// Shared memory holds the bytes of each thread's current and last step: [step %
// 2][channel][thread].
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ inline void unfilter_image(const struct conv_decode_image &image,
                                      struct step_words<WORDS> *made)
{
    const uint32_t threads = blockDim.x, me = threadIdx.x, height = (uint32_t)image.height;
    const uint32_t steps = ((uint32_t)image.width * SAMPLE + 4 * WORDS - 1) / (4 * WORDS);
    // With rows of fewer steps than threads, a thread waits for the others before its next row.
    const uint32_t period = max(steps, threads);
    const uint32_t total = (height + threads - 1) / threads * period + threads - 1;
    uint32_t left[CHANNELS * SAMPLE], above_left[CHANNELS * SAMPLE];
    struct place place = {};
    uint32_t ahead[CHANNELS * WORDS] = {0};
    enter_row(&place, image, me);
    if (place.y < height)
        load_row<CHANNELS * WORDS>(ahead, place, 0);
    for (uint32_t now = 0; now < total; now++) {
        if (now >= me) {
            if (place.step < steps && place.y < height) {
                struct strip<CHANNELS, WORDS> above, out;
                uint32_t bytes[CHANNELS * WORDS];
                if (place.step == 0)
                    for (int k = 0; k < CHANNELS * SAMPLE; k++)
                        left[k] = above_left[k] = 0;
                read_row<CHANNELS * WORDS>(bytes, &place, ahead);
                if (place.step + 1 < steps)
                    load_row<CHANNELS * WORDS>(ahead, place, place.step + 1);
                if (me == 0) {
                    read_above(&above, image, place); // written a round ago
                } else {
#pragma unroll
                    for (int c = 0; c < CHANNELS; c++) {
                        struct step_words<WORDS> words =
                            made[((now - 1) % 2 * MOST_CHANNELS + c) * threads + me - 1];
#pragma unroll
                        for (int i = 0; i < WORDS; i++)
                            above.words[c][i] = words.words[i];
                    }
                }
                unfilter_step<CHANNELS, SAMPLE>(&out, above, bytes, place.filter, left, above_left);
#pragma unroll
                for (int c = 0; c < CHANNELS; c++) {
                    struct step_words<WORDS> words;
#pragma unroll
                    for (int i = 0; i < WORDS; i++)
                        words.words[i] = out.words[c][i];
                    made[(now % 2 * MOST_CHANNELS + c) * threads + me] = words;
                    *plane_step<WORDS>(image, c, place.y, place.step) = words;
                }
            }
            if (++place.step == period) {
                enter_row(&place, image, place.y + threads);
                if (place.y < height)
                    load_row<CHANNELS * WORDS>(ahead, place, 0);
            }
        }
        if (threads == WARP)
            __syncwarp();
        else
            __syncthreads();
    }
}

template <int WORDS>
static __global__ void __launch_bounds__(256) unfilter(const struct conv_decode_image *images)
{
    extern __shared__ uint4 memory[];
    struct step_words<WORDS> *made = (struct step_words<WORDS> *)memory;
    struct conv_decode_image image = images[images[blockIdx.x].turn];
    if (*(const uint32_t *)(image.d_rows + conv_decode_result_at(image.rows_bytes)) !=
        CONV_DECODE_DECODED)
        return;
    switch (2 * image.channels + image.depth / 16) {
    case 2:
        unfilter_image<1, 1, WORDS>(image, made);
        break;
    case 3:
        unfilter_image<1, 2, WORDS>(image, made);
        break;
    case 4:
        unfilter_image<2, 1, WORDS>(image, made);
        break;
    case 5:
        unfilter_image<2, 2, WORDS>(image, made);
        break;
    case 6:
        unfilter_image<3, 1, WORDS>(image, made);
        break;
    case 7:
        unfilter_image<3, 2, WORDS>(image, made);
        break;
    case 8:
        unfilter_image<4, 1, WORDS>(image, made);
        break;
    case 9:
        unfilter_image<4, 2, WORDS>(image, made);
        break;
    }
}

// The most steps of a row in the batch: with more threads, some would always wait.
static int most_steps(const struct conv_decode_batch *batch, int words)
{
    int64_t most = 1;
    for (int i = 0; i < batch->count; i++) {
        int64_t bytes = (int64_t)batch->images[i].width * (batch->images[i].depth / 8);
        most = bytes / (4 * words) > most ? bytes / (4 * words) : most;
    }
    return most < INT32_MAX ? (int)most : INT32_MAX;
}

// The warps per image: up to `most`, as long as that occupies more of the device.
static int choose_warps(const struct conv_decode_batch *batch, int processors, int words, int most)
{
    int warps = 1, steps = most_steps(batch, words);
    while (warps < most && WARP * warps < steps &&
           2 * warps * batch->count <= MOST_WARPS / 2 * processors)
        warps *= 2;
    return warps;
}

template <int WORDS>
static enum conv_status launch(const struct conv_decode_batch *batch, int warps, size_t least_bytes)
{
    size_t bytes = (size_t)(2 * MOST_CHANNELS * WARP * warps) * sizeof(struct step_words<WORDS>);
    bytes = bytes < least_bytes ? least_bytes : bytes;
    unfilter<WORDS>
        <<<(unsigned)batch->count, (unsigned)(WARP * warps), bytes, (cudaStream_t)batch->stream>>>(
            batch->d_images);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// Uses enough warps per image to occupy every SM; with one warp per image, shared memory is padded
// to limit the warps per SM.
enum conv_status conv_cuda_unfilter(const struct conv_decode_batch *batch, const char **name)
{
    int device, processors, processor;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaDeviceGetAttribute(&processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device))
        return CONV_ERR_DEVICE;
    // On an H200 narrow steps take 1.21 ms instead of 1.41 for 132 photographs, an image per SM,
    // but with 264 (and 4 warps each) 1.90 instead of 1.47.
    int at_once = batch->at_once ? batch->at_once : batch->count;
    if (batch->split != CONV_DECODE_SPLIT_NEVER && at_once <= processors) {
        *name = "unfilter_narrow";
        return launch<NARROW>(batch, choose_warps(batch, processors, NARROW, IMAGE_WARPS), 0);
    }
    int warps = choose_warps(batch, processors, WIDE, IMAGE_WARPS);
    // No room for more warps.
    size_t share = (size_t)(processor / MOST_WARPS - SYSTEM_SHARED);
    *name = "unfilter";
    return launch<WIDE>(batch, warps, warps == 1 ? share : 0);
}
