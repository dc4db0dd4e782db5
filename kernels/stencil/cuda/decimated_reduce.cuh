// SPDX-License-Identifier: MIT
// From an image to its coarse image (decimated.cu), and what the four kernels share.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_REDUCE_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_REDUCE_CUH

#include <type_traits>

#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/stencil_device.cuh"

#define SPAN 512      // columns of pixels of a block
#define THREADS 128   // of a block of the other three kernels
#define ENLARGED 4    // columns of a thread that enlarges
#define FILTER_ROWS 8 // results of a thread that filters
#define AHEAD 16      // rows of samples that a block has asked for
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
#define FRACTION 24       // bits after the point of a blurred sample's sum, of integers
#define CHUNK FILTER_ROWS // cells that a thread multiplies at a time
#define LINE_CELLS (2 * MOST_RADIUS + 2 + 3 * FILTER_ROWS) // a multiple of 4

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    int32_t block_columns, block_rows; // coarse samples of a block that reduces
    int32_t parts;                     // threads that add up one of these
    int32_t block_steps;               // coarse rows of a block that enlarges
    int32_t amount;
    int64_t keep_below;
    float keep_floats;
    uint32_t down[MOST_STEP][4], up[MOST_STEP][4];
    uint32_t line[LINE_CELLS]; // both sides, from FILTER_ROWS on, and zeros around them
};
static_assert(sizeof(struct decimated_filter) <= 4096, "kernel parameters end at 4 KB");

// What differs by the type of samples.
template <typename Sample> struct samples_of;
template <> struct samples_of<uint8_t> {
    typedef uint32_t sum_type; // over rows
    typedef uint16_t cell_type;
    static constexpr int COARSE = 24;   // bits that a sum loses to be a coarse sample of 16 bits
    static constexpr int FILTERED = 36; // the same for a filtered sample of 12 bits
    static constexpr int ONE = 12;      // bits after the point in the arithmetic of sharpening
    static constexpr int MAX = 255;
};
template <> struct samples_of<uint16_t> {
    typedef uint32_t sum_type;
    typedef uint32_t cell_type;
    static constexpr int COARSE = 32, FILTERED = 28, ONE = 4, MAX = 65535;
};
template <> struct samples_of<float> {
    typedef double sum_type;
    typedef float cell_type;
    static constexpr int COARSE = 0, FILTERED = 0, ONE = 0, MAX = 0;
};

// The cells of a plane.
template <typename Sample> struct grid {
    int coarse_width, coarse_height, width, height;
    typename samples_of<Sample>::cell_type *coarse, *filtered;
    uint32_t *columns; // float32 if samples are
};

template <typename Sample>
__device__ static inline struct grid<Sample> find_grid(const struct decimated_filter &f,
                                                       const struct conv_stencil_plane &plane) {
    struct grid<Sample> grid;
    typedef typename samples_of<Sample>::cell_type cell_type;
    grid.width = (plane.width - 1) / f.step + 4;
    grid.height = (plane.height - 1) / f.step + 4;
    grid.coarse_width = grid.width + 2 * f.radius;
    grid.coarse_height = grid.height + 2 * f.radius;
    uint32_t *cells =
        (uint32_t *)(f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN);
    grid.coarse = (cell_type *)cells;
    grid.columns = cells + (size_t)grid.coarse_width * grid.coarse_height;
    grid.filtered = (cell_type *)(grid.columns + (size_t)grid.coarse_width * grid.height);
    return grid;
}

__device__ static inline uint4
as_uint4(const uint32_t *values)
{
    return make_uint4(values[0], values[1], values[2], values[3]);
}

template <typename Word>
__device__ static inline bool has_words(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % sizeof(Word) == 0;
}

// --- reduce --------------------------------------------------------------------------------------

// A thread has 8 bytes of a row: 8, 4 or 2 columns.
template <typename Sample> struct reduction {
    static constexpr int COLUMNS = sizeof(uint2) / sizeof(Sample), THREADS_X = SPAN / COLUMNS;
};

// What a block reduces: rows from `top` on, and a thread's columns.
template <typename Sample> struct reduced_tile {
    int top, rows, x;
    bool whole;         // the columns are in the plane, and aligned
    const uint8_t *row; // then these: in row 0 of the plane, or of the next row to ask for
    int from[reduction<Sample>::COLUMNS]; // else, the columns that the border stands for
};

#define SLOW_ROWS 4 // of single samples, loaded at once: their latency counts once

