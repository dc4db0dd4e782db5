// SPDX-License-Identifier: MIT
// Like tma.cu, for filters of any size: real ones, 16-bit images, large coefficients. From compute
// capability 9.0 on.
//
// A lane computes 16 samples of a row. For every row of taps it unpacks the samples around them
// once and adds each to all sums that it is a tap of: at 31 x 31 that is 46 samples for 496 taps,
// so that nearly all instructions are taps. Coefficients come from shared memory, four at a time,
// the same for all lanes. kernels/README.md has the figures.
#include "kernels/stencil/cuda/pack.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define COLUMNS 16 // of a lane

struct tma_large_filter {
    struct tile_schedule schedule;
    struct rounding rounding;
    const struct taps *taps;
    float scale;    // of coefficients that are floats: see pack.cuh
    int32_t height; // rows of taps
    bool exact;
};

template <typename Sample_> struct tma_large_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int TILE_WIDTH = 512, HALO = 32; // 15 samples of 16 bits, rounded up
    static constexpr int TAP_ROWS = CONV_FILTER_MAX_SIDE, MICROTILE_ROWS = 1;
    static constexpr int CONSUMERS = 16;
    static constexpr int SEGMENT = COLUMNS * (int)sizeof(Sample), STORE = 16;
    static constexpr int WARP_MICROTILES = WARP; // a microtile per lane
};

// Coefficients of a row in shared memory, padded with zeros.
template <int WIDTH> constexpr int row_coefs = (WIDTH + 3) / 4 * 4;
// Samples that a lane unpacks on either side of its own, a multiple of 4.
template <int WIDTH> constexpr int around = (WIDTH / 2 + 3) / 4 * 4;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Loads COUNT packed words, which are aligned to COUNT words, by the widest loads.
template <int COUNT, typename Packed4>
static __device__ inline void load_packed4(Packed4 *to, const uint8_t *from)
{
    constexpr int BYTES = COUNT * (int)sizeof(Packed4), STEP = BYTES % 16 == 0  ? 16
                                                               : BYTES % 8 == 0 ? 8
                                                                                : 4;
    typedef typename std::conditional<
        STEP == 16, uint4, typename std::conditional<STEP == 8, uint2, uint32_t>::type>::type Step;
#pragma unroll
    for (int i = 0; i < BYTES; i += STEP)
        *(Step *)((uint8_t *)to + i) = *(const Step *)(from + i);
}

static __device__ inline void unpack_four(float *to, uint32_t from)
{
    unpack_denormal(to, from);
}

static __device__ inline void unpack_four(float *to, uint2 from)
{
    unpack_denormal(to, from);
}

template <typename Packed4> static __device__ inline void unpack_four(int32_t *to, Packed4 from)
{
    unpack(to, from);
}

// The samples that a row of taps reads, packed as in the stage.
template <int WIDTH, typename Packed4> struct row_window {
    alignas(16) Packed4 left[around<WIDTH> / 4];
    alignas(16) Packed4 own[COLUMNS / 4];
    alignas(16) Packed4 right[around<WIDTH> / 4];
};

// `middle` is the lane's first sample.
template <int WIDTH, typename Packed4>
static __device__ inline void load_line(struct row_window<WIDTH, Packed4> *to,
                                        const uint8_t *middle)
{
    load_packed4<around<WIDTH> / 4>(to->left, middle - sizeof to->left);
    load_packed4<COLUMNS / 4>(to->own, middle);
    load_packed4<around<WIDTH> / 4>(to->right, middle + sizeof to->own);
}

template <int WIDTH, typename Packed4, typename Operand>
static __device__ inline void unpack_line(Operand *to,
                                          const struct row_window<WIDTH, Packed4> &from)
{
    constexpr int SIDE = around<WIDTH> / 4;
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        unpack_four(to + 4 * i, from.left[i]);
        unpack_four(to + 4 * (SIDE + COLUMNS / 4 + i), from.right[i]);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++)
        unpack_four(to + 4 * (SIDE + i), from.own[i]);
}

