// SPDX-License-Identifier: MIT
// Where the symbols of a stream begin is known of the first one only. So each thread of a block
// guesses: it starts at the first bit of its own part of the next bits, and counts the bytes up to
// the next part. Codes of varying length soon fall into step, so that most of the ends are right
// though the starts were not; then each thread corrects its start to the end before it, until they
// agree. (After Klein and Wiseman, "Parallel Huffman decoding with applications to JPEG files";
// Weissenberger and Schmidt, "Massively parallel Huffman decoding on GPUs".)
#ifndef CONV_PNG_CUDA_SPECULATE_CUH
#define CONV_PNG_CUDA_SPECULATE_CUH

#include "png/cuda/inflate.cuh"

// Pieces of a part. A corrected thread stops at the first piece boundary where it arrives at the
// same place as before, since the rest is then known.
#define PIECES 4
// Rounds of correction. What is not right by then is left to the next window: codes that do not
// fall into step make the block as slow as one thread, but nothing stops.
#define MOST_ROUNDS 24

// Where a thread has come to: a bit of the stage, with what has stopped it there in the top bits.
#define PLACE_STOPPED (1u << 31)
#define PLACE_INVALID (1u << 30)
#define PLACE_BIT (PLACE_INVALID - 1)

struct part {
    uint32_t start;
    uint32_t places[PIECES]; // behind each piece
    uint32_t bytes[PIECES];
};

__device__ __forceinline__ uint32_t piece(const uint32_t *of, int p)
{
    static_assert(PIECES == 4, "registers have no index");
    return p == 0 ? of[0] : p == 1 ? of[1] : p == 2 ? of[2] : of[3];
}

__device__ __forceinline__ void set_pieces(uint32_t *of, int first, int last, uint32_t value)
{
    for (int p = 0; p < PIECES; p++)
        of[p] = p >= first && p <= last ? value : of[p];
}

// Counts from `start` on. The part lies between the bits `first` and `last`.
__device__ __forceinline__ void count_part(struct part *part, const uint32_t *entries,
                                           const uint32_t *stage, uint32_t start, uint32_t first,
                                           uint32_t last)
{
    struct bits bits = read_bits(stage, start);
    uint32_t step = (last - first) / PIECES;
    part->start = start;
#pragma unroll 1
    for (int p = 0; p < PIECES; p++) {
        uint32_t bytes = 0, limit = p == PIECES - 1 ? last : first + (uint32_t)(p + 1) * step;
        uint32_t stop = count_symbols(entries, &bits, limit, &bytes);
        uint32_t place =
            bits.at | (stop ? PLACE_STOPPED : 0) | (stop == ENTRY_INVALID ? PLACE_INVALID : 0);
        bool known = place == piece(part->places, p);
        set_pieces(part->bytes, p, p, bytes);
        if (known)
            break;
        set_pieces(part->places, p, stop ? PIECES - 1 : p, place);
        if (stop) {
            set_pieces(part->bytes, p + 1, PIECES - 1, 0);
            break;
        }
    }
}

// Counts the parts of all threads, `bits` bits each from bit `at` of the stage, up to `end`.
// Returns whether this thread's start is the end before it, for all that is known.
template <int THREADS>
__device__ inline bool count_parts(struct block_memory<THREADS> &shared, struct part *part,
                                   uint32_t at, uint32_t bits, uint32_t end)
{
    uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    uint32_t first = min(at + threadIdx.x * bits, end), last = min(first + bits, end);
    uint32_t start = first;
    bool wrong = true;
    set_pieces(part->places, 0, PIECES - 1, UINT32_MAX);
#pragma unroll 1
    for (int round = 0;; round++) {
        if (wrong)
            count_part(part, shared.entries, shared.stage, start, first, last);
        __syncwarp();
        uint32_t place = part->places[PIECES - 1];
        uint32_t before = __shfl_sync(ALL_LANES, place, (int)(lane - 1) & (LANES - 1));
        if (lane == LANES - 1)
            shared.ends[warp] = place;
        __syncthreads();
        if (threadIdx.x == 0)
            before = first;
        else if (lane == 0)
            before = shared.ends[warp - 1];
        bool stopped = before & PLACE_STOPPED;
        wrong = !stopped && before != part->start;
        if (!__syncthreads_or(wrong) || round == MOST_ROUNDS)
            return !wrong && !stopped;
        start = before;
    }
}

#endif
