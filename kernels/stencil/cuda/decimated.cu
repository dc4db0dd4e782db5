// SPDX-License-Identifier: MIT
// Large Gaussians by way of a coarse image (struct conv_decimated), in four kernels: reduce, filter
// columns, filter rows, enlarge. The first and the last move all bytes; a thread of theirs has four
// columns of pixels and walks down, so that each source sample is loaded once and each coarse row
// enlarged once. Sums of integers are exact: 8-bit samples in float32 (24 bits), others in 32 and
// 64 bits; float32 samples are added in float64 in the defined order.
//
// Scratch of a plane: coarse samples from -radius - 1 on, these filtered by columns, and filtered
// samples from -1 on, each a cell of 32 bits.
#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/stencil_device.cuh"

#define COLUMNS 4
#define THREADS 128
#define SPAN (THREADS * COLUMNS) // columns of pixels of a block
#define FILTER_ROWS 8            // results of a thread that filters
#define AHEAD 16                 // rows of samples that a block has asked for, in
#define GROUP 4                  // groups
#define SHARED_STEP 8            // from which four threads reduce to a sample
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    int32_t block_columns, block_rows; // coarse samples of a block that reduces
    int32_t block_steps;               // coarse rows of a block that enlarges
    int32_t amount;
    int64_t keep_below;
    float keep_floats;
    uint32_t down[4][MOST_STEP], up[MOST_STEP][4];
    uint32_t line[2 * MOST_RADIUS + 1 + 2 * (FILTER_ROWS - 1)]; // both sides, and zeros around them
};
static_assert(sizeof(struct decimated_filter) <= 4096, "kernel parameters end at 4 KB");

// The cells of a plane.
struct grid {
    int coarse_width, coarse_height, width, height;
    uint32_t *coarse, *columns, *filtered;
};

__device__ static inline struct grid find_grid(const struct decimated_filter &f,
                                               const struct conv_stencil_plane &plane)
{
    struct grid grid;
    grid.width = (plane.width - 1) / f.step + 4;
    grid.height = (plane.height - 1) / f.step + 4;
    grid.coarse_width = grid.width + 2 * f.radius;
    grid.coarse_height = grid.height + 2 * f.radius;
    grid.coarse =
        (uint32_t *)(f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN);
    grid.columns = grid.coarse + (size_t)grid.coarse_width * grid.coarse_height;
    grid.filtered = grid.columns + (size_t)grid.coarse_width * grid.height;
    return grid;
}

// Sums over rows, and one of them as a cell.
template <typename Sample> struct down_sum;
template <> struct down_sum<uint8_t> {
    typedef float type;
    static constexpr int SHIFT = 24; // from 2^32 times a sample to 8 more bits
    static constexpr int ONE = 12;   // bits that a filtered sample has more than a sample
    static constexpr int MAX = 255;
};
template <> struct down_sum<uint16_t> {
    typedef uint32_t type;
    static constexpr int SHIFT = 32, ONE = 4, MAX = 65535;
};
template <> struct down_sum<float> {
    typedef double type;
    static constexpr int SHIFT = 0, ONE = 0, MAX = 0;
};

__device__ static inline uint32_t cell_of(float sum)
{
    return (uint32_t)sum;
}

__device__ static inline uint32_t cell_of(uint32_t sum)
{
    return sum;
}

__device__ static inline uint32_t cell_of(double sum)
{
    return __float_as_uint(__double2float_rn(sum * 0x1p-16));
}

// Four samples of a row: a word where they lie together, else one by one; -1 is the border's value.
template <typename Sample> struct alignas(COLUMNS * sizeof(Sample)) four {
    Sample value[COLUMNS];
};

template <typename Sample>
__device__ static inline struct four<Sample> load_four(const uint8_t *row, int x, const int *from,
                                                       bool whole, float border_value) {
    const Sample *samples = (const Sample *)row;
    if (whole && row)
        return *(const struct four<Sample> *)(samples + x);
    struct four<Sample> result;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        result.value[k] = from[k] < 0 || !row ? (Sample)border_value : samples[from[k]];
    return result;
}