template <typename Packed4>
static __device__ inline void round_four(Packed4 &to, const float *sums,
                                         const struct tma_large_filter &f)
{
    if (f.exact)
        round_packed4<true>(to, sums, f.rounding);
    else
        round_packed4<false>(to, sums, f.rounding);
}

template <typename Packed4>
static __device__ inline void round_four(Packed4 &to, const int32_t *sums,
                                         const struct tma_large_filter &f)
{
    uint32_t samples[4];
    for (int k = 0; k < 4; k++)
        samples[k] = round_sum(sums[k], f.rounding);
    pack(to, samples);
}

// Stores those of the lane's samples that lie in the image.
template <typename Sample>
static __device__ inline void store_row(const struct work_tile &tile, int x, int y,
                                        packed4<Sample> *made)
{
    uint8_t *to = tile.dst + (int64_t)y * tile.dst_stride + x;
    int bytes = tile.stored - x;
    constexpr int WHOLE = COLUMNS * (int)sizeof(Sample);
    if (bytes >= WHOLE && tile.aligned) {
#pragma unroll
        for (int i = 0; i < WHOLE; i += 16)
            *(uint4 *)(to + i) = *(const uint4 *)((uint8_t *)made + i);
        return;
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        if (k * (int)sizeof(Sample) < bytes)
            ((Sample *)to)[k] = ((const Sample *)made)[k];
}

// A microtile: one row of 16 samples. Taps are added in row-major order, which defines real
// filters.
template <int WIDTH, typename Sample, typename Sum>
static __device__ inline void filter_segment(const struct work_tile &tile, const uint8_t *samples,
                                             int microtile, const int32_t *coefs,
                                             const struct tma_large_filter &f)
{
    bool exists = microtile < tile.microtiles;
    microtile = exists ? microtile : 0; // all lanes run the same code
    int y = band_of(tile, microtile),
        x = (microtile - y * tile.segments) * COLUMNS * (int)sizeof(Sample);
    typedef tma_large_traits<Sample> Traits;
    const uint8_t *from =
        samples + (y + Traits::TAP_ROWS / 2 - f.height / 2) * tile.pitch + Traits::HALO + x;
    Sum sums[COLUMNS];
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        start_sum(sums[k], f.rounding);
    struct row_window<WIDTH, packed4<Sample>> next;
    load_line(&next, from);
#pragma unroll 1
    for (int j = 0; j < f.height; j++) {
        operand<Sum> window[COLUMNS + 2 * around<WIDTH>];
        unpack_line(window, next);
        from += j + 1 < f.height ? tile.pitch : 0;
        load_line(&next, from);
#pragma unroll
        for (int t = 0; t < WIDTH; t += 4) {
            uint4 four = *(const uint4 *)(coefs + t);
            const int32_t coef[4] = {(int32_t)four.x, (int32_t)four.y, (int32_t)four.z,
                                     (int32_t)four.w};
#pragma unroll
            for (int i = 0; i < 4 && t + i < WIDTH; i++)
#pragma unroll
                for (int k = 0; k < COLUMNS; k++)
                    add_tap(sums[k], coef[i], window[around<WIDTH> - WIDTH / 2 + k + t + i]);
        }
        coefs += row_coefs<WIDTH>;
    }
    alignas(16) packed4<Sample> made[COLUMNS / 4];
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++)
        round_four(made[i], sums + 4 * i, f);
    if (exists)
        store_row<Sample>(tile, x, y, made);
}

