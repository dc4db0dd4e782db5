// SPDX-License-Identifier: MIT
// Large Gaussians by way of a coarse image (struct conv_decimated), in four kernels: reduce, filter
// columns, filter rows, enlarge. The first and the last move all bytes: a thread of theirs has a
// few columns of pixels and walks down, so that each source sample is loaded once and each coarse
// row enlarged once. Sums of integers are exact in any order: of 8-bit samples they have 32 bits
// but where coarse samples are weighted along rows; float32 samples are added in float64 in the
// defined order.
//
// Scratch of a plane, in cells of 32 bits (of 16 bits for what is exact in them): coarse samples
// from -radius - 1 on, these filtered by columns, and filtered samples from -1 on.
#include "kernels/stencil/cuda/decimated_enlarge.cuh"

// --- the coarse image ----------------------------------------------------------------------------

// FILTER_ROWS results from FILTER_ROWS + 2 * radius cells, of which `load` returns number i + a of
// a chunk, or 0 after the last: each is loaded once for all results. Sums of a line of cells have
// 16 more bits. `line` is f.line in shared memory.
template <typename Sum, typename Load>
__device__ static inline void filter_cells(Sum *sums, const uint32_t *line, int radius, Load load)
{
    uint32_t weights[CHUNK + FILTER_ROWS];
#pragma unroll
    for (int r = 0; r < FILTER_ROWS; r++) {
        sums[r] = 0;
        weights[CHUNK + r] = line[r];
    }
    for (int i = 0; i < FILTER_ROWS + 2 * radius; i += CHUNK) {
        uint32_t cells[CHUNK];
#pragma unroll
        for (int a = 0; a < CHUNK; a++) {
            cells[a] = load(i, a);
            weights[a] = weights[CHUNK + a];
            weights[CHUNK + a] = line[i + CHUNK + a];
        }
#pragma unroll
        for (int a = 0; a < CHUNK; a++)
#pragma unroll
            for (int r = 0; r < FILTER_ROWS; r++)
                sums[r] += (Sum)weights[FILTER_ROWS + a - r] * cells[a];
    }
}

__device__ static inline void share_line(uint32_t *shared, const struct decimated_filter &f)
{
    for (int i = (int)threadIdx.x; i < LINE_CELLS; i += THREADS)
        shared[i] = f.line[i];
    __syncthreads(); // weights of other threads
}

__device__ static inline float filter_floats(const float *cells, int64_t pitch,
                                             const struct decimated_filter &f)
{
    const float *centre = cells + f.radius * pitch;
    const uint32_t *line = f.line + FILTER_ROWS + f.radius;
    double sum = (double)line[0] * (double)centre[0];
    for (int i = 1; i <= f.radius; i++)
        sum = fma((double)line[i], (double)centre[-i * pitch] + (double)centre[i * pitch], sum);
    return __double2float_rn(sum * 0x1p-16);
}

template <typename Sample>
static __global__ void __launch_bounds__(THREADS)
    filter_columns(const __grid_constant__ struct decimated_filter f)
{
    __shared__ uint4 aligned[LINE_CELLS / 4];
    uint32_t *line = (uint32_t *)aligned;
    const struct grid<Sample> grid = find_grid<Sample>(f, f.planes[blockIdx.y]);
    share_line(line, f);
    int64_t items = (int64_t)grid.coarse_width * ((grid.height - 1) / FILTER_ROWS + 1);
    int64_t width = grid.coarse_width;
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < items;
         item += (int64_t)gridDim.x * THREADS) {
        int x = (int)(item % width), y = (int)(item / width) * FILTER_ROWS;
        const auto *from = grid.coarse + y * width + x;
        uint32_t *to = grid.columns + y * width + x;
        int rows = min(FILTER_ROWS, grid.height - y), count = grid.coarse_height - y;
        if constexpr (sizeof(Sample) == 4) {
            for (int r = 0; r < rows; r++)
                to[r * width] = __float_as_uint(filter_floats(from + r * width, width, f));
        } else {
            uint32_t sums[FILTER_ROWS];
            filter_cells(sums, line, f.radius, [=](int i, int a) {
                return i + a < count ? (uint32_t)from[(i + a) * width] : 0;
            });
#pragma unroll
            for (int r = 0; r < FILTER_ROWS; r++)
                if (r < rows)
                    to[r * width] = sums[r];
        }
    }
}

