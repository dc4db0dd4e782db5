// SPDX-License-Identifier: MIT
// Two passes in one kernel, for exact filters that are a column times a row, and a multiple of the
// sample more: the rows of a tile first, into shared memory, then the columns of these sums. A
// sample needs as many multiply-adds as a row and a column have taps: 62 instead of 961 at 31 x 31.
// Unlike tma_mma_wide.cu, it takes 16-bit images and large factors, and needs no tensor cores.
//
// It is exact because every partial sum is an integer that fits its type (sums_fit). Where a sum
// needs 64 bits, those of the rows still have 32.
#include <math.h>

#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

#define WIDE 8 // sums of a row that a thread computes at a time
#define MAX_ROW (CONV_FILTER_MAX_SIDE + 1)

struct separable_filter {
    struct block_params block;
    int32_t steps; // taps of a row, a multiple of 4
    struct rounding rounding;
    int32_t sample;       // the rest of the centre coefficient
    int32_t row[MAX_ROW]; // begins with zeros, so that the first step is aligned
    int32_t column[CONV_FILTER_MAX_SIDE +
                   2 * (shape::ROWS - 1)]; // shape::ROWS - 1 zeros, taps, as many zeros
};

// The first pass: WIDE sums of a row. `from` is the sample of the first sum's first tap.
template <typename Sample, typename Sum>
static __device__ inline void sum_row(Sum *to, const Sample *from, const struct separable_filter &f)
{
    operand<Sum> window[WIDE + shape::COLUMNS];
    Sum sums[WIDE];
#pragma unroll
    for (int k = 0; k < WIDE; k++)
        sums[k] = 0;
    unpack(window, *(const packed4<Sample> *)from);
    unpack(window + shape::COLUMNS, *(const packed4<Sample> *)(from + shape::COLUMNS));
#pragma unroll 1
    for (int i = 0; i < f.steps; i += shape::COLUMNS) {
        unpack(window + WIDE, *(const packed4<Sample> *)(from + WIDE + i));
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
#pragma unroll
            for (int t = 0; t < shape::COLUMNS; t++)
                add_tap(sums[k], f.row[i + t], window[k + t]);
        }
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            window[k] = window[k + shape::COLUMNS];
    }
#pragma unroll
    for (int k = 0; k < WIDE; k++)
        to[k] = sums[k];
}