template <typename Sample>
__device__ static inline bool has_words(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % (COLUMNS * sizeof(Sample)) == 0;
}

// --- reduce --------------------------------------------------------------------------------------

__device__ static inline float sample_of(uint8_t sample)
{
    return __uint_as_float(0x4b000000u | sample) - 8388608.0f;
}

__device__ static inline uint32_t sample_of(uint16_t sample)
{
    return sample;
}

__device__ static inline double sample_of(float sample)
{
    return sample;
}

template <typename Sum, typename Sample>
__device__ static inline void add_row(Sum (*sums)[COLUMNS], const Sum *weights,
                                      const struct four<Sample> &row)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        Sum sample = sample_of(row.value[c]);
#pragma unroll
        for (int k = 0; k < 4; k++)
            sums[k][c] += weights[k] * sample; // exact products
    }
}

// Coarse samples from a row of sums, of which the first belongs to column `left` of the plane.
// `first`: the number of the first coarse sample. Of large steps, four threads add a sample, each
// the pixels between two coarse samples.
template <int SHIFT>
__device__ static inline void reduce_row(uint32_t *to, const uint32_t *sums,
                                         const uint32_t (*down)[MOST_STEP + 1], int step, int left,
                                         int first, int count)
{
    int threads = step < SHARED_STEP ? 1 : 4;
    for (int base = 0; base < threads * count; base += THREADS) {
        int item = base + (int)threadIdx.x, part = item & (threads - 1);
        int at = threads == 1 ? item : item / 4;
        uint64_t sum = 0;
        for (int k = part; k < 4 && at < count; k += threads) {
            const uint32_t *from = sums + (first + at + 1 - k) * step - left;
            // Different ones, for the sake of shared memory's banks.
            int i = threads == 1 ? 0 : item % step;
            for (int n = 0; n < step; n++) {
                sum += (uint64_t)down[k][i] * from[i];
                i = i + 1 == step ? 0 : i + 1;
            }
        }
        if (threads > 1) {
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        }
        if (part == 0 && at < count)
            to[at] = (uint32_t)((sum + (1ull << (SHIFT - 1))) >> SHIFT);
    }
}

__device__ static inline void reduce_floats(uint32_t *to, const uint32_t *sums,
                                            const uint32_t (*down)[MOST_STEP + 1], int step,
                                            int left, int first, int count)
{
    for (int at = (int)threadIdx.x; at < count; at += THREADS) {
        double sum = 0;
        for (int k = 3; k >= 0; k--)
            for (int i = 0; i < step; i++)
                sum += (double)down[k][i] *
                       (double)__uint_as_float(sums[(first + at + 1 - k) * step + i - left]);
        to[at] = cell_of(sum);
    }
}

// The source of a block that reduces: rows from `top` on, and a thread's columns.
struct columns {
    int top, rows, x, from[COLUMNS];
    bool whole; // a word
};

// Asks for row r, into the part of a ring that only this thread reads.
template <typename Sample>
__device__ static inline void
fetch_row(struct four<Sample> (*ring)[THREADS], int r, const struct columns &c,
          const struct conv_stencil_plane &plane, const struct decimated_filter &f)
{
    if (r >= c.rows)
        return;
    int y = conv_border_index((enum conv_border)f.border, c.top + r, plane.height);
    const uint8_t *row = y < 0 ? NULL : plane.src + y * plane.src_stride;
    struct four<Sample> *to = &ring[r % AHEAD][threadIdx.x];
    if (c.whole && row)
        __pipeline_memcpy_async(to, (const Sample *)row + c.x, sizeof *to);
    else
        *to = load_four<Sample>(row, c.x, c.from, false, f.border_value);
}

