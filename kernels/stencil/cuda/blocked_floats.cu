// SPDX-License-Identifier: MIT
// Float32 samples: filters up to 7 x 7 by register blocking as in blocked.cu, larger symmetric ones
// down diagonals, as those of other samples with float32 results; sums in the defined order, stored
// unchanged; for magnitudes two sums, which are combined. Taps that are 0 are skipped, since a
// product with an infinite sample would not be 0; the condition is the same for all threads.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

// A padded row of taps is at most 32 long: see layout_block.
#define MAX_COEFS (CONV_FILTER_MAX_SIDE * (CONV_FILTER_MAX_SIDE + 1))

// SIDE 3, 5 and 7: filters up to that size, padded with zeros, loops unrolled. 0: symmetric ones of
// any size, with a diagonal in each row of coef.
template <int SIDE> struct float_filter {
    struct block_params block;
    int32_t row_coefs; // coefficients in a row
    int32_t symmetric; // as in struct conv_stencil
    float start;       // of sums
    float divisor;     // magnitudes only
    float coef[SIDE ? SIDE * SIDE : MAX_COEFS];
};
static_assert(sizeof(struct float_filter<0>) <= 4096, "kernel parameters end at 4 KB");

// --- the arithmetic ------------------------------------------------------------------------------

// sums[k] += coef * samples[k], unless coef is 0.
static __device__ inline void add_four(float *sums, float coef, const float *samples)
{
    if (coef != 0)
        for (int k = 0; k < shape::COLUMNS; k++)
            sums[k] = __fmaf_rn(coef, samples[k], sums[k]);
}

