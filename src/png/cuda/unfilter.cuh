// SPDX-License-Identifier: MIT
// Reverses PNG's filters (section 9 of the standard): the arithmetic without a branch, since the
// lanes of a warp are in different rows, each with its own filter; and how a warp takes 32 rows.
#pragma once

#include <cuda_pipeline.h>

#include "png/cuda/launches.cuh"
#include "png/cuda/symbols.cuh"

// Two bytes are computed at a time, each in the low byte of a half of a word.
#define PAIR_BYTES 0x00ff00ffu

// Every filter except the average is computed like Paeth's, with neighbours that it does not use
// masked out. With `triple` 0, the predicted value is the greater of left and above.
struct row_filter {
    uint32_t left;    // PAIR_BYTES if the filter uses that neighbour, else 0
    uint32_t above;   // all ones or 0
    uint32_t triple;  // the factor of above_left: 3 for Paeth, else 0
    uint32_t average; // PAIR_BYTES or 0
};

ANYWHERE struct row_filter choose_filter(uint32_t number) // none, sub, up, average, Paeth
{
    struct row_filter filter = {number == 1 || number >= 3 ? PAIR_BYTES : 0,
                                number >= 2 ? 0xffffffffu : 0, number == 4 ? 3u : 0,
                                number == 3 ? PAIR_BYTES : 0};
    return filter;
}

// The lesser, and the greater, of each half.
ANYWHERE uint32_t lesser_halves(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __vminu2(a, b);
#else
    uint32_t low = (a & 0xffff) < (b & 0xffff) ? a : b, high = a >> 16 < b >> 16 ? a : b;
    return (high & 0xffff0000u) | (low & 0xffff);
#endif
}

ANYWHERE uint32_t greater_halves(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    uint32_t low = (a & 0xffff) < (b & 0xffff) ? b : a, high = a >> 16 < b >> 16 ? b : a;
    return (high & 0xffff0000u) | (low & 0xffff);
#endif
}

// Halves that are all ones where the top bit is set, else 0.
ANYWHERE uint32_t top_bits(uint32_t halves)
{
#ifdef __CUDA_ARCH__
    uint32_t all;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(all) : "r"(halves)); // the sign of bytes 1 and 3
    return all;
#else
    return (halves >> 31 ? 0xffff0000u : 0) | (halves & 0x8000 ? 0xffffu : 0);
#endif
}

// The bytes, in the low byte of each half of the result; the other bits are arbitrary. All bytes
// are given so, with zeros elsewhere, and the neighbours are masked.
ANYWHERE uint32_t unfilter_pair(const struct row_filter *filter, uint32_t bytes, uint32_t left,
                                uint32_t above, uint32_t above_left)
{
    // The nearest of the three to left + above - above_left, as in src/png/cpu/unfilter.c. The top
    // bit of a half is that of a difference of at least -765, which is 0x8000 too high: no half
    // borrows from the other.
    uint32_t sum = left + above, t = filter->triple * above_left + 0x80008000u - sum;
    uint32_t low = lesser_halves(left, above), high = greater_halves(left, above);
    uint32_t reached = top_bits(t - high), passed = top_bits(t - low - 0x00010001u);
    uint32_t nearest = (reached & low) | (~reached & above_left);
    nearest = (passed & nearest) | (~passed & high);
    nearest = (filter->average & sum >> 1) | (~filter->average & nearest);
    return bytes + nearest;
}

// --- rows in a wave ------------------------------------------------------------------------------

// A warp unfilters 32 rows as a wave: each lane has a row and is one step behind the lane of the
// row above, from whose registers it takes the bytes above its own. The warp loads rows to shared
// memory ahead of their use, 128 bytes of one row per instruction, and writes them in runs of whole
// sectors. If each lane accessed its own row, every access would touch 32 cache lines.

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

// Bytes of a pixel, and pairs of them that are unfiltered together (unfilter.cuh). The second byte
// of the last pair may be missing.
template <int CHANNELS, int SAMPLE> struct pixel {
    static constexpr int BYTES = CHANNELS * SAMPLE, PAIRS = (BYTES + 1) / 2;
};