// Loads rows `first` to `last` of single samples.
template <typename Sample>
__device__ static inline void load_samples(uint2 (*ring)[reduction<Sample>::THREADS_X], int first,
                                           int last, const struct reduced_tile<Sample> &tile,
                                           const struct conv_stencil_plane &plane,
                                           const struct decimated_filter &f)
{
    constexpr int COLUMNS = reduction<Sample>::COLUMNS;
    Sample loaded[SLOW_ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < SLOW_ROWS; r++) {
        int y = conv_border_index((enum conv_border)f.border, tile.top + min(first + r, last),
                                  plane.height);
        const Sample *row = (const Sample *)(plane.src + max(y, 0) * plane.src_stride);
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            bool inside = y >= 0 && tile.from[k] >= 0;
            loaded[r][k] = inside ? row[tile.from[k]] : (Sample)f.border_value;
        }
    }
    for (int r = 0; r < SLOW_ROWS && first + r <= last; r++)
#pragma unroll
        for (int k = 0; k < COLUMNS; k++)
            ((Sample *)&ring[(first + r) & (AHEAD - 1)][threadIdx.x])[k] = loaded[r][k];
}

// Asks for row r, into a part of the ring that only this thread reads.
template <typename Sample, bool INSIDE>
__device__ static inline void
fetch_row(uint2 (*ring)[reduction<Sample>::THREADS_X], int r, struct reduced_tile<Sample> &tile,
          const struct conv_stencil_plane &plane, const struct decimated_filter &f)
{
    uint2 *to = &ring[r & (AHEAD - 1)][threadIdx.x];
    if (INSIDE) {
        if (r < tile.rows)
            __pipeline_memcpy_async(to, tile.row, sizeof *to);
        tile.row += plane.src_stride;
    } else if (tile.whole) {
        int y = conv_border_index((enum conv_border)f.border, tile.top + r, plane.height);
        if (r < tile.rows)
            __pipeline_memcpy_async(to, tile.row + y * plane.src_stride, sizeof *to);
    } else if (r % SLOW_ROWS == SLOW_ROWS - 1 && r - SLOW_ROWS + 1 < tile.rows) {
        load_samples<Sample>(ring, r - SLOW_ROWS + 1, min(r, tile.rows - 1), tile, plane, f);
    }
    __pipeline_commit();
}

// Adds rows i and i + 1 after coarse row m to the sums of m - 1 to m + 2: `weights` has theirs for
// each of the four, of row i + 1 in the upper half. 8 columns: bytes of both rows are joined in
// pairs. Up to 24 bits.
__device__ static inline void add_rows(uint32_t (*sums)[8], const uint32_t *weights, uint2 row,
                                       uint2 next, bool)
{
    const uint32_t a[2] = {row.x, row.y}, b[2] = {next.x, next.y};
#pragma unroll
    for (int c = 0; c < 8; c += 4) {
        uint32_t low = __byte_perm(a[c / 4], b[c / 4], 0x5140);
        uint32_t high = __byte_perm(a[c / 4], b[c / 4], 0x7362);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sums[k][c] = __dp2a_lo(weights[k], low, sums[k][c]);
            sums[k][c + 1] = __dp2a_hi(weights[k], low, sums[k][c + 1]);
            sums[k][c + 2] = __dp2a_lo(weights[k], high, sums[k][c + 2]);
            sums[k][c + 3] = __dp2a_hi(weights[k], high, sums[k][c + 3]);
        }
    }
}

// 4 columns of 16 bits. Up to 32 bits.
__device__ static inline void add_rows(uint32_t (*sums)[4], const uint32_t *weights, uint2 row,
                                       uint2 next, bool)
{
    const uint32_t a[4] = {row.x & 0xffff, row.x >> 16, row.y & 0xffff, row.y >> 16};
    const uint32_t b[4] = {next.x & 0xffff, next.x >> 16, next.y & 0xffff, next.y >> 16};
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            sums[k][c] += (weights[k] & 0xffff) * a[c] + (weights[k] >> 16) * b[c];
}

// 2 columns of float32. A row that does not count must not, whatever is in it.
__device__ static inline void add_rows(double (*sums)[2], const uint32_t *weights, uint2 row,
                                       uint2 next, bool has_next)
{
    const double a[2] = {(double)__uint_as_float(row.x), (double)__uint_as_float(row.y)};
    const double b[2] = {(double)__uint_as_float(next.x), (double)__uint_as_float(next.y)};
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int c = 0; c < 2; c++) { // exact products
            sums[k][c] = fma((double)(weights[k] & 0xffff), a[c], sums[k][c]);
            if (has_next)
                sums[k][c] = fma((double)(weights[k] >> 16), b[c], sums[k][c]);
        }
}

