// SPDX-License-Identifier: MIT
// A warp unfilters 32 rows as a wave: each lane has a row and is one step behind the lane of the
// row above, from whose registers it takes the bytes above its own. The warp loads rows to shared
// memory ahead of their use, 128 bytes of one row per instruction, and writes them in runs of whole
// sectors. If each lane accessed its own row, every access would touch 32 cache lines.
#ifndef CONV_PNG_CUDA_UNFILTER_WAVE_CUH
#define CONV_PNG_CUDA_UNFILTER_WAVE_CUH

#include <cuda_pipeline.h>

#include "png/cuda/launches.cuh"
#include "png/cuda/unfilter.cuh"

#define WARP 32
#define ALL_LANES 0xffffffffu
// Words of each plane per step. The time of one image is about the number of its rows plus the
// steps of a row, in steps, so narrow steps finish one image sooner. Wide steps take fewer
// instructions per byte and finish many images sooner.
#define WIDE 4
#define NARROW 1

// A lane's ring in shared memory has slots for two chunks of its row. A chunk is what one
// instruction of the warp loads: two words, and the words of STEPS steps. The second of the two
// words belongs to the previous step as well, and the first one may contain the row's filter byte.
// The strides keep lanes that are a step apart in different banks. COUNT: words of a step.
template <int COUNT> struct ring {
    static constexpr uint32_t BEFORE = 2, STEPS = (WARP - BEFORE) / COUNT;
    static constexpr uint32_t WORDS = STEPS * COUNT + BEFORE, SLOT = (WORDS + 3) / 4 * 4;
    static constexpr uint32_t STRIDE = 2 * SLOT + (COUNT % 4 ? COUNT + 1 : 1);
};

// A lane's run: the bytes of each plane that are not written yet, and a gap that keeps lanes in
// different banks. Runs come after all rings.
template <int CHANNELS, int WORDS> struct runs {
    static constexpr uint32_t BYTES = WORDS == WIDE ? 64 : 32; // per plane
    static constexpr uint32_t STEPS = BYTES / 4 / WORDS, STRIDE = CHANNELS * BYTES / 4 + 4;
};
template <int CHANNELS, int WORDS>
static constexpr uint32_t LANE_WORDS =
    ring<CHANNELS * WORDS>::STRIDE + runs<CHANNELS, WORDS>::STRIDE;

// One plane's words of a step.
template <int WORDS> struct alignas(4 * WORDS) step_words {
    uint32_t words[WORDS];
};

// The bytes of a step, for each plane.
template <int CHANNELS, int WORDS> struct strip {
    struct step_words<WORDS> planes[CHANNELS];
};

// The position of a lane.
struct place {
    uint32_t y, step, inner; // row; step of the row; step of the chunk
    uint32_t slot;
    struct row_filter filter;
    uint32_t shift; // the bit of a word at which the row's bytes begin
};

// --- loading -------------------------------------------------------------------------------------

// The offset of a row's first byte, after its filter byte.
__device__ __forceinline__ uint32_t row_begin(const struct conv_decode_image &image, uint32_t y)
{
    return y * (image.row_bytes + 1) + 1;
}

// The word before the row's first one. For the first row this wraps around, and is not loaded.
__device__ __forceinline__ uint32_t first_word(const struct conv_decode_image &image, uint32_t y)
{
    return row_begin(image, y) / 4 - 1;
}

// --- a step --------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t byte_of(const uint32_t *words, int i)
{
    return words[i / 4] >> 8 * (i % 4) & 255;
}

// Unfilters a step of a row. left[] and above_left[] are those of the pixel before the step; on
// return, of its last pixel.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void
unfilter_step(struct strip<CHANNELS, WORDS> *out, const struct strip<CHANNELS, WORDS> &above,
              const uint32_t *bytes, const struct row_filter &filter, uint32_t *left,
              uint32_t *above_left)
{
#pragma unroll
    for (int i = 0; i < CHANNELS * WORDS; i++)
        out->planes[i / WORDS].words[i % WORDS] = 0;
#pragma unroll
    for (int x = 0; x < 4 * WORDS / SAMPLE; x++) {
#pragma unroll
        for (int k = 0; k < CHANNELS * SAMPLE; k++) {
            // Samples of 16 bits have their high byte first in the row, last in the plane.
            int c = k / SAMPLE, at = x * SAMPLE + SAMPLE - 1 - k % SAMPLE;
            uint32_t up = byte_of(above.planes[c].words, at);
            uint32_t byte = byte_of(bytes, x * CHANNELS * SAMPLE + k);
            byte = unfilter_byte(&filter, byte, left[k], up, above_left[k]);
            left[k] = byte & 255 & filter.left;
            above_left[k] = up;
            out->planes[c].words[at / 4] |= (byte & 255) << 8 * (at % 4);
        }
    }
}

