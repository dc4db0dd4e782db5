// SPDX-License-Identifier: MIT
// Converts a window of 256 bytes to tokens, for the kernels that count and those that send them. A
// lane holds two words. There are two kinds of windows:
// - With few runs, as in photographs: a word whose bytes all equal the byte before it belongs to a
//   run. Adjacent ones are one token, sent at the place of the last; the others send nothing.
// - With many, as in icons and diagrams: any four or more bytes that equal the byte before them are
//   a run, and so are those between such runs that equal the bytes of the pixel before them.
// Ballots tell each lane what precedes its bytes, so no lane waits for another. In photographs the
// second kind would gain 0.6 % of the size and take more time than all the rest.
#ifndef CONV_PNG_CUDA_TOKENS_CUH
#define CONV_PNG_CUDA_TOKENS_CUH

#include "png/cuda/bytes.cuh"
#include "png/cuda/encode_internal.cuh"

// What a lane's word sends in a window with few runs.
#define SENDS_LITERALS 0u
#define SENDS_NOTHING 0xffffffffu // else the number of words of the run that ends here

// Words of a window that belong to runs, from which on it has many runs.
#define MANY_RUNS 8
// A run has at least this many bytes, so a word has the end of one at most.
#define RUN_LEAST 4

// The bytes of a lane, with what precedes them in the scanlines.
struct lane_bytes {
    uint2 words;
    uint2 before;
    uint32_t valid;  // bytes that belong to the block, 0 to 8
    bool has_before; // false for the lane in which the block begins
};

struct lane_tokens {
    bool many_runs; // the same in all lanes
    uint32_t sends[2];
};

// Runs at one distance in a window with many of them. Bit i is byte i of the lane.
struct lane_runs {
    uint32_t covered; // belongs to a run
    uint32_t ends;    // is the last one of a run
    uint32_t before;  // number of bytes of the run that goes on in the lane's first byte
};

struct lane_all_runs {
    struct lane_runs near, pixel; // at distance 1, and at the distance of a pixel
};

__device__ inline struct lane_bytes find_lane_bytes(const uint2 &words, const uint2 &last,
                                                    uint32_t valid, bool has_before)
{
    uint32_t lane = threadIdx.x % WARP, from = (lane + WARP - 1) % WARP;
    struct lane_bytes bytes = {words, {0, 0}, valid, lane > 0 || has_before};
    bool is_last = lane == WARP - 1; // the first lane takes `last` from it
    bytes.before.y = __shfl_sync(ALL_LANES, is_last ? last.y : words.y, (int)from);
    bytes.before.x = __shfl_sync(ALL_LANES, is_last ? last.x : words.x, (int)from);
    return bytes;
}

// --- few runs ------------------------------------------------------------------------------------

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

// The tokens of a lane's words, unless the window has many runs.
__device__ inline struct lane_tokens find_tokens(const struct lane_bytes &bytes)
{
    uint32_t lane = threadIdx.x % WARP, x = bytes.words.x, y = bytes.words.y;
    bool run0 = bytes.has_before && bytes.valid >= 4 && x == (bytes.before.y >> 24) * 0x01010101u;
    bool run1 = bytes.valid >= 8 && y == (x >> 24) * 0x01010101u;
    uint32_t first = __ballot_sync(ALL_LANES, run0), second = __ballot_sync(ALL_LANES, run1);
    struct lane_tokens tokens = {false, {SENDS_LITERALS, SENDS_LITERALS}};
    if ((first | second) == 0)
        return tokens;
    tokens.many_runs = __popc(first) + __popc(second) >= MANY_RUNS;
    uint32_t length = run0 ? words_before(first, second, lane) + 1 : 0;
    if (run0)
        tokens.sends[0] = run1 ? SENDS_NOTHING : length;
    bool goes_on = lane < WARP - 1 && (first >> (lane + 1) & 1);
    if (run1)
        tokens.sends[1] = goes_on ? SENDS_NOTHING : length + 1;
    return tokens;
}

// --- many runs -----------------------------------------------------------------------------------

// The bytes that lie `distance` bytes (1 to 8) before the lane's.
__device__ inline uint2 bytes_before(const struct lane_bytes &bytes, uint32_t distance)
{
    uint32_t low = bytes.before.y, mid = bytes.words.x, high = bytes.words.y;
    if (distance >= 4) {
        high = mid;
        mid = low;
        low = bytes.before.x;
    }
    if (distance == 8) {
        high = mid;
        mid = low;
    }
    uint32_t shift = 8 * (distance % 4);
    return make_uint2(shift_in(low, mid, shift), shift_in(mid, high, shift));
}

