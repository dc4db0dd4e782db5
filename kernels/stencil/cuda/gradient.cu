// SPDX-License-Identifier: MIT
// Gradient magnitudes of 3 x 3 matrices that are a column (a, b, a) times the row (-1, 0, 1), by
// register blocking as in blocked.cu. A thread keeps three rows of six samples as floats; gx comes
// from the smoothed sums of their columns, gy from the differences between the lower and the upper
// row. All of these are integers that float32 holds exactly, so only the defined operations round.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

struct gradient_filter {
    struct block_params block;
    float outer, inner;    // a and b
    float divisor, offset; // unused if plain
    int32_t max;
};

template <bool PLAIN>
static __device__ inline float find_magnitude(float squares, const struct gradient_filter &f)
{
    float v = __fsqrt_rn(squares);
    return PLAIN ? v : __fadd_rn(__fdiv_rn(v, f.divisor), f.offset);
}

// Without divisor and offset, a sample of 8 bits is sqrt(s) of an integer s, rounded, or 255. The
// approximation is off by less than 256 * 2^-22, and sqrt(s) is at least 1/2048 away from a tie:
// both round to the same integer. The correctly rounded root takes several times as long.
template <bool PLAIN, typename Sample>
static __device__ inline uint32_t round_magnitude(float squares, const struct gradient_filter &f)
{
    float v;
    if constexpr (PLAIN && sizeof(Sample) == 1)
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(squares));
    else
        v = fmaxf(find_magnitude<PLAIN>(squares, f), 0.0f);
    return __float_as_uint(__fadd_rn(fminf(v, (float)f.max), INTEGER_FLOATS));
}

// Stores four results, or the first `columns`.
template <bool PLAIN, typename Sample>
static __device__ inline void store_magnitudes(Sample *row, int columns, bool aligned,
                                               const float *squares,
                                               const struct gradient_filter &f)
{
    uint32_t samples[shape::COLUMNS];
    for (int k = 0; k < shape::COLUMNS; k++)
        samples[k] = round_magnitude<PLAIN, Sample>(squares[k], f);
    if (aligned && columns >= shape::COLUMNS)
        pack(*(packed4<Sample> *)row, samples);
    else
        for (int k = 0; k < shape::COLUMNS; k++)
            if (k < columns)
                row[k] = (Sample)samples[k];
}

template <bool PLAIN, typename Sample>
static __device__ inline void store_magnitudes(float *row, int columns, bool, const float *squares,
                                               const struct gradient_filter &f)
{
    for (int k = 0; k < shape::COLUMNS; k++)
        if (k < columns)
            row[k] = find_magnitude<PLAIN>(squares[k], f);
}

// `from`: see filter_block.
template <bool PLAIN, typename Sample, typename Result>
static __device__ inline void filter_gradient(const Sample *from,
                                              const struct conv_stencil_plane &plane, int x, int y,
                                              const struct gradient_filter &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS;
    bool aligned = packed4_aligned<Sample>(plane.dst, plane.dst_stride);
    float rows[3][COLUMNS + 2];
#pragma unroll
    for (int j = 0; j < ROWS + 2; j++) {
        float line[3 * COLUMNS], smooth[COLUMNS + 2], differ[COLUMNS + 2];
#pragma unroll
        for (int k = 0; k < 3; k++)
            unpack(line + k * COLUMNS, ((const packed4<Sample> *)(from + j * PITCH))[k]);
#pragma unroll
        for (int k = 0; k < COLUMNS + 2; k++)
            rows[j % 3][k] = line[COLUMNS - 1 + k];
        if (j < 2 || y + j - 2 >= plane.height)
            continue;
#pragma unroll
        for (int k = 0; k < COLUMNS + 2; k++) {
            float top = rows[(j - 2) % 3][k], middle = rows[(j - 1) % 3][k],
                  bottom = rows[j % 3][k];
            smooth[k] = __fmaf_rn(__fadd_rn(top, bottom), f.outer, __fmul_rn(middle, f.inner));
            differ[k] = __fadd_rn(bottom, -top);
        }
        float squares[COLUMNS];
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            float gx = __fadd_rn(smooth[k + 2], -smooth[k]);
            float gy = __fmaf_rn(__fadd_rn(differ[k], differ[k + 2]), f.outer,
                                 __fmul_rn(differ[k + 1], f.inner));
            squares[k] = __fadd_rn(__fmul_rn(gx, gx), __fmul_rn(gy, gy));
        }
        Result *row = (Result *)(plane.dst + (y + j - 2) * plane.dst_stride) + x;
        store_magnitudes<PLAIN, Sample>(row, plane.width - x, aligned, squares, f);
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, 34 rows of 136
// samples.
template <bool PLAIN, typename Sample, typename Result>
static __global__ void __launch_bounds__(shape::THREADS)
    gradient(const __grid_constant__ struct gradient_filter f)
{
    auto filter = [&](const Sample *from, const struct conv_stencil_plane &plane, int x, int y) {
        filter_gradient<PLAIN, Sample, Result>(from, plane, x, y, f);
    };
    filter_block<shape, 3, Sample>(f.block, filter);
}

// --- host ----------------------------------------------------------------------------------------

template <typename Sample>
static void choose_kernel(struct kernel_constants<struct gradient_filter> *constants, bool plain,
                          bool floats)
{
    if (floats)
        constants->kernel = plain ? gradient<true, Sample, float> : gradient<false, Sample, float>;
    else
        constants->kernel =
            plain ? gradient<true, Sample, Sample> : gradient<false, Sample, Sample>;
}

static void plan_gradient(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct gradient_filter>>(plan);
    struct gradient_filter &f = constants->filter;
    int outer, inner;
    conv_stencil_smoothing(stencil, &outer, &inner);
    layout_block<shape>(&f.block, stencil, 3);
    f.outer = (float)outer;
    f.inner = (float)inner;
    f.divisor = stencil->fdivisor;
    f.offset = stencil->fbias;
    f.max = stencil->max;
    size_t samples = (size_t)f.block.pitch * (shape::TILE_HEIGHT + 2);
    constants->shared_bytes = samples * (stencil->depth / 8);
    constants->launch = launch_blocks<shape, struct gradient_filter>;
    bool plain = f.divisor == 1 && f.offset == 0;
    if (stencil->depth == 8)
        choose_kernel<uint8_t>(constants, plain, stencil->floats);
    else
        choose_kernel<uint16_t>(constants, plain, stencil->floats);
}

static bool can_gradient(const struct conv_stencil *stencil)
{
    int outer, inner;
    return conv_stencil_smoothing(stencil, &outer, &inner);
}

CONV_CUDA_VARIANT_OF(MAGNITUDES | FLOAT_RESULTS, gradient, 75,
                     "gradient magnitudes, sums in registers", can_gradient, score_always<50>,
                     plan_gradient, run_planned, shape::TILE_WIDTH, shape::TILE_HEIGHT);
