// SPDX-License-Identifier: MIT
// Where the symbols of a stream begin is known of the first one only. So each thread of a block
// guesses: it starts at the first bit of its own part of the next bits, and counts the bytes up to
// the next part. Codes of varying length soon fall into step, so that most of the ends are right
// though the starts were not; then each thread corrects its start to the end before it, until they
// agree. (After Klein and Wiseman, "Parallel Huffman decoding with applications to JPEG files";
// Weissenberger and Schmidt, "Massively parallel Huffman decoding on GPUs".)
#ifndef CONV_KERNELS_CUDA_PNG_SPECULATE_CUH
#define CONV_KERNELS_CUDA_PNG_SPECULATE_CUH

#include "kernels/cuda/png/inflate.cuh"

// A part is cut in so many pieces. A corrected thread stops where it comes to the same place as
// before: what lies behind is known.
#define PIECES 4
// Rounds of correction. What is not right by then is left to the next window: codes that do not
// fall into step make the block as slow as one thread, but nothing stops.
#define MOST_ROUNDS 12

// Where a thread has come to: a bit of the stage, with what has stopped it there in the top bits.
#define PLACE_STOPPED (1u << 31)
#define PLACE_INVALID (1u << 30)
#define PLACE_BIT (PLACE_INVALID - 1)

struct part {
    uint32_t start;
    uint32_t places[PIECES]; // behind each piece
    uint32_t bytes[PIECES];
};

// Counts from `start` on. `first` and `last` are the bits between which the part lies.
__device__ __forceinline__ void count_part(struct part *part, const struct tables *tables,
                                           const uint32_t *stage, uint32_t start, uint32_t first,
                                           uint32_t last)
{
    struct bits bits = read_bits(stage, start);
    uint32_t step = (last - first) / PIECES;
    bool known = false;
    part->start = start;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if (known)
            continue;
        uint32_t bytes = 0;
        uint32_t limit = p == PIECES - 1 ? last : first + (uint32_t)(p + 1) * step;
        uint32_t stop = count_symbols(tables, &bits, limit, &bytes);
        uint32_t place =
            bits.at | (stop ? PLACE_STOPPED : 0) | (stop == ENTRY_INVALID ? PLACE_INVALID : 0);
        known = place == part->places[p];
        part->places[p] = place;
        part->bytes[p] = bytes;
        if (stop && !known) {
            for (int q = p + 1; q < PIECES; q++) {
                part->places[q] = place;
                part->bytes[q] = 0;
            }
            known = true;
        }
    }
}

// Counts the parts of all threads, `bits` bits each from bit `at` of the stage, up to `end`.
// Returns whether this thread's start is the end before it, for all that is known.
template <int THREADS>
__device__ inline bool count_parts(struct block_memory<THREADS> &shared, struct part *part,
                                   uint32_t at, uint32_t bits, uint32_t end)
{
    uint32_t first = min(at + threadIdx.x * bits, end), last = min(first + bits, end);
    for (int p = 0; p < PIECES; p++)
        part->places[p] = UINT32_MAX;
    count_part(part, &shared.tables, shared.stage, first, first, last);
    for (int round = 0;; round++) {
        shared.ends[threadIdx.x] = part->places[PIECES - 1];
        __syncthreads();
        uint32_t before = threadIdx.x ? shared.ends[threadIdx.x - 1] : part->start;
        bool wrong = !(before & PLACE_STOPPED) && before != part->start;
        if (!__syncthreads_or(wrong) || round == MOST_ROUNDS)
            return !wrong && !(before & PLACE_STOPPED);
        if (wrong)
            count_part(part, &shared.tables, shared.stage, before, first, last);
    }
}

#endif