// A block has 8 rows of 128 results, 4 of 256, 2 of 512 or one of 1024. Shared: the cells of these,
// with one left free after 8, so that threads that are 8 results apart use different banks.
#define LEAST_ROW_THREADS 16
#define ROW_CELLS(threads) (((threads)*FILTER_ROWS + 2 * MOST_RADIUS + CHUNK) * 9 / 8 + 2)
#define SHARED_CELLS (THREADS / LEAST_ROW_THREADS * ROW_CELLS(LEAST_ROW_THREADS))

__host__ __device__ static inline int row_threads(int width)
{
    int threads = LEAST_ROW_THREADS;
    while (threads < THREADS && threads * FILTER_ROWS < width)
        threads *= 2;
    return threads;
}

template <typename Sample>
static __global__ void __launch_bounds__(THREADS)
    filter_rows(const __grid_constant__ struct decimated_filter f)
{
    __shared__ uint32_t shared[SHARED_CELLS];
    __shared__ uint4 aligned[LINE_CELLS / 4];
    uint32_t *line = (uint32_t *)aligned;
    const struct grid<Sample> grid = find_grid<Sample>(f, f.planes[blockIdx.y]);
    int threads = row_threads(grid.width), rows = THREADS / threads;
    int row = (int)threadIdx.x / threads, lane = (int)threadIdx.x % threads;
    int across = (grid.width - 1) / (threads * FILTER_ROWS) + 1;
    int tiles = across * ((grid.height - 1) / rows + 1);
    uint32_t *cells = shared + row * ROW_CELLS(threads);
    share_line(line, f);
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        int left = tile % across * threads * FILTER_ROWS, y = tile / across * rows + row;
        int count = min(threads * FILTER_ROWS + 2 * f.radius, grid.coarse_width - left);
        const uint32_t *from = grid.columns + (int64_t)y * grid.coarse_width + left;
        int used = threads * FILTER_ROWS + 2 * f.radius + CHUNK;
        for (int i = lane; i < used; i += threads)
            cells[i + i / 8] = i < count && y < grid.height ? from[i] : 0;
        __syncthreads(); // cells of other threads
        int x = lane * FILTER_ROWS, columns = min(FILTER_ROWS, grid.width - left - x);
        auto *to = grid.filtered + (int64_t)y * grid.width + left + x;
        if constexpr (sizeof(Sample) == 4) {
            for (int r = 0; r < columns && y < grid.height; r++)
                to[r] = filter_floats((const float *)from + x + r, 1, f);
        } else {
            constexpr int SHIFT = samples_of<Sample>::FILTERED;
            uint64_t sums[FILTER_ROWS];
            const uint32_t *near = cells + x + x / 8;
            filter_cells(sums, line, f.radius, [=](int i, int a) { return near[i + i / 8 + a]; });
#pragma unroll
            for (int r = 0; r < FILTER_ROWS; r++)
                if (r < columns && y < grid.height)
                    to[r] = (typename samples_of<Sample>::cell_type)(
                        (sums[r] + (1ull << (SHIFT - 1))) >> SHIFT);
        }
        __syncthreads(); // the next tile's cells
    }
}

// --- host ----------------------------------------------------------------------------------------

#define MOST_PLANES 65535 // of a launch: blocks along y
#define MOST_BLOCKS 65535
#define REDUCED_ROWS 96 // of pixels, of a block
#define ENLARGED_ROWS 64

struct decimated_constants {
    void (*reduce)(struct decimated_filter);
    void (*columns)(struct decimated_filter);
    void (*rows)(struct decimated_filter);
    void (*enlarge)(struct decimated_filter);
    int reducing_threads;
    struct decimated_filter filter;
};

template <typename Sample, typename Result>
static void set_kernels(struct decimated_constants *constants)
{
    constants->reduce = reduce<Sample>;
    constants->columns = filter_columns<Sample>;
    constants->rows = filter_rows<Sample>;
    constants->reducing_threads = reduction<Sample>::THREADS_X;
    constants->enlarge =
        constants->filter.amount ? enlarge<Sample, Result, true> : enlarge<Sample, Result, false>;
}

