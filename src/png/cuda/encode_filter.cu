// SPDX-License-Identifier: MIT
// Planes to scanlines: each row is filtered by its cheapest filter, the channels are interleaved
// and the rows concatenated. The same pass computes the other inputs of a deflate block's codes and
// frame: the counts of its tokens, and its Adler-32.
#include "png/cuda/bytes.cuh"
#include "png/cuda/encode_internal.cuh"
#include "png/cuda/tokens.cuh"

// --- costs ---------------------------------------------------------------------------------------

// The cost of each of the five filters for each row, by which one is chosen.
// All five are added up at once from the planes, 16 bytes per lane; the output is five sums per
// row.

#define WARPS 8
#define GROUP 16 // bytes that a lane takes at a time

// Adds the costs of the bytes from `offset` on, of which `n` belong to the row. Those after the row
// are cleared in all operands and so add nothing. `left` is 8 bits for each byte of a sample.
template <bool CUT>
__device__ inline void add_costs(uint32_t cost[PNG_FILTERS], const uint4 &x, uint32_t x_before,
                                 const uint4 &b, uint32_t b_before, uint32_t left, int n)
{
    uint32_t xs[5] = {x_before, x.x, x.y, x.z, x.w}, bs[5] = {b_before, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int rest = n - 4 * i;
        uint32_t mask = !CUT || rest >= 4 ? ~0u : rest > 0 ? (1u << 8 * rest) - 1 : 0;
        add_costs(cost, xs[i + 1] & mask, shift_in(xs[i], xs[i + 1], left) & mask, bs[i + 1] & mask,
                  shift_in(bs[i], bs[i + 1], left) & mask);
    }
}

// One span of an image, by a warp: lanes take its groups plane after plane. Sums of rows longer
// than 16 MiB may wrap, which can only choose another filter.
__device__ inline void add_span(uint32_t *costs, const struct conv_encode_image &image,
                                uint32_t span)
{
    uint32_t lane = threadIdx.x % WARP, y = span, begin = 0;
    if (image.spans > 1) {
        y = span / image.spans;
        begin = span % image.spans * SPAN_BYTES;
    }
    uint32_t bytes = (uint32_t)image.width * (uint32_t)(image.depth / 8);
    uint32_t groups = (min(bytes - begin, (uint32_t)SPAN_BYTES) + GROUP - 1) / GROUP;
    uint32_t left = (uint32_t)image.depth;
    int64_t row = (int64_t)y * image.stride;

    uint32_t cost[PNG_FILTERS] = {0};
    for (uint32_t i = lane; i < groups * (uint32_t)image.channels; i += WARP) {
        uint32_t plane = i / groups, offset = begin + (i - plane * groups) * GROUP;
        const uint8_t *p = image.plane[plane] + row + offset;
        const uint8_t *above = p - image.stride;
        uint4 x = *(const uint4 *)p, b = {0, 0, 0, 0};
        uint32_t x_before = 0, b_before = 0;
        if (offset > 0)
            x_before = *(const uint32_t *)(p - 4);
        if (y > 0) {
            b = *(const uint4 *)above;
            if (offset > 0)
                b_before = *(const uint32_t *)(above - 4);
        }
        if (bytes - offset >= GROUP)
            add_costs<false>(cost, x, x_before, b, b_before, left, GROUP);
        else
            add_costs<true>(cost, x, x_before, b, b_before, left, (int)(bytes - offset));
    }
#pragma unroll
    for (int f = 0; f < PNG_FILTERS; f++) {
        cost[f] = sum_lanes(cost[f]);
        if (lane == (uint32_t)f)
            atomicAdd(&costs[((uint64_t)image.first_row + y) * PNG_FILTERS + f], cost[f]);
    }
}

