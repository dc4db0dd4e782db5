// SPDX-License-Identifier: MIT
// Converts a window of 256 bytes to tokens, for the kernels that count and those that send them. A
// lane holds two words. There are two kinds of windows:
// - With few runs, as in photographs: a word whose bytes all equal the byte before it belongs to a
//   run. Adjacent ones are one token, sent at the place of the last; the others send nothing.
// - With many, but not all, as in icons and diagrams: any four or more bytes that equal the byte
//   before them are a run, and so are those between such runs that equal the bytes of the pixel
//   before them.
// Ballots tell each lane what precedes its bytes, so no lane waits for another. In photographs the
// second kind would gain 0.6 % of the size and take more time than all the rest.
#pragma once

#include "png/cuda/bytes.cuh"
#include "png/cuda/encode_internal.cuh"

// What a lane's word sends in a window with few runs.
#define SENDS_LITERALS 0u
#define SENDS_NOTHING 0xffffffffu // else the number of words of the run that ends here

// Words of a window that belong to runs if it has many runs. With fewer, as in photographs, and
// with more, as in plain areas, whole words find almost as much.
#define MANY_RUNS_LEAST 8
#define MANY_RUNS_MOST 58
// The bytes of a lane, with what precedes them in the scanlines.
struct lane_bytes {
    uint2 words;
    uint2 last;      // the words before the window
    uint32_t before; // the word before the lane's
    uint32_t valid;  // bytes that belong to the block, 0 to 8
    bool has_before; // false for the lane in which the block begins
};

struct lane_tokens {
    bool many_runs; // the same in all lanes
    uint32_t sends[2];
};

// The runs of a window with many of them. Bit i is byte i of the lane.
struct lane_runs {
    uint32_t near, pixel; // belongs to a run at distance 1, or at the distance of a pixel
    uint32_t ends;        // is the last one of a run
    uint32_t before;      // number of bytes of the run that goes on in the lane's first byte
};

// Each lane's value of the lane below it, and `last` for the first one.
__device__ inline uint32_t from_below(uint32_t value, uint32_t last)
{
    uint32_t lane = threadIdx.x % WARP;
    value = lane == WARP - 1 ? last : value;
    return __shfl_sync(ALL_LANES, value, (int)((lane + WARP - 1) % WARP));
}

__device__ inline struct lane_bytes find_lane_bytes(const uint2 &words, const uint2 &last,
                                                    uint32_t valid, bool has_before)
{
    bool below = threadIdx.x % WARP > 0;
    struct lane_bytes bytes = {words, last, from_below(words.y, last.y), valid,
                               below || has_before};
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
    bool run0 = bytes.has_before && bytes.valid >= 4 && x == (bytes.before >> 24) * 0x01010101u;
    bool run1 = bytes.valid >= 8 && y == (x >> 24) * 0x01010101u;
    uint32_t first = __ballot_sync(ALL_LANES, run0), second = __ballot_sync(ALL_LANES, run1);
    struct lane_tokens tokens = {false, {SENDS_LITERALS, SENDS_LITERALS}};
    if ((first | second) == 0)
        return tokens;
    int words = __popc(first) + __popc(second);
    tokens.many_runs = words >= MANY_RUNS_LEAST && words <= MANY_RUNS_MOST;
    uint32_t length = run0 ? words_before(first, second, lane) + 1 : 0;
    if (run0)
        tokens.sends[0] = run1 ? SENDS_NOTHING : length;
    bool goes_on = lane < WARP - 1 && (first >> (lane + 1) & 1);
    if (run1)
        tokens.sends[1] = goes_on ? SENDS_NOTHING : length + 1;
    return tokens;
}

// --- many runs -----------------------------------------------------------------------------------

