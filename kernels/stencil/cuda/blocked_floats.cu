// SPDX-License-Identifier: MIT
// Filters equal to their transpose up to 9 x 9, and any up to 7 x 7 for float32 samples, by
// register blocking as in blocked.cu; larger symmetric ones down diagonals; sums in the defined
// order; for magnitudes two sums, which are combined. Taps on float32 samples that are 0 are
// skipped, since a product with an infinite sample would not be 0; the condition is the same for
// all threads.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

// A padded row of taps is at most 32 long: see layout_block.
#define MAX_COEFS (CONV_FILTER_MAX_SIDE * (CONV_FILTER_MAX_SIDE + 1))

// SIDE 3 to 9: filters up to that size, padded with zeros, loops unrolled. 0: symmetric ones of any
// size, with a diagonal in each row of coef. Zeros are -0, which times a sample of 0 or more
// changes no float, not even -0.
template <int SIDE> struct float_filter {
    struct block_params block;
    int32_t row_coefs; // coefficients in a row
    int32_t symmetric; // as in struct conv_stencil
    float start;       // of sums
    float divisor;     // magnitudes only
    struct rounding rounding;
    float coef[SIDE ? SIDE * SIDE : MAX_COEFS];
};
static_assert(sizeof(struct float_filter<0>) <= 4096, "kernel parameters end at 4 KB");

// --- the arithmetic ------------------------------------------------------------------------------

// sums[k] += coef * samples[k], unless coef is 0.
template <typename Sample>
static __device__ inline void add_four(float *sums, float coef, const float *samples)
{
    if (sizeof(Sample) < 4 || coef != 0)
        for (int k = 0; k < shape::COLUMNS; k++)
            sums[k] = __fmaf_rn(coef, samples[k], sums[k]);
}