// 8 warps per block, each with `each` spans one after another.
static __global__ void __launch_bounds__(WARPS *WARP)
    filter_cost(const struct encode_scratch scratch, uint32_t spans, uint32_t each)
{
    uint32_t first = (blockIdx.x * WARPS + threadIdx.x / WARP) * each;
    if (first >= spans)
        return;
    const struct conv_encode_image *images = scratch.images;
    int at = find_last(scratch.count, first, [&](int i) { return images[i].first_span; });
    uint32_t begin = images[at].first_span;
    uint32_t end = begin + images[at].spans * (uint32_t)images[at].height;
    for (uint32_t span = first; span < min(first + each, spans); span++) {
        if (span == end) {
            at++;
            begin = end;
            end += images[at].spans * (uint32_t)images[at].height;
        }
        add_span(scratch.costs, images[at], span - begin);
    }
}

// Several spans per warp share the search for their image, if there are enough for all processors.
#define MANY_SPANS 65536
#define SPANS_EACH 4

void conv_encode_filter_cost(const struct encode_scratch &scratch, uint32_t spans,
                             cudaStream_t stream)
{
    uint32_t each = spans >= MANY_SPANS ? SPANS_EACH : 1, of_block = WARPS * each;
    filter_cost<<<(spans + of_block - 1) / of_block, WARPS * WARP, 0, stream>>>(scratch, spans,
                                                                                each);
}

// --- filters -------------------------------------------------------------------------------------

// Planes to scanlines: each row is filtered by its cheapest filter, the channels are interleaved
// and the rows concatenated. The same pass computes the other inputs of a deflate block's codes and
// frame: the counts of its tokens, and its Adler-32.

#define WARPS 8
#define STAGE 16384 // bytes of scanlines in shared memory at a time; a block takes up to three

// Blocks per processor, as many as registers allow without spilling: one fills its stage while
// others count.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
#define FILTER_BLOCKS 6
#elif __CUDA_ARCH__ > 900
#define FILTER_BLOCKS 5
#else
#define FILTER_BLOCKS 4
#endif

// A part of the scanlines that is being made.
struct stage {
    uint32_t *words; // shared, all zero at first
    uint32_t begin, end;
};

// Writes those bytes of `value` that are within begin ... end - 1 to `at`, a multiple of 4 from the
// stage's begin on; positions are those in the image's scanlines. Words that other threads also
// write to are combined.
__device__ inline void put_word(const struct stage &stage, int32_t at, uint32_t value,
                                int32_t begin, int32_t end)
{
    if (at >= begin && at + 4 <= end) {
        stage.words[(uint32_t)at / 4] = value;
    } else if (at + 4 > begin && at < end) {
        uint32_t mask = ~0u;
        if (at < begin)
            mask <<= 8 * (begin - at);
        if (at + 4 > end)
            mask &= ~0u >> 8 * (at + 4 - end);
        atomicOr(&stage.words[(uint32_t)at / 4], value & mask);
    }
}

// The residuals of a word of each plane. `offset` is in bytes of a plane's row; `left` is 8 bits
// for each byte of a sample.
template <int CHANNELS>
__device__ inline void filter_words(uint32_t residual[4], const struct conv_encode_image &image,
                                    int filter, uint32_t y, uint32_t offset, uint32_t left)
{
    int64_t at = (int64_t)y * image.stride + offset;
    bool needs_left = offset > 0 && filter != PNG_NONE && filter != PNG_UP;
    bool needs_above = y > 0 && filter >= PNG_UP;
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        const uint8_t *p = image.plane[c] + at, *above = p - image.stride;
        uint32_t x = *(const uint32_t *)p, x_before = 0, b = 0, b_before = 0;
        if (needs_left)
            x_before = *(const uint32_t *)(p - 4);
        if (needs_above)
            b = *(const uint32_t *)above;
        if (needs_above && needs_left && filter == PNG_PAETH)
            b_before = *(const uint32_t *)(above - 4);
        residual[c] =
            filter_bytes(filter, x, shift_in(x_before, x, left), b, shift_in(b_before, b, left));
    }
}