// The second pass: 4 x 8 samples from `rows` rows of sums. Sum i is multiplied by tap i - r of row
// r; where there is no such tap, column has a zero. Rows beyond `rows` are not read: they may hold
// a NaN, and 0 * NaN is not 0. `samples` are those of the tile at (x, y).
template <typename Sample, typename RowSum, typename Sum>
static __device__ inline void sum_columns(const RowSum *from, int rows, const Sample *samples,
                                          const struct conv_stencil_plane &plane, int x, int y,
                                          const struct separable_filter &f)
{
    Sum sums[shape::ROWS][shape::COLUMNS];
#pragma unroll
    for (int r = 0; r < shape::ROWS; r++) {
        for (int k = 0; k < shape::COLUMNS; k++)
            start_sum(sums[r][k], f.rounding);
        if (f.sample != 0 && r < rows) {
            operand<Sum> line[shape::COLUMNS];
            unpack(line, *(const packed4<Sample> *)(samples + r * f.block.pitch));
            for (int k = 0; k < shape::COLUMNS; k++)
                add_tap(sums[r][k], f.sample, line[k]);
        }
    }
#pragma unroll 2
    for (int i = 0; i < min(shape::ROWS + 2 * f.block.radius, rows); i++) {
        RowSum line[shape::COLUMNS];
#pragma unroll
        for (int k = 0; k < shape::COLUMNS; k++)
            line[k] = from[i * shape::TILE_WIDTH + k];
#pragma unroll
        for (int r = 0; r < shape::ROWS; r++)
            for (int k = 0; k < shape::COLUMNS; k++)
                add_tap(sums[r][k], f.column[shape::ROWS - 1 + i - r], line[k]);
    }
    bool aligned = packed4_aligned<Sample>(plane.dst, plane.dst_stride);
#pragma unroll
    for (int r = 0; r < shape::ROWS; r++)
        store_four<Sample>(plane, x, y + r, aligned, sums[r], f.rounding);
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the sums of the tile's rows and of
// those of the halo, 128 a row, then the tile with its halo: at most 62 rows, 31,744 bytes and
// 19,840 at 16 bits.
template <typename Sample, typename RowSum, typename Sum>
static __global__ void __launch_bounds__(shape::THREADS)
    separable(const __grid_constant__ struct separable_filter f)
{
    extern __shared__ uint4 memory[];
    RowSum *sums = (RowSum *)memory;
    Sample *samples =
        (Sample *)(sums + shape::TILE_WIDTH * (shape::TILE_HEIGHT + 2 * f.block.radius));
    struct tile tile =
        find_tile(f.block.planes, f.block.count, shape::TILE_WIDTH, shape::TILE_HEIGHT);
    load_tile<shape>(samples, f.block.pitch, tile, f.block.halo, f.block.radius,
                     (enum conv_border)f.block.border, f.block.border_value);

    // 16 threads compute the sums of a row.
    constexpr int THREADS_A_ROW = shape::TILE_WIDTH / WIDE;
    int first = (int)threadIdx.x % THREADS_A_ROW * WIDE;
    int rows = min(shape::TILE_HEIGHT, tile.plane.height - tile.y) + 2 * f.block.radius;
    for (int row = (int)threadIdx.x / THREADS_A_ROW; row < rows;
         row += shape::THREADS / THREADS_A_ROW)
        sum_row<Sample, RowSum>(sums + row * shape::TILE_WIDTH + first,
                                samples + row * f.block.pitch + first, f);
    __syncthreads(); // a column reads sums of other threads

    int column = (int)threadIdx.x % WARP * shape::COLUMNS,
        row = (int)threadIdx.x / WARP * shape::ROWS;
    int x = tile.x + column, y = tile.y + row;
    if (x < tile.plane.width && y < tile.plane.height)
        sum_columns<Sample, RowSum, Sum>(sums + row * shape::TILE_WIDTH + column, rows - row,
                                         samples + (row + f.block.radius) * f.block.pitch +
                                             f.block.halo + column,
                                         tile.plane, x, y, f);
}

// --- host ----------------------------------------------------------------------------------------

// A coefficient in the form that add_tap expects.
static int32_t coef_bits(int32_t coef, enum sum_kind kind)
{
    union {
        float value;
        int32_t bits;
    } as;
    as.value = (float)coef;
    return kind == SUM_FLOAT ? as.bits : coef;
}

static void pack(struct separable_filter *f, const struct conv_stencil *stencil, enum sum_kind kind,
                 const struct tap_layout &layout)
{
    struct conv_stencil_products products;
    (void)conv_stencil_find_products(stencil, &products); // as in can_separable
    f->steps = layout.row_taps;
    f->block.pitch += shape::COLUMNS; // the first window is two steps wide
    f->sample = coef_bits(products.sample, kind);
    for (int i = 0; i < stencil->width; i++)
        f->row[layout.left + i] =
            coef_bits(products.row[0][i], kind == SUM_INT64 ? SUM_INT32 : kind);
    for (int j = 0; j < stencil->height; j++)
        f->column[shape::ROWS - 1 + j] = coef_bits(products.column[0][j], kind);
}

template <typename Sample>
static void choose_kernel(struct kernel_constants<struct separable_filter> *constants,
                          enum sum_kind kind)
{
    constants->kernel = kind == SUM_FLOAT   ? separable<Sample, float, float>
                        : kind == SUM_INT32 ? separable<Sample, int32_t, int32_t>
                                            : separable<Sample, int32_t, int64_t>;
}

static void plan_separable(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct separable_filter>>(plan);
    struct separable_filter &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    pack(&f, stencil, kind, layout_block<shape>(&f.block, stencil, 0));
    size_t rows = (size_t)(shape::TILE_HEIGHT + 2 * f.block.radius);
    constants->shared_bytes =
        rows * (shape::TILE_WIDTH * sizeof(int32_t) + (size_t)f.block.pitch * (stencil->depth / 8));
    constants->launch = launch_blocks<shape, struct separable_filter>;
    if (stencil->depth == 8)
        choose_kernel<uint8_t>(constants, kind);
    else
        choose_kernel<uint16_t>(constants, kind);
}

// True if the sums of the product, which can exceed those of the matrix, fit their types.
static bool sums_fit(const struct conv_stencil *stencil,
                     const struct conv_stencil_products &products, enum sum_kind kind)
{
    double row = 0, max = stencil->max,
           bound = products.magnitude * max + fabs((double)stencil->bias);
    for (int i = 0; i < stencil->width; i++)
        row += fabs((double)products.row[0][i]) * max;
    return row < 0x1p31 && bound <= (kind == SUM_FLOAT   ? 0x1p24
                                     : kind == SUM_INT32 ? 0x1p31 - 1
                                                         : 0x1p62);
}

static bool can_separable(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    struct conv_stencil_products products;
    return stencil->exact && conv_stencil_find_products(stencil, &products) &&
           products.count == 1 &&
           sums_fit(stencil, products, conv_cuda_rounding(&rounding, stencil));
}

// Below this side, the sums of the halo's rows cost more than they save.
#define LEAST_SIDE 9
#define LEAST_SIDE_INT64 5

static int score_separable(const struct conv_stencil *stencil, size_t)
{
    struct rounding rounding;
    bool wide = conv_cuda_rounding(&rounding, stencil) == SUM_INT64;
    return min(stencil->width, stencil->height) < (wide ? LEAST_SIDE_INT64 : LEAST_SIDE)
               ? CONV_SCORE_UNSUITED
               : 45;
}

CONV_CUDA_VARIANT(separable, 75,
                  "two passes in one kernel, for a column times a row, and the sample",
                  can_separable, score_separable, plan_separable, run_planned, shape::TILE_WIDTH,
                  shape::TILE_HEIGHT);