// `from`: see filter_block. The rows of input that are under the filter stay in registers.
template <int SIDE, bool MAGNITUDE, typename Sample>
static __device__ inline void filter_unrolled(const Sample *from,
                                              const struct conv_stencil_plane &plane, int x, int y,
                                              const struct float_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS;
    bool aligned = packed4_aligned<Sample>(plane.dst, plane.dst_stride);
    float lines[SIDE][3 * COLUMNS];
#pragma unroll
    for (int n = 0; n < ROWS + SIDE - 1; n++) {
#pragma unroll
        for (int k = 0; k < 3; k++)
            unpack(lines[n % SIDE] + k * COLUMNS, ((const packed4<Sample> *)(from + n * PITCH))[k]);
        if (n < SIDE - 1)
            continue;
        // The samples under tap (i, j) of the four results.
        auto at = [&](int i, int j) { return lines[(n + 1 + j) % SIDE] + COLUMNS - SIDE / 2 + i; };
        float sums[COLUMNS], down[COLUMNS];
        for (int k = 0; k < COLUMNS; k++) {
            sums[k] = MAGNITUDE ? 0 : f.start;
            down[k] = 0;
        }
        if (sizeof(Sample) < 4 || (!MAGNITUDE && f.symmetric)) {
#pragma unroll
            for (int d = 0; d < SIDE; d++)
#pragma unroll
                for (int j = 0; j < SIDE - d; j++) {
                    float pairs[COLUMNS];
                    for (int k = 0; k < COLUMNS; k++)
                        pairs[k] = d ? __fadd_rn(at(j + d, j)[k], at(j, j + d)[k]) : at(j, j)[k];
                    add_four<Sample>(sums, f.coef[j * SIDE + j + d], pairs);
                }
        } else {
#pragma unroll
            for (int j = 0; j < SIDE; j++)
#pragma unroll
                for (int i = 0; i < SIDE; i++) {
                    add_four<Sample>(sums, f.coef[j * SIDE + i], at(i, j));
                    if (MAGNITUDE)
                        add_four<Sample>(down, f.coef[j * SIDE + i], at(j, i));
                }
        }
        for (int k = 0; k < COLUMNS && MAGNITUDE; k++) {
            float squares = __fadd_rn(__fmul_rn(sums[k], sums[k]), __fmul_rn(down[k], down[k]));
            sums[k] = __fadd_rn(__fdiv_rn(__fsqrt_rn(squares), f.divisor), f.start);
        }
        store_four<Sample>(plane, x, y + n - (SIDE - 1), aligned, sums,
                           sizeof(Sample) < 4 ? f.rounding : rounding());
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, at most 40
// rows of 136 samples. Each warp loads every fourth row; the barrier in load_tile precedes all
// reads.
template <int SIDE, bool MAGNITUDE, typename Sample>
static __global__ void __launch_bounds__(shape::THREADS, SIDE > 7 ? 3 : 4)
    blocked_floats(const __grid_constant__ struct float_filter<SIDE> f)
{
    auto filter = [&](const Sample *from, const struct conv_stencil_plane &plane, int x, int y) {
        filter_unrolled<SIDE, MAGNITUDE>(from, plane, x, y, f);
    };
    filter_block<shape, SIDE, Sample>(f.block, filter);
}

// --- runs of samples -----------------------------------------------------------------------------

#define STEP 8 // taps between two moves of a window

// sums[k] += sum of taps[i] * value(i + k), i ascending; with float32 samples, but for taps that
// are 0.
template <bool SKIPS_ZEROS, int RUN, typename Sum, typename Value>
static __device__ inline void add_line(Sum (&sums)[RUN], const Sum *taps, int count,
                                       const Value &value)
{
    Sum window[RUN - 1 + STEP];
    auto add_tap = [&](int i, int t) {
        window[RUN - 1 + t] = value(i + t + RUN - 1);
        if (!SKIPS_ZEROS || taps[i + t] != 0)
            for (int k = 0; k < RUN; k++)
                sums[k] = fma(taps[i + t], window[t + k], sums[k]);
    };
#pragma unroll
    for (int k = 0; k < RUN - 1; k++)
        window[k] = value(k);
    int i = 0;
#pragma unroll 1
    for (; i + STEP <= count; i += STEP) {
#pragma unroll
        for (int t = 0; t < STEP; t++)
            add_tap(i, t);
#pragma unroll
        for (int k = 0; k < RUN - 1; k++)
            window[k] = window[k + STEP];
    }
#pragma unroll
    for (int t = 0; t < STEP - 1; t++)
        if (i + t < count)
            add_tap(i, t);
}

// Blocks with a thread for each of 128 + 31 diagonals.
struct diagonal_shape {
    static constexpr int COLUMNS = 4, WARPS = 5, THREADS = WARPS * WARP;
    static constexpr int TILE_WIDTH = shape::TILE_WIDTH, TILE_HEIGHT = shape::TILE_HEIGHT;
};

// Symmetric filters of any size. Blocks of 5 warps compute 128 x 32 samples. A thread computes a
// run of results down a diagonal, so that the taps of a diagonal are a window that moves along it;
// neighbouring lanes have neighbouring columns. Runs begin up to 31 columns before the tile,
// results outside of it are not stored, and samples beside the loaded ones are only part of these.
// Shared memory: a run of samples, the tile with its halo, and one more row (41 KB).
template <typename Sample, typename Result>
static __global__ void __launch_bounds__(diagonal_shape::THREADS, 4)
    diagonal(const __grid_constant__ struct float_filter<0> f)
{
    constexpr int WIDTH = shape::TILE_WIDTH, RUN = shape::TILE_HEIGHT;
    constexpr bool FLOATS = sizeof(Sample) == 4;
    extern __shared__ uint4 memory[];
    Sample *samples = (Sample *)memory + RUN;
    int side = 2 * f.block.radius + 1, pitch = f.block.pitch;
    struct tile tile = find_tile(f.block.planes, f.block.count, WIDTH, RUN);
    load_tile<diagonal_shape>(samples, pitch, tile, f.block.halo, f.block.radius,
                              (enum conv_border)f.block.border, f.block.border_value);
    int width = min(WIDTH, tile.plane.width - tile.x);
    int height = min(RUN, tile.plane.height - tile.y);
    int x = (int)threadIdx.x - (RUN - 1);
    const Sample *corner = samples + f.block.halo - f.block.radius + x;
    if (x >= width)
        return;
    float sums[RUN];
    for (int k = 0; k < RUN; k++)
        sums[k] = f.start;
    add_line<FLOATS>(sums, f.coef, side, [&](int i) { return (float)corner[i * (pitch + 1)]; });
    for (int d = 1; d < side; d++)
        add_line<FLOATS>(sums, f.coef + d * f.row_coefs, side - d, [&](int i) {
            const Sample *at = corner + i * (pitch + 1);
            if constexpr (FLOATS)
                return __fadd_rn(at[d], at[d * pitch]);
            else
                return biased_to_float(0x4b000000u + at[d] + at[d * pitch]);
        });
    uint8_t *to = tile.plane.dst + tile.y * tile.plane.dst_stride +
                  (tile.x + x) * (ptrdiff_t)sizeof(Result); // may be before the row
#pragma unroll
    for (int k = 0; k < RUN; k++) {
        if (x + k < 0 || x + k >= width || k >= height)
            continue;
        Result *result = (Result *)(to + k * tile.plane.dst_stride) + k;
        if constexpr (sizeof(Result) == sizeof(float))
            *result = sums[k];
        else
            *result = (Result)round_sum(sums[k], f.rounding);
    }
}

// --- real coefficients ---------------------------------------------------------------------------

// Half a tile.
struct precise_shape {
    static constexpr int COLUMNS = 4, WARPS = 4, THREADS = WARPS * WARP;
    static constexpr int TILE_WIDTH = shape::TILE_WIDTH, TILE_HEIGHT = shape::TILE_HEIGHT / 2;
};
static_assert(precise_shape::THREADS == precise_shape::TILE_WIDTH, "a thread has a whole column");

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
    constexpr int RUN = HEIGHT, RESULT_PITCH = WIDTH + 1;
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
                add_line<false>(down, f.real.column[line], side,
                                [&](int j) { return (double)corner[j * f.block.pitch + n]; });
                for (int k = 0; k < RUN; k++)
                    sums[k * sum_pitch + n] = down[k];
            }
            __syncthreads(); // a row has sums of other threads
            add_line<false>(results, f.real.row[line], side,
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
    int rows = precise_shape::TILE_HEIGHT + 2 * f.block.radius;
    int sums = precise_shape::TILE_HEIGHT * precise_sum_pitch(f.real.side);
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
    (void)conv_cuda_rounding(&f.rounding, stencil);
    for (float &coef : f.coef)
        coef = -0.0f;
    for (int j = 0; j < stencil->height; j++)
        for (int i = SIDE ? 0 : j; i < stencil->width; i++)
            if (float coef = stencil->fcoef[j * stencil->width + i]; coef != 0)
                f.coef[SIDE ? (layout.top + j) * SIDE + layout.left + i
                            : (i - j) * f.row_coefs + j] = coef;
    size_t rows = (size_t)(shape::TILE_HEIGHT + 2 * f.block.radius + !SIDE);
    constants->shared_bytes =
        ((size_t)f.block.pitch * rows + shape::TILE_HEIGHT) * (stencil->depth / 8);
    if constexpr (SIDE != 0) {
        constants->launch = launch_blocks<shape, struct float_filter<SIDE>>;
        constants->kernel = stencil->depth == 8    ? blocked_floats<SIDE, false, uint8_t>
                            : stencil->depth == 16 ? blocked_floats<SIDE, false, uint16_t>
                                                   : blocked_floats<SIDE, false, float>;
    } else {
        constants->launch = launch_blocks<diagonal_shape, struct float_filter<SIDE>>;
        constants->kernel =
            stencil->depth == 8
                ? (stencil->floats ? diagonal<uint8_t, float> : diagonal<uint8_t, uint8_t>)
            : stencil->depth == 16
                ? (stencil->floats ? diagonal<uint16_t, float> : diagonal<uint16_t, uint16_t>)
                : diagonal<float, float>;
    }
    if constexpr (SIDE == 3)
        if (stencil->magnitude)
            constants->kernel = blocked_floats<SIDE, true, float>;
}

static bool can_floats(const struct conv_stencil *stencil)
{
    int side = max(stencil->width, stencil->height);
    bool fits = stencil->magnitude ? side <= 3 : stencil->symmetric || side <= 7;
    if (stencil->depth < 32)
        return stencil->symmetric;
    return stencil->real.side || (fits && !stencil->keeps);
}

static void plan_blocked_floats(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (stencil->real.side)
        plan_precise(stencil, plan);
    else if (side > 9 || (stencil->depth < 32 && stencil->floats))
        plan_side<0>(stencil, plan);
    else if (side > 7)
        plan_side<9>(stencil, plan);
    else if (side > 5)
        plan_side<7>(stencil, plan);
    else if (side > 3)
        plan_side<5>(stencil, plan);
    else
        plan_side<3>(stencil, plan);
}

CONV_CUDA_VARIANT_OF(MAGNITUDES | FLOAT_RESULTS | FLOAT_SAMPLES | THRESHOLDS | SYMMETRIC,
                     blocked_floats, 75,
                     "symmetric, or float32 samples: tile in shared memory, sums by pairs",
                     can_floats, score_always<30>, plan_blocked_floats, run_planned,
                     shape::TILE_WIDTH, shape::TILE_HEIGHT);
