// SPDX-License-Identifier: MIT
// Like tma_mma.cu, for filters up to 31 x 31: exact ones of 8-bit images whose coefficients fit in
// 8 bits. From compute capability 9.0 on.
//
// A lane holds the sums of 8 rows of samples, not of all rows of taps. Taps come row by row from a
// table in shared memory, laid out as the lanes read them. A row of taps applies to 8 rows of
// samples; one of them is new, the others are in registers. At 31 x 31 tensor cores are busy for 76
// % of the time. kernels/README.md has the figures.
#include "kernels/stencil/cuda/microtile.cuh"

#define SHORT 17 // taps of a row up to which a window has 32 bytes; for more it has 48
#define LEAD 32  // zeros before a row's taps
#define ROW 96   // bytes of a padded row: zeros, taps, zeros

struct tma_mma_large_filter {
    struct tile_schedule schedule;
    struct rounding rounding;
    int32_t width, height;
    int8_t coef[CONV_FILTER_MAX_TAPS];
};

template <int TAP_ROWS> using tma_mma_large_traits = mma_traits<TAP_ROWS, 12>;

// A lane's part of a row of taps, for both halves of a segment.
struct tap_row {
    uint4 pairs;  // for the first 32 bytes of the window: of the first half, of the second
    uint2 thirds; // for the other 16
};

// Bytes of a row of taps in the table; a window has BLOCKS * 16 bytes.
template <int BLOCKS> constexpr size_t tap_row_bytes = WARP *(BLOCKS == 3 ? 24 : 16);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// to += A * B for the last 16 bytes of a window. PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// integer type".
static __device__ inline void multiply_third(int32_t (&to)[4], const uint32_t *a, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(to[0]), "r"(to[1]), "r"(to[2]), "r"(to[3]));
}

// Four bytes at any address.
static __device__ inline uint32_t load_any(const uint8_t *from)
{
    uint32_t skip = shared_address(from) % 4;
    const uint32_t *words = (const uint32_t *)(from - skip);
    return __funnelshift_r(words[0], words[1], 8 * skip);
}

// Writes the table: of each row, the lanes' parts of both B as in load_taps. `padded` is scratch
// memory for the rows with zeros around them. All threads of the block together; the barriers are
// there because each step reads what other threads wrote.
template <int BLOCKS, int THREADS>
static __device__ inline void lay_out_taps(uint8_t *table, uint8_t *padded,
                                           const struct tma_mma_large_filter &f)
{
    for (int i = (int)threadIdx.x; i < f.height * ROW / 4; i += THREADS)
        ((uint32_t *)padded)[i] = 0;
    __syncthreads();
    int first = LEAD + (BLOCKS == 3 ? 16 : 8) - f.width / 2;
    for (int i = (int)threadIdx.x; i < f.width * f.height; i += THREADS)
        padded[i / f.width * ROW + first + i % f.width] = (uint8_t)f.coef[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < f.height * WARP; i += THREADS) {
        int g = i % WARP / 4, t = i % 4;
        const uint8_t *from = padded + i / WARP * ROW + LEAD + 4 * t - (g / 2 * 4 + g % 2);
        ((uint4 *)table)[i] = make_uint4(load_any(from), load_any(from + 16), load_any(from - 2),
                                         load_any(from + 14));
        if (BLOCKS == 3)
            ((uint2 *)(table + f.height * WARP * sizeof(uint4)))[i] =
                make_uint2(load_any(from + 32), load_any(from + 30));
    }
}

template <int BLOCKS>
static __device__ inline struct tap_row load_row(const uint8_t *table, int row, int height)
{
    struct tap_row taps = {};
    int i = row * WARP + (int)threadIdx.x % WARP;
    taps.pairs = ((const uint4 *)table)[i];
    if (BLOCKS == 3)
        taps.thirds = ((const uint2 *)(table + height * WARP * sizeof(uint4)))[i];
    return taps;
}

// The windows of a row of both microtiles.
template <int BLOCKS>
static __device__ inline void load_windows(uint32_t (&to)[2 * BLOCKS], struct lane_microtile *m0,
                                           struct lane_microtile *m1, int pitch)
{
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        to[2 * i] = *(const uint32_t *)(m0->from + 16 * i);
        to[2 * i + 1] = *(const uint32_t *)(m1->from + 16 * i);
    }
    m0->from += pitch;
    m1->from += pitch;
}

template <int BLOCKS>
static __device__ inline void add_taps(int32_t (&even)[4], int32_t (&odd)[4],
                                       const uint32_t (&windows)[2 * BLOCKS],
                                       const struct tap_row &taps)
{
    const uint32_t pair[4] = {windows[0], windows[1], windows[2], windows[3]};
    multiply(even, pair, make_uint2(taps.pairs.x, taps.pairs.y), even);
    multiply(odd, pair, make_uint2(taps.pairs.z, taps.pairs.w), odd);
    if (BLOCKS == 3) {
        multiply_third(even, windows + 2 * BLOCKS - 2, taps.thirds.x);
        multiply_third(odd, windows + 2 * BLOCKS - 2, taps.thirds.y);
    }
}

static __device__ inline uint32_t round_four(float, int32_t s0, int32_t s1, int32_t s2, int32_t s3,
                                             const struct rounding &r)
{
    int32_t sums[4] = {s0, s1, s2, s3};
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) // see round_sum
        v[k] = __fadd_rn(__fmaf_rn((float)sums[k], r.scale, r.grid), -r.grid);
    return round_to_bytes(v[0], v[1], v[2], v[3]);
}

