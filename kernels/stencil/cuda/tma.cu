// SPDX-License-Identifier: MIT
// Register blocking as in blocked.cu, samples through the bulk copy engine (tma_pipeline.cuh). For
// filters up to 7 x 7, mainly those that tensor cores cannot compute: real ones, 16-bit images,
// large coefficients. From compute capability 9.0 on.
//
// A lane computes 8 x 8 samples, or 8 x 16. It loads 16 samples per row of the stage, unpacks each
// once (pack.cuh) and keeps them for all rows of results that they are taps of. Coefficients are in
// uniform registers, as operands of the multiply-add.
//
// Limited by instructions: 30.8 per sample at 5 x 5 (real, 8 bits), 25 of them taps; with every
// issue slot filled that would be 0.49 of the speed of a copy. kernels/README.md has the figures.
#include "kernels/stencil/cuda/pack.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define COLUMNS 8 // of a lane

// Rows of a lane. At 5 x 5, 16 rows read 20 rows of the stage, two times 8 rows read 24. At 16 bits
// there would be too few microtiles for all consumers: 0.58 of the speed of a copy instead of 0.63
// (2880 x 1800).
template <int SIDE, typename Sample>
constexpr int lane_rows = SIDE == 5 && sizeof(Sample) == 1 ? 16 : 8;

// Turns of the loop over a microtile that are unrolled. From 5 x 5 on all of them would not fit
// into the instruction cache: one turn is 1000 multiply-adds, in total 16 KB.
template <int SIDE> constexpr int unrolled_turns = SIDE < 5 ? 8 : 1;

template <int SIDE, typename Sample_> struct tma_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int TAP_ROWS = SIDE, MICROTILE_ROWS = lane_rows<SIDE, Sample>;
    static constexpr int CONSUMERS = SIDE <= 5 ? 16 : 12; // as many as registers allow
    static constexpr int SEGMENT = COLUMNS * (int)sizeof(Sample), STORE = SEGMENT;
    static constexpr int WARP_MICROTILES = WARP; // a microtile per lane
};

template <int SIDE> struct tma_filter {
    struct tile_schedule schedule;
    struct rounding rounding;
    int32_t coef[SIDE * SIDE]; // padded with zeros; integers, or the bits of floats for SUM_FLOAT
    int32_t zero;              // 0, unknown to the compiler: see load_registers
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// --- samples -------------------------------------------------------------------------------------

// 16 packed samples of the stage: the middle 8 are at the columns that the lane computes.
static __device__ inline void load_line(uint32_t (&line)[4], const uint8_t *from)
{
    uint2 middle = *(const uint2 *)(from + 4);
    line[0] = *(const uint32_t *)from;
    line[1] = middle.x;
    line[2] = middle.y;
    line[3] = *(const uint32_t *)(from + 12);
}

static __device__ inline void load_line(uint2 (&line)[4], const uint8_t *from)
{
    uint4 middle = *(const uint4 *)(from + 8);
    line[0] = *(const uint2 *)from;
    line[1] = make_uint2(middle.x, middle.y);
    line[2] = make_uint2(middle.z, middle.w);
    line[3] = *(const uint2 *)(from + 24);
}

template <typename Packed4>
static __device__ inline void unpack_line(float *to, const Packed4 (&line)[4])
{
    for (int q = 0; q < 4; q++)
        unpack_denormal(to + 4 * q, line[q]);
}

template <typename Packed4>
static __device__ inline void unpack_line(int32_t *to, const Packed4 (&line)[4])
{
    for (int q = 0; q < 4; q++)
        unpack(to + 4 * q, line[q]);
}

// Rounds and packs four integer sums; pack.cuh has the same for floats.
template <bool EXACT, typename Packed4>
static __device__ inline void round_packed4(Packed4 &to, const int32_t *sums,
                                            const struct rounding &r)
{
    uint32_t samples[4];
    for (int k = 0; k < 4; k++)
        samples[k] = round_sum(sums[k], r);
    pack(to, samples);
}

static __device__ inline void drop_sample(uint32_t (&samples)[2])
{
    samples[0] = __funnelshift_r(samples[0], samples[1], 8);
    samples[1] >>= 8;
}

static __device__ inline void drop_sample(uint2 (&samples)[2])
{
    samples[0].x = __funnelshift_r(samples[0].x, samples[0].y, 16);
    samples[0].y = __funnelshift_r(samples[0].y, samples[1].x, 16);
    samples[1].x = __funnelshift_r(samples[1].x, samples[1].y, 16);
    samples[1].y >>= 16;
}

// Stores the first `bytes` of a row, which need not be aligned. A loop, for short code: few rows
// use it.
template <typename Sample>
static __device__ inline void store_part(uint8_t *to, packed4<Sample> (&samples)[2], int bytes)
{
#pragma unroll 1
    for (int k = 0; k < bytes; k += (int)sizeof(Sample)) {
        *(Sample *)(to + k) = *(const Sample *)samples;
        drop_sample(samples);
    }
}

// A lane's next rows.
struct tma_microtile {
    const uint8_t *from; // in the stage
    uint8_t *to;
    int pitch, stride;
    int bytes, rows; // to store
    bool whole;      // rows are complete and aligned: one store each
};

// Stores those of the next rows that exist.
template <typename Sample, int ROWS>
static __device__ inline void store_rows(struct tma_microtile &m, packed4<Sample> (&made)[ROWS][2])
{
    typedef typename std::conditional<sizeof(Sample) == 1, uint2, uint4>::type Row;
    int whole = m.whole ? m.rows : 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < whole)
            *(Row *)(m.to + (int64_t)m.stride * r) = *(const Row *)made[r];
    if (!m.whole)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < m.rows)
                store_part<Sample>(m.to + (int64_t)m.stride * r, made[r], m.bytes);
    m.to += (int64_t)m.stride * ROWS;
    m.rows -= ROWS;
}

