// SPDX-License-Identifier: MIT
// Float32 samples, by register blocking as in blocked.cu: sums in the defined order, stored
// unchanged; for magnitudes two sums, which are combined. Taps that are 0 are skipped, since a
// product with an infinite sample would not be 0; the condition is the same for all threads.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

// A padded row of taps is at most 32 long: see layout_block.
#define MAX_COEFS (CONV_FILTER_MAX_SIDE * (CONV_FILTER_MAX_SIDE + 1))

// SIDE 3 and 5: filters up to that size, padded with zeros, loops unrolled. 0: any other.
template <int SIDE> struct float_filter {
    struct block_params block;
    int32_t row_coefs;     // coefficients in a row, a multiple of 4 if SIDE is 0
    int32_t left, side;    // magnitudes of any size: the first column of the matrix, and its side
    float start;           // of sums
    float divisor, offset; // magnitudes only
    float coef[SIDE ? SIDE * SIDE : MAX_COEFS];
};
static_assert(sizeof(struct float_filter<0>) <= 4096, "kernel parameters end at 4 KB");

// --- the arithmetic ------------------------------------------------------------------------------

// Stores four results of row y, or those of them that lie in the image.
static __device__ inline void store_floats(const struct conv_stencil_plane &plane, int x, int y,
                                           bool aligned, const float *sums)
{
    if (y >= plane.height)
        return;
    float *row = (float *)(plane.dst + y * plane.dst_stride) + x;
    if (aligned && x + shape::COLUMNS <= plane.width) {
        *(float4 *)row = make_float4(sums[0], sums[1], sums[2], sums[3]);
        return;
    }
    for (int k = 0; k < shape::COLUMNS; k++)
        if (x + k < plane.width)
            row[k] = sums[k];
}

template <typename Filter>
static __device__ inline float join_gradient(float across, float down, const Filter &f)
{
    float squares = __fadd_rn(__fmul_rn(across, across), __fmul_rn(down, down));
    return __fadd_rn(__fdiv_rn(__fsqrt_rn(squares), f.divisor), f.offset);
}

// sums[k] += coef * samples[k], unless coef is 0.
static __device__ inline void add_four(float *sums, float coef, const float *samples)
{
    if (coef != 0)
        for (int k = 0; k < shape::COLUMNS; k++)
            sums[k] = __fmaf_rn(coef, samples[k], sums[k]);
}

// `from`: see filter_block. A row of input is loaded once and added to all output rows that it is a
// tap of.
template <int SIDE>
static __device__ inline void filter_unrolled(const float *from,
                                              const struct conv_stencil_plane &plane, int x, int y,
                                              const struct float_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS;
    bool aligned = packed4_aligned<float>(plane.dst, plane.dst_stride);
    float sums[ROWS][COLUMNS];
#pragma unroll
    for (int j = 0; j < ROWS + SIDE - 1; j++) {
        float line[3 * COLUMNS];
#pragma unroll
        for (int k = 0; k < 3; k++)
            unpack(line + k * COLUMNS, ((const float4 *)(from + j * PITCH))[k]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int tap_row = j - r; // constant once unrolled
            if (tap_row < 0 || tap_row >= SIDE)
                continue;
            for (int k = 0; k < COLUMNS && tap_row == 0; k++)
                sums[r][k] = f.start;
#pragma unroll
            for (int i = 0; i < SIDE; i++)
                add_four(sums[r], f.coef[tap_row * SIDE + i], line + COLUMNS - SIDE / 2 + i);
            if (tap_row == SIDE - 1)
                store_floats(plane, x, y + r, aligned, sums[r]);
        }
    }
}

