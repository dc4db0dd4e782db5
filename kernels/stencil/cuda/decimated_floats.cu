// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (struct conv_coarse) by way of a coarse image of float64, in
// four kernels. Those that reduce and enlarge rows of pixels walk down two columns per thread, with
// the sums or the filtered samples that a pixel counts in, or depends on, in registers. Sums are
// added in the defined order, and each thread has sums of its own. Kernels are compiled for each
// step: weights are then in constant memory, in places that are known. From shared memory they took
// four times as long to load as to multiply.
//
// Scratch of a plane, in doubles: coarse rows at the source's width; coarse samples, reduced by
// columns, too, from -5 - pad on; and filtered samples, from -5 on.
#include <cuda_pipeline.h>

#include "kernels/common/bulk.cuh"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define REACH CONV_COARSE_REACH
#define SAMPLES (2 * REACH) // coarse ones that a pixel counts in, and depends on
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define THREADS 128
#define ENLARGING_THREADS CONV_DECIMATED_GRID // columns of a thread have the same place
#define FILTER_THREADS 256
#define COLUMNS 2  // of pixels of a thread that walks down, which share weights
#define STAGES 4   // runs of rows that a thread has asked for
#define GROUP 4    // sums that are added to together, or not at all
#define FILTERED 8 // samples of a thread that filters
#define ASKED 4    // weights after that of a sample that is multiplied
#ifndef FLOATS_LINE
#define FLOATS_LINE 2048 // doubles of a row that a block reduces
#endif
// Of a processor: as many as run at a time, since each begins with rows of the one above.
#define REDUCING_BLOCKS 2
#define FILTERING_BLOCKS 2
#define ENLARGING_BLOCKS 5

struct float_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    // Kernels that reduce: of pixels by their distance from a coarse sample. Else of the pixel i
    // after coarse sample m in samples m - REACH + 1 and after, SAMPLES for each i.
    double weights[MOST_STEP * SAMPLES];
    double line[CONV_DECIMATED_MAX_RADIUS + 1], amount;
    int32_t step, radius, border;
    // Coarse samples before the first filtered one, and after the last one: radius, or one where
    // the border repeats pixels, as those further out are equal to it.
    int32_t pad;
    float border_value, keep_below;
    int32_t reduced, filtered, enlarged; // rows of a block, of coarse and of filtered samples
};
static_assert(sizeof(struct float_filter) <= 4096, "kernel parameters end at 4 KB");

struct float_grid {
    int columns, steps;      // pixels, and coarse rows with pixels after them
    int width, height;       // filtered samples, from -REACH + 1 on
    int coarse, coarse_rows; // samples before they are filtered
    double *rows;            // coarse_rows lines of the source's width
    double *samples;         // coarse_rows lines of `coarse`
    double *filtered;        // height lines of `width`
};

