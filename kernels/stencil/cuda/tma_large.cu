// SPDX-License-Identifier: MIT
// As ring.cu, for filters of any size: real ones, 16-bit images, large coefficients. From compute
// capability 9.0 on.
//
// A lane makes 16 samples of a row. For every row of taps it unpacks the samples around them once,
// and adds each to the sums that it is a tap of: at 31 x 31 that is 46 samples for 496 taps, so
// that nearly all instructions are taps. Coefficients come from shared memory, the same for all
// lanes, four by four.
//
// What it bought (H200, 8192 x 8192 x 3, GB/s read and written; blocked: 215, 106 and 28): real
// filters 483 at 9 x 9, 205 at 15 x 15 and 53 at 31 x 31.
#include "kernels/stencil/cuda/denormal_unpack.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define COLUMNS 16 // samples side by side that a lane makes

struct filter {
    struct supply supply;
    struct rounding rounding;
    const struct taps *taps;
    float scale;    // of coefficients, if they are floats
    int32_t height; // rows of taps
    bool exact;
};

template <typename Sample_> struct tma_large_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int TILE_WIDTH = 512, HALO = 32; // 16 samples of 16 bits
    static constexpr int TAP_ROWS = CONV_FILTER_MAX_SIDE, MICROTILE_ROWS = 1;
    static constexpr int CONSUMERS = 16;
    static constexpr int SEGMENT = COLUMNS * (int)sizeof(Sample), STORE = 16;
    static constexpr int JOB = WARP; // a microtile per lane
};

// Coefficients of a row in shared memory, padded with zeros.
template <int WIDTH> constexpr int row_coefs = (WIDTH + 3) / 4 * 4;
// Samples left of the first that a lane makes, and right of the last, that it unpacks: by quads.
template <int WIDTH> constexpr int around = (WIDTH / 2 + 3) / 4 * 4;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// COUNT quads from `from` on, as many at a time as an alignment to a multiple of COUNT allows.
template <int COUNT, typename Quad> __device__ inline void load_quads(Quad *to, const uint8_t *from)
{
    constexpr int BYTES = COUNT * (int)sizeof(Quad), STEP = BYTES % 16 == 0  ? 16
                                                            : BYTES % 8 == 0 ? 8
                                                                             : 4;
    typedef typename std::conditional<
        STEP == 16, uint4, typename std::conditional<STEP == 8, uint2, uint32_t>::type>::type Step;
#pragma unroll
    for (int i = 0; i < BYTES; i += STEP)
        *(Step *)((uint8_t *)to + i) = *(const Step *)(from + i);
}

__device__ inline void unpack_four(float *to, uint32_t from)
{
    unpack_scaled(to, from);
}

__device__ inline void unpack_four(float *to, uint2 from)
{
    unpack_scaled(to, from);
}

template <typename Quad> __device__ inline void unpack_four(int32_t *to, Quad from)
{
    unpack(to, from);
}

// The samples that a row of taps needs, as they lie in the stage. `middle` is the place below the
// lane's first sample.
template <int WIDTH, typename Quad> struct line {
    alignas(16) Quad left[around<WIDTH> / 4];
    alignas(16) Quad own[COLUMNS / 4];
    alignas(16) Quad right[around<WIDTH> / 4];
};

template <int WIDTH, typename Quad>
__device__ inline void load_line(struct line<WIDTH, Quad> *to, const uint8_t *middle)
{
    load_quads<around<WIDTH> / 4>(to->left, middle - sizeof to->left);
    load_quads<COLUMNS / 4>(to->own, middle);
    load_quads<around<WIDTH> / 4>(to->right, middle + sizeof to->own);
}

template <int WIDTH, typename Quad, typename Operand>
__device__ inline void unpack_line(Operand *to, const struct line<WIDTH, Quad> &from)
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

template <typename Quad>
__device__ inline void round_four(Quad &to, const float *sums, const struct filter &f)
{
    if (f.exact)
        round_quad<true>(to, sums, f.rounding);
    else
        round_quad<false>(to, sums, f.rounding);
}

template <typename Quad>
__device__ inline void round_four(Quad &to, const int32_t *sums, const struct filter &f)
{
    uint32_t samples[4];
    for (int k = 0; k < 4; k++)
        samples[k] = round_sum(sums[k], f.rounding);
    pack(to, samples);
}