// Any size: a strip of output rows at a time, taps in steps of four, with a window of eight samples
// that moves along each row. Rows of coefficients begin with zeros so that the first window is
// aligned.
static __device__ inline void filter_any(const float *from, const struct conv_stencil_plane &plane,
                                         int x, int y, const struct float_filter<0> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, STRIP = 4;
    bool aligned = packed4_aligned<float>(plane.dst, plane.dst_stride);
#pragma unroll 1
    for (int top = 0; top < shape::ROWS && y + top < plane.height; top += STRIP) {
        float sums[STRIP][COLUMNS];
        for (int r = 0; r < STRIP; r++)
            for (int k = 0; k < COLUMNS; k++)
                sums[r][k] = f.start;
#pragma unroll 1
        for (int j = 0; j <= 2 * f.block.radius; j++) {
            const float *line = from + (top + j) * f.block.pitch;
            const float *coef = f.coef + j * f.row_coefs;
            float window[STRIP][2 * COLUMNS];
#pragma unroll
            for (int r = 0; r < STRIP; r++)
                unpack(window[r], *(const float4 *)(line + r * f.block.pitch));
#pragma unroll 1
            for (int i = 0; i < f.row_coefs; i += COLUMNS) {
#pragma unroll
                for (int r = 0; r < STRIP; r++)
                    unpack(window[r] + COLUMNS,
                           *(const float4 *)(line + r * f.block.pitch + i + COLUMNS));
#pragma unroll
                for (int t = 0; t < COLUMNS; t++)
#pragma unroll
                    for (int r = 0; r < STRIP; r++)
                        add_four(sums[r], coef[i + t], window[r] + t);
#pragma unroll
                for (int r = 0; r < STRIP; r++)
                    for (int k = 0; k < COLUMNS; k++)
                        window[r][k] = window[r][COLUMNS + k];
            }
        }
        for (int r = 0; r < STRIP; r++)
            store_floats(plane, x, y + top + r, aligned, sums[r]);
    }
}

// The magnitudes of a row of four samples; `corner` is the sample under the matrix's top left for
// the first of them. Unrolled where `side` is a constant.
template <typename Filter>
static __device__ inline void find_magnitudes(float *results, const float *corner, int pitch,
                                              int side, int row_coefs, int left, const Filter &f)
{
    float across[shape::COLUMNS] = {0, 0, 0, 0}, down[shape::COLUMNS] = {0, 0, 0, 0};
    for (int j = 0; j < side; j++) {
        for (int i = 0; i < side; i++) {
            const float *samples = corner + j * pitch + i;
            add_four(across, f.coef[j * row_coefs + left + i], samples);
            add_four(down, f.coef[i * row_coefs + left + j], samples);
        }
    }
    for (int k = 0; k < shape::COLUMNS; k++)
        results[k] = join_gradient(across[k], down[k], f);
}