CONV_HOST_DEVICE static inline struct float_grid find_floats(const struct float_filter &f,
                                                             const struct conv_stencil_plane &plane)
{
    struct float_grid grid;
    grid.columns = plane.width;
    grid.steps = (plane.height - 1) / f.step + 1;
    grid.width = (plane.width - 1) / f.step + SAMPLES;
    grid.height = grid.steps + SAMPLES - 1;
    grid.coarse = grid.width + 2 * f.pad;
    grid.coarse_rows = grid.height + 2 * f.pad;
    size_t at = (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN;
    grid.rows = (double *)(f.scratch + at);
    grid.samples = grid.rows + (size_t)grid.coarse_rows * plane.width;
    grid.filtered = grid.samples + (size_t)grid.coarse_rows * grid.coarse;
    return grid;
}

// The strip of columns and the rows [first, end) of a block.
struct float_part {
    int strip, first, end;
};

__device__ static inline struct float_part find_part(int width, int strip, int height, int rows)
{
    int strips = (width - 1) / strip + 1;
    int first = (int)min((int64_t)blockIdx.x / strips * rows, (int64_t)height);
    return {(int)blockIdx.x % strips * strip, first, min(first + rows, height)};
}

// What depends on the step. A thread that walks down takes ROWS coarse rows at a time, in runs of
// RUN rows of pixels. A thread that reduces a row has SUMS neighbouring sums.
template <int STEP> struct float_shape {
    static constexpr int ROWS = STEP < 8 ? 8 / STEP : 1;
    static constexpr int RUN = STEP < 8 ? ROWS * STEP : STEP % 8 ? 6 : 8;
    static constexpr int SUMS = STEP < 16 ? 16 / STEP : 1;
    // Of a block that reduces a row: the most coarse samples, and the row in its memory, by place
    // after a coarse sample. Of these each SUMS-th is beside the one before, ACROSS or more. 16
    // neighbouring pixels are in different banks, as are 16 threads' ones.
    static constexpr int MOST =
        THREADS * SUMS < FLOATS_LINE / STEP ? THREADS * SUMS : FLOATS_LINE / STEP;
    static constexpr int LEAST = (MOST + SAMPLES - 2) / SUMS + 1;
    static constexpr int ACROSS = LEAST + ((STEP - LEAST) & 15);
    static constexpr int PITCH = SUMS * ACROSS + ((1 - SUMS * ACROSS) & 15);
};

template <int STEP>
static __global__ void __launch_bounds__(THREADS, 4)
    reduce_rows(const __grid_constant__ struct float_filter f)
{
    constexpr int ROWS = float_shape<STEP>::ROWS, RUN = float_shape<STEP>::RUN;
    constexpr int SUMS = SAMPLES + ROWS - 1;
    __shared__ float ahead[STAGES][RUN][COLUMNS][THREADS];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    struct float_part part = find_part(plane.width, COLUMNS * THREADS, grid.coarse_rows, f.reduced);
    int x = part.strip + (int)threadIdx.x, end = (part.end - f.pad) * STEP;
    bool both = x + THREADS < plane.width;
    start_next_kernel();
    if (x >= plane.width)
        return;
    // Each thread waits for samples of its own.
    auto fetch = [&](int y, int stage) {
        float *to = &ahead[stage][0][0][threadIdx.x];
        auto ask = [&](int n, const uint8_t *row) {
            const float *from = (const float *)row + x;
            __pipeline_memcpy_async(to + n * COLUMNS * THREADS, from, sizeof *to);
            if (both)
                __pipeline_memcpy_async(to + (n * COLUMNS + 1) * THREADS, from + THREADS,
                                        sizeof *to);
        };
        const uint8_t *row = plane.src + y * plane.src_stride;
        if (y >= 0 && y + RUN <= plane.height) {
#pragma unroll
            for (int n = 0; n < RUN; n++, row += plane.src_stride)
                ask(n, row);
        } else if (y < end) {
#pragma unroll 1
            for (int n = 0; n < RUN; n++) {
                int at = conv_border_index((enum conv_border)f.border, y + n, plane.height);
                if (at < 0)
                    to[n * COLUMNS * THREADS] = to[(n * COLUMNS + 1) * THREADS] = f.border_value;
                else
                    ask(n, plane.src + at * plane.src_stride);
            }
        }
        __pipeline_commit();
    };
    // The sums of coarse rows `row` and after, of which the first ROWS are complete with these
    // pixels.
    int row = part.first - SAMPLES + 1, y = (row - f.pad) * STEP;
    double sums[SUMS][COLUMNS] = {};
    for (int stage = 0; stage < STAGES - 1; stage++)
        fetch(y + stage * RUN, stage);
    for (int stage = 0; row < part.end; row += ROWS) {
#pragma unroll 1
        for (int done = 0; done < ROWS * STEP; done += RUN) {
            double values[RUN][COLUMNS];
            __pipeline_wait_prior(STAGES - 2);
#pragma unroll
            for (int n = 0; n < RUN * COLUMNS; n++)
                values[n / COLUMNS][n % COLUMNS] =
                    (double)ahead[stage][n / COLUMNS][n % COLUMNS][threadIdx.x];
            fetch(y + (STAGES - 1) * RUN, (stage + STAGES - 1) % STAGES);
            stage = (stage + 1) % STAGES;
            y += RUN;
#pragma unroll
            for (int g = 0; g < SUMS; g += GROUP) {
                if (row + g + GROUP <= part.first || row + g >= part.end)
                    continue;
#pragma unroll
                for (int n = 0; n < RUN; n++)
#pragma unroll
                    for (int s = g; s < g + GROUP && s < SUMS; s++) {
                        int i = done + n % STEP, k = s - n / STEP, m = k - REACH + 1;
                        int away = m > 0 ? m * STEP - i : i - m * STEP;
                        if (k >= 0 && k < SAMPLES && (k < SAMPLES - 1 || n % STEP || done))
                            for (int c = 0; c < COLUMNS; c++)
                                sums[s][c] = fma(f.weights[away], values[n][c], sums[s][c]);
                    }
            }
        }
#pragma unroll
        for (int n = 0; n < ROWS * COLUMNS; n++) {
            int at = row + n / COLUMNS, c = n % COLUMNS;
            if (at >= part.first && at < part.end && (c == 0 || both))
                grid.rows[(int64_t)at * plane.width + x + c * THREADS] = sums[n / COLUMNS][c];
        }
#pragma unroll
        for (int s = 0; s < SUMS; s++)
            for (int c = 0; c < COLUMNS; c++)
                sums[s][c] = s + ROWS < SUMS ? sums[s + ROWS][c] : 0;
    }
    __pipeline_wait_prior(0);
}

// Of coarse samples in a row.
template <int STEP>
static __global__ void __launch_bounds__(THREADS, 8)
    reduce_columns(const __grid_constant__ struct float_filter f)
{
    typedef struct float_shape<STEP> shape;
    constexpr int SUMS = shape::SUMS;
    __shared__ double line[STEP * shape::PITCH];
    double *own = line + threadIdx.x;
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    struct float_part part = find_part(grid.coarse, shape::MOST, grid.coarse_rows, 1);
    int count = min(shape::MOST, grid.coarse - part.strip), used = (count + SAMPLES - 1) * STEP;
    int x = (part.strip - SAMPLES + 1 - f.pad) * STEP; // of the first pixel
    start_next_kernel();
    if (part.first == part.end)
        return;
    const double *row = grid.rows + (int64_t)part.first * plane.width;
    wait_for_earlier_kernel();
    for (int n = threadIdx.x; n < used; n += THREADS) {
        int from = conv_border_index((enum conv_border)f.border, x + n, plane.width), m = n / STEP;
        double *to = &line[n % STEP * shape::PITCH + m % SUMS * shape::ACROSS + m / SUMS];
        if (from < 0)
            *to = (double)f.border_value;
        else
            __pipeline_memcpy_async(to, row + from, sizeof *to);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads(); // samples of other threads
    double sums[SUMS] = {};
    bool sums_up = (int)threadIdx.x * SUMS < count;
    if (sums_up) {
#pragma unroll
        for (int t = 0; t < SAMPLES + SUMS - 1; t++)
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                double value = own[i * shape::PITCH + t % SUMS * shape::ACROSS + t / SUMS];
#pragma unroll
                for (int c = 0; c < SUMS; c++) {
                    int away = abs((t - c - REACH) * STEP + i);
                    if (t >= c && away < REACH * STEP)
                        sums[c] = fma(f.weights[away], value, sums[c]);
                }
            }
    }
    __syncthreads(); // all have read the samples
    for (int c = 0; c < SUMS && sums_up; c++)
        own[c * shape::ACROSS] = sums[c];
    __syncthreads(); // sums of other threads
    double *to = grid.samples + (int64_t)part.first * grid.coarse + part.strip;
    for (int n = threadIdx.x; n < count; n += THREADS)
        to[n] = line[n % SUMS * shape::ACROSS + n / SUMS];
}

// FILTERED sums over a line: number k of samples k to k + 2 * radius. Each sample is loaded once
// for those before and once for those after the centre, into the place of one that is used no more.
template <typename Load>
__device__ static inline void filter_line(const struct float_filter &f, const Load &load,
                                          double (&sums)[FILTERED])
{
    double before[FILTERED], after[FILTERED], asked[ASKED][2];
    auto ask = [&](int i, int j) {
        asked[j % ASKED][0] = load(max(f.radius - i, 0));
        asked[j % ASKED][1] = load(min(f.radius + i, 2 * f.radius) + FILTERED - 1);
    };
#pragma unroll
    for (int k = 0; k < FILTERED; k++) {
        before[k] = after[k] = load(f.radius + k);
        sums[k] = f.line[0] * before[k];
    }
#pragma unroll
    for (int j = 0; j < ASKED; j++)
        ask(1 + j, j);
    for (int first = 1; first <= f.radius; first += FILTERED) {
#pragma unroll
        for (int j = 0; j < FILTERED; j++) {
            if (first + j > f.radius)
                break;
            before[FILTERED - 1 - j] = asked[j % ASKED][0];
            after[j] = asked[j % ASKED][1];
            ask(first + j + ASKED, j);
#pragma unroll
            for (int k = 0; k < FILTERED; k++) {
                double both =
                    before[(k + FILTERED - 1 - j) % FILTERED] + after[(k + 1 + j) % FILTERED];
                sums[k] = fma(f.line[first + j], both, sums[k]);
            }
        }
    }
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
    int skipped = f.radius - f.pad; // samples, which are equal to the first one
    const double *from = grid.samples + min(max(part.strip + column - skipped, 0), grid.coarse - 1);
    double sums[FILTERED];
    start_next_kernel();
    wait_for_earlier_kernel();
    for (int y = part.first; y < part.end; y += FILTERED) {
        auto row_of = [&](int n) { return min(max(y + n - skipped, 0), grid.coarse_rows - 1); };
        filter_line(
            f, [&](int n) { return from[(int64_t)row_of(n) * grid.coarse]; }, sums);
        for (int k = 0; k < FILTERED; k++)
            lines[k][column + column / FILTERED] = sums[k];
        __syncthreads();
        if (line < FILTERED && y + line < part.end) {
            const double *samples = &lines[line][run * (FILTERED + 1)];
            double *to = grid.filtered + (int64_t)(y + line) * grid.width + part.strip;
            // The last samples of the last run are not stored.
            auto place = [&](int n) { return min(n, FILTER_THREADS - 1 - run * FILTERED); };
            filter_line(
                f, [&](int n) { return samples[place(n) + place(n) / FILTERED]; }, sums);
            for (int k = 0; k < FILTERED; k++) {
                int x = run * FILTERED + k;
                if (x < width && part.strip + x < grid.width)
                    to[x] = sums[k];
            }
        }
        __syncthreads();
    }
}

// Columns of a thread are ENLARGING_THREADS apart, a multiple of each step. The block loads the
// filtered samples that its columns depend on, rows ahead.
template <int STEP, bool SHARPENS>
static __global__ void __launch_bounds__(ENLARGING_THREADS, ENLARGING_BLOCKS)
    enlarge(const __grid_constant__ struct float_filter f)
{
    constexpr int ROWS = float_shape<STEP>::ROWS, RUN = float_shape<STEP>::RUN;
    constexpr int STRIP = COLUMNS * ENLARGING_THREADS, WIDTH = STRIP / STEP + SAMPLES - 1;
    constexpr int BEFORE = (SAMPLES - 2) / ROWS * ROWS + ROWS; // rows of samples before results
    __shared__ double ahead[STAGES][ROWS][WIDTH];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct float_grid grid = find_floats(f, plane);
    struct float_part part = find_part(plane.width, STRIP, grid.steps, f.enlarged);
    int x = part.strip + (int)threadIdx.x, place = (int)threadIdx.x % STEP;
    int y = part.first * STEP, end = min(part.end * STEP, plane.height);
    double across[SAMPLES];
    if (part.first == part.end)
        return;
#pragma unroll
    for (int k = 0; k < SAMPLES; k++)
        across[k] = f.weights[place * SAMPLES + k];
    wait_for_earlier_kernel();
    auto fetch = [&](int m, int stage) {
        for (int n = threadIdx.x; n < ROWS * WIDTH; n += ENLARGING_THREADS) {
            int row = min(max(m + n / WIDTH, 0), grid.height - 1);
            int column = min(part.strip / STEP + n % WIDTH, grid.width - 1);
            __pipeline_memcpy_async(&ahead[stage][n / WIDTH][n % WIDTH],
                                    grid.filtered + (int64_t)row * grid.width + column,
                                    sizeof(double));
        }
        __pipeline_commit();
    };
    double values[SAMPLES + ROWS - 1][COLUMNS] = {}; // of filtered rows m and after
    int m = part.first - BEFORE;
    for (int stage = 0; stage < STAGES - 1; stage++)
        fetch(m + SAMPLES - 1 + stage * ROWS, stage);
    const uint8_t *source = plane.src + y * plane.src_stride + x * (int64_t)sizeof(float);
    uint8_t *to = plane.dst + y * plane.dst_stride + x * (int64_t)sizeof(float);
    for (int stage = 0; m < part.end; m += ROWS) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads(); // samples of other threads; all have read those of the stage before
        fetch(m + SAMPLES - 1 + (STAGES - 1) * ROWS, (stage + STAGES - 1) % STAGES);
#pragma unroll
        for (int n = 0; n < (SAMPLES + ROWS - 1) * COLUMNS; n++) {
            int k = n / COLUMNS, c = n % COLUMNS;
            if (k < SAMPLES - 1) {
                values[k][c] = values[k + ROWS][c];
                continue;
            }
            const double *samples = &ahead[stage][k - SAMPLES + 1][(int)threadIdx.x / STEP +
                                                                   c * (ENLARGING_THREADS / STEP)];
            values[k][c] = 0;
#pragma unroll
            for (int i = 0; i < SAMPLES; i++)
                if (place || i < SAMPLES - 1)
                    values[k][c] = fma(across[i], samples[i], values[k][c]);
        }
        stage = (stage + 1) % STAGES;
        if (m < part.first)
            continue;
#pragma unroll(SHARPENS ? ROWS *STEP / RUN : 1)
        for (int done = 0; done < ROWS * STEP; done += RUN, y += RUN) {
            float samples[RUN][COLUMNS];
#pragma unroll
            for (int n = 0; n < RUN && SHARPENS; n++, source += plane.src_stride)
                for (int c = 0; c < COLUMNS; c++)
                    if (y + n < end && x + c * ENLARGING_THREADS < plane.width)
                        samples[n][c] = ((const float *)source)[c * ENLARGING_THREADS];
#pragma unroll
            for (int n = 0; n < RUN; n++, to += plane.dst_stride) {
                int i = done + n % STEP, j = n / STEP;
                double sums[COLUMNS] = {};
#pragma unroll
                for (int k = 0; k < SAMPLES; k++)
                    for (int c = 0; c < COLUMNS; c++)
                        if (k < SAMPLES - 1 || n % STEP || done)
                            sums[c] = fma(f.weights[i * SAMPLES + k], values[j + k][c], sums[c]);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    if (y + n >= end || x + c * ENLARGING_THREADS >= plane.width)
                        continue;
                    if (SHARPENS) {
                        double sample = (double)samples[n][c];
                        double change = f.amount * (sample - sums[c]);
                        sums[c] = fabs(change) < (double)f.keep_below ? sample : sample + change;
                    }
                    ((float *)to)[c * ENLARGING_THREADS] = __double2float_rn(sums[c]);
                }
            }
        }
    }
    __pipeline_wait_prior(0);
}

