// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (decimated.cu): the kernels that make the coarse image, filter
// it and enlarge it. Sums are float64, added in the defined order, rows first, but last at the end.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_FLOATS_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_FLOATS_CUH

#include "kernels/stencil/cuda/decimated_reduce.cuh"

#define SPAN 512        // columns of pixels of a block
#define PIXEL_COLUMNS 2 // of a thread
#define PIXEL_THREADS (SPAN / PIXEL_COLUMNS)
#define AHEAD 16 // rows of samples that a block has asked for

// What a block reduces: rows from `top` on, and a thread's columns.
struct reduced_tile {
    int top, rows, x;
    bool whole;              // the columns are in the plane, and aligned
    const uint8_t *row;      // then these: in row 0 of the plane, or of the next row to ask for
    int from[PIXEL_COLUMNS]; // else, the columns that the border stands for
};

#define SLOW_ROWS 4 // of single samples, loaded at once: their latency counts once

// Loads rows `first` to `last` of single samples.
__device__ static inline void load_samples(uint2 (*ring)[PIXEL_THREADS], int first, int last,
                                           const struct reduced_tile &tile,
                                           const struct conv_stencil_plane &plane,
                                           const struct decimated_filter &f)
{
    float loaded[SLOW_ROWS][PIXEL_COLUMNS];
#pragma unroll
    for (int r = 0; r < SLOW_ROWS; r++) {
        int y = conv_border_index((enum conv_border)f.border, tile.top + min(first + r, last),
                                  plane.height);
        const float *row = (const float *)(plane.src + max(y, 0) * plane.src_stride);
#pragma unroll
        for (int k = 0; k < PIXEL_COLUMNS; k++) {
            bool inside = y >= 0 && tile.from[k] >= 0;
            loaded[r][k] = inside ? row[tile.from[k]] : f.border_value;
        }
    }
    for (int r = 0; r < SLOW_ROWS && first + r <= last; r++)
#pragma unroll
        for (int k = 0; k < PIXEL_COLUMNS; k++)
            ((float *)&ring[(first + r) & (AHEAD - 1)][threadIdx.x])[k] = loaded[r][k];
}

// Asks for row r, into a part of the ring that only this thread reads.
template <bool INSIDE>
__device__ static inline void
fetch_row(uint2 (*ring)[PIXEL_THREADS], int r, struct reduced_tile &tile,
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
        load_samples(ring, r - SLOW_ROWS + 1, min(r, tile.rows - 1), tile, plane, f);
    }
    __pipeline_commit();
}

// Adds rows i and i + 1 after coarse row m to the sums of m - 1 to m + 2: `weights` has theirs for
// each of the four, of row i + 1 in the upper half. A row that does not count must not, whatever is
// in it.
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

__device__ static inline uint32_t cell_of(double sum)
{
    return __float_as_uint(__double2float_rn(sum * 0x1p-16));
}

// Coarse samples from a row of sums, of which number q + 2 is the first after coarse sample q of
// these, by place after it: lines of `pitch`.
__device__ static inline void reduce_row(float *to, const uint32_t *lines, int pitch,
                                         const uint4 *weights, int step, int count)
{
    for (int at = (int)threadIdx.x; at < count; at += PIXEL_THREADS) {
        double sum = 0;
        for (int k = 3; k >= 0; k--)
            for (int i = 0; i < step; i++)
                sum = fma((double)((const uint32_t *)&weights[i])[k],
                          (double)__uint_as_float(lines[at + i * pitch + 3 - k]), sum);
        to[at] = __double2float_rn(sum * 0x1p-16);
    }
}

#define LINES (SPAN + MOST_STEP * 4) // sums of a row by place

struct reduce_shared {
    uint2 ring[AHEAD][PIXEL_THREADS]; // rows that are under way
    uint32_t lines[2][LINES];         // a row of sums, twice: one barrier per coarse row is enough
    uint4 weights[MOST_STEP], pairs[MOST_STEP / 2]; // pairs: of rows i and i + 1
};

