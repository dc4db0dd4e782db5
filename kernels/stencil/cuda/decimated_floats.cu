// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (struct conv_coarse) by way of a coarse image of float64, in
// six kernels, one for each direction of reducing, filtering and enlarging. Sums are added in the
// defined order, and each thread has sums of its own.
//
// Scratch of a plane, in doubles: coarse rows at the source's width, first reduced by rows only, at
// the end filtered ones; coarse samples from -5 - radius on, later filtered ones from -5 on; and
// coarse samples filtered by columns.
#include "kernels/stencil/cuda/stencil_device.cuh"

#define REACH CONV_COARSE_REACH
#define SAMPLES (2 * REACH) // coarse ones that a pixel counts in, and depends on
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define THREADS 256
#define TOGETHER 4 // coarse rows of a thread, which share pixels

struct float_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    double near[REACH * MOST_STEP], scale[MOST_STEP], line[CONV_DECIMATED_MAX_RADIUS + 1], amount;
    int32_t step, radius, border;
    float border_value, keep_below;
};
static_assert(sizeof(struct float_filter) <= 4096, "kernel parameters end at 4 KB");

struct float_grid {
    int width, height;       // filtered samples, from -REACH + 1 on
    int coarse, coarse_rows; // samples before they are filtered
    double *rows;            // coarse_rows, or height, lines of the source's width
    double *samples;         // coarse_rows lines of `coarse`, or height lines of `width`
    double *columns;         // height lines of `coarse`
};

__device__ static inline struct float_grid find_floats(const struct float_filter &f,
                                                       const struct conv_stencil_plane &plane)
{
    struct float_grid grid;
    grid.width = (plane.width - 1) / f.step + SAMPLES;
    grid.height = (plane.height - 1) / f.step + SAMPLES;
    grid.coarse = grid.width + 2 * f.radius;
    grid.coarse_rows = grid.height + 2 * f.radius;
    grid.rows =
        (double *)(f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN);
    grid.samples = grid.rows + (size_t)grid.coarse_rows * plane.width;
    grid.columns = grid.samples + (size_t)grid.coarse_rows * grid.coarse;
    return grid;
}

// What the threads of a launch take in turn.
template <typename Take> __device__ static inline void take_items(int64_t items, const Take &take)
{
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < items;
         item += (int64_t)gridDim.x * THREADS)
        take(item);
}

// The weight of the pixel i after coarse sample m in sample m - REACH + 1 + k; that of i = 0 in the
// last one does not count.
__device__ static inline double weight_in(const struct float_filter &f, int i, int k)
{
    return f.near[abs(i - (k - REACH + 1) * f.step)];
}

__device__ static inline int count_samples(int i)
{
    return i ? SAMPLES : SAMPLES - 1;
}

static __global__ void __launch_bounds__(THREADS)
    reduce_rows(const __grid_constant__ struct float_filter f)
{
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    int reach = REACH * f.step, groups = (grid.coarse_rows - 1) / TOGETHER + 1;
    take_items((int64_t)groups * plane.width, [&](int64_t item) {
        int x = (int)(item % plane.width), m = (int)(item / plane.width) * TOGETHER;
        int centre = (m - REACH + 1 - f.radius) * f.step; // the row of coarse row m
        double sums[TOGETHER] = {};
        for (int t = 1 - reach; t < reach + (TOGETHER - 1) * f.step; t++) {
            int y = conv_border_index((enum conv_border)f.border, centre + t, plane.height);
            const float *row = (const float *)(plane.src + (int64_t)max(y, 0) * plane.src_stride);
            double value = (double)(y < 0 ? f.border_value : row[x]);
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) {
                int away = abs(t - k * f.step);
                if (away < reach)
                    sums[k] = fma(f.near[away], value, sums[k]);
            }
        }
        for (int k = 0; k < TOGETHER && m + k < grid.coarse_rows; k++)
            grid.rows[(int64_t)(m + k) * plane.width + x] = sums[k];
    });
}

static __global__ void __launch_bounds__(THREADS)
    reduce_columns(const __grid_constant__ struct float_filter f)
{
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    int reach = REACH * f.step;
    take_items((int64_t)grid.coarse_rows * grid.coarse, [&](int64_t item) {
        int64_t m = item / grid.coarse;
        int centre = ((int)(item % grid.coarse) - REACH + 1 - f.radius) * f.step;
        double sum = 0;
        for (int t = 1 - reach; t < reach; t++) {
            int x = conv_border_index((enum conv_border)f.border, centre + t, plane.width);
            double value = x < 0 ? (double)f.border_value : grid.rows[m * plane.width + x];
            sum = fma(f.near[abs(t)], value, sum);
        }
        grid.samples[item] = sum;
    });
}