// Blocks of 128 threads: 512 columns of pixels, of which block_columns coarse samples can be
// computed, and block_rows coarse rows. Shared: 16 rows of samples that are under way (8 to 32 KB),
// a row of sums twice (4 KB), so that one barrier per coarse row is enough, and the weights.
template <typename Sample>
static __global__ void __launch_bounds__(THREADS)
    reduce(const __grid_constant__ struct decimated_filter f)
{
    typedef typename down_sum<Sample>::type sum_type;
    typedef struct four<Sample> samples_type;
    __shared__ samples_type ring[AHEAD][THREADS];
    __shared__ uint32_t rows[2][SPAN];
    __shared__ uint32_t down[4][MOST_STEP + 1];
    __shared__ sum_type weights[MOST_STEP][4];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid grid = find_grid(f, plane);
    int across = (grid.coarse_width - 1) / f.block_columns + 1;
    int tiles = across * ((grid.coarse_height - 1) / f.block_rows + 1), buffer = 0;
    int part = (int)threadIdx.x / MOST_STEP, place = (int)threadIdx.x % MOST_STEP;
    down[part][place] = f.down[part][place];
    weights[place][part] = (sum_type)f.down[part][place];
    __syncthreads(); // weights of other threads
    bool aligned = has_words<Sample>(plane.src, plane.src_stride);
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        int column = tile % across * f.block_columns, line = tile / across * f.block_rows;
        int first = column - 1 - f.radius, m = line - 3 - f.radius;
        int count = min(f.block_columns, grid.coarse_width - column);
        int left = ((first - 2) * f.step) & ~(COLUMNS - 1);
        struct columns c;
        c.top = m * f.step;
        c.rows = (min(f.block_rows, grid.coarse_height - line) + 3) * f.step;
        c.x = left + (int)threadIdx.x * COLUMNS;
        c.whole = aligned && c.x >= 0 && c.x + COLUMNS <= plane.width;
        for (int k = 0; k < COLUMNS; k++)
            c.from[k] = conv_border_index((enum conv_border)f.border, c.x + k, plane.width);
        for (int r = 0; r < AHEAD; r++) {
            fetch_row(ring, r, c, plane, f);
            if (r % GROUP == GROUP - 1)
                __pipeline_commit();
        }
        uint32_t *to = grid.coarse + column + (int64_t)(line - 3) * grid.coarse_width;
        sum_type sums[4][COLUMNS] = {};
        for (int r = 0, i = 0, done = 0; r < c.rows; r += GROUP) {
            __pipeline_wait_prior(AHEAD / GROUP - 1);
#pragma unroll
            for (int u = 0; u < GROUP; u++) {
                if (r + u >= c.rows)
                    break;
                add_row(sums, weights[i], ring[(r + u) % AHEAD][threadIdx.x]);
                if (++i < f.step)
                    continue;
                i = 0;
                if (done >= 3) { // all rows of the first of the four coarse rows
#pragma unroll
                    for (int k = 0; k < COLUMNS; k++)
                        rows[buffer][threadIdx.x * COLUMNS + k] = cell_of(sums[0][k]);
                    __syncthreads(); // a coarse sample needs sums of other threads
                    if constexpr (sizeof(Sample) == 4)
                        reduce_floats(to, rows[buffer], down, f.step, left, first, count);
                    else
                        reduce_row<down_sum<Sample>::SHIFT>(to, rows[buffer], down, f.step, left,
                                                            first, count);
                    buffer = 1 - buffer;
                }
                done++;
                to += grid.coarse_width;
#pragma unroll
                for (int k = 0; k < COLUMNS; k++) {
                    sums[0][k] = sums[1][k];
                    sums[1][k] = sums[2][k];
                    sums[2][k] = sums[3][k];
                    sums[3][k] = 0;
                }
            }
            for (int u = 0; u < GROUP; u++)
                fetch_row(ring, r + AHEAD + u, c, plane, f);
            __pipeline_commit();
        }
        __pipeline_wait_prior(0); // the next tile writes to the ring
    }
}

// --- the coarse image ----------------------------------------------------------------------------

// FILTER_ROWS results from cells `pitch` apart, of which `count` may be read: each is loaded once
// for all of them. Sums of a line of cells have 16 more bits.
template <typename Sum>
__device__ static inline void filter_cells(Sum *sums, const uint32_t *cells, int64_t pitch,
                                           int count, const struct decimated_filter &f)
{
#pragma unroll
    for (int r = 0; r < FILTER_ROWS; r++)
        sums[r] = 0;
    for (int i = 0; i < min(FILTER_ROWS + 2 * f.radius, count); i++) {
        uint32_t cell = cells[i * pitch];
#pragma unroll
        for (int r = 0; r < FILTER_ROWS; r++)
            sums[r] += (Sum)f.line[FILTER_ROWS - 1 + i - r] * cell;
    }
}