// --- host ----------------------------------------------------------------------------------------

struct float_constants {
    struct float_filter filter; // with the weights that reduce
    double enlarging[MOST_STEP * SAMPLES];
    void (*reduce_rows)(struct float_filter), (*reduce_columns)(struct float_filter);
    void (*enlarge)(struct float_filter);
    int most; // coarse samples of a block that reduces columns
};

template <int STEP> static void set_kernels(struct float_constants *constants)
{
    if (constants->filter.step != STEP)
        return;
    constants->reduce_rows = reduce_rows<STEP>;
    constants->reduce_columns = reduce_columns<STEP>;
    constants->enlarge = constants->filter.amount != 0 ? enlarge<STEP, true> : enlarge<STEP, false>;
    constants->most = float_shape<STEP>::MOST;
}

template <int... STEPS> static void choose_kernels(struct float_constants *constants)
{
    (set_kernels<STEPS>(constants), ...);
}

void conv_cuda_decimated_floats_plan(const struct conv_stencil *stencil,
                                     struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct float_constants>(plan);
    struct float_filter *f = &constants->filter;
    const struct conv_coarse *coarse = &stencil->coarse;
    f->step = stencil->decimated.step;
    memcpy(f->weights, coarse->near, sizeof coarse->near);
    for (int n = 0; n < f->step * SAMPLES; n++) {
        int i = n / SAMPLES, away = abs(i - (n % SAMPLES - REACH + 1) * f->step);
        constants->enlarging[n] =
            away < REACH * f->step ? coarse->near[away] * coarse->scale[i] : 0;
    }
    memcpy(f->line, coarse->line, sizeof f->line);
    f->amount = coarse->amount;
    f->radius = stencil->decimated.radius;
    f->pad = stencil->border == CONV_BORDER_REPLICATE ? 1 : f->radius;
    f->border = (int32_t)stencil->border;
    f->border_value = stencil->border_value;
    f->keep_below = stencil->fkeep_below;
    choose_kernels<2, 3, 4, 6, 8, 12, 16, 24, 32>(constants);
}