// Coarse samples from `to` on, `count` in a row.
template <bool INSIDE>
__device__ static inline void reduce_tile(struct reduce_shared &shared, struct reduced_tile tile,
                                          float *to, int count, int pitch, int begin,
                                          const struct conv_stencil_plane &plane,
                                          int64_t coarse_width, const struct decimated_filter &f)
{
    int step = f.step,
        place[PIXEL_COLUMNS]; // of a column's sum in `lines`: LINES if it is not used
    double sums[4][PIXEL_COLUMNS] = {};
#pragma unroll
    for (int k = 0; k < PIXEL_COLUMNS; k++) {
        int after = tile.x + k - begin, q = after / step;
        place[k] = after < 0 || q >= pitch ? LINES : after % step * pitch + q;
    }
    for (int r = 0; r < AHEAD; r++)
        fetch_row<INSIDE>(shared.ring, r, tile, plane, f);
    for (int r = 0, done = -3; r < tile.rows; done++) {
        for (int i = 0; i < step; i += 2) {
            __pipeline_wait_prior(AHEAD - 2);
            bool has_next = i + 1 < step; // not of the last row of an odd step
            uint2 row = shared.ring[r & (AHEAD - 1)][threadIdx.x], next = row;
            if (has_next)
                next = shared.ring[(r + 1) & (AHEAD - 1)][threadIdx.x];
            const uint4 pair = shared.pairs[i / 2];
            const uint32_t of_pair[4] = {pair.x, pair.y, pair.z, pair.w};
            fetch_row<INSIDE>(shared.ring, r++ + AHEAD, tile, plane, f);
            if (has_next)
                fetch_row<INSIDE>(shared.ring, r++ + AHEAD, tile, plane, f);
            add_rows(sums, of_pair, row, next, has_next);
        }
        if (done >= 0) { // all rows of the first of the four coarse rows
            uint32_t *lines = shared.lines[done & 1];
#pragma unroll
            for (int k = 0; k < PIXEL_COLUMNS; k++)
                if (place[k] < LINES)
                    lines[place[k]] = cell_of(sums[0][k]);
            __syncthreads(); // a coarse sample needs sums of other threads
            reduce_row(to, lines, pitch, shared.weights, step, count);
            to += coarse_width;
        }
#pragma unroll
        for (int k = 0; k < PIXEL_COLUMNS; k++) {
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
static __global__ void __launch_bounds__(PIXEL_THREADS, 640 / PIXEL_THREADS)
    reduce_floats(const __grid_constant__ struct decimated_filter f)
{
    typedef struct reduce_shared shared_type;
    __shared__ shared_type memory[1];
    shared_type &shared = memory[0];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<float> grid = find_grid<float>(f, plane);
    int across = (grid.coarse_width - 1) / f.tile_columns + 1;
    int tiles = across * ((grid.coarse_height - 1) / f.tile_rows + 1);
    int step = f.step, pitch = f.tile_columns + 4;
    if (threadIdx.x < MOST_STEP)
        shared.weights[threadIdx.x] = as_uint4(f.down[threadIdx.x]);
    if (threadIdx.x < MOST_STEP / 2) {
        uint4 row = as_uint4(f.down[2 * threadIdx.x]), next = as_uint4(f.down[2 * threadIdx.x + 1]);
        shared.pairs[threadIdx.x] = make_uint4(row.x | next.x << 16, row.y | next.y << 16,
                                               row.z | next.z << 16, row.w | next.w << 16);
    }
    __syncthreads(); // weights of other threads
    start_next();
    bool aligned = has_words<uint2>(plane.src, plane.src_stride);
    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        int column = t % across * f.tile_columns, line = t / across * f.tile_rows;
        int begin = (column - 3 - f.pad) * step; // the first column of pixels
        int left = begin & ~(PIXEL_COLUMNS - 1),
            count = min(f.tile_columns, grid.coarse_width - column);
        struct reduced_tile tile;
        tile.top = (line - 3 - f.pad) * step;
        tile.rows = (min(f.tile_rows, grid.coarse_height - line) + 3) * step;
        tile.x = left + (int)threadIdx.x * PIXEL_COLUMNS;
        tile.row = plane.src + tile.x * (int)sizeof(float);
        bool rows_inside = tile.top >= 0 && tile.top + tile.rows <= plane.height;
        auto *to = grid.coarse + column + (int64_t)line * grid.coarse_width;
        if (aligned && rows_inside && left >= 0 && left + SPAN <= plane.width) {
            tile.row += tile.top * plane.src_stride;
            reduce_tile<true>(shared, tile, to, count, pitch, begin, plane, grid.coarse_width, f);
            continue;
        }
        tile.whole = aligned && tile.x >= 0 && tile.x + PIXEL_COLUMNS <= plane.width &&
                     (rows_inside || f.border != CONV_BORDER_CONSTANT);
        for (int k = 0; k < PIXEL_COLUMNS; k++)
            tile.from[k] = conv_border_index((enum conv_border)f.border, tile.x + k, plane.width);
        reduce_tile<false>(shared, tile, to, count, pitch, begin, plane, grid.coarse_width, f);
    }
}

// The coarse image filtered by columns, and the result by rows.
template <bool ACROSS>
static __global__ void __launch_bounds__(THREADS)
    filter_floats(const __grid_constant__ struct decimated_filter f)
{
    const struct grid<float> grid = find_grid<float>(f, f.planes[blockIdx.y]);
    int width = ACROSS ? grid.width : grid.coarse_width, pitch = grid.coarse_width;
    start_next();
    wait_for_cells();
    int64_t items = (int64_t)width * grid.height;
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < items;
         item += (int64_t)gridDim.x * THREADS) {
        int x = (int)(item % width);
        int64_t y = item / width;
        auto load = [&](int i) {
            if (ACROSS)
                return grid.columns[y * pitch + coarse_place(f, x + f.radius + i, pitch)];
            int row = coarse_place(f, (int)y + f.radius + i, grid.coarse_height);
            return grid.coarse[(int64_t)row * pitch + x];
        };
        double sum = (double)f.line[0] * (double)load(0);
        for (int i = 1; i <= f.radius; i++)
            sum = fma((double)f.line[i], (double)load(-i) + (double)load(i), sum);
        (ACROSS ? grid.filtered + y * grid.pitch : grid.columns + y * pitch)[x] =
            __double2float_rn(sum * 0x1p-16);
    }
}

// --- from a filtered coarse image to results -----------------------------------------------------
// A warp has 128 columns and walks down. It enlarges eight filtered rows to these columns at a
// time, and passes them through shared memory; then a thread has four columns of `step` rows of
// results from each four of these rows.

#define WARP_COLUMNS (WARP * ENLARGED)
#define BATCH 8        // filtered rows that are enlarged at a time
#define FLOAT_BLOCKS 4 // of a processor
#define FLOATS_AHEAD 8 // rows of samples that a warp has asked for

template <bool SHARPENS> struct float_rows {
    uint4 up[MOST_STEP];
    float rows[THREADS / WARP][BATCH][WARP_COLUMNS];
    float4 ring[SHARPENS ? FLOATS_AHEAD : 1][THREADS];
};

template <bool SHARPENS>
__device__ static inline void enlarge_batch(struct float_rows<SHARPENS> &shared,
                                            const struct grid<float> &grid, int first, int x,
                                            int width, const struct decimated_filter &f)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int k = 0; k < ENLARGED; k++) {
        int at = min(x + lane * ENLARGED + k, width - 1);
        uint4 u = shared.up[at % f.step];
        const double weights[4] = {(double)u.x, (double)u.y, (double)u.z, (double)u.w};
        const float *cells = grid.filtered + at / f.step;
#pragma unroll
        for (int r = 0; r < BATCH; r++) {
            const float *row = cells + (int64_t)min(first + r, grid.height - 1) * grid.pitch;
            double sum = 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum = fma(weights[i], (double)row[i], sum);
            shared.rows[warp][r][lane * ENLARGED + k] = __double2float_rn(sum * 0x1p-10);
        }
    }
}