// The bytes that lie `distance` bytes before the lane's: 1, 2, 3, 4, 6 or 8, the same in all lanes.
__device__ inline uint2 bytes_before(const struct lane_bytes &bytes, uint32_t distance)
{
    uint32_t shift = 8 * (distance % 4);
    if (distance < 4)
        return make_uint2(shift_in(bytes.before, bytes.words.x, shift),
                          shift_in(bytes.words.x, bytes.words.y, shift));
    if (distance == 4)
        return make_uint2(bytes.before, bytes.words.x);
    uint32_t first = from_below(bytes.words.x, bytes.last.x);
    if (distance == 8)
        return make_uint2(first, bytes.before);
    return make_uint2(shift_in(first, bytes.before, shift),
                      shift_in(bytes.before, bytes.words.x, shift));
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

// Those bits that are among at least four set bits in a row, of all lanes; the last one of each row
// is added to `ends`.
__device__ inline uint32_t find_rows(uint32_t bits, uint32_t *ends)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t below = __shfl_up_sync(ALL_LANES, bits, 1);
    uint32_t above = __shfl_down_sync(ALL_LANES, bits, 1);
    uint32_t all = bits << 8 | (lane > 0 ? below : 0) | (lane < WARP - 1 ? above << 16 : 0);
    static_assert(RUN_LEAST == 4, "two doublings");
    uint32_t begins = all & all >> 1;
    begins &= begins >> 2; // four set bits begin here
    uint32_t rows = begins | begins << 1;
    rows |= rows << 2;
    *ends |= (rows & ~(rows >> 1)) >> 8 & 0xff;
    return rows >> 8 & 0xff;
}

// Bytes of the run that goes on in the lane's first byte, if it belongs to one.
__device__ inline uint32_t bytes_of_run_before(const struct lane_runs &runs)
{
    uint32_t lane = threadIdx.x % WARP, shift = runs.near & 1 ? 0 : 8;
    uint32_t near = __ballot_sync(ALL_LANES, runs.near == 0xff);
    uint32_t pixel = __ballot_sync(ALL_LANES, runs.pixel == 0xff);
    uint32_t broken = ~(shift ? pixel : near) & ((1u << lane) - 1);
    uint32_t nearest = broken ? deflate_log2(broken) : 0;
    uint32_t covered = __shfl_sync(ALL_LANES, runs.near | runs.pixel << 8, (int)nearest);
    uint32_t tops = (uint32_t)__clz((int)~(covered >> shift << 24)); // set bits from the top on
    return broken ? 8 * (lane - 1 - nearest) + tops : 8 * lane;
}

// Runs at distance 1 come first: they are shorter to send. `pixel_bytes` is 1, 2, 3, 4, 6 or 8.
__device__ inline struct lane_runs find_runs(const struct lane_bytes &bytes, uint32_t pixel_bytes)
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
    struct lane_runs runs = {0, 0, 0, 0};
    runs.near = find_rows(near, &runs.ends);
    pixel &= ~runs.near;
    if (__ballot_sync(ALL_LANES, pixel != 0))
        runs.pixel = find_rows(pixel, &runs.ends);
    runs.before = bytes_of_run_before(runs);
    return runs;
}

__device__ inline uint32_t literal_bits(const struct lane_runs &runs, uint32_t valid)
{
    return ((1u << valid) - 1) & ~(runs.near | runs.pixel);
}

// The run that ends in a word of the lane (0 or 1). It has the bytes of the word up to its last
// one, because it has at least as many as a word.
static_assert(RUN_LEAST >= 4, "see above");

struct ended_run {
    uint32_t length; // 0: none
    uint32_t tokens; // TOKEN_NEAR or TOKEN_PIXEL
};

__device__ inline struct ended_run find_ended_run(const struct lane_runs &runs, uint32_t word)
{
    uint32_t end = runs.ends & 0xfu << 4 * word; // at most one bit
    struct ended_run run = {0, TOKEN_NEAR};
    if (end == 0)
        return run;
    if (runs.pixel & end)
        run.tokens = TOKEN_PIXEL;
    uint32_t covered = runs.pixel & end ? runs.pixel : runs.near;
    uint32_t i = deflate_log2(end), broken = ~covered & (end - 1);
    run.length = word > 0 && broken ? i - deflate_log2(broken) : i + 1 + runs.before;
    return run;
}