enum conv_status conv_cuda_decimated_floats_run(const struct conv_stencil_plan *plan,
                                                const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct float_constants>(plan);
    struct float_filter f = constants->filter;
    auto stream = (cudaStream_t)batch->cuda.stream;
    bool early = plan->cuda.major >= 9;
    f.scratch = (uint8_t *)batch->cuda.scratch;
    f.planes = batch->cuda.d_planes;
    // The grid of a kernel whose blocks take strips of columns and *rows rows: a multiple of `unit`
    // for which about `blocks` blocks are enough.
    auto divide = [&](int float_grid::*columns, int strip, int float_grid::*height, int unit,
                      int64_t blocks, int32_t *rows) {
        int64_t all = 0, most = 0, highest = 0;
        for (int p = 0; p < batch->count; p++) {
            struct float_grid grid = find_floats(f, batch->planes[p]);
            int64_t strips = (grid.*columns - 1) / strip + 1;
            all += strips * (grid.*height);
            most = max(most, strips);
            highest = max(highest, (int64_t)(grid.*height));
        }
        *rows = (int32_t)(((all - 1) / blocks / unit + 1) * unit);
        return dim3((unsigned)(most * ((highest - 1) / *rows + 1)), (unsigned)batch->count);
    };
    int64_t processors = plan->cuda.processors;
    int32_t one;
    dim3 down = divide(&float_grid::columns, COLUMNS * THREADS, &float_grid::coarse_rows, 1,
                       processors * REDUCING_BLOCKS, &f.reduced);
    dim3 across =
        divide(&float_grid::coarse, constants->most, &float_grid::coarse_rows, 1, INT64_MAX, &one);
    dim3 filter = divide(&float_grid::width, FILTER_THREADS - 2 * f.radius, &float_grid::height,
                         FILTERED, processors * FILTERING_BLOCKS, &f.filtered);
    dim3 up = divide(&float_grid::columns, COLUMNS * ENLARGING_THREADS, &float_grid::steps, 1,
                     processors * ENLARGING_BLOCKS, &f.enlarged);
    launch_early(constants->reduce_rows, down, THREADS, 0, false, stream, f);
    launch_early(constants->reduce_columns, across, THREADS, 0, early, stream, f);
    launch_early(filter_coarse, filter, FILTER_THREADS, 0, early, stream, f);
    memcpy(f.weights, constants->enlarging, sizeof f.weights);
    launch_early(constants->enlarge, up, ENLARGING_THREADS, 0, early, stream, f);
    return launch_status();
}
