// SPDX-License-Identifier: MIT
// Like tma_mma.cu, for filters up to 31 x 31: exact ones of 8-bit images whose sums have 32 bits,
// with or without a threshold. From compute capability 9.0 on.
//
// A lane holds the sums of 8 rows of samples, not of all rows of taps. Taps come row by row from a
// table in shared memory, laid out as the lanes read them. A row of taps applies to 8 rows of
// samples; one of them is new, the others are in registers. Coefficients of more than 8 bits are
// sums of bytes with a sign, times powers of 256: their highest bytes come first, then sums are
// multiplied by 256, and the next ones follow. Only complete sums have to fit 32 bits.
// kernels/README.md has the figures.
#include <string.h>

#include "kernels/stencil/cuda/microtile.cuh"

#define SHORT 17 // taps of a row up to which a window has 32 bytes; for more it has 48
#define LEAD 32  // zeros before a row's taps
#define ROW 96   // bytes of a padded row: zeros, taps, zeros

#define MOST_PARTS 3 // bytes of a coefficient

struct tma_mma_large_filter {
    struct tile_schedule schedule;
    struct rounding rounding;
    int32_t width, height, divisor, keep_below; // of the latter: 0, if there is no threshold
    // For the highest bytes and those below: rows of taps that are not all 0, one after the other.
    int32_t parts, first[MOST_PARTS], rows[MOST_PARTS];
    int32_t table_rows; // of all parts
    int8_t coef[MOST_PARTS * CONV_FILTER_MAX_TAPS];
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
    for (int i = (int)threadIdx.x; i < f.table_rows * ROW / 4; i += THREADS)
        ((uint32_t *)padded)[i] = 0;
    __syncthreads();
    int first = LEAD + (BLOCKS == 3 ? 16 : 8) - f.width / 2;
    for (int i = (int)threadIdx.x; i < f.width * f.table_rows; i += THREADS)
        padded[i / f.width * ROW + first + i % f.width] = (uint8_t)f.coef[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < f.table_rows * WARP; i += THREADS) {
        int g = i % WARP / 4, t = i % 4;
        const uint8_t *from = padded + i / WARP * ROW + LEAD + 4 * t - (g / 2 * 4 + g % 2);
        ((uint4 *)table)[i] = make_uint4(load_any(from), load_any(from + 16), load_any(from - 2),
                                         load_any(from + 14));
        if (BLOCKS == 3)
            ((uint2 *)(table + f.table_rows * WARP * sizeof(uint4)))[i] =
                make_uint2(load_any(from + 32), load_any(from + 30));
    }
}

template <int BLOCKS>
static __device__ inline struct tap_row load_row(const uint8_t *table, int row, int rows)
{
    struct tap_row taps = {};
    int i = row * WARP + (int)threadIdx.x % WARP;
    taps.pairs = ((const uint4 *)table)[i];
    if (BLOCKS == 3)
        taps.thirds = ((const uint2 *)(table + rows * WARP * sizeof(uint4)))[i];
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

// The sums of four neighbours, or their samples times the divisor.
static __device__ inline void keep_samples(int32_t (&even)[4], int32_t (&odd)[4], int first,
                                           uint32_t samples, const struct tma_mma_large_filter &f)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int32_t &sum = (k < 2 ? even : odd)[first + k % 2];
        int32_t kept = (int32_t)(samples >> 8 * k & 255) * f.divisor + (int32_t)f.rounding.bias;
        if (abs(sum - kept) < f.keep_below)
            sum = kept;
    }
}