__device__ static inline uint32_t cell_of(uint32_t sum)
{
    return sum;
}

__device__ static inline uint32_t cell_of(double sum)
{
    return __float_as_uint(__double2float_rn(sum * 0x1p-16));
}

// Coarse samples from a row of sums, of which number q + 2 is the first after coarse sample q of
// these, by place after it: lines of `pitch`.
__device__ static inline void reduce_floats(float *to, const uint32_t *lines, int pitch,
                                            const uint4 *weights, int step, int count)
{
    for (int at = (int)threadIdx.x; at < count; at += reduction<float>::THREADS_X) {
        double sum = 0;
        for (int k = 3; k >= 0; k--)
            for (int i = 0; i < step; i++)
                sum = fma((double)((const uint32_t *)&weights[i])[k],
                          (double)__uint_as_float(lines[at + i * pitch + 3 - k]), sum);
        to[at] = __double2float_rn(sum * 0x1p-16);
    }
}

// The same of integers. `parts` threads add up two neighbours.
template <typename Sample>
__device__ static inline void reduce_row(typename samples_of<Sample>::cell_type *to,
                                         const uint32_t *lines, int pitch, const uint4 *weights,
                                         int step, int parts, int count)
{
    constexpr int SHIFT = samples_of<Sample>::COARSE, THREADS_X = reduction<Sample>::THREADS_X;
    typedef typename samples_of<Sample>::cell_type cell_type;
    int part = (int)threadIdx.x & (parts - 1);
    for (int base = 0; base < count; base += 2 * THREADS_X / parts) {
        int at = base + 2 * ((int)threadIdx.x / parts);
        const uint32_t *from = lines + min(at, count - 1) + part * pitch;
        uint64_t sum = part == 0 ? 1ull << (SHIFT - 1) : 0, next = sum;
        for (int i = part; i < step; i += parts, from += parts * pitch) {
            const uint4 weight = weights[i];
            uint32_t near[5];
#pragma unroll
            for (int q = 0; q < 5; q++)
                near[q] = from[q];
            sum += (uint64_t)weight.x * near[3], next += (uint64_t)weight.x * near[4];
            sum += (uint64_t)weight.y * near[2], next += (uint64_t)weight.y * near[3];
            sum += (uint64_t)weight.z * near[1], next += (uint64_t)weight.z * near[2];
            sum += (uint64_t)weight.w * near[0], next += (uint64_t)weight.w * near[1];
        }
        for (int lanes = 1; lanes < parts; lanes *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
            next += __shfl_xor_sync(0xffffffffu, next, lanes);
        }
        if (part == 0 && at < count)
            to[at] = (cell_type)(sum >> SHIFT);
        if (part == 0 && at + 1 < count)
            to[at + 1] = (cell_type)(next >> SHIFT);
    }
}

#define LINES (SPAN + MOST_STEP * 4) // sums of a row by place

template <typename Sample> struct reduce_shared {
    uint2 ring[AHEAD][reduction<Sample>::THREADS_X]; // rows that are under way
    uint32_t lines[2][LINES + 1]; // a row of sums, twice: one barrier per coarse row is enough
    uint4 weights[MOST_STEP], pairs[MOST_STEP / 2]; // pairs: of rows i and i + 1
};

