// SPDX-License-Identifier: MIT
// Converts a window of 256 bytes to tokens, for the kernels that count and those that send them. A
// lane holds two words. A word whose bytes all equal the byte before it belongs to a run; adjacent
// ones are one token, sent at the place of the last, and the others send nothing. Two ballots
// therefore suffice for each lane to know what its words send, without a loop or divergence. Runs
// of any number of bytes instead of words would gain 0.5 % on photographs.
#ifndef CONV_PNG_CUDA_TOKENS_CUH
#define CONV_PNG_CUDA_TOKENS_CUH

#include "png/cuda/encode_internal.cuh"

// What a lane's word sends.
#define SENDS_LITERALS 0u
#define SENDS_NOTHING 0xffffffffu // else the number of words of the run that ends here

struct lane_tokens {
    uint32_t sends[2];
};

// Words of a run that end just before this lane's first one. `first`, `second`: the lanes whose
// first or second word belongs to a run.
__device__ inline uint32_t words_before(uint32_t first, uint32_t second, uint32_t lane)
{
    uint32_t broken =
        ~(first & second) & ((1u << lane) - 1); // lanes below of which a word is outside a run
    uint32_t whole = broken ? lane - (32 - (uint32_t)__clz((int)broken)) : lane;
    uint32_t rest = whole < lane ? second >> (lane - whole - 1) & 1 : 0;
    return 2 * whole + rest;
}

// The tokens of a lane's words, of which the first `valid` bytes (0 to 8) belong to the block.
// `before` is the byte before the window; without one (has_before false) its first word is not part
// of a run.
__device__ inline struct lane_tokens find_tokens(const uint2 &words, uint32_t valid,
                                                 uint32_t before, bool has_before)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t above = __shfl_up_sync(ALL_LANES, words.y >> 24, 1);
    if (lane > 0) {
        before = above;
        has_before = true;
    }
    bool run0 = has_before && valid >= 4 && words.x == before * 0x01010101u;
    bool run1 = valid >= 8 && words.y == (words.x >> 24) * 0x01010101u;
    uint32_t first = __ballot_sync(ALL_LANES, run0), second = __ballot_sync(ALL_LANES, run1);
    struct lane_tokens tokens = {{SENDS_LITERALS, SENDS_LITERALS}};
    if ((first | second) == 0)
        return tokens;
    uint32_t length = run0 ? words_before(first, second, lane) + 1 : 0;
    if (run0)
        tokens.sends[0] = run1 ? SENDS_NOTHING : length;
    bool goes_on = lane < WARP - 1 && (first >> (lane + 1) & 1);
    if (run1)
        tokens.sends[1] = goes_on ? SENDS_NOTHING : length + 1;
    return tokens;
}

#endif