// Writes the coefficients, centred in rows of WIDTH. All threads of the block together.
template <int WIDTH, typename Sample, typename Sum>
static __device__ inline void load_coefs(int32_t *to, const struct tma_large_filter &f)
{
    int width = f.taps->width, left = WIDTH / 2 - width / 2;
    constexpr int THREADS = block_threads<tma_large_traits<Sample>>;
    for (int i = (int)threadIdx.x; i < f.height * row_coefs<WIDTH>; i += THREADS) {
        int row = i / row_coefs<WIDTH>, tap = i % row_coefs<WIDTH> - left;
        int32_t coef = tap >= 0 && tap < width ? f.taps->coef[row * width + tap] : 0;
        if (std::is_same<Sum, float>::value)
            coef = __float_as_int(__fmul_rn(__int_as_float(coef), f.scale));
        to[i] = coef;
    }
}

#endif

// Blocks of 20 warps; a lane of a consumer warp filters one microtile at a time. Shared memory
// after the stages: the padded coefficients.
template <int WIDTH, typename Sample, typename Sum>
static __global__ void __launch_bounds__(block_threads<tma_large_traits<Sample>>, 1)
    tma_large(const __grid_constant__ struct tma_large_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_large_traits<Sample> Traits;
    int32_t *coefs;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        coefs = (int32_t *)(stages_of(pipeline) + f.schedule.stages * f.schedule.stage_bytes);
        load_coefs<WIDTH, Sample, Sum>(coefs, f);
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        consume_tiles<Traits>(
            pipeline, f.schedule,
            [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                int microtile = job * Traits::WARP_MICROTILES + (int)threadIdx.x % WARP;
                filter_segment<WIDTH, Sample, Sum>(tile, samples, microtile, coefs, f);
            });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <typename Sample>
static enum conv_status launch(const struct conv_stencil_plan *plan,
                               const struct conv_stencil_batch *batch)
{
    struct tma_large_filter f =
        constants_of<struct kernel_constants<struct tma_large_filter>>(plan)->filter;
    f.taps = (const struct taps *)plan->cuda.d_taps; // uploaded after the plan was made
    return tma_pipeline_launch<tma_large_traits<Sample>>(plan, &f, batch);
}

template <int WIDTH, typename Sample>
static void plan_width(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_large_filter>>(plan);
    struct tma_large_filter &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    f.height = stencil->height;
    f.exact = stencil->exact;
    f.scale = ldexpf(1, sum_power<Sample> - sample_power<Sample>);
    constants->launch = launch<Sample>;
    constants->shared_bytes = stencil->height * row_coefs<WIDTH> * sizeof(int32_t);
    if (kind == SUM_INT32) {
        constants->kernel = tma_large<WIDTH, Sample, int32_t>;
    } else {
        scale_filter<Sample>(NULL, 0, &f.rounding);
        constants->kernel = tma_large<WIDTH, Sample, float>;
    }
}

template <typename Sample>
static void plan_sample(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= 9)
        plan_width<9, Sample>(stencil, plan);
    else if (stencil->width <= 11)
        plan_width<11, Sample>(stencil, plan);
    else if (stencil->width <= 15)
        plan_width<15, Sample>(stencil, plan);
    else if (stencil->width <= 21)
        plan_width<21, Sample>(stencil, plan);
    else
        plan_width<31, Sample>(stencil, plan);
}

static void plan_tma_large(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->depth == 8)
        plan_sample<uint8_t>(stencil, plan);
    else
        plan_sample<uint16_t>(stencil, plan);
}

static bool can_tma_large(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    return conv_cuda_rounding(&rounding, stencil) != SUM_INT64 && fits_scaled(stencil);
}

// Up to 7 x 7 there are no sums of several rows to share an unpacked sample, nor enough taps to
// pay for loading their coefficients.
static int score_tma_large(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) <= 7 ? CONV_SCORE_UNSUITED : 40;
}

CONV_CUDA_VARIANT(tma_large, 90, "samples through the bulk copy engine, filters of any size",
                  can_tma_large, score_tma_large, plan_tma_large, run_planned,
                  tma_large_traits<uint8_t>::TILE_WIDTH, tma_large_traits<uint8_t>::TILE_HEIGHT);