template <int SIDE>
static __device__ inline void filter_magnitude(const float *from,
                                               const struct conv_stencil_plane &plane, int x, int y,
                                               const struct float_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS;
    bool aligned = packed4_aligned<float>(plane.dst, plane.dst_stride);
    int pitch = SIDE ? shape::TILE_WIDTH + 2 * COLUMNS : f.block.pitch;
    const float *corner = from + (SIDE ? COLUMNS - SIDE / 2 : f.left);
    for (int r = 0; r < shape::ROWS && y + r < plane.height; r++) {
        float results[COLUMNS];
        find_magnitudes(results, corner + r * pitch, pitch, SIDE ? SIDE : f.side,
                        SIDE ? SIDE : f.row_coefs, SIDE ? 0 : f.left, f);
        store_floats(plane, x, y + r, aligned, results);
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, 34 rows of 136
// samples for 3 x 3, at most 62 of 160 (39,680 bytes). Each warp loads every fourth row; the
// barrier in load_tile precedes all reads.
template <int SIDE, bool MAGNITUDE>
static __global__ void __launch_bounds__(shape::THREADS, 4)
    blocked_floats(const __grid_constant__ struct float_filter<SIDE> f)
{
    auto filter = [&](const float *from, const struct conv_stencil_plane &plane, int x, int y) {
        if constexpr (MAGNITUDE)
            filter_magnitude<SIDE>(from, plane, x, y, f);
        else if constexpr (SIDE != 0)
            filter_unrolled<SIDE>(from, plane, x, y, f);
        else
            filter_any(from, plane, x, y, f);
    };
    filter_block<shape, SIDE, float>(f.block, filter);
}

// --- real coefficients ---------------------------------------------------------------------------

// Half a tile, the samples that a thread computes along a line, and the taps between two moves of
// its window.
struct precise_shape {
    static constexpr int COLUMNS = 4, WARPS = 4, THREADS = WARPS * WARP;
    static constexpr int TILE_WIDTH = shape::TILE_WIDTH, TILE_HEIGHT = shape::TILE_HEIGHT / 2;
    static constexpr int RUN = TILE_WIDTH * TILE_HEIGHT / THREADS, STEP = 8;
};
static_assert(precise_shape::RUN == precise_shape::TILE_HEIGHT &&
                  precise_shape::THREADS == precise_shape::TILE_WIDTH,
              "a thread has a whole column");

struct precise_filter {
    struct block_params block; // pitch: an odd multiple of 4, for few bank conflicts down a column
    int32_t keeps;
    float start, keep_below;
    struct conv_real real;
};
static_assert(sizeof(struct precise_filter) <= 4096, "kernel parameters end at 4 KB");

// sums[k] += sum of taps[i] * value(i + k), i ascending. Values after the last tap's are loaded,
// but not used.
template <typename Value>
static __device__ inline void add_line(double (&sums)[precise_shape::RUN], const double *taps,
                                       int count, const Value &value)
{
    constexpr int RUN = precise_shape::RUN, STEP = precise_shape::STEP;
    double window[RUN + STEP];
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
            if (i + t < count)
                for (int k = 0; k < RUN; k++)
                    sums[k] = fma(taps[i + t], window[t + k], sums[k]);
#pragma unroll
        for (int k = 0; k < RUN; k++)
            window[k] = window[k + STEP];
    }
}

static __device__ __host__ inline int precise_sum_pitch(int side)
{
    return (precise_shape::TILE_WIDTH + side - 1) | 1; // odd: no bank conflicts down a column
}

// Blocks of 4 warps compute 128 x 16 samples, then the 128 x 16 below. Shared memory: these with
// their halo, at most 46 rows of 164 samples, and for one product at a time the sums down their
// columns, 16 rows of up to 159 (50 KB; compute capability 7.5 has 64). A thread computes 16 sums
// down a column, then 16 along a row. Results take the place of the sums, so that a warp stores
// whole rows.
static __global__ void __launch_bounds__(precise_shape::THREADS, 4)
    precise_floats(const __grid_constant__ struct precise_filter f)
{
    constexpr int WIDTH = precise_shape::TILE_WIDTH, HEIGHT = precise_shape::TILE_HEIGHT;
    constexpr int RUN = precise_shape::RUN, RESULT_PITCH = WIDTH + 1;
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
    int rows = precise_shape::TILE_HEIGHT + 2 * f.block.radius, ahead = 2 * precise_shape::STEP;
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
    f.left = layout.left;
    f.side = stencil->width;
    f.start = stencil->fbias;
    f.divisor = stencil->fdivisor;
    f.offset = stencil->fbias;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[(layout.top + j) * f.row_coefs + layout.left + i] =
                stencil->fcoef[j * stencil->width + i];
    constants->shared_bytes =
        (size_t)f.block.pitch * (shape::TILE_HEIGHT + 2 * f.block.radius) * sizeof(float);
    constants->launch = launch_blocks<shape, struct float_filter<SIDE>>;
    constants->kernel =
        stencil->magnitude ? blocked_floats<SIDE, true> : blocked_floats<SIDE, false>;
}

static bool can_floats(const struct conv_stencil *stencil)
{
    return stencil->depth == 32 && (!stencil->keeps || stencil->real.side);
}

static void plan_blocked_floats(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (stencil->real.side)
        plan_precise(stencil, plan);
    else if (side <= 3)
        plan_side<3>(stencil, plan);
    else if (side <= 5)
        plan_side<5>(stencil, plan);
    else
        plan_side<0>(stencil, plan);
}

const struct conv_variant conv_cuda_blocked_floats = {
    "cuda_blocked_floats",
    "float32 samples: tile in shared memory, 4 x 8 sums per thread",
    CONV_ON_CUDA,
    75,
    can_floats,
    score_always<30>,
    plan_blocked_floats,
    run_planned,
    shape::TILE_WIDTH,
    shape::TILE_HEIGHT,
    true,
    true,
    true,
    true,
    false,
    false,
};
