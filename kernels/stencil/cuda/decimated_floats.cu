// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (struct conv_coarse) by way of a coarse image of float64, in
// four kernels. Those that reduce and enlarge rows of pixels walk down a column per thread, with
// the sums or the filtered samples that a pixel counts in, or depends on, in registers. Sums are
// added in the defined order, and each thread has sums of its own.
//
// Scratch of a plane, in doubles: coarse rows at the source's width; coarse samples, reduced by
// columns, too, from -5 - radius on; and filtered samples, from -5 on.
#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/stencil_device.cuh"

#define REACH CONV_COARSE_REACH
#define SAMPLES (2 * REACH) // coarse ones that a pixel counts in, and depends on
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define THREADS 128
#define RUN 4    // coarse rows between moves of registers
#define AHEAD 16 // rows of pixels that are on their way, a power of two
#define FILTER_THREADS 256
#define FILTERED 8 // samples of a thread that filters
#ifndef FLOATS_LINE
#define FLOATS_LINE 2048 // doubles of a row that a block reduces
#endif

struct float_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    double near[REACH * MOST_STEP], scale[MOST_STEP], line[CONV_DECIMATED_MAX_RADIUS + 1], amount;
    int32_t step, radius, border;
    float border_value, keep_below;
    int32_t reduced, filtered, enlarged; // rows of a block, of coarse and of filtered samples
};
static_assert(sizeof(struct float_filter) <= 4096, "kernel parameters end at 4 KB");

struct float_grid {
    int width, height;       // filtered samples, from -REACH + 1 on
    int coarse, coarse_rows; // samples before they are filtered
    double *rows;            // coarse_rows lines of the source's width
    double *samples;         // coarse_rows lines of `coarse`
    double *filtered;        // height lines of `width`
};

CONV_HOST_DEVICE static inline struct float_grid
measure_floats(int step, int radius, const struct conv_stencil_plane &plane)
{
    struct float_grid grid;
    grid.width = (plane.width - 1) / step + SAMPLES;
    grid.height = (plane.height - 1) / step + SAMPLES;
    grid.coarse = grid.width + 2 * radius;
    grid.coarse_rows = grid.height + 2 * radius;
    return grid;
}

__device__ static inline struct float_grid find_floats(const struct float_filter &f,
                                                       const struct conv_stencil_plane &plane)
{
    struct float_grid grid = measure_floats(f.step, f.radius, plane);
    grid.rows =
        (double *)(f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN);
    grid.samples = grid.rows + (size_t)grid.coarse_rows * plane.width;
    grid.filtered = grid.samples + (size_t)grid.coarse_rows * grid.coarse;
    return grid;
}

// The strip of columns and the rows [first, end) of a block.
struct float_part {
    int strip, first, end;
};

__device__ static inline struct float_part find_part(int width, int strip_width, int height,
                                                     int rows)
{
    int strips = (width - 1) / strip_width + 1;
    struct float_part part;
    part.strip = (int)blockIdx.x % strips * strip_width;
    part.first = (int)min((int64_t)blockIdx.x / strips * rows, (int64_t)height);
    part.end = min(part.first + rows, height);
    return part;
}

// Of the pixel i after coarse sample m in samples m - REACH + 1 + k. That of i = 0 in the last one
// does not count.
struct alignas(16) float_weights {
    double of[SAMPLES];
};

