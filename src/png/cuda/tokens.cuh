// SPDX-License-Identifier: MIT
// How a window of 256 bytes becomes tokens, for the kernel that counts them and for the one that
// sends them. A lane holds two words. A word whose bytes all equal the one before it belongs to a
// run; adjacent ones are one token, sent where the last of them stands, and the others send
// nothing. So each lane knows what its words send from two ballots, without a loop and without
// divergence. Runs of any bytes instead of words would gain 0.5 % on photographs.
#ifndef CONV_PNG_CUDA_TOKENS_CUH
#define CONV_PNG_CUDA_TOKENS_CUH

#include "png/cuda/encode_internal.cuh"

// Of each of a lane's words.
#define SENDS_LITERALS 0u
#define SENDS_NOTHING 0xffffffffu // or else the number of words of the run that ends here

struct lane_tokens {
    uint32_t sends[2];
};

// How many words of a run end just before this lane's first: first, second tell which lanes' words
// belong to runs.
__device__ inline uint32_t words_before(uint32_t first, uint32_t second, uint32_t lane)
{
    uint32_t broken = ~(first & second) & ((1u << lane) - 1); // lanes below that are not all run
    uint32_t whole = broken ? lane - (32 - (uint32_t)__clz((int)broken)) : lane;
    uint32_t rest = whole < lane ? second >> (lane - whole - 1) & 1 : 0;
    return 2 * whole + rest;
}

// The tokens of a lane's words, of whose bytes `valid` (0 to 8) belong to the block. `before` is
// the byte that precedes the window; without one (has_before false) its first word is no run's.
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