// --- sums ----------------------------------------------------------------------------------------

// The filter in uniform registers, which do not count against a lane's own.
template <int SIDE> struct tma_registers {
    int32_t coef[SIDE * SIDE];
    struct rounding rounding;
};

// Called once per kernel. The compiler loads plain parameters again for every part of a turn; it
// keeps the result of an operation, and cannot see that zero is 0.
template <int SIDE>
static __device__ inline struct tma_registers<SIDE>
load_registers(const struct tma_filter<SIDE> &f) {
    struct tma_registers<SIDE> registers;
    registers.rounding = f.rounding;
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++)
        registers.coef[i] = f.coef[i] ^ f.zero;
    return registers;
}

template <bool EXACT, typename Sum, typename Packed4>
static __device__ inline void round_row(Packed4 (&made)[2], const Sum (&sums)[COLUMNS],
                                        const struct rounding &r)
{
    round_packed4<EXACT>(made[0], sums, r);
    round_packed4<EXACT>(made[1], sums + 4, r);
}

// The SIDE rows of the stage that a result needs stay in registers, which rotate once per turn of
// SIDE rows: 8 rows of 7 x 7 taps read 14 rows, two turns, 16 of 5 x 5 taps four. The next row is
// loaded before the arithmetic of the current one to hide the latency of shared memory. PAIRS: the
// filter is symmetric, and samples that trade places are added first.
template <int SIDE, typename Sample, typename Sum, bool EXACT, bool PAIRS>
static __device__ inline void filter_rotating(struct tma_microtile &m,
                                              const struct tma_registers<SIDE> &f)
{
    constexpr int LINES = lane_rows<SIDE, Sample> + SIDE - 1;
    packed4<Sample> next[4];
    load_line(next, m.from);
    m.from += m.pitch;
    operand<Sum> lines[SIDE][2 * COLUMNS];
#pragma unroll(unrolled_turns <SIDE>)
    for (int first = 0; first < LINES; first += SIDE) {
#pragma unroll
        for (int s = 0; s < SIDE; s++) {
            if (first + s == LINES)
                break;
            unpack_line(lines[s], next);
            if (first + s + 1 < LINES)
                load_line(next, m.from);
            m.from += m.pitch;
            if (first + s < SIDE - 1)
                continue;
            // The samples under tap (i, j) of the eight results.
            auto at = [&](int i, int j) { return lines[(s + 1 + j) % SIDE] + 4 - SIDE / 2 + i; };
            Sum sums[COLUMNS];
#pragma unroll
            for (int a = 0; a < SIDE; a++) // a row, or a diagonal
#pragma unroll
                for (int k = 0; k < COLUMNS; k++) {
                    if (a == 0)
                        start_sum(sums[k], f.rounding);
#pragma unroll
                    for (int b = 0; b < (PAIRS ? SIDE - a : SIDE); b++)
                        if (PAIRS && a > 0)
                            add_tap(sums[k], f.coef[b * SIDE + a + b],
                                    at(a + b, b)[k] + at(b, a + b)[k]);
                        else
                            add_tap(sums[k], f.coef[(PAIRS ? b : a) * SIDE + b],
                                    at(b, PAIRS ? b : a)[k]);
                }
            packed4<Sample> made[1][2];
            round_row<EXACT>(made[0], sums, f.rounding);
            store_rows<Sample>(m, made);
        }
    }
}