// The top bit of each byte in which x equals y.
__device__ inline uint32_t equal_tops(uint32_t x, uint32_t y)
{
    uint32_t differ = x ^ y;
    return ~(((differ & 0x7f7f7f7fu) + 0x7f7f7f7fu) | differ) & 0x80808080u;
}

// Bit i for byte i of the words.
__device__ inline uint32_t equal_bits(const uint2 &x, const uint2 &y)
{
    uint32_t low = __dp4a(equal_tops(x.x, y.x), 0x08040201u, 0u);
    return __dp4a(equal_tops(x.y, y.y), 0x80402010u, low) >> 7;
}

// Finds runs of at least four set bits among the bits of all lanes.
__device__ inline struct lane_runs find_runs(uint32_t bits)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t below = __shfl_up_sync(ALL_LANES, bits, 1);
    uint32_t above = __shfl_down_sync(ALL_LANES, bits, 1);
    uint32_t all = bits << 8 | (lane > 0 ? below : 0) | (lane < WARP - 1 ? above << 16 : 0);
    static_assert(RUN_LEAST == 4, "two doublings");
    uint32_t begins = all & all >> 1;
    begins &= begins >> 2; // four set bits begin here
    uint32_t covered = begins | begins << 1;
    covered |= covered << 2;
    struct lane_runs runs;
    runs.covered = covered >> 8 & 0xff;
    runs.ends = (covered & ~(covered >> 1)) >> 8 & 0xff;
    uint32_t broken = ~__ballot_sync(ALL_LANES, runs.covered == 0xff) & ((1u << lane) - 1);
    uint32_t nearest = broken ? 31 - (uint32_t)__clz((int)broken) : 0;
    uint32_t tops = (uint32_t)__clz((int)~(runs.covered << 24)); // set bits from the top on
    uint32_t rest = __shfl_sync(ALL_LANES, tops, (int)nearest);
    runs.before = broken ? 8 * (lane - 1 - nearest) + rest : 8 * lane;
    return runs;
}

// Runs at distance 1 come first: they are shorter to send. `pixel_bytes` is 1, 2, 3, 4, 6 or 8.
__device__ inline struct lane_all_runs find_all_runs(const struct lane_bytes &bytes,
                                                     uint32_t pixel_bytes)
{
    uint32_t valid = (1u << bytes.valid) - 1;
    uint32_t near = equal_bits(bytes.words, bytes_before(bytes, 1)) & valid;
    uint32_t pixel = 0;
    if (pixel_bytes > 1)
        pixel = equal_bits(bytes.words, bytes_before(bytes, pixel_bytes)) & valid;
    if (!bytes.has_before) {
        near &= ~1u;
        pixel &= ~0u << pixel_bytes;
    }
    struct lane_all_runs runs;
    runs.near = find_runs(near);
    runs.pixel = find_runs(pixel & ~runs.near.covered);
    return runs;
}

__device__ inline uint32_t literal_bits(const struct lane_all_runs &runs, uint32_t valid)
{
    return ((1u << valid) - 1) & ~(runs.near.covered | runs.pixel.covered);
}

// The run that ends in a word of the lane (0 or 1).
struct ended_run {
    uint32_t length;   // 0: none
    uint32_t at;       // the place of its last byte in the word
    uint32_t distance; // TOKEN_NEAR or TOKEN_PIXEL
};

__device__ inline struct ended_run find_ended_run(const struct lane_all_runs &all, uint32_t word)
{
    uint32_t ends = (all.near.ends | all.pixel.ends) >> 4 * word & 0xf;
    struct ended_run run = {0, 0, TOKEN_NEAR};
    if (ends == 0)
        return run;
    run.at = (uint32_t)__ffs((int)ends) - 1;
    uint32_t i = 4 * word + run.at;
    bool is_pixel = all.pixel.ends >> i & 1;
    run.distance = is_pixel ? TOKEN_PIXEL : TOKEN_NEAR;
    uint32_t covered = is_pixel ? all.pixel.covered : all.near.covered;
    uint32_t before = is_pixel ? all.pixel.before : all.near.before;
    uint32_t broken = ~covered & ((1u << i) - 1);
    run.length = broken ? i - 31 + (uint32_t)__clz((int)broken) : i + 1 + before;
    return run;
}

#endif