// Stores the samples of a row that there are.
template <typename Sample>
__device__ inline void store_row(const struct piece &piece, int x, int y, quad<Sample> *made)
{
    uint8_t *to = piece.dst + (int64_t)y * piece.dst_stride + x;
    int bytes = piece.stored - x;
    constexpr int WHOLE = COLUMNS * (int)sizeof(Sample);
    if (bytes >= WHOLE && piece.aligned) {
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

// One row of a segment. For every sum the taps come in row-major order, as real filters demand.
template <int WIDTH, typename Sample, typename Sum>
__device__ inline void filter_segment(const struct piece &piece, const uint8_t *samples, int unit,
                                      const int32_t *coefs, const struct filter &f)
{
    bool exists = unit < piece.units;
    unit = exists ? unit : 0; // lanes stay together
    int y = band_of(piece, unit), x = (unit - y * piece.segments) * COLUMNS * (int)sizeof(Sample);
    typedef tma_large_traits<Sample> Traits;
    const uint8_t *from =
        samples + (y + Traits::TAP_ROWS / 2 - f.height / 2) * piece.pitch + Traits::HALO + x;
    Sum sums[COLUMNS];
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        start_sum(sums[k], f.rounding);
    struct line<WIDTH, quad<Sample>> next;
    load_line(&next, from);
#pragma unroll 1
    for (int j = 0; j < f.height; j++) {
        operand<Sum> window[COLUMNS + 2 * around<WIDTH>];
        unpack_line(window, next);
        from += j + 1 < f.height ? piece.pitch : 0;
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
    alignas(16) quad<Sample> made[COLUMNS / 4];
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++)
        round_four(made[i], sums + 4 * i, f);
    if (exists)
        store_row<Sample>(piece, x, y, made);
}

// The filter's coefficients in the middle of rows of WIDTH.
template <int WIDTH, typename Sample, typename Sum>
__device__ inline void load_coefs(int32_t *to, const struct filter &f)
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

template <int WIDTH, typename Sample, typename Sum>
static __global__ void __launch_bounds__(block_threads<tma_large_traits<Sample>>, 1)
    ring_large(const __grid_constant__ struct filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_large_traits<Sample> Traits;
    int32_t *coefs;
    auto prepare = [&](struct ring *ring) {
        coefs = (int32_t *)(stages_of(ring) + f.supply.stages * f.supply.stage_bytes);
        load_coefs<WIDTH, Sample, Sum>(coefs, f);
    };
    tma_pipeline_main<Traits>(f.supply, prepare, [&](struct ring *ring) {
        work<Traits>(ring, f.supply,
                     [&](const struct piece &piece, const uint8_t *samples, int job) {
                         int unit = job * Traits::JOB + (int)threadIdx.x % WARP;
                         filter_segment<WIDTH, Sample, Sum>(piece, samples, unit, coefs, f);
                     });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int WIDTH, typename Sample, typename Sum>
static enum conv_status launch(struct filter *f, const struct conv_stencil *stencil,
                               const struct conv_stencil_batch *batch)
{
    size_t coefs = stencil->height * row_coefs<WIDTH> * sizeof(int32_t);
    return tma_pipeline_launch<tma_large_traits<Sample>>(ring_large<WIDTH, Sample, Sum>, f, stencil,
                                                         batch, coefs);
}

template <int WIDTH, typename Sample>
static enum conv_status launch_sums(const struct conv_stencil *stencil,
                                    const struct conv_stencil_batch *batch)
{
    struct filter f = {};
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    f.taps = (const struct taps *)stencil->d_stencil;
    f.height = stencil->height;
    f.exact = stencil->exact;
    f.scale = ldexpf(1, sum_power<Sample> - sample_power<Sample>);
    if (kind == SUM_INT32)
        return launch<WIDTH, Sample, int32_t>(&f, stencil, batch);
    scale_filter<Sample>(NULL, 0, &f.rounding);
    return launch<WIDTH, Sample, float>(&f, stencil, batch);
}

template <typename Sample>
static enum conv_status launch_width(const struct conv_stencil *stencil,
                                     const struct conv_stencil_batch *batch)
{
    if (stencil->width <= 9)
        return launch_sums<9, Sample>(stencil, batch);
    if (stencil->width <= 11)
        return launch_sums<11, Sample>(stencil, batch);
    if (stencil->width <= 15)
        return launch_sums<15, Sample>(stencil, batch);
    if (stencil->width <= 21)
        return launch_sums<21, Sample>(stencil, batch);
    return launch_sums<31, Sample>(stencil, batch);
}

static enum conv_status run_ring_large(const struct conv_stencil_plan *plan,
                                       const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    return stencil->depth == 8 ? launch_width<uint8_t>(stencil, batch)
                               : launch_width<uint16_t>(stencil, batch);
}

static bool can_ring_large(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    return conv_cuda_rounding(&rounding, stencil) != SUM_INT64 && fits_scaled(stencil);
}

// Up to 7 x 7 there are no sums of several rows to share an unpacked sample, nor enough taps to
// pay for loading their coefficients.
static int score_ring_large(const struct conv_stencil *stencil, const struct conv_stencil_shape *)
{
    return max(stencil->width, stencil->height) <= 7 ? CONV_SCORE_UNSUITED : 40;
}

CONV_CUDA_VARIANT(tma_large, 90, "as ring, for filters of any size", can_ring_large,
                  score_ring_large, run_ring_large, tma_large_traits<uint8_t>::TILE_WIDTH,
                  tma_large_traits<uint8_t>::TILE_HEIGHT);