template <int SIDE, typename Sample, typename Sum, bool EXACT, bool PAIRS>
static __device__ inline void filter_microtile(const struct work_tile &tile, const uint8_t *samples,
                                               int microtile, const struct tma_registers<SIDE> &f)
{
    bool exists = microtile < tile.microtiles;
    microtile = exists ? microtile : 0; // all lanes run the same code; rows is 0
    typedef tma_traits<SIDE, Sample> Traits;
    constexpr int SEGMENT = Traits::SEGMENT, ROWS = Traits::MICROTILE_ROWS;
    int band = band_of(tile, microtile);
    int x = (microtile - band * tile.segments) * SEGMENT, y = band * ROWS; // x in bytes
    struct tma_microtile m;
    m.from = samples + y * tile.pitch + Traits::HALO + x - 4 * (int)sizeof(Sample);
    m.to = tile.dst + (int64_t)y * tile.dst_stride + x;
    m.pitch = tile.pitch;
    m.stride = tile.dst_stride;
    m.bytes = min(tile.stored - x, SEGMENT);
    m.rows = exists ? min(tile.rows - y, ROWS) : 0;
    m.whole = m.bytes == SEGMENT && tile.aligned;
    filter_rotating<SIDE, Sample, Sum, EXACT, PAIRS>(m, f);
}

#endif

// Blocks of 20 warps (up to 5 x 5) or 16; a lane of a consumer warp filters one microtile at a
// time. EXACT: the filter is exact, so float sums are divided; real filters need no division.
// PAIRS: it is symmetric.
template <int SIDE, typename Sample, typename Sum, bool EXACT, bool PAIRS>
static __global__ void __launch_bounds__(block_threads<tma_traits<SIDE, Sample>>, 1)
    tma(const __grid_constant__ struct tma_filter<SIDE> f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_traits<SIDE, Sample> Traits;
    auto prepare = [](struct tma_pipeline *) {};
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct tma_registers<SIDE> registers = load_registers(f);
        consume_tiles<Traits>(pipeline, f.schedule,
                              [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                                  int microtile =
                                      job * Traits::WARP_MICROTILES + (int)(threadIdx.x % WARP);
                                  filter_microtile<SIDE, Sample, Sum, EXACT, PAIRS>(
                                      tile, samples, microtile, registers);
                              });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE, typename Sample, typename Sum, bool EXACT, bool PAIRS = false>
static void choose_kernel(struct kernel_constants<struct tma_filter<SIDE>> *constants)
{
    struct tma_filter<SIDE> &f = constants->filter;
    if (std::is_same<Sum, float>::value)
        scale_filter<Sample>(f.coef, SIDE * SIDE, &f.rounding);
    constants->kernel = tma<SIDE, Sample, Sum, EXACT, PAIRS>;
    constants->launch = tma_pipeline_run<tma_traits<SIDE, Sample>, struct tma_filter<SIDE>>;
}

template <int SIDE, typename Sample>
static void plan_sample(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_filter<SIDE>>>(plan);
    struct tma_filter<SIDE> &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    int left = SIDE / 2 - stencil->width / 2, top = SIDE / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[(top + j) * SIDE + left + i] = conv_cuda_coef(stencil, kind, i, j);
    if (kind == SUM_INT32)
        choose_kernel<SIDE, Sample, int32_t, true>(constants);
    else if (stencil->exact)
        choose_kernel<SIDE, Sample, float, true>(constants);
    else if (stencil->symmetric)
        choose_kernel<SIDE, Sample, float, false, true>(constants);
    else
        choose_kernel<SIDE, Sample, float, false>(constants);
}

template <int SIDE>
static void plan_side(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->depth == 8)
        plan_sample<SIDE, uint8_t>(stencil, plan);
    else
        plan_sample<SIDE, uint16_t>(stencil, plan);
}

static void plan_tma(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (side <= 3)
        plan_side<3>(stencil, plan);
    else if (side <= 5)
        plan_side<5>(stencil, plan);
    else
        plan_side<7>(stencil, plan);
}

static bool can_tma(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    return max(stencil->width, stencil->height) <= 7 &&
           conv_cuda_rounding(&rounding, stencil) != SUM_INT64 && fits_scaled(stencil);
}

CONV_CUDA_VARIANT_OF(SYMMETRIC, tma, 90, "samples through the bulk copy engine, sums in registers",
                     can_tma, score_always<50>, plan_tma, run_planned, tile_traits::TILE_WIDTH,
                     tile_traits::TILE_HEIGHT);