__device__ static inline uint32_t filter_floats(const uint32_t *cells, int64_t pitch,
                                                const struct decimated_filter &f)
{
    const uint32_t *centre = cells + f.radius * pitch, *line = f.line + FILTER_ROWS - 1 + f.radius;
    double sum = (double)line[0] * (double)__uint_as_float(centre[0]);
    for (int i = 1; i <= f.radius; i++)
        sum += (double)line[i] * ((double)__uint_as_float(centre[-i * pitch]) +
                                  (double)__uint_as_float(centre[i * pitch]));
    return cell_of(sum);
}

template <bool FLOATS>
static __global__ void __launch_bounds__(THREADS)
    filter_columns(const __grid_constant__ struct decimated_filter f)
{
    const struct grid grid = find_grid(f, f.planes[blockIdx.y]);
    int64_t items = (int64_t)grid.coarse_width * ((grid.height - 1) / FILTER_ROWS + 1);
    int64_t width = grid.coarse_width;
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < items;
         item += (int64_t)gridDim.x * THREADS) {
        int x = (int)(item % width), y = (int)(item / width) * FILTER_ROWS;
        const uint32_t *from = grid.coarse + y * width + x;
        uint32_t *to = grid.columns + y * width + x, sums[FILTER_ROWS];
        int rows = min(FILTER_ROWS, grid.height - y);
        if (FLOATS)
            for (int r = 0; r < rows; r++)
                sums[r] = filter_floats(from + r * width, width, f);
        else
            filter_cells(sums, from, width, grid.coarse_height - y, f);
        for (int r = 0; r < rows; r++)
            to[r * width] = sums[r];
    }
}

template <bool FLOATS>
static __global__ void __launch_bounds__(THREADS)
    filter_rows(const __grid_constant__ struct decimated_filter f)
{
    const struct grid grid = find_grid(f, f.planes[blockIdx.y]);
    int across = (grid.width - 1) / FILTER_ROWS + 1;
    int64_t items = (int64_t)across * grid.height;
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < items;
         item += (int64_t)gridDim.x * THREADS) {
        int x = (int)(item % across) * FILTER_ROWS, columns = min(FILTER_ROWS, grid.width - x);
        int64_t y = item / across;
        const uint32_t *from = grid.columns + y * grid.coarse_width + x;
        uint32_t *to = grid.filtered + y * grid.width + x;
        uint64_t sums[FILTER_ROWS];
        if (!FLOATS)
            filter_cells(sums, from, 1, grid.coarse_width - x, f);
        for (int r = 0; r < columns; r++)
            to[r] = FLOATS ? filter_floats(from + r, 1, f)
                           : (uint32_t)((sums[r] + (1u << 27)) >> 28); // 4 more bits
    }
}

// --- enlarge -------------------------------------------------------------------------------------

// A row of filtered samples at the source's columns: sums of 12 more bits.
template <bool FLOATS>
__device__ static inline void enlarge_row(uint32_t *to, const uint32_t *row, const int *columns,
                                          const uint32_t (*up)[4])
{
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        const uint32_t *cells = row + columns[k];
        if (FLOATS) {
            double sum = 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum += (double)up[k][t] * (double)__uint_as_float(cells[t]);
            to[k] = __float_as_uint(__double2float_rn(sum * 0x1p-12));
        } else {
            to[k] = 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                to[k] += up[k][t] * cells[t];
        }
    }
}

template <typename Sample> __device__ static inline uint32_t clamp_sample(int64_t value)
{
    constexpr int64_t MAX = down_sum<Sample>::MAX;
    return (uint32_t)(value < 0 ? 0 : value > MAX ? MAX : value);
}

