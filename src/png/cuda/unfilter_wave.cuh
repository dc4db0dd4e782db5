// SPDX-License-Identifier: MIT
// A warp's wave through an image's rows: a lane has a row, one step behind the lane of the row
// above, whose last bytes it takes from that lane's registers. Rows come to shared memory ahead of
// their use, 128 bytes of one row in an instruction, and leave it in runs of whole sectors, since
// lanes that access their rows alone would take parts of 32 lines each time.
#ifndef CONV_PNG_CUDA_UNFILTER_WAVE_CUH
#define CONV_PNG_CUDA_UNFILTER_WAVE_CUH

#include <cuda_pipeline.h>

#include "png/cuda/launches.cuh"
#include "png/cuda/unfilter.cuh"

#define WARP 32
#define ALL_LANES 0xffffffffu
// Bytes of each plane in a step, as words: what one store writes. An image takes about as many
// steps as it has rows and each row has steps, so narrow ones end sooner; wide ones store half
// sectors and take fewer instructions per byte, so that many images are done sooner.
#define WIDE 4
#define NARROW 1

// A lane's ring in shared memory: two chunks of its row, each of as many steps as one instruction
// loads the words of, with a word before them that the first step shares with the chunk before, and
// one more before that, which may contain the filter. Strides keep lanes that are a step apart in
// different banks.
template <int COUNT> struct ring { // words of a step
    static constexpr uint32_t BEFORE = 2, STEPS = (WARP - BEFORE) / COUNT;
    static constexpr uint32_t WORDS = STEPS * COUNT + BEFORE, SLOT = (WORDS + 3) / 4 * 4;
    static constexpr uint32_t STRIDE = 2 * SLOT + (COUNT % 4 ? COUNT + 1 : 1);
};

// Its bytes of each plane that are not written yet, and a gap for the same reason. After all rings.
template <int CHANNELS, int WORDS> struct runs {
    static constexpr uint32_t BYTES = WORDS == WIDE ? 64 : 32; // of a plane's row
    static constexpr uint32_t STEPS = BYTES / 4 / WORDS, STRIDE = CHANNELS * BYTES / 4 + 4;
};
template <int CHANNELS, int WORDS>
static constexpr uint32_t LANE_WORDS =
    ring<CHANNELS * WORDS>::STRIDE + runs<CHANNELS, WORDS>::STRIDE;

// The words of a step of one plane.
template <int WORDS> struct alignas(4 * WORDS) step_words {
    uint32_t words[WORDS];
};

// The bytes of a step, for each plane.
template <int CHANNELS, int WORDS> struct strip {
    struct step_words<WORDS> planes[CHANNELS];
};

// The position of a lane.
struct place {
    uint32_t y, step, inner; // inner: within the chunk
    uint32_t slot;
    struct row_filter filter;
    uint32_t shift; // bits of a word before the row's byte
};

// --- loading -------------------------------------------------------------------------------------

// The byte of the rows at which a row begins, after its filter.
__device__ __forceinline__ uint32_t row_begin(const struct conv_decode_image &image, uint32_t y)
{
    return y * (image.row_bytes + 1) + 1;
}

// The word before the row's first one. That of the first row lies before the memory, wraps, and is
// not loaded.
__device__ __forceinline__ uint32_t first_word(const struct conv_decode_image &image, uint32_t y)
{
    return row_begin(image, y) / 4 - 1;
}

// --- a step --------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t byte_of(const uint32_t *words, int i)
{
    return words[i / 4] >> 8 * (i % 4) & 255;
}

// Unfilters a step of a row. left[] and above_left[] belong to the pixel before it, and to its last
// pixel afterwards.
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

// Begins a row, with its first chunk in the ring.
template <int COUNT>
__device__ __forceinline__ void enter_row(struct place *place, const uint32_t *own,
                                          const struct conv_decode_image &image)
{
    uint32_t begin = row_begin(image, place->y);
    const uint8_t *bytes = (const uint8_t *)(own + place->slot * ring<COUNT>::SLOT);
    place->filter = choose_filter(bytes[begin % 4 + 3]); // the byte before that of the row
    place->shift = 8 * (begin % 4);
}

// One step of a lane: reads its words from the ring and leaves its bytes in its runs.
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

// Writes the runs of the lanes that have completed one with this step. The step of lane 0 is `now`
// of rows from `y` on; lanes that are behind its row's begin are `period` steps on in the former
// rows.
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
    uint32_t at = (step + 1 - STEPS) * (4 * WORDS) + 16 * piece; // a byte of the row
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

// The bytes above a lane's: `last` of the lane before, and `first` for lane 0.
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