// Round `round` of row y: each lane takes a word of each plane and interleaves them. The bytes may
// begin at any address, so each lane writes shifted words that begin with the last bytes of the
// lane before it.
template <int CHANNELS, int SAMPLE_BYTES>
__device__ inline void fill_round(const struct stage &stage, const struct conv_encode_image &image,
                                  int filter, uint32_t y, uint32_t round)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t offset = (round * WARP + lane) * 4; // in each plane's row
    uint32_t plane_bytes = (uint32_t)image.width * SAMPLE_BYTES;
    uint32_t row = plane_bytes * CHANNELS, round_bytes = 4 * WARP * CHANNELS;
    uint32_t words[4] = {0, 0, 0, 0};
    if (offset < plane_bytes) {
        uint32_t residual[4];
        filter_words<CHANNELS>(residual, image, filter, y, offset, 8 * SAMPLE_BYTES);
        join_bytes(words, residual, CHANNELS, SAMPLE_BYTES);
    }
    uint32_t carried = __shfl_up_sync(ALL_LANES, words[CHANNELS - 1], 1);

    // From here on relative to the stage: where this round's bytes begin and end.
    int32_t data = (int32_t)(y * (row + 1) + 1 - stage.begin); // of the row
    int32_t begin = data + (int32_t)(round * round_bytes);
    int32_t end = data + (int32_t)min(row, (round + 1) * round_bytes);
    int32_t size = (int32_t)(stage.end - stage.begin);
    int32_t at = begin + (int32_t)(lane * 4 * CHANNELS);
    uint32_t shift = (uint32_t)at % 4;
    if (round == 0 && lane == 0)
        put_word(stage, (data - 1) & ~3, (uint32_t)filter << 8 * ((uint32_t)(data - 1) % 4),
                 max(data - 1, 0), min(data, size));
    begin = max(begin, 0);
    end = min(end, size);
    at -= (int32_t)shift;
#pragma unroll
    for (int k = 0; k < CHANNELS; k++) {
        put_word(stage, at + 4 * k, shift_in(k > 0 ? words[k - 1] : carried, words[k], 8 * shift),
                 begin, end);
    }
    if (shift > 0 && (lane == WARP - 1 || offset + 4 >= plane_bytes) && offset < plane_bytes)
        put_word(stage, at + 4 * CHANNELS, shift_in(words[CHANNELS - 1], 0, 8 * shift), begin, end);
}

// The round of a row that makes its byte `at`; byte 0 is the filter's number.
__device__ inline uint32_t round_of(uint32_t at, uint32_t round_bytes)
{
    return at > 0 ? (at - 1) / round_bytes : 0;
}

template <int CHANNELS, int SAMPLE_BYTES>
__device__ inline void fill_stage(const struct stage &stage, const uint32_t *costs,
                                  const struct conv_encode_image &image)
{
    uint32_t row = (uint32_t)image.width * (CHANNELS * SAMPLE_BYTES);
    uint32_t round_bytes = 4 * WARP * CHANNELS;
    uint32_t rounds = (row + round_bytes - 1) / round_bytes; // of a row
    uint32_t first_y = stage.begin / (row + 1), last_y = (stage.end - 1) / (row + 1);
    uint32_t first = round_of(stage.begin - first_y * (row + 1), round_bytes);
    uint32_t last = round_of(stage.end - 1 - last_y * (row + 1), round_bytes);
    uint32_t count = (last_y - first_y) * rounds + last + 1;
    for (uint32_t i = first + threadIdx.x / WARP; i < count; i += WARPS) {
        uint32_t y = first_y + i / rounds;
        int filter = cheapest_filter(costs + (uint64_t)(image.first_row + y) * PNG_FILTERS);
        fill_round<CHANNELS, SAMPLE_BYTES>(stage, image, filter, y, i % rounds);
    }
}