static __device__ inline uint32_t round_four(int32_t, int32_t s0, int32_t s1, int32_t s2,
                                             int32_t s3, const struct rounding &r)
{
    uint32_t samples[4] = {round_sum(s0, r), round_sum(s1, r), round_sum(s2, r), round_sum(s3, r)};
    uint32_t four;
    pack(four, samples);
    return four;
}

template <int BLOCKS, typename Sum>
static __device__ inline void filter_microtiles(struct lane_microtile m0, struct lane_microtile m1,
                                                const uint8_t *table, const struct work_tile &tile,
                                                const struct tma_mma_large_filter &f)
{
    int32_t even[MMA_ROWS][4], odd[MMA_ROWS][4];
#pragma unroll
    for (int r = 0; r < MMA_ROWS; r++)
        for (int k = 0; k < 4; k++)
            even[r][k] = odd[r][k] = (int32_t)f.rounding.bias;
    uint32_t windows[MMA_ROWS][2 * BLOCKS];
#pragma unroll
    for (int r = 0; r < MMA_ROWS - 1; r++)
        load_windows<BLOCKS>(windows[r], &m0, &m1, tile.pitch);
    struct tap_row next = load_row<BLOCKS>(table, 0, f.height);
#pragma unroll 1
    for (int first = 0; first < f.height; first += MMA_ROWS) {
#pragma unroll
        for (int s = 0; s < MMA_ROWS; s++) {
            int row = first + s;
            if (row == f.height)
                break;
            struct tap_row taps = next;
            load_windows<BLOCKS>(windows[(s + MMA_ROWS - 1) % MMA_ROWS], &m0, &m1, tile.pitch);
            next = load_row<BLOCKS>(table, min(row + 1, f.height - 1), f.height);
#pragma unroll
            for (int r = 0; r < MMA_ROWS; r++)
                add_taps<BLOCKS>(even[r], odd[r], windows[(s + r) % MMA_ROWS], taps);
        }
    }
#pragma unroll
    for (int r = 0; r < MMA_ROWS; r++) {
        const int32_t *e = even[r], *o = odd[r];
        store<true>(&m0, r, round_four(Sum(), e[0], e[1], o[0], o[1], f.rounding), tile);
        store<true>(&m1, r, round_four(Sum(), e[2], e[3], o[2], o[3], f.rounding), tile);
    }
}

#endif

// Blocks of 16 warps. A consumer warp filters 16 microtiles of 16 x 8 samples at a time. Shared
// memory after the stages: the table of taps, 512 or 768 bytes per row.
template <int BLOCKS, int ROWS, typename Sum>
static __global__ void __launch_bounds__(block_threads<tma_mma_large_traits<ROWS>>, 1)
    tma_mma_large(const __grid_constant__ struct tma_mma_large_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_mma_large_traits<ROWS> Traits;
    uint8_t *table;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        uint8_t *stages = stages_of(pipeline);
        table = stages + f.schedule.stages * f.schedule.stage_bytes;
        lay_out_taps<BLOCKS, block_threads<Traits>>(table, stages, f);
        fence_for_bulk(); // the stages, to which bulk copies write next, held the taps
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        auto run = [&](const struct work_tile &tile, const uint8_t *samples, int job) {
            int microtile = job * Traits::WARP_MICROTILES + (int)threadIdx.x % WARP / 4,
                left = BLOCKS == 3 ? 16 : 8;
            samples += (ROWS / 2 - f.height / 2) * tile.pitch;
            filter_microtiles<BLOCKS, Sum>(
                find_microtile<Traits>(tile, samples, microtile, left),
                find_microtile<Traits>(tile, samples, microtile + Traits::WARP_MICROTILES / 2,
                                       left),
                table, tile, f);
        };
        consume_tiles<Traits>(pipeline, f.schedule, run);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int BLOCKS, int ROWS>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_large_filter>>(plan);
    struct tma_mma_large_filter &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    f.width = stencil->width;
    f.height = stencil->height;
    for (int i = 0; i < f.width * f.height; i++)
        f.coef[i] = (int8_t)stencil->icoef[i];
    constants->kernel = kind == SUM_FLOAT ? tma_mma_large<BLOCKS, ROWS, float>
                                          : tma_mma_large<BLOCKS, ROWS, int32_t>;
    constants->shared_bytes = stencil->height * tap_row_bytes<BLOCKS>;
    constants->launch = tma_pipeline_run<tma_mma_large_traits<ROWS>, struct tma_mma_large_filter>;
}

static void plan_tma_mma_large(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT && stencil->height <= SHORT)
        plan_sized<2, 17>(stencil, plan);
    else if (stencil->width <= SHORT)
        plan_sized<2, 31>(stencil, plan);
    else if (stencil->height <= SHORT)
        plan_sized<3, 17>(stencil, plan);
    else
        plan_sized<3, 31>(stencil, plan);
}

static bool can_tma_mma_large(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    if (!stencil->exact || stencil->depth != 8 ||
        conv_cuda_rounding(&rounding, stencil) == SUM_INT64)
        return false;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        if (stencil->icoef[i] < -128 || stencil->icoef[i] > 127)
            return false;
    return true;
}

// Taps that fit registers should not come from shared memory.
static int score_tma_mma_large(const struct conv_stencil *stencil, size_t)
{
    bool large = stencil->width > MAX_WIDTH || stencil->height > MAX_HEIGHT;
    return large ? 70 : CONV_SCORE_UNSUITED;
}

CONV_CUDA_VARIANT(tma_mma_large, 90, "large filters on int8 tensor cores, taps from shared memory",
                  can_tma_mma_large, score_tma_mma_large, plan_tma_mma_large, run_planned,
                  tile_traits::TILE_WIDTH, tile_traits::TILE_HEIGHT);