template <int BLOCKS, typename Sum>
static __device__ inline void filter_microtiles(struct lane_microtile m0, struct lane_microtile m1,
                                                const uint8_t *table, const struct work_tile &tile,
                                                const struct tma_mma_large_filter &f)
{
    int32_t even[MMA_ROWS][4] = {}, odd[MMA_ROWS][4] = {};
    struct tap_row next = load_row<BLOCKS>(table, 0, f.table_rows);
    int row = 0, skipped = 0; // rows of the table, and of samples
#pragma unroll 1
    for (int part = 0; part < f.parts; part++) {
        int rows = f.rows[part], start = part == f.parts - 1 ? (int32_t)f.rounding.bias : 0;
        m0.from += (f.first[part] - skipped) * tile.pitch;
        m1.from += (f.first[part] - skipped) * tile.pitch;
        skipped = f.first[part] + rows + MMA_ROWS - 1;
        uint32_t windows[MMA_ROWS][2 * BLOCKS];
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            for (int k = 0; k < 4; k++) {
                even[r][k] = even[r][k] * 256 + start;
                odd[r][k] = odd[r][k] * 256 + start;
            }
            if (r < MMA_ROWS - 1)
                load_windows<BLOCKS>(windows[r], &m0, &m1, tile.pitch);
        }
#pragma unroll 1
        for (int first = 0; first < rows; first += MMA_ROWS) {
#pragma unroll
            for (int s = 0; s < MMA_ROWS; s++) {
                if (first + s == rows)
                    break;
                struct tap_row taps = next;
                load_windows<BLOCKS>(windows[(s + MMA_ROWS - 1) % MMA_ROWS], &m0, &m1, tile.pitch);
                row++;
                next = load_row<BLOCKS>(table, min(row, f.table_rows - 1), f.table_rows);
#pragma unroll
                for (int r = 0; r < MMA_ROWS; r++)
                    add_taps<BLOCKS>(even[r], odd[r], windows[(s + r) % MMA_ROWS], taps);
            }
        }
    }
    if (f.keep_below) {
        int to = (f.height / 2 - skipped) * tile.pitch + (BLOCKS == 3 ? 16 : 8);
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++, to += tile.pitch) {
            keep_samples(even[r], odd[r], 0, *(const uint32_t *)(m0.from + to), f);
            keep_samples(even[r], odd[r], 2, *(const uint32_t *)(m1.from + to), f);
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

// False if coefficients or sums do not fit.
static bool find_parts(struct tma_mma_large_filter *f, const struct conv_stencil *stencil)
{
    int8_t bytes[MOST_PARTS][CONV_FILTER_MAX_TAPS];
    int taps = stencil->width * stencil->height;
    int first[MOST_PARTS] = {}, end[MOST_PARTS] = {stencil->height};
    if (!stencil->exact || stencil->depth != 8 ||
        conv_cuda_rounding(&f->rounding, stencil) == SUM_INT64)
        return false;
    for (int i = 0; i < taps; i++) {
        int32_t rest = stencil->icoef[i];
        for (int b = 0; b < MOST_PARTS; b++) {
            int32_t byte = ((rest + 128) & 255) - 128;
            bytes[b][i] = (int8_t)byte;
            rest = (rest - byte) / 256;
            if (byte != 0 && end[b] == 0)
                first[b] = i / stencil->width;
            if (byte != 0)
                end[b] = i / stencil->width + 1;
        }
        if (rest != 0)
            return false;
    }
    f->width = stencil->width;
    f->height = stencil->height;
    f->divisor = (int32_t)stencil->divisor;
    f->keep_below = (int32_t)min(stencil->keep_below, (int64_t)INT32_MAX);
    for (int b = MOST_PARTS - 1; b >= 0; b--) {
        if (f->parts == 0 && b > 0 && end[b] == 0)
            continue;
        f->first[f->parts] = first[b];
        f->rows[f->parts] = end[b] - f->first[f->parts];
        memcpy(f->coef + f->table_rows * f->width, bytes[b] + f->first[f->parts] * f->width,
               (size_t)(f->rows[f->parts] * f->width));
        f->table_rows += f->rows[f->parts++];
    }
    return true;
}

template <int BLOCKS, int ROWS>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_large_filter>>(plan);
    struct tma_mma_large_filter &f = constants->filter;
    struct rounding rounding;
    find_parts(&f, stencil);
    constants->kernel = conv_cuda_rounding(&rounding, stencil) == SUM_FLOAT
                            ? tma_mma_large<BLOCKS, ROWS, float>
                            : tma_mma_large<BLOCKS, ROWS, int32_t>;
    constants->shared_bytes = f.table_rows * tap_row_bytes<BLOCKS>;
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
    struct tma_mma_large_filter filter = {};
    return find_parts(&filter, stencil);
}

// Taps that fit registers should not come from shared memory; cuda_tma multiplies 9 of them faster.
static int score_tma_mma_large(const struct conv_stencil *stencil, size_t)
{
    if (stencil->width > MAX_WIDTH || stencil->height > MAX_HEIGHT)
        return 70;
    return max(stencil->width, stencil->height) > 3 ? 55 : 49;
}

CONV_CUDA_VARIANT_OF(THRESHOLDS, tma_mma_large, 90,
                     "large filters on int8 tensor cores, taps from shared memory",
                     can_tma_mma_large, score_tma_mma_large, plan_tma_mma_large, run_planned,
                     tile_traits::TILE_WIDTH, tile_traits::TILE_HEIGHT);