// Chooses the template once per stage, so that channels and sample size are compile-time constants
// in the loops.
__device__ inline void fill_stage_of(const struct stage &stage, const uint32_t *costs,
                                     const struct conv_encode_image &image)
{
    switch (image.channels * 2 + image.depth / 8 - 1) {
    case 2:
        return fill_stage<1, 1>(stage, costs, image);
    case 3:
        return fill_stage<1, 2>(stage, costs, image);
    case 4:
        return fill_stage<2, 1>(stage, costs, image);
    case 5:
        return fill_stage<2, 2>(stage, costs, image);
    case 6:
        return fill_stage<3, 1>(stage, costs, image);
    case 7:
        return fill_stage<3, 2>(stage, costs, image);
    case 8:
        return fill_stage<4, 1>(stage, costs, image);
    default:
        return fill_stage<4, 2>(stage, costs, image);
    }
}

// --- counting ------------------------------------------------------------------------------------

// Adler-32 of a block of n bytes d_i, without its constant: the sums of d_i and of (n - i) d_i. A
// thread adds up 8 bytes of each of at most THREAD_WINDOWS windows, the last of which has a factor
// of at most WARPS * WINDOW, the one before twice that, and so on.
#define THREAD_WINDOWS ((BLOCK_MOST + WARPS * WINDOW - 1) / (WARPS * WINDOW))
static_assert((uint64_t)THREAD_WINDOWS * (THREAD_WINDOWS + 1) / 2 * WARPS * WINDOW * LANE_BYTES *
                      255 <
                  1ull << 32,
              "sums of a thread fit");

__device__ inline void add_adler(uint32_t adler[2], const uint2 &words, uint32_t bytes_on)
{
    uint32_t sum = __dp4a(words.x, 0x01010101u, __dp4a(words.y, 0x01010101u, 0u));
    uint32_t weighted = __dp4a(words.x, 0x03020100u, __dp4a(words.y, 0x07060504u, 0u));
    adler[0] += sum;
    adler[1] += bytes_on * sum - weighted;
}

__device__ inline void count_run(uint32_t *count, uint32_t length)
{
    atomicAdd(&count[COUNT_RUN + length - RUN_LEAST], 1u);
}

template <bool ALL>
__device__ inline void count_word(uint32_t *count, uint32_t word, uint32_t sends, uint32_t valid)
{
    if (sends == SENDS_LITERALS) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            if (ALL || k < valid)
                atomicAdd(&count[word >> 8 * k & 0xff], 1u);
    } else if (sends != SENDS_NOTHING) {
        count_run(count, 4 * sends);
    }
}

__device__ inline void count_many_runs(uint32_t *count, const struct lane_bytes &bytes,
                                       uint32_t pixel)
{
    struct lane_runs runs = find_runs(bytes, pixel);
    uint32_t literals = literal_bits(runs, bytes.valid);
#pragma unroll
    for (uint32_t i = 0; i < LANE_BYTES; i++) {
        uint32_t word = i < 4 ? bytes.words.x : bytes.words.y;
        if (literals >> i & 1)
            atomicAdd(&count[word >> 8 * (i % 4) & 0xff], 1u);
    }
#pragma unroll
    for (uint32_t word = 0; word < 2; word++) {
        struct ended_run run = find_ended_run(runs, word);
        if (run.length)
            count_run(count, run.length);
    }
}

template <bool ALL>
__device__ inline void count_window(uint32_t *count, const struct lane_bytes &bytes, uint32_t pixel)
{
    struct lane_tokens tokens = find_tokens(bytes);
    if (tokens.many_runs)
        return count_many_runs(count, bytes, pixel);
    uint32_t valid = bytes.valid;
    count_word<ALL>(count, bytes.words.x, tokens.sends[0], valid);
    count_word<ALL>(count, bytes.words.y, tokens.sends[1], valid > 4 ? valid - 4 : 0);
}