static void plan_decimated(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct decimated_constants>(plan);
    struct decimated_filter &f = constants->filter;
    const struct conv_decimated &d = stencil->decimated;
    f.step = d.step;
    f.radius = d.radius;
    f.border = (int32_t)stencil->border;
    f.border_value = stencil->border_value;
    f.block_columns = (SPAN - (int)sizeof(uint2) + 1) / d.step - 3;
    f.block_rows = max(REDUCED_ROWS / d.step, 6);
    f.block_steps = max(ENLARGED_ROWS / d.step, 1);
    f.amount = d.amount;
    f.keep_below = stencil->keep_below;
    f.keep_floats = stencil->fkeep_below;
    for (int i = 0; i < d.step; i++)
        for (int k = 0; k < 4; k++) {
            int away = abs(i - (k - 1) * d.step);
            f.down[i][k] = away < 2 * d.step ? (uint32_t)d.down[away] : 0;
            f.up[i][k] = (uint32_t)d.up[i][k];
        }
    for (int i = -d.radius; i <= d.radius; i++)
        f.line[FILTER_ROWS + d.radius + i] = (uint32_t)d.line[abs(i)];
    if (stencil->depth == 32)
        set_kernels<float, float>(constants);
    else if (stencil->depth == 8)
        stencil->floats ? set_kernels<uint8_t, float>(constants)
                        : set_kernels<uint8_t, uint8_t>(constants);
    else
        stencil->floats ? set_kernels<uint16_t, float>(constants)
                        : set_kernels<uint16_t, uint16_t>(constants);
    for (f.parts = 1;
         f.parts < 8 && f.parts * (f.block_columns + 1) <= constants->reducing_threads;)
        f.parts *= 2;
}

// Blocks take tiles of a plane, `most` of them, in turn.
static void start(void (*kernel)(struct decimated_filter), int threads, int64_t most, int planes,
                  const struct decimated_filter *f, cudaStream_t stream)
{
    dim3 blocks((unsigned)(most < MOST_BLOCKS ? most : MOST_BLOCKS), (unsigned)planes);
    kernel<<<blocks, threads, 0, stream>>>(*f);
}

// Up to MOST_PLANES planes.
static enum conv_status launch(const struct decimated_constants *constants,
                               const struct conv_stencil_plane *planes, int count,
                               const struct decimated_filter *f, cudaStream_t stream)
{
    int64_t reduced = 0, columns = 0, rows = 0, enlarged = 0;
    for (int p = 0; p < count; p++) {
        int64_t width = (planes[p].width - 1) / f->step + 4;
        int64_t height = (planes[p].height - 1) / f->step + 4;
        int64_t coarse_width = width + 2 * f->radius, coarse_height = height + 2 * f->radius;
        reduced = max(reduced, ((coarse_width - 1) / f->block_columns + 1) *
                                   ((coarse_height - 1) / f->block_rows + 1));
        columns = max(columns, coarse_width * ((height - 1) / FILTER_ROWS + 1) / THREADS + 1);
        int threads = row_threads((int)width);
        rows = max(rows, ((width - 1) / (threads * FILTER_ROWS) + 1) *
                             ((height - 1) / (THREADS / threads) + 1));
        enlarged = max(enlarged, (int64_t)((planes[p].width - 1) / SPAN + 1) *
                                     ((height - 4) / f->block_steps + 1));
    }
    start(constants->reduce, constants->reducing_threads, reduced, count, f, stream);
    start(constants->columns, THREADS, columns, count, f, stream);
    start(constants->rows, THREADS, rows, count, f, stream);
    start(constants->enlarge, THREADS, enlarged, count, f, stream);
    return launch_status();
}

static enum conv_status run_decimated(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct decimated_constants>(plan);
    struct decimated_filter f = constants->filter;
    enum conv_status status = CONV_OK;
    f.scratch = (uint8_t *)batch->cuda.scratch;
    for (int p = 0; p < batch->count && !status; p += MOST_PLANES) {
        f.planes = batch->cuda.d_planes + p;
        status = launch(constants, batch->planes + p, min(MOST_PLANES, batch->count - p), &f,
                        (cudaStream_t)batch->cuda.stream);
    }
    return status;
}

const struct conv_variant conv_cuda_decimated = {
    "cuda_decimated",
    "large Gaussians, by way of a coarse image",
    CONV_ON_CUDA,
    75,
    NULL,
    score_always<50>,
    plan_decimated,
    run_decimated,
    SPAN,
    ENLARGED_ROWS,
    false,
    true,
    true,
    true,
    false,
    true,
};