// The result of integers, from a sum of 24 more bits than filtered samples have.
template <typename Sample, typename Result, bool SHARPENS>
__device__ static inline Result finish(uint64_t sum, Sample sample,
                                       const struct decimated_filter &f)
{
    constexpr int ONE = down_sum<Sample>::ONE, AMOUNT = 11; // 2^11 is CONV_DECIMATED_AMOUNT
    constexpr bool FLOATS = sizeof(Result) == 4;
    if (!SHARPENS && FLOATS)
        return (Result)((double)sum * (1.0 / (double)(1ull << (24 + ONE))));
    if (!SHARPENS)
        return (Result)((sum + (1ull << (23 + ONE))) >> (24 + ONE));
    int32_t one = (int32_t)((uint32_t)sample << ONE);
    int32_t off = one - (int32_t)((sum + (1u << 23)) >> 24);
    int64_t change = (int64_t)f.amount * off, total = ((int64_t)one << AMOUNT) + change;
    if ((change < 0 ? -change : change) < f.keep_below)
        return (Result)sample;
    if (FLOATS)
        return (Result)((double)total * (1.0 / (double)(1ull << (ONE + AMOUNT))));
    return (Result)clamp_sample<Sample>((total + (1ll << (ONE + AMOUNT - 1))) >> (ONE + AMOUNT));
}

template <bool SHARPENS>
__device__ static inline float finish_float(double sum, float sample,
                                            const struct decimated_filter &f)
{
    float blurred = __double2float_rn(sum * 0x1p-12);
    if (!SHARPENS)
        return blurred;
    double off = (double)__double2float_rn((double)sample - (double)blurred);
    double change = (double)f.amount * off;
    if (fabs(change) < (double)f.keep_floats * CONV_DECIMATED_AMOUNT)
        return sample;
    return __double2float_rn(((double)sample * CONV_DECIMATED_AMOUNT + change) /
                             CONV_DECIMATED_AMOUNT);
}

template <typename Result>
__device__ static inline void store_four(uint8_t *row, int x, int count, bool aligned,
                                         const struct four<Result> &results)
{
    Result *to = (Result *)row + x;
    if (aligned && count >= COLUMNS) {
        *(struct four<Result> *)to = results;
        return;
    }
    for (int k = 0; k < min(count, COLUMNS); k++)
        to[k] = results.value[k];
}

// One row of a thread's four columns.
template <typename Sample, typename Result, bool SHARPENS>
__device__ static inline struct four<Result>
finish_four(const uint32_t (*rows)[COLUMNS], const uint32_t *up, const struct four<Sample> &samples,
            const struct decimated_filter &f) {
    struct four<Result> results;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        if constexpr (sizeof(Sample) == 4) {
            double sum = 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum += (double)up[t] * (double)__uint_as_float(rows[t][k]);
            results.value[k] = finish_float<SHARPENS>(sum, samples.value[k], f);
        } else {
            uint64_t sum = 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum += (uint64_t)up[t] * rows[t][k];
            results.value[k] = finish<Sample, Result, SHARPENS>(sum, samples.value[k], f);
        }
    }
    return results;
}

// Blocks of 128 threads: 512 columns, and rows of block_steps coarse ones.
template <typename Sample, typename Result, bool SHARPENS>
static __global__ void __launch_bounds__(THREADS, SHARPENS || sizeof(Sample) == 4 ? 6 : 8)
    enlarge(const __grid_constant__ struct decimated_filter f)
{
    constexpr bool FLOATS = sizeof(Sample) == 4;
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid grid = find_grid(f, plane);
    int across = (plane.width - 1) / SPAN + 1, steps = grid.height - 3;
    int tiles = across * ((steps - 1) / f.block_steps + 1);
    bool words = has_words<Sample>(plane.src, plane.src_stride);
    bool aligned = has_words<Result>(plane.dst, plane.dst_stride);
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        int x = tile % across * SPAN + (int)threadIdx.x * COLUMNS, count = plane.width - x;
        int first = tile / across * f.block_steps, last = min(first + f.block_steps, steps);
        int columns[COLUMNS], from[COLUMNS];
        uint32_t up[COLUMNS][4], rows[4][COLUMNS];
        if (count <= 0)
            continue;
        for (int k = 0; k < COLUMNS; k++) {
            from[k] = min(x + k, plane.width - 1); // results past the end are not stored
            columns[k] = from[k] / f.step;
            for (int t = 0; t < 4; t++)
                up[k][t] = f.up[from[k] % f.step][t];
        }
        const uint32_t *filtered = grid.filtered + (int64_t)first * grid.width;
#pragma unroll
        for (int t = 0; t < 3; t++)
            enlarge_row<FLOATS>(rows[t], filtered + t * grid.width, columns, up);
        for (int m = first; m < last; m++) {
            enlarge_row<FLOATS>(rows[3], filtered + 3 * grid.width, columns, up);
            int end = min(f.step, plane.height - m * f.step);
            for (int i = 0; i < end; i++) {
                int64_t y = (int64_t)m * f.step + i;
                struct four<Sample> samples = {
                };
                if (SHARPENS)
                    samples = load_four<Sample>(plane.src + y * plane.src_stride, x, from,
                                                words && count >= COLUMNS, 0);
                store_four(plane.dst + y * plane.dst_stride, x, count, aligned,
                           finish_four<Sample, Result, SHARPENS>(rows, f.up[i], samples, f));
            }
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                rows[0][k] = rows[1][k];
                rows[1][k] = rows[2][k];
                rows[2][k] = rows[3][k];
            }
            filtered += grid.width;
        }
    }
}