__device__ static inline void write_weights(const struct float_filter &f,
                                            struct float_weights *weights, bool enlarges)
{
    for (int n = threadIdx.x; n < f.step * SAMPLES; n += THREADS) {
        int i = n / SAMPLES, k = n % SAMPLES, away = abs(i - (k - REACH + 1) * f.step);
        double weight = away < REACH * f.step ? f.near[away] : 0;
        weights[i].of[k] = enlarges ? weight * f.scale[i] : weight;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS)
    reduce_rows(const __grid_constant__ struct float_filter f)
{
    __shared__ struct float_weights weights[MOST_STEP];
    __shared__ float ahead[AHEAD][THREADS];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    struct float_part part = find_part(plane.width, THREADS, grid.coarse_rows, f.reduced);
    int x = part.strip + (int)threadIdx.x;
    write_weights(f, weights, false);
    if (x >= plane.width)
        return;
    // Each thread waits for samples of its own.
    auto fetch = [&](int y) {
        float *to = &ahead[y & (AHEAD - 1)][threadIdx.x];
        int from = conv_border_index((enum conv_border)f.border, y, plane.height);
        if (from < 0)
            *to = f.border_value;
        else
            __pipeline_memcpy_async(to, (const float *)(plane.src + from * plane.src_stride) + x,
                                    4);
        __pipeline_commit();
    };
    // The sums of coarse rows `row` and after, of which the first is complete with these pixels.
    int row = part.first - SAMPLES + 1, y = (row - f.radius) * f.step;
    double sums[SAMPLES + RUN - 1] = {};
    for (int n = 0; n < AHEAD - 1; n++)
        fetch(y + n);
    while (row < part.end) {
#pragma unroll
        for (int j = 0; j < RUN; j++, row++) {
            for (int i = 0; i < f.step; i++, y++) {
                fetch(y + AHEAD - 1);
                __pipeline_wait_prior(AHEAD - 1);
                double value = (double)ahead[y & (AHEAD - 1)][threadIdx.x];
#pragma unroll
                for (int k = 0; k < SAMPLES; k++)
                    if (i || k < SAMPLES - 1)
                        sums[j + k] = fma(weights[i].of[k], value, sums[j + k]);
            }
            if (row >= part.first && row < part.end)
                grid.rows[(int64_t)row * plane.width + x] = sums[j];
        }
#pragma unroll
        for (int k = 0; k < SAMPLES + RUN - 1; k++)
            sums[k] = k < SAMPLES - 1 ? sums[k + RUN] : 0;
    }
    __pipeline_wait_prior(0);
}

// Sums `first` and after of a block, of which a thread has every THREADS-th.
template <int SUMS>
__device__ static inline void add_columns(const struct float_filter &f, const double *line,
                                          int pitch, int first, int count, double *to)
{
    double sums[SUMS] = {};
    int place[SUMS];
    for (int c = 0; c < SUMS; c++)
        place[c] = min(first + (int)threadIdx.x + c * THREADS, count - 1);
    for (int k = 0; k < SAMPLES; k++)
        for (int i = k ? 0 : 1; i < f.step; i++) {
            double weight = f.near[abs((k - REACH) * f.step + i)];
#pragma unroll
            for (int c = 0; c < SUMS; c++)
                sums[c] = fma(weight, line[i * pitch + k + place[c]], sums[c]);
        }
    for (int c = 0; c < SUMS; c++)
        to[place[c]] = sums[c];
}

// Of coarse samples in a row. The block's part of the row stands in memory by place after a coarse
// sample.
static __global__ void __launch_bounds__(THREADS)
    reduce_columns(const __grid_constant__ struct float_filter f)
{
    __shared__ double line[FLOATS_LINE + MOST_STEP];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    int pitch = FLOATS_LINE / f.step + 1, most = FLOATS_LINE / f.step - SAMPLES + 1;
    struct float_part part = find_part(grid.coarse, most, grid.coarse_rows, 1);
    int count = min(most, grid.coarse - part.strip), used = (count + SAMPLES - 1) * f.step;
    int x = (part.strip - SAMPLES + 1 - f.radius) * f.step;    // of the first pixel
    uint32_t inverse = ((1 << 20) - 1) / (uint32_t)f.step + 1; // n * inverse >> 20 = n / step
    if (part.first == part.end)
        return;
    const double *row = grid.rows + (int64_t)part.first * plane.width;
    for (int n = threadIdx.x; n < used; n += THREADS) {
        int from = conv_border_index((enum conv_border)f.border, x + n, plane.width);
        int m = (int)((uint32_t)n * inverse >> 20);
        line[(n - m * f.step) * pitch + m] = from < 0 ? (double)f.border_value : row[from];
    }
    __syncthreads();
    double *to = grid.samples + (int64_t)part.first * grid.coarse + part.strip;
    for (int first = 0; first < count;) {
        bool several = count - first > THREADS;
        if (several)
            add_columns<4>(f, line, pitch, first, count, to);
        else
            add_columns<1>(f, line, pitch, first, count, to);
        first += several ? 4 * THREADS : THREADS;
    }
}

// FILTERED sums over a line: number k of samples k to k + 2 * radius. Each sample is loaded once
// for those before and once for those after the centre, into the place of one that is used no more.
template <typename Load>
__device__ static inline void filter_line(const struct float_filter &f, const Load &load,
                                          double (&sums)[FILTERED])
{
    double before[FILTERED], after[FILTERED];
#pragma unroll
    for (int k = 0; k < FILTERED; k++) {
        before[k] = after[k] = load(f.radius + k);
        sums[k] = f.line[0] * before[k];
    }
    auto add = [&](int first, int j) {
        int i = first + j;
        before[FILTERED - 1 - j] = load(f.radius - i);
        after[j] = load(f.radius + FILTERED - 1 + i);
#pragma unroll
        for (int k = 0; k < FILTERED; k++) {
            double both = before[(k + FILTERED - 1 - j) % FILTERED] + after[(k + 1 + j) % FILTERED];
            sums[k] = fma(f.line[i], both, sums[k]);
        }
    };
    int first = 1;
    for (; first + FILTERED - 1 <= f.radius; first += FILTERED) {
#pragma unroll
        for (int j = 0; j < FILTERED; j++)
            add(first, j);
    }
#pragma unroll
    for (int j = 0; j < FILTERED - 1; j++)
        if (first + j <= f.radius)
            add(first, j);
}

// By columns, into the block's memory, then by rows.
static __global__ void __launch_bounds__(FILTER_THREADS)
    filter_coarse(const __grid_constant__ struct float_filter f)
{
    // A place is left free after FILTERED samples.
    __shared__ double lines[FILTERED][FILTER_THREADS / FILTERED * (FILTERED + 1)];
    const struct float_grid grid = find_floats(f, f.planes[blockIdx.y]);
    int width = FILTER_THREADS - 2 * f.radius, runs = (width - 1) / FILTERED + 1;
    struct float_part part = find_part(grid.width, width, grid.height, f.filtered);
    int column = threadIdx.x, run = threadIdx.x % runs, line = threadIdx.x / runs;
    const double *from = grid.samples + min(part.strip + column, grid.coarse - 1);
    double sums[FILTERED];
    for (int y = part.first; y < part.end; y += FILTERED) {
        filter_line(
            f, [&](int n) { return from[(int64_t)min(y + n, grid.coarse_rows - 1) * grid.coarse]; },
            sums);
        for (int k = 0; k < FILTERED; k++)
            lines[k][column + column / FILTERED] = sums[k];
        __syncthreads();
        if (line < FILTERED && y + line < part.end) {
            const double *samples = &lines[line][run * (FILTERED + 1)];
            double *to = grid.filtered + (int64_t)(y + line) * grid.width + part.strip;
            // The last samples of the last run are not stored.
            int last = FILTER_THREADS - 1 - run * FILTERED;
            filter_line(
                f,
                [&](int n) {
                    n = min(n, last);
                    return samples[n + n / FILTERED];
                },
                sums);
            for (int k = 0; k < FILTERED; k++) {
                int x = run * FILTERED + k;
                if (x < width && part.strip + x < grid.width)
                    to[x] = sums[k];
            }
        }
        __syncthreads();
    }
}

template <bool SHARPENS>
static __global__ void __launch_bounds__(THREADS)
    enlarge(const __grid_constant__ struct float_filter f)
{
    __shared__ struct float_weights weights[MOST_STEP];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    struct float_part part = find_part(plane.width, THREADS, grid.height - SAMPLES + 1, f.enlarged);
    int x = part.strip + (int)threadIdx.x, place = x % f.step;
    write_weights(f, weights, true);
    if (x >= plane.width)
        return;
    const double *from = grid.filtered + x / f.step;
    auto enlarge_columns = [&](int m) {
        const double *samples = from + (int64_t)min(m, grid.height - 1) * grid.width;
        double sum = 0;
#pragma unroll
        for (int k = 0; k < SAMPLES; k++)
            if (place || k < SAMPLES - 1)
                sum = fma(weights[place].of[k], samples[k], sum);
        return sum;
    };
    double values[SAMPLES + RUN - 1]; // of filtered rows m and after
    for (int k = 0; k < SAMPLES - 1; k++)
        values[k + RUN] = enlarge_columns(part.first + k);
    for (int m = part.first; m < part.end;) {
#pragma unroll
        for (int k = 0; k < SAMPLES - 1; k++)
            values[k] = values[k + RUN];
#pragma unroll
        for (int j = 0; j < RUN; j++, m++) {
            values[j + SAMPLES - 1] = enlarge_columns(m + SAMPLES - 1);
            int64_t y = (int64_t)m * f.step;
            int rows = m < part.end ? (int)min((int64_t)f.step, plane.height - y) : 0;
#pragma unroll 2
            for (int i = 0; i < rows; i++) {
                double sum = 0;
#pragma unroll
                for (int k = 0; k < SAMPLES; k++)
                    if (i || k < SAMPLES - 1)
                        sum = fma(weights[i].of[k], values[j + k], sum);
                if (SHARPENS) {
                    const float *row = (const float *)(plane.src + (y + i) * plane.src_stride);
                    double sample = (double)row[x], change = f.amount * (sample - sum);
                    sum = fabs(change) < (double)f.keep_below ? sample : sample + change;
                }
                ((float *)(plane.dst + (y + i) * plane.dst_stride))[x] = __double2float_rn(sum);
            }
        }
    }
}

// --- host ----------------------------------------------------------------------------------------

#define MOST_PLANES 65535 // of a launch: blocks along y
// As many as run at a time: each block computes some rows that the one above computes, too.
#define REDUCING_BLOCKS 8  // of THREADS on a processor
#define FILTERING_BLOCKS 2 // of FILTER_THREADS
#define ENLARGING_BLOCKS 5

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

struct float_size {
    int width, height;
};

// Divides a kernel's rows among blocks; `size` gives the columns and rows of a plane. *rows: those
// of a block, a multiple of `unit`, so many that all blocks run at the same time. Returns the grid.
template <typename Size>
static dim3 divide_floats(const struct conv_stencil_plane *planes, int count, int strip,
                          int64_t blocks, int unit, const Size &size, int32_t *rows)
{
    auto strips = [&](int p) { return (int64_t)(size(planes[p]).width - 1) / strip + 1; };
    int64_t all = 0, most = 0;
    for (int p = 0; p < count; p++)
        all += strips(p) * size(planes[p]).height;
    *rows = (int32_t)(((all - 1) / blocks / unit + 1) * unit);
    for (int p = 0; p < count; p++)
        most = max(most, strips(p) * ((size(planes[p]).height - 1) / *rows + 1));
    return dim3((unsigned)most, (unsigned)count);
}

// Up to MOST_PLANES planes.
static enum conv_status launch(const struct conv_stencil_plan *plan,
                               const struct conv_stencil_plane *planes, int count,
                               struct float_filter f, cudaStream_t stream)
{
    auto measure = [&](const struct conv_stencil_plane &plane) {
        return measure_floats(f.step, f.radius, plane);
    };
    auto reduced = [&](const struct conv_stencil_plane &plane) {
        return float_size{plane.width, measure(plane).coarse_rows};
    };
    auto coarse = [&](const struct conv_stencil_plane &plane) {
        return float_size{measure(plane).coarse, measure(plane).coarse_rows};
    };
    auto filtered = [&](const struct conv_stencil_plane &plane) {
        return float_size{measure(plane).width, measure(plane).height};
    };
    auto enlarged = [&](const struct conv_stencil_plane &plane) {
        return float_size{plane.width, measure(plane).height - SAMPLES + 1};
    };
    int64_t processors = plan->cuda.processors;
    int32_t one;
    dim3 down =
        divide_floats(planes, count, THREADS, processors * REDUCING_BLOCKS, 1, reduced, &f.reduced);
    dim3 across = divide_floats(planes, count, FLOATS_LINE / f.step - SAMPLES + 1, INT64_MAX, 1,
                                coarse, &one);
    dim3 filter = divide_floats(planes, count, FILTER_THREADS - 2 * f.radius,
                                processors * FILTERING_BLOCKS, FILTERED, filtered, &f.filtered);
    dim3 up = divide_floats(planes, count, THREADS, processors * ENLARGING_BLOCKS, 1, enlarged,
                            &f.enlarged);
    reduce_rows<<<down, THREADS, 0, stream>>>(f);
    reduce_columns<<<across, THREADS, 0, stream>>>(f);
    filter_coarse<<<filter, FILTER_THREADS, 0, stream>>>(f);
    if (f.amount != 0)
        enlarge<true><<<up, THREADS, 0, stream>>>(f);
    else
        enlarge<false><<<up, THREADS, 0, stream>>>(f);
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
        status = launch(plan, batch->planes + p, min(MOST_PLANES, batch->count - p), f,
                        (cudaStream_t)batch->cuda.stream);
    }
    return status;
}