// `from`: see filter_block. The rows of input that are under the filter stay in registers.
template <int SIDE, bool MAGNITUDE>
static __device__ inline void filter_unrolled(const float *from,
                                              const struct conv_stencil_plane &plane, int x, int y,
                                              const struct float_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS;
    bool aligned = packed4_aligned<float>(plane.dst, plane.dst_stride);
    float lines[SIDE][3 * COLUMNS];
#pragma unroll
    for (int n = 0; n < ROWS + SIDE - 1; n++) {
#pragma unroll
        for (int k = 0; k < 3; k++)
            unpack(lines[n % SIDE] + k * COLUMNS, ((const float4 *)(from + n * PITCH))[k]);
        if (n < SIDE - 1)
            continue;
        // The samples under tap (i, j) of the four results.
        auto at = [&](int i, int j) { return lines[(n + 1 + j) % SIDE] + COLUMNS - SIDE / 2 + i; };
        float sums[COLUMNS], down[COLUMNS];
        for (int k = 0; k < COLUMNS; k++) {
            sums[k] = MAGNITUDE ? 0 : f.start;
            down[k] = 0;
        }
        if (!MAGNITUDE && f.symmetric) {
#pragma unroll
            for (int d = 0; d < SIDE; d++)
#pragma unroll
                for (int j = 0; j < SIDE - d; j++) {
                    float pairs[COLUMNS];
                    for (int k = 0; k < COLUMNS; k++)
                        pairs[k] = d ? __fadd_rn(at(j + d, j)[k], at(j, j + d)[k]) : at(j, j)[k];
                    add_four(sums, f.coef[j * SIDE + j + d], pairs);
                }
        } else {
#pragma unroll
            for (int j = 0; j < SIDE; j++)
#pragma unroll
                for (int i = 0; i < SIDE; i++) {
                    add_four(sums, f.coef[j * SIDE + i], at(i, j));
                    if (MAGNITUDE)
                        add_four(down, f.coef[j * SIDE + i], at(j, i));
                }
        }
        for (int k = 0; k < COLUMNS && MAGNITUDE; k++) {
            float squares = __fadd_rn(__fmul_rn(sums[k], sums[k]), __fmul_rn(down[k], down[k]));
            sums[k] = __fadd_rn(__fdiv_rn(__fsqrt_rn(squares), f.divisor), f.start);
        }
        store_four<float>(plane, x, y + n - (SIDE - 1), aligned, sums, rounding());
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, at most 38
// rows of 136 samples. Each warp loads every fourth row; the barrier in load_tile precedes all
// reads.
template <int SIDE, bool MAGNITUDE>
static __global__ void __launch_bounds__(shape::THREADS, 4)
    blocked_floats(const __grid_constant__ struct float_filter<SIDE> f)
{
    auto filter = [&](const float *from, const struct conv_stencil_plane &plane, int x, int y) {
        filter_unrolled<SIDE, MAGNITUDE>(from, plane, x, y, f);
    };
    filter_block<shape, SIDE, float>(f.block, filter);
}

// --- runs of samples -----------------------------------------------------------------------------

// The samples that a thread computes along a line, and the taps between two moves of its window.
#define RUN 16
#define STEP 8

// sums[k] += sum of taps[i] * value(i + k), i ascending; with float32, but for taps that are 0.
// Values after the last tap's are loaded, but not used.
template <typename Sum, typename Value>
static __device__ inline void add_line(Sum (&sums)[RUN], const Sum *taps, int count,
                                       const Value &value)
{
    Sum window[RUN + STEP];
#pragma unroll
    for (int k = 0; k < RUN; k++)
        window[k] = value(k);
#pragma unroll 1
    for (int i = 0; i < count; i += STEP) {
#pragma unroll
        for (int k = RUN; k < RUN + STEP; k++)
            window[k] = value(i + k);
#pragma unroll
        for (int t = 0; t < STEP; t++)
            if (i + t < count && (sizeof(Sum) == 8 || taps[i + t] != 0))
                for (int k = 0; k < RUN; k++)
                    sums[k] = fma(taps[i + t], window[t + k], sums[k]);
#pragma unroll
        for (int k = 0; k < RUN; k++)
            window[k] = window[k + STEP];
    }
}

// Symmetric filters of any size. Blocks of 4 warps compute 128 x 32 samples. A thread computes runs
// of RUN results down a diagonal, so that the taps of a diagonal are a window that moves along it;
// neighbouring lanes have neighbouring columns. Runs begin up to RUN - 1 columns before the tile,
// results outside of it are not stored, and samples beside the loaded ones are only part of these.
// Shared memory: RUN samples, the tile with its halo, and STEP + 1 rows (46 KB).
template <typename Sample>
static __global__ void __launch_bounds__(shape::THREADS, 4)
    diagonal_floats(const __grid_constant__ struct float_filter<0> f)
{
    constexpr int WIDTH = shape::TILE_WIDTH, HEIGHT = shape::TILE_HEIGHT, RUNS = WIDTH + RUN - 1;
    extern __shared__ uint4 memory[];
    Sample *samples = (Sample *)memory + RUN;
    int side = 2 * f.block.radius + 1, pitch = f.block.pitch;
    struct tile tile = find_tile(f.block.planes, f.block.count, WIDTH, HEIGHT);
    load_tile<shape>(samples, pitch, tile, f.block.halo, f.block.radius,
                     (enum conv_border)f.block.border, f.block.border_value);
    int width = min(WIDTH, tile.plane.width - tile.x);
    int height = min(HEIGHT, tile.plane.height - tile.y);
    for (int n = (int)threadIdx.x; n < RUNS * (HEIGHT / RUN); n += shape::THREADS) {
        int x = n % RUNS - (RUN - 1), y = n / RUNS * RUN;
        const Sample *corner = samples + y * pitch + f.block.halo - f.block.radius + x;
        float sums[RUN];
        for (int k = 0; k < RUN; k++)
            sums[k] = f.start;
        for (int d = 0; d < side && x < width && y < height; d++)
            add_line(sums, f.coef + d * f.row_coefs, side - d, [&](int i) {
                const Sample *at = corner + i * (pitch + 1);
                return __fadd_rn((float)at[d], d ? (float)at[d * pitch] : -0.0f);
            });
#pragma unroll
        for (int k = 0; k < RUN; k++)
            if (x + k >= 0 && x + k < width && y + k < height)
                ((float *)(tile.plane.dst +
                           (tile.y + y + k) * tile.plane.dst_stride))[tile.x + x + k] = sums[k];
    }
}

// --- real coefficients ---------------------------------------------------------------------------

// Half a tile.
struct precise_shape {
    static constexpr int COLUMNS = 4, WARPS = 4, THREADS = WARPS * WARP;
    static constexpr int TILE_WIDTH = shape::TILE_WIDTH, TILE_HEIGHT = shape::TILE_HEIGHT / 2;
};
static_assert(precise_shape::TILE_HEIGHT == RUN &&
                  precise_shape::THREADS == precise_shape::TILE_WIDTH,
              "a thread has a whole column");

struct precise_filter {
    struct block_params block; // pitch: an odd multiple of 4, for few bank conflicts down a column
    int32_t keeps;
    float start, keep_below;
    struct conv_real real;
};
static_assert(sizeof(struct precise_filter) <= 4096, "kernel parameters end at 4 KB");

static __device__ __host__ inline int precise_sum_pitch(int side)
{
    return (precise_shape::TILE_WIDTH + side - 1) | 1; // odd: no bank conflicts down a column
}

// Blocks of 4 warps compute 128 x 16 samples, then the 128 x 16 below. Shared memory: these with
// their halo, at most 54 rows of 172 samples, and for one product at a time the sums down their
// columns, 16 rows of up to 167 (59 KB; compute capability 7.5 has 64). A thread computes 16 sums
// down a column, then 16 along a row. Results take the place of the sums, so that a warp stores
// whole rows.
static __global__ void __launch_bounds__(precise_shape::THREADS, 4)
    precise_floats(const __grid_constant__ struct precise_filter f)
{
    constexpr int WIDTH = precise_shape::TILE_WIDTH, HEIGHT = precise_shape::TILE_HEIGHT;
    constexpr int RESULT_PITCH = WIDTH + 1;
    extern __shared__ uint4 memory[];
    float *samples = (float *)memory;
    int side = f.real.side, columns = WIDTH + side - 1, sum_pitch = precise_sum_pitch(side);
    double *sums = (double *)(samples + f.block.pitch * (HEIGHT + side - 1));
    float *stored = (float *)sums;
    int row = (int)threadIdx.x % HEIGHT, first = (int)threadIdx.x / HEIGHT * RUN;
    const float *corner = samples + f.block.halo - f.block.radius;
    const float *own = samples + (row + f.block.radius) * f.block.pitch + f.block.halo + first;
    struct tile tile =
        find_tile(f.block.planes, f.block.count, shape::TILE_WIDTH, shape::TILE_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    for (int end = min(tile.y + shape::TILE_HEIGHT, plane.height); tile.y < end; tile.y += HEIGHT) {
        load_tile<precise_shape>(samples, f.block.pitch, tile, f.block.halo, f.block.radius,
                                 (enum conv_border)f.block.border, f.block.border_value);
        double results[RUN];
        for (int k = 0; k < RUN; k++)
            results[k] = f.start;
        for (int line = 0; line < f.real.lines; line++) {
            for (int n = (int)threadIdx.x; n < columns; n += precise_shape::THREADS) {
                double down[RUN] = {};
                add_line(down, f.real.column[line], side, [&](int j) {
                    return (double)corner[min(j, HEIGHT + side - 2) * f.block.pitch + n];
                });
                for (int k = 0; k < RUN; k++)
                    sums[k * sum_pitch + n] = down[k];
            }
            __syncthreads(); // a row has sums of other threads
            add_line(results, f.real.row[line], side,
                     [&](int i) { return sums[row * sum_pitch + first + i]; });
            __syncthreads(); // the next sums, or the results, take their place
        }
        for (int n = 0; n < f.real.taps; n++) {
            const auto &tap = f.real.tap[n];
#pragma unroll
            for (int k = 0; k < RUN; k++)
                results[k] =
                    fma(tap.coef, (double)own[tap.y * f.block.pitch + tap.x + k], results[k]);
        }
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            float result = (float)results[k], kept = __fadd_rn(f.start, own[k]);
            if (f.keeps && fabsf(__fadd_rn(result, -kept)) < f.keep_below)
                result = kept;
            stored[row * RESULT_PITCH + first + k] = result;
        }
        __syncthreads(); // a warp stores results of others
        int width = min(WIDTH, plane.width - tile.x), height = min(HEIGHT, plane.height - tile.y);
        for (int y = 0; y < height; y++)
            if ((int)threadIdx.x < width)
                ((float *)(plane.dst +
                           (tile.y + y) * plane.dst_stride))[tile.x + (int)threadIdx.x] =
                    stored[y * RESULT_PITCH + (int)threadIdx.x];
    }
}

static void plan_precise(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct precise_filter>>(plan);
    struct precise_filter &f = constants->filter;
    (void)layout_block<precise_shape>(&f.block, stencil, 0);
    f.block.pitch = precise_shape::TILE_WIDTH + 2 * f.block.halo + precise_shape::COLUMNS;
    f.keeps = stencil->keeps;
    f.start = stencil->fbias;
    f.keep_below = stencil->fkeep_below;
    f.real = stencil->real;
    int rows = precise_shape::TILE_HEIGHT + 2 * f.block.radius, ahead = 2 * STEP;
    int sums = precise_shape::TILE_HEIGHT * precise_sum_pitch(f.real.side) + ahead;
    constants->shared_bytes =
        (size_t)(rows * f.block.pitch) * sizeof(float) + (size_t)sums * sizeof(double);
    constants->launch = launch_blocks<precise_shape, struct precise_filter>;
    constants->kernel = precise_floats;
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE>
static void plan_side(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct float_filter<SIDE>>>(plan);
    struct float_filter<SIDE> &f = constants->filter;
    struct tap_layout layout = layout_block<shape>(&f.block, stencil, SIDE);
    f.row_coefs = layout.row_taps;
    f.symmetric = stencil->symmetric;
    f.start = stencil->fbias;
    f.divisor = stencil->fdivisor;
    for (int j = 0; j < stencil->height; j++)
        for (int i = SIDE ? 0 : j; i < stencil->width; i++)
            f.coef[SIDE ? (layout.top + j) * SIDE + layout.left + i : (i - j) * f.row_coefs + j] =
                stencil->fcoef[j * stencil->width + i];
    size_t rows = (size_t)(shape::TILE_HEIGHT + 2 * f.block.radius + (SIDE ? 0 : STEP + 1));
    constants->shared_bytes = ((size_t)f.block.pitch * rows + RUN) * (stencil->depth / 8);
    constants->launch = launch_blocks<shape, struct float_filter<SIDE>>;
    if constexpr (SIDE == 0)
        constants->kernel = stencil->depth == 8    ? diagonal_floats<uint8_t>
                            : stencil->depth == 16 ? diagonal_floats<uint16_t>
                                                   : diagonal_floats<float>;
    else
        constants->kernel = blocked_floats<SIDE, false>;
    if constexpr (SIDE == 3)
        if (stencil->magnitude)
            constants->kernel = blocked_floats<SIDE, true>;
}

static bool can_floats(const struct conv_stencil *stencil)
{
    int side = max(stencil->width, stencil->height);
    bool fits = stencil->magnitude ? side <= 3 : stencil->symmetric || side <= 7;
    if (stencil->depth < 32)
        return stencil->floats && stencil->symmetric;
    return stencil->real.side || (fits && !stencil->keeps);
}

static void plan_blocked_floats(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (stencil->real.side)
        plan_precise(stencil, plan);
    else if (side > 7 || stencil->depth < 32)
        plan_side<0>(stencil, plan);
    else if (side > 5)
        plan_side<7>(stencil, plan);
    else if (side > 3)
        plan_side<5>(stencil, plan);
    else
        plan_side<3>(stencil, plan);
}

CONV_CUDA_VARIANT_OF(MAGNITUDES | FLOAT_RESULTS | FLOAT_SAMPLES | THRESHOLDS, blocked_floats, 75,
                     "float32 samples: tile in shared memory, 4 x 8 or 16 sums per thread",
                     can_floats, score_always<30>, plan_blocked_floats, run_planned,
                     shape::TILE_WIDTH, shape::TILE_HEIGHT);