// Begins a row whose first chunk is in the ring.
template <int COUNT>
__device__ __forceinline__ void enter_row(struct place *place, const uint32_t *own,
                                          const struct conv_decode_image &image)
{
    uint32_t begin = row_begin(image, place->y);
    const uint8_t *bytes = (const uint8_t *)(own + place->slot * ring<COUNT>::SLOT);
    place->filter = choose_filter(bytes[begin % 4 + 3]); // the byte before the row's first
    place->shift = 8 * (begin % 4);
}

// One step of a lane: reads its words from the ring and stores the bytes in its run.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void
do_step(struct place *place, const uint32_t *own, struct strip<CHANNELS, WORDS> *last,
        struct strip<CHANNELS, WORDS> above, const struct conv_decode_image &image, uint32_t *left,
        uint32_t *above_left, uint32_t *own_runs)
{
    const int COUNT = CHANNELS * WORDS;
    if (place->step == 0) {
        enter_row<COUNT>(place, own, image);
        for (int k = 0; k < CHANNELS * SAMPLE; k++)
            left[k] = above_left[k] = 0;
    }
    const uint32_t *words = own + place->slot * ring<COUNT>::SLOT + 1 + place->inner * COUNT;
    uint32_t bytes[COUNT], former = words[0];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t word = words[i + 1];
        bytes[i] = __funnelshift_r(former, word, place->shift);
        former = word;
        above.planes[i / WORDS].words[i % WORDS] &= place->filter.above;
    }
    unfilter_step<CHANNELS, SAMPLE, WORDS>(last, above, bytes, place->filter, left, above_left);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        ((struct step_words<WORDS> *)(own_runs +
                                      c * runs<CHANNELS, WORDS>::BYTES /
                                          4))[place->step % (runs<CHANNELS, WORDS>::STEPS)] =
            last->planes[c];
}

// Writes the runs that lanes have completed with this step. Lane 0 is at step `now` of row `y`;
// lanes that have not begun their rows of this round are in those of the previous one, which began
// `period` steps earlier.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void write_runs(const uint32_t *all_runs,
                                           const struct conv_decode_image &image, uint32_t y,
                                           uint32_t now, uint32_t period)
{
    const uint32_t STEPS = runs<CHANNELS, WORDS>::STEPS, PIECES = runs<CHANNELS, WORDS>::BYTES / 16;
    uint32_t lane = threadIdx.x, piece = lane % PIECES;
    uint32_t from = (now + 1) % STEPS + lane / PIECES * STEPS, step = now - from;
    y += from;
    if (now < from) {
        step += period;
        y -= WARP;
    }
    uint32_t at = (step + 1 - STEPS) * (4 * WORDS) + 16 * piece; // offset in the row
    __syncwarp();
    if (from >= WARP || y >= (uint32_t)image.height || at >= (uint32_t)image.width * SAMPLE)
        return;
    size_t to = (size_t)y * (size_t)image.stride + at;
    const uint32_t *run = all_runs + from * runs<CHANNELS, WORDS>::STRIDE + 4 * piece;
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        *(uint4 *)(image.d_plane[c] + to) =
            *(const uint4 *)(run + c * runs<CHANNELS, WORDS>::BYTES / 4);
}

// The bytes above a lane's step: `last` of the lane before it; `first` for lane 0.
template <int CHANNELS, int WORDS>
__device__ __forceinline__ struct strip<CHANNELS, WORDS>
take_above(const struct strip<CHANNELS, WORDS> &last, const struct strip<CHANNELS, WORDS> &first) {
    struct strip<CHANNELS, WORDS> above;
#pragma unroll
    for (int i = 0; i < CHANNELS * WORDS; i++) {
        uint32_t word = __shfl_up_sync(ALL_LANES, last.planes[i / WORDS].words[i % WORDS], 1);
        above.planes[i / WORDS].words[i % WORDS] =
            threadIdx.x == 0 ? first.planes[i / WORDS].words[i % WORDS] : word;
    }
    return above;
}

#endif