// Coarse samples from `to` on, `count` in a row.
template <typename Sample, bool INSIDE>
__device__ static inline void
reduce_tile(struct reduce_shared<Sample> &shared, struct reduced_tile<Sample> tile,
            typename samples_of<Sample>::cell_type *to, int count, int pitch, int begin,
            const struct conv_stencil_plane &plane, int64_t coarse_width,
            const struct decimated_filter &f)
{
    constexpr int COLUMNS = reduction<Sample>::COLUMNS;
    int step = f.step, place[COLUMNS]; // of a column's sum in `lines`: the last if it has no use
    typename samples_of<Sample>::sum_type sums[4][COLUMNS] = {};
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        int after = tile.x + k - begin, q = after / step;
        place[k] = after < 0 || q >= pitch ? LINES : after % step * pitch + q;
    }
    for (int r = 0; r < AHEAD; r++)
        fetch_row<Sample, INSIDE>(shared.ring, r, tile, plane, f);
    for (int r = 0, done = -3; r < tile.rows; done++) {
        for (int i = 0; i < step; i += 2) {
            __pipeline_wait_prior(AHEAD - 2);
            bool has_next = i + 1 < step; // not of the last row of an odd step
            uint2 row = shared.ring[r & (AHEAD - 1)][threadIdx.x], next = row;
            if (has_next)
                next = shared.ring[(r + 1) & (AHEAD - 1)][threadIdx.x];
            const uint4 pair = shared.pairs[i / 2];
            const uint32_t of_pair[4] = {pair.x, pair.y, pair.z, pair.w};
            fetch_row<Sample, INSIDE>(shared.ring, r++ + AHEAD, tile, plane, f);
            if (has_next)
                fetch_row<Sample, INSIDE>(shared.ring, r++ + AHEAD, tile, plane, f);
            add_rows(sums, of_pair, row, next, has_next);
        }
        if (done >= 0) { // all rows of the first of the four coarse rows
            uint32_t *lines = shared.lines[done & 1];
#pragma unroll
            for (int k = 0; k < COLUMNS; k++)
                lines[place[k]] = cell_of(sums[0][k]);
            __syncthreads(); // a coarse sample needs sums of other threads
            if constexpr (sizeof(Sample) == 4)
                reduce_floats(to, lines, pitch, shared.weights, step, count);
            else
                reduce_row<Sample>(to, lines, pitch, shared.weights, step, f.parts, count);
            to += coarse_width;
        }
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            sums[0][k] = sums[1][k];
            sums[1][k] = sums[2][k];
            sums[2][k] = sums[3][k];
            sums[3][k] = 0;
        }
    }
    __pipeline_wait_prior(0); // the next tile writes to the ring
    __syncthreads();          // and to the sums
}

// 512 columns of pixels, of which block_columns coarse samples can be computed, and block_rows
// coarse rows. Shared: 14 to 39 KB.
template <typename Sample>
static __global__ void __launch_bounds__(reduction<Sample>::THREADS_X,
                                         640 / reduction<Sample>::THREADS_X)
    reduce(const __grid_constant__ struct decimated_filter f)
{
    constexpr int COLUMNS = reduction<Sample>::COLUMNS;
    typedef struct reduce_shared<Sample> shared_type;
    __shared__ shared_type memory[1];
    shared_type &shared = memory[0];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    int across = (grid.coarse_width - 1) / f.block_columns + 1;
    int tiles = across * ((grid.coarse_height - 1) / f.block_rows + 1);
    int step = f.step, pitch = f.block_columns + 4;
    if (threadIdx.x < MOST_STEP)
        shared.weights[threadIdx.x] = as_uint4(f.down[threadIdx.x]);
    if (threadIdx.x < MOST_STEP / 2) {
        uint4 row = as_uint4(f.down[2 * threadIdx.x]), next = as_uint4(f.down[2 * threadIdx.x + 1]);
        shared.pairs[threadIdx.x] = make_uint4(row.x | next.x << 16, row.y | next.y << 16,
                                               row.z | next.z << 16, row.w | next.w << 16);
    }
    __syncthreads(); // weights of other threads
    bool aligned = has_words<uint2>(plane.src, plane.src_stride);
    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        int column = t % across * f.block_columns, line = t / across * f.block_rows;
        int begin = (column - 3 - f.radius) * step; // the first column of pixels
        int left = begin & ~(COLUMNS - 1), count = min(f.block_columns, grid.coarse_width - column);
        struct reduced_tile<Sample> tile;
        tile.top = (line - 3 - f.radius) * step;
        tile.rows = (min(f.block_rows, grid.coarse_height - line) + 3) * step;
        tile.x = left + (int)threadIdx.x * COLUMNS;
        tile.row = plane.src + tile.x * (int)sizeof(Sample);
        bool rows_inside = tile.top >= 0 && tile.top + tile.rows <= plane.height;
        auto *to = grid.coarse + column + (int64_t)line * grid.coarse_width;
        if (aligned && rows_inside && left >= 0 && left + SPAN <= plane.width) {
            tile.row += tile.top * plane.src_stride;
            reduce_tile<Sample, true>(shared, tile, to, count, pitch, begin, plane,
                                      grid.coarse_width, f);
            continue;
        }
        tile.whole = aligned && tile.x >= 0 && tile.x + COLUMNS <= plane.width &&
                     (rows_inside || f.border != CONV_BORDER_CONSTANT);
        for (int k = 0; k < COLUMNS; k++)
            tile.from[k] = conv_border_index((enum conv_border)f.border, tile.x + k, plane.width);
        reduce_tile<Sample, false>(shared, tile, to, count, pitch, begin, plane, grid.coarse_width,
                                   f);
    }
}

#endif