template <bool SHARPENS>
__device__ static inline float finish_float(double sum, float sample,
                                            const struct decimated_filter &f)
{
    float blurred = __double2float_rn(sum * 0x1p-10);
    if (!SHARPENS)
        return blurred;
    double off = (double)__double2float_rn((double)sample - (double)blurred);
    double change = (double)f.amount * off;
    if (fabs(change) < (double)f.keep_floats * CONV_DECIMATED_AMOUNT)
        return sample;
    return __double2float_rn(((double)sample * CONV_DECIMATED_AMOUNT + change) /
                             CONV_DECIMATED_AMOUNT);
}

// One row of a thread's four columns, from four rows of which `first` is the upper one.
template <bool SHARPENS>
__device__ static inline float4 finish_floats(const float4 (&rows)[4], int first, const uint4 &u,
                                              const float4 &source,
                                              const struct decimated_filter &f)
{
    const uint32_t up[4] = {u.x, u.y, u.z, u.w};
    const float samples[ENLARGED] = {source.x, source.y, source.z, source.w};
    double sums[ENLARGED] = {};
    float results[ENLARGED];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const float4 &row = rows[(first + t) & 3];
        const float values[ENLARGED] = {row.x, row.y, row.z, row.w};
#pragma unroll
        for (int k = 0; k < ENLARGED; k++)
            sums[k] = fma((double)up[t], (double)values[k], sums[k]);
    }