// Bytes i and i + 1 as a pair; the first one only if `alone`.
__device__ __forceinline__ uint32_t pair_of(const uint32_t *words, int i, bool alone)
{
    uint32_t word = words[i / 4], at = i % 4;
    if (alone)
        return __byte_perm(word, 0, 0x4440 + at);
    if (at < 3)
        return __byte_perm(word, 0, 0x4040 + at * 0x101 + 0x100);
    return __byte_perm(word, words[i / 4 + 1], 0x0403) & PAIR_BYTES;
}

// The bytes above pair `p` of pixel `x` of a step. Samples of 16 bits have their high byte first in
// a pair, last in the plane.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ uint32_t pair_above(const struct strip<CHANNELS, WORDS> &above, int x,
                                               int p)
{
    uint32_t word = above.planes[2 * p / SAMPLE].words[x * SAMPLE / 4], at = x * SAMPLE % 4;
    if (SAMPLE == 2)
        return __byte_perm(word, 0, 0x4041 + at * 0x101);
    if (2 * p + 1 == CHANNELS)
        return __byte_perm(word, 0, 0x4440 + at);
    // Those of two pixels first, which the next pixel uses as well.
    uint32_t other = above.planes[2 * p + 1 < CHANNELS ? 2 * p + 1 : 0].words[x / 4];
    uint32_t both = __byte_perm(word, other, at < 2 ? 0x5140 : 0x7362);
    return __byte_perm(both, 0, at % 2 ? 0x4342 : 0x4140);
}

// Joins the pairs of the pixels of a word to words of the planes.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void join_pairs(struct strip<CHANNELS, WORDS> *out,
                                           const uint32_t *pairs, int word, int p)
{
    if (SAMPLE == 2) {
        out->planes[p].words[word] = __byte_perm(pairs[0], pairs[1], 0x4602);
        return;
    }
    uint32_t first = __byte_perm(pairs[0], pairs[1], 0x6240);
    uint32_t second = __byte_perm(pairs[2], pairs[3], 0x6240);
    out->planes[2 * p].words[word] = __byte_perm(first, second, 0x5410);
    if (2 * p + 1 < CHANNELS)
        out->planes[2 * p + 1].words[word] = __byte_perm(first, second, 0x7632);
}

// Unfilters a step of a row. left[] and above_left[] are the pairs of the pixel before the step; on
// return, of its last pixel.
template <int CHANNELS, int SAMPLE, int WORDS>
__device__ __forceinline__ void
unfilter_step(struct strip<CHANNELS, WORDS> *out, const struct strip<CHANNELS, WORDS> &above,
              const uint32_t *bytes, const struct row_filter &filter, uint32_t *left,
              uint32_t *above_left)
{
    typedef struct pixel<CHANNELS, SAMPLE> pixel;
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
        uint32_t pairs[pixel::PAIRS][4 / SAMPLE];
#pragma unroll
        for (int i = 0; i < 4 / SAMPLE; i++) {
            int x = word * (4 / SAMPLE) + i;
#pragma unroll
            for (int p = 0; p < pixel::PAIRS; p++) {
                uint32_t up = pair_above<CHANNELS, SAMPLE, WORDS>(above, x, p);
                uint32_t own = pair_of(bytes, x * pixel::BYTES + 2 * p, 2 * p + 1 == pixel::BYTES);
                own = unfilter_pair(&filter, own, left[p], up, above_left[p]);
                left[p] = own & filter.left;
                above_left[p] = up;
                pairs[p][i] = own;
            }
        }
#pragma unroll
        for (int p = 0; p < pixel::PAIRS; p++)
            join_pairs<CHANNELS, SAMPLE, WORDS>(out, pairs[p], word, p);
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
        for (int p = 0; p < pixel<CHANNELS, SAMPLE>::PAIRS; p++)
            left[p] = above_left[p] = 0;
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