// Each warp takes a window at a time: adds up its bytes and writes it to memory.
__device__ inline void count_stage(const struct stage &stage, const struct work &work,
                                   uint8_t *stream, uint32_t *count, uint32_t adler[2],
                                   const uint2 &last_words)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t pixel = pixel_bytes(work.image);
    for (uint32_t at = warp * WINDOW; at < stage.end - stage.begin; at += WARPS * WINDOW) {
        uint32_t position = stage.begin + at + lane * LANE_BYTES;
        uint32_t rest = position < work.end ? work.end - position : 0, valid = min(rest, 8u);
        uint2 words = *(const uint2 *)(stage.words + at / 4 + lane * 2);
        *(uint2 *)(stream + position) = words; // zeros from the last byte to the window's end
        add_adler(adler, words, rest);
        uint2 last = at > 0 ? *(const uint2 *)(stage.words + at / 4 - 2) : last_words;
        struct lane_bytes bytes =
            find_lane_bytes(words, last, valid, stage.begin + at > work.begin);
        if (stage.begin + at + WINDOW <= work.end)
            count_window<true>(count, bytes, pixel);
        else
            count_window<false>(count, bytes, pixel);
    }
}

// Adds each thread's sums to the block's.
__device__ inline void join_adler(uint32_t *sums, const uint32_t adler[2])
{
    for (int i = 0; i < 2; i++) {
        uint32_t sum = adler[i] % ADLER_MODULUS;
        for (int step = WARP / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, step);
        if (threadIdx.x % WARP == 0)
            atomicAdd(&sums[i], sum); // sums over 8 warps of 32 numbers below 2^16
    }
}

// A block of 8 warps makes a deflate block's scanlines, a stage at a time: shared memory is
// cleared, all warps fill it with rounds of rows, then all count and write windows of it, with a
// barrier between these. Shared: a stage, 509 counts, 2 sums.
static __global__ void __launch_bounds__(WARPS *WARP, FILTER_BLOCKS)
    filter(const struct encode_scratch scratch)
{
    __shared__ uint4 stage_memory[STAGE / sizeof(uint4)];
    __shared__ uint32_t count[COUNTS];
    __shared__ uint32_t sums[2];
    struct work work = find_work(scratch);
    uint8_t *stream = scratch.streams + work.image.stream_at;
    for (uint32_t i = threadIdx.x; i < COUNTS; i += WARPS * WARP)
        count[i] = 0;
    if (threadIdx.x < 2)
        sums[threadIdx.x] = 0;
    uint32_t adler[2] = {0, 0};
    uint2 last_words = {0, 0}; // of the stage before
    for (uint32_t begin = work.begin; begin < work.end; begin += STAGE) {
        struct stage stage = {(uint32_t *)stage_memory, begin, min(begin + STAGE, work.end)};
        for (uint32_t i = threadIdx.x; i < STAGE / sizeof(uint4); i += WARPS * WARP)
            stage_memory[i] = make_uint4(0, 0, 0, 0);
        __syncthreads(); // the stage and the counts are clear
        fill_stage_of(stage, scratch.costs, work.image);
        __syncthreads(); // the stage is full
        count_stage(stage, work, stream, count, adler, last_words);
        last_words = *(const uint2 *)(stage.words + STAGE / 4 - 2);
        __syncthreads(); // all threads have read the stage
    }
    join_adler(sums, adler);
    __syncthreads();
    struct encode_block *block = &scratch.blocks[work.index];
    for (uint32_t i = threadIdx.x; i < COUNTS; i += WARPS * WARP)
        block->count[i] = count[i];
    if (threadIdx.x < 2)
        block->adler[threadIdx.x] = sums[threadIdx.x] % ADLER_MODULUS;
}

void conv_encode_filter(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream)
{
    filter<<<blocks, WARPS * WARP, 0, stream>>>(scratch);
}