#pragma unroll
    for (int k = 0; k < ENLARGED; k++)
        results[k] = finish_float<SHARPENS>(sums[k], samples[k], f);
    return make_float4(results[0], results[1], results[2], results[3]);
}

// A thread's columns in the source, which it asks for ahead, and in the result.
struct float_columns {
    const uint8_t *src, *next; // of the row to finish, and of the next to ask for
    uint8_t *dst;
    int count;        // 0 to 4
    bool asks, whole; // four samples of the source may be read, of the result stored
};

// Asks for row y, into a part of the ring that only this thread reads. WHOLE: all four columns are
// in the plane and may be read and stored at once.
template <bool WHOLE>
__device__ static inline void ask_floats(float4 (*ring)[THREADS], int y, int end,
                                         struct float_columns &c,
                                         const struct conv_stencil_plane &plane)
{
    if (y < end && (WHOLE || c.asks))
        __pipeline_memcpy_async(&ring[y % FLOATS_AHEAD][threadIdx.x], c.next, sizeof(float4));
    c.next += plane.src_stride;
    __pipeline_commit();
}

template <bool WHOLE>
__device__ static inline float4 take_floats(float4 (*ring)[THREADS], int y, int end,
                                            struct float_columns &c,
                                            const struct conv_stencil_plane &plane)
{
    __pipeline_wait_prior(FLOATS_AHEAD - 1);
    float4 result = ring[y % FLOATS_AHEAD][threadIdx.x];
    for (int k = 0; !WHOLE && !c.asks && k < c.count; k++)
        ((float *)&result)[k] = ((const float *)c.src)[k];
    c.src += plane.src_stride;
    ask_floats<WHOLE>(ring, y + FLOATS_AHEAD, end, c, plane);
    return result;
}

template <bool WHOLE>
__device__ static inline void store_floats(struct float_columns &c, const float4 &results,
                                           const struct conv_stencil_plane &plane)
{
    if (WHOLE || c.whole)
        *(float4 *)c.dst = results;
    else
        for (int k = 0; k < c.count; k++)
            ((float *)c.dst)[k] = ((const float *)&results)[k];
    c.dst += plane.dst_stride;
}

