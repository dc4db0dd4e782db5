// SPDX-License-Identifier: MIT
// Finds the symbols of a stream in parallel, although only the first one's position is known. Each
// thread of a block guesses: it starts at the first bit of its own part of the next bits, and
// counts the bytes up to the next part. Codes of varying length soon synchronise, so most of the
// ends are right even if the starts were wrong. Each thread then corrects its start to the end of
// the preceding part, until all agree. (After Klein and Wiseman, "Parallel Huffman decoding with
// applications to JPEG files"; Weissenberger and Schmidt, "Massively parallel Huffman decoding on
// GPUs".)
#ifndef CONV_PNG_CUDA_SPECULATE_CUH
#define CONV_PNG_CUDA_SPECULATE_CUH

#include "png/cuda/inflate.cuh"

// Segments of a part. A thread that counts its part again stops at the first segment boundary that
// it reaches at the same bit as before, since everything after it is then unchanged.
#define SEGMENTS 4
// Rounds of correction. Parts that are still wrong after them are left to the next window. With
// codes that do not synchronise, a block is as slow as one thread, but makes progress.
#define MOST_ROUNDS 24

// A thread's position: a bit of the stage, and in the top bits the reason why it stopped there.
#define PLACE_STOPPED (1u << 31)
#define PLACE_INVALID (1u << 30)
#define PLACE_BIT (PLACE_INVALID - 1)

struct part {
    uint32_t start;
    uint32_t places[SEGMENTS]; // after each segment
    uint32_t bytes[SEGMENTS];
};

__device__ __forceinline__ uint32_t segment_of(const uint32_t *of, int p)
{
    static_assert(SEGMENTS == 4, "registers have no index");
    return p == 0 ? of[0] : p == 1 ? of[1] : p == 2 ? of[2] : of[3];
}

__device__ __forceinline__ void set_segments(uint32_t *of, int first, int last, uint32_t value)
{
    for (int p = 0; p < SEGMENTS; p++)
        of[p] = p >= first && p <= last ? value : of[p];
}

// Counts the bytes of a part, the bits from `first` to `last`, beginning at bit `start`.
__device__ __forceinline__ void count_part(struct part *part, const uint32_t *entries,
                                           const uint32_t *stage, uint32_t start, uint32_t first,
                                           uint32_t last)
{
    struct bits bits = read_bits(stage, start);
    uint32_t step = (last - first) / SEGMENTS;
    part->start = start;
#pragma unroll 1
    for (int p = 0; p < SEGMENTS; p++) {
        uint32_t bytes = 0, limit = p == SEGMENTS - 1 ? last : first + (uint32_t)(p + 1) * step;
        uint32_t stop = count_symbols(entries, &bits, limit, &bytes);
        uint32_t place =
            bits.at | (stop ? PLACE_STOPPED : 0) | (stop == SYMBOLS_INVALID ? PLACE_INVALID : 0);
        bool known = place == segment_of(part->places, p);
        set_segments(part->bytes, p, p, bytes);
        if (known)
            break;
        set_segments(part->places, p, stop ? SEGMENTS - 1 : p, place);
        if (stop) {
            set_segments(part->bytes, p + 1, SEGMENTS - 1, 0);
            break;
        }
    }
}

// The block's first threads count one part each: `bits` bits from bit `at` of the stage on, up to
// `end`. The other threads call beside() meanwhile. True if this thread's part begins where the one
// before it ends, and not after the end of the DEFLATE block. Each round has one barrier, which
// also tells all threads whether the end of any part has changed; the part after it is then counted
// again. Parts after the end of the DEFLATE block are not corrected. A warp learns one round late
// whether that end is in an earlier warp's parts; if this has changed, so has an earlier part, and
// another round follows.
template <int THREADS, typename BESIDE>
__device__ inline bool count_parts(struct block_memory<THREADS> &shared, struct part *part,
                                   uint32_t at, uint32_t bits, uint32_t end, BESIDE beside)
{
    const uint32_t WARPS = THREADS / block_memory<THREADS>::SHARES / LANES;
    uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, below = (1u << lane) - 1;
    uint32_t first = min(at + threadIdx.x * bits, end), last = min(first + bits, end);
    uint32_t start = first;
    bool counts = warp < WARPS, wrong = counts;
    bool ended = false; // the DEFLATE block ends in an earlier warp's parts
    set_segments(part->places, 0, SEGMENTS - 1, UINT32_MAX);
#pragma unroll 1
    for (int round = 0;; round++) {
        uint32_t former = part->places[SEGMENTS - 1];
        if (wrong)
            count_part(part, shared.entries, shared.stage, start, first, last);
        else if (round == 0)
            beside();
        __syncwarp();
        uint32_t place = part->places[SEGMENTS - 1];
        uint32_t before = __shfl_up_sync(ALL_LANES, place, 1);
        uint32_t stops = __ballot_sync(ALL_LANES, place & PLACE_STOPPED);
        bool after = stops & below;
        bool changed = counts && place != former && !after && !ended;
        uint32_t *ends = shared.ends[round % 2];
        if (lane == LANES - 1 && counts)
            ends[warp] = stops ? place | PLACE_STOPPED : place;
        bool again = __syncthreads_or(changed);
        uint32_t earlier = lane < WARPS && lane < warp ? ends[lane] : 0;
        ended = __ballot_sync(ALL_LANES, earlier & PLACE_STOPPED);
        uint32_t latest = __shfl_sync(ALL_LANES, earlier, (int)(warp - 1) & (LANES - 1));
        before = lane == 0 ? latest : before;
        if (threadIdx.x == 0)
            before = first;
        bool reached = counts && !ended && !after;
        wrong = reached && before != part->start;
        if (!again || round == MOST_ROUNDS)
            return reached && !wrong;
        start = before;
    }
}

#endif