// --- host ----------------------------------------------------------------------------------------

#define MOST_PLANES 65535 // of a launch: blocks along y
#define MOST_BLOCKS 65535
#define REDUCED_ROWS 256 // of pixels, of a block
#define ENLARGED_ROWS 64

struct decimated_constants {
    void (*reduce)(struct decimated_filter);
    void (*columns)(struct decimated_filter);
    void (*rows)(struct decimated_filter);
    void (*enlarge)(struct decimated_filter);
    struct decimated_filter filter;
};

template <typename Sample, typename Result>
static void set_kernels(struct decimated_constants *constants)
{
    constants->reduce = reduce<Sample>;
    constants->columns = filter_columns<sizeof(Sample) == 4>;
    constants->rows = filter_rows<sizeof(Sample) == 4>;
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
    f.block_columns = (SPAN - COLUMNS + 1) / d.step - 3;
    f.block_rows = max(REDUCED_ROWS / d.step, 12);
    f.block_steps = max(ENLARGED_ROWS / d.step, 1);
    f.amount = d.amount;
    f.keep_below = stencil->keep_below;
    f.keep_floats = stencil->fkeep_below;
    for (int i = 0; i < d.step; i++)
        for (int k = 0; k < 4; k++) {
            int away = abs(i - (k - 1) * d.step);
            f.down[k][i] = away < 2 * d.step ? (uint32_t)d.down[away] : 0;
            f.up[i][k] = (uint32_t)d.up[i][k];
        }
    for (int i = -d.radius; i <= d.radius; i++)
        f.line[FILTER_ROWS - 1 + d.radius + i] = (uint32_t)d.line[abs(i)];
    if (stencil->depth == 32)
        set_kernels<float, float>(constants);
    else if (stencil->depth == 8)
        stencil->floats ? set_kernels<uint8_t, float>(constants)
                        : set_kernels<uint8_t, uint8_t>(constants);
    else
        stencil->floats ? set_kernels<uint16_t, float>(constants)
                        : set_kernels<uint16_t, uint16_t>(constants);
}

// Blocks take tiles of a plane, `most` of them, in turn.
static void start(void (*kernel)(struct decimated_filter), int64_t most, int planes,
                  const struct decimated_filter *f, cudaStream_t stream)
{
    dim3 blocks((unsigned)(most < MOST_BLOCKS ? most : MOST_BLOCKS), (unsigned)planes);
    kernel<<<blocks, THREADS, 0, stream>>>(*f);
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
        rows = max(rows, height * ((width - 1) / FILTER_ROWS + 1) / THREADS + 1);
        enlarged = max(enlarged, (int64_t)((planes[p].width - 1) / SPAN + 1) *
                                     ((height - 4) / f->block_steps + 1));
    }
    start(constants->reduce, reduced, count, f, stream);
    start(constants->columns, columns, count, f, stream);
    start(constants->rows, rows, count, f, stream);
    start(constants->enlarge, enlarged, count, f, stream);
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