// Rows y to end - 1 of a warp, of which the first is that of the first of four filtered rows.
template <bool SHARPENS, bool WHOLE>
__device__ static inline void
enlarge_rows(struct float_rows<SHARPENS> &shared, int x, int y, int end, struct float_columns c,
             const struct conv_stencil_plane &plane, const struct grid<float> &grid,
             const struct decimated_filter &f)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int first = y / f.step, count = (end - 1) / f.step - first + 4; // filtered rows
    float4 rows[4];
    for (int r = 0; SHARPENS && r < FLOATS_AHEAD; r++)
        ask_floats<WHOLE>(shared.ring, y + r, end, c, plane);
    for (int begin = 0; begin < count; begin += BATCH) {
        __syncwarp(); // the lanes have read the batch before
        enlarge_batch(shared, grid, first + begin, x, plane.width, f);
        __syncwarp(); // rows of other lanes
        for (int half = 0; half < BATCH; half += 4) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                rows[k] = *(const float4 *)&shared.rows[warp][half + k][lane * ENLARGED];
                int stop = begin + half + k < 3 ? y : min(end, y + f.step);
                for (const uint4 *up = shared.up; y < stop; y++, up++) {
                    float4 source = {};
                    if (SHARPENS)
                        source = take_floats<WHOLE>(shared.ring, y, end, c, plane);
                    store_floats<WHOLE>(c, finish_floats<SHARPENS>(rows, k + 1, *up, source, f),
                                        plane);
                }
            }
        }
    }
    if (SHARPENS)
        __pipeline_wait_prior(0);
}

// Warps have strips of columns from left to right, and enlarged_rows coarse rows of these.
template <bool SHARPENS>
static __global__ void __launch_bounds__(THREADS, FLOAT_BLOCKS)
    enlarge_floats(const __grid_constant__ struct decimated_filter f)
{
    typedef struct float_rows<SHARPENS> shared_type;
    __shared__ shared_type memory[1];
    shared_type &shared = memory[0];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<float> grid = find_grid<float>(f, plane);
    int across = (plane.width - 1) / WARP_COLUMNS + 1, steps = grid.height - 3;
    int items = across * ((steps - 1) / f.enlarged_rows + 1);
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    bool words = has_words<float4>(plane.dst, plane.dst_stride);
    bool samples = has_words<float4>(plane.src, plane.src_stride); // to be read up to that
    if (threadIdx.x < MOST_STEP)
        shared.up[threadIdx.x] = as_uint4(f.up[threadIdx.x]);
    __syncthreads(); // weights of other threads
    wait_for_cells();
    for (int item = (int)blockIdx.x * (THREADS / WARP) + warp; item < items;
         item += (int)gridDim.x * (THREADS / WARP)) {
        int left = item % across * WARP_COLUMNS, x = left + lane * ENLARGED;
        int first = item / across * f.enlarged_rows, last = min(first + f.enlarged_rows, steps);
        int y = first * f.step, end = min(last * f.step, plane.height);
        struct float_columns c;
        c.count = min(max(plane.width - x, 0), ENLARGED);
        c.whole = words && c.count == ENLARGED;
        c.asks = samples && c.count > 0;
        c.src = c.next = plane.src + y * plane.src_stride + x * (int)sizeof(float);
        c.dst = plane.dst + y * plane.dst_stride + x * (int)sizeof(float);
        if (words && (!SHARPENS || samples) && left + WARP_COLUMNS <= plane.width)
            enlarge_rows<SHARPENS, true>(shared, left, y, end, c, plane, grid, f);
        else
            enlarge_rows<SHARPENS, false>(shared, left, y, end, c, plane, grid, f);
    }
}

#endif