// By columns, then by rows.
template <bool ACROSS>
static __global__ void __launch_bounds__(THREADS)
    filter_coarse(const __grid_constant__ struct float_filter f)
{
    const struct float_grid grid = find_floats(f, f.planes[blockIdx.y]);
    int width = ACROSS ? grid.width : grid.coarse, apart = ACROSS ? 1 : grid.coarse;
    take_items((int64_t)grid.height * width, [&](int64_t item) {
        int64_t y = item / width, x = item % width;
        const double *from = (ACROSS ? grid.columns : grid.samples) + y * grid.coarse + x;
        double sum = f.line[0] * from[f.radius * apart];
        for (int i = 1; i <= f.radius; i++)
            sum = fma(f.line[i],
                      from[(int64_t)(f.radius - i) * apart] + from[(int64_t)(f.radius + i) * apart],
                      sum);
        (ACROSS ? grid.samples : grid.columns)[item] = sum;
    });
}

static __global__ void __launch_bounds__(THREADS)
    enlarge_columns(const __grid_constant__ struct float_filter f)
{
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    take_items((int64_t)grid.height * plane.width, [&](int64_t item) {
        int x = (int)(item % plane.width), i = x % f.step;
        const double *from = grid.samples + item / plane.width * grid.width + x / f.step;
        double sum = 0;
        for (int k = 0; k < count_samples(i); k++)
            sum = fma(weight_in(f, i, k) * f.scale[i], from[k], sum);
        grid.rows[item] = sum;
    });
}

// A thread has `step` rows of a column.
template <bool SHARPENS>
static __global__ void __launch_bounds__(THREADS)
    enlarge_rows(const __grid_constant__ struct float_filter f)
{
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    take_items((int64_t)(grid.height - SAMPLES + 1) * plane.width, [&](int64_t item) {
        int x = (int)(item % plane.width), m = (int)(item / plane.width);
        double values[SAMPLES];
#pragma unroll
        for (int k = 0; k < SAMPLES; k++)
            values[k] = grid.rows[(int64_t)(m + k) * plane.width + x];
        for (int i = 0; i < f.step && m * f.step + i < plane.height; i++) {
            int64_t y = m * f.step + i;
            double sum = 0;
#pragma unroll
            for (int k = 0; k < SAMPLES; k++)
                if (k < count_samples(i))
                    sum = fma(weight_in(f, i, k) * f.scale[i], values[k], sum);
            if (SHARPENS) {
                double sample = (double)((const float *)(plane.src + y * plane.src_stride))[x];
                double change = f.amount * (sample - sum);
                sum = fabs(change) < (double)f.keep_below ? sample : sample + change;
            }
            ((float *)(plane.dst + y * plane.dst_stride))[x] = __double2float_rn(sum);
        }
    });
}

// --- host ----------------------------------------------------------------------------------------

#define MOST_PLANES 65535 // of a launch: blocks along y
#define MOST_BLOCKS 65535

void conv_cuda_decimated_floats_plan(const struct conv_stencil *stencil,
                                     struct conv_stencil_plan *plan)
{
    auto *f = constants_of<struct float_filter>(plan);
    memcpy(f->near, stencil->coarse.near, sizeof f->near);
    memcpy(f->scale, stencil->coarse.scale, sizeof f->scale);
    memcpy(f->line, stencil->coarse.line, sizeof f->line);
    f->amount = stencil->coarse.amount;
    f->step = stencil->decimated.step;
    f->radius = stencil->decimated.radius;
    f->border = (int32_t)stencil->border;
    f->border_value = stencil->border_value;
    f->keep_below = stencil->fkeep_below;
}

// Up to MOST_PLANES planes.
static enum conv_status launch(const struct conv_stencil_plane *planes, int count,
                               const struct float_filter &f, cudaStream_t stream)
{
    int64_t most = 0; // items of the largest kernel
    for (int p = 0; p < count; p++) {
        int64_t rows = (planes[p].height - 1) / f.step + SAMPLES + 2 * f.radius;
        most = max(most, rows * (planes[p].width + SAMPLES + 2 * f.radius));
    }
    most = min((most - 1) / THREADS + 1, (int64_t)MOST_BLOCKS);
    dim3 blocks((unsigned)most, (unsigned)count);
    reduce_rows<<<blocks, THREADS, 0, stream>>>(f);
    reduce_columns<<<blocks, THREADS, 0, stream>>>(f);
    filter_coarse<false><<<blocks, THREADS, 0, stream>>>(f);
    filter_coarse<true><<<blocks, THREADS, 0, stream>>>(f);
    enlarge_columns<<<blocks, THREADS, 0, stream>>>(f);
    if (f.amount != 0)
        enlarge_rows<true><<<blocks, THREADS, 0, stream>>>(f);
    else
        enlarge_rows<false><<<blocks, THREADS, 0, stream>>>(f);
    return launch_status();
}

enum conv_status conv_cuda_decimated_floats_run(const struct conv_stencil_plan *plan,
                                                const struct conv_stencil_batch *batch)
{
    struct float_filter f = *constants_of<struct float_filter>(plan);
    enum conv_status status = CONV_OK;
    f.scratch = (uint8_t *)batch->cuda.scratch;
    for (int p = 0; p < batch->count && !status; p += MOST_PLANES) {
        f.planes = batch->cuda.d_planes + p;
        status = launch(batch->planes + p, min(MOST_PLANES, batch->count - p), f,
                        (cudaStream_t)batch->cuda.stream);
    }
    return status;
}
