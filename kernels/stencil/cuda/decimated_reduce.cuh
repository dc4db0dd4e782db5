// SPDX-License-Identifier: MIT
// The first kernel of large Gaussians, from an image of integers to its coarse image. It uses
// tensor cores, in bytes: weights have two, samples one or two, sums of a row three or four. A warp
// has a strip of 16 coarse columns and walks down, 32 rows of pixels at a time. No lane needs a
// value of another lane:
//
//   first product    A: weights of 16 coarse columns, of 32 pixels each. B: these pixels of 8 rows,
//                    as they lie in memory.
//   second product   A: weights of 16 coarse rows, of 32 rows of pixels each. B: bytes of the sums
//                    of 8 coarse columns; a lane holds those that it has from the first product.
//
// The order of pixels and rows is free as long as that of weights is the same. 16 coarse rows are
// more than those that 32 rows of pixels belong to: each has the place (m + 1) % 16 until it is
// complete. As a coarse sample depends on pixels (m - 2) * step + 1 and after, strips begin at m =
// 2 and multiples of 16 from there: their pixels then begin at a multiple of 16.
#pragma once

#include "kernels/stencil/cuda/decimated_load.cuh"

#define BARRIER_BYTES 64 // of shared memory
#define SEAM_ROWS 3      // coarse rows with pixels above and below a seam
#define STRIP_SUMS(sample) (8 * bytes_of<sample>::PARTS)      // of a lane
#define REDUCING_BLOCKS(sample) (sizeof(sample) == 1 ? 2 : 1) // of a processor

// What differs by the type of samples, in bytes.
template <typename Sample> struct bytes_of {
    static constexpr int COUNT = sizeof(Sample);
    static constexpr int SAMPLES = 16 / COUNT;  // of a lane; of half a segment 8
    static constexpr int PRODUCTS = 2 / COUNT;  // of a segment
    static constexpr int ROW_SUM = COUNT + 2;   // of a sum over a row
    static constexpr int ROW_PARTS = COUNT + 1; // of its parts, each 2^8 times the one before
    static constexpr int PARTS = COUNT + 3;     // of a coarse sample
};

// sum += A * B.
__device__ static inline void multiply_bytes(int32_t (&sum)[4], const uint4 &a, uint32_t b0,
                                             uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(sum[0]), "r"(sum[1]),
          "r"(sum[2]), "r"(sum[3]));
#else
    // Turing multiplies a quarter of that at a time; its registers hold the same elements.
    const uint32_t rows[2][2] = {{a.x, a.z}, {a.y, a.w}}, words[2] = {b0, b1};
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                : "=r"(sum[2 * r]), "=r"(sum[2 * r + 1])
                : "r"(rows[r][k]), "r"(words[k]), "r"(sum[2 * r]), "r"(sum[2 * r + 1]));
#endif
}

__host__ __device__ static inline int floor_div(int a, int b)
{
    return a / b - (a % b < 0);
}

// --- products ------------------------------------------------------------------------------------

// Adds the products of groups of 8 rows and a segment, or half of it, to sums over rows.
template <typename Sample, int GROUPS>
__device__ static inline void add_segment(int32_t (*sums)[bytes_of<Sample>::ROW_PARTS][4],
                                          const uint4 (&rows)[GROUPS], const uint4 *table,
                                          bool half = false)
{
    typedef struct bytes_of<Sample> bytes;
#pragma unroll
    for (int p = 0; p < bytes::PRODUCTS; p++) {
        if (p > 0 && half)
            continue;
#pragma unroll
        for (int digit = 0; digit < 2; digit++) {
            uint4 weights = table[p * TABLE_CELLS + digit * WARP];
#pragma unroll
            for (int q = 0; q < GROUPS; q++) {
                if (bytes::COUNT == 1) {
                    multiply_bytes(sums[q][digit], weights, p ? rows[q].z : rows[q].x,
                                   p ? rows[q].w : rows[q].y);
                } else {
#pragma unroll
                    for (int b = 0; b < 2; b++)
                        multiply_bytes(sums[q][digit + b], weights,
                                       __byte_perm(rows[q].x, rows[q].y, b ? 0x7531 : 0x6420),
                                       __byte_perm(rows[q].z, rows[q].w, b ? 0x7531 : 0x6420));
                }
            }
        }
    }
}

// bytes[b] has byte b of each of four values.
template <int BYTES>
__device__ static inline void transpose_bytes(uint32_t *bytes, const uint32_t (&values)[4])
{
    uint32_t low[2], high[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        low[k] = __byte_perm(values[2 * k], values[2 * k + 1], 0x5140);
        high[k] = __byte_perm(values[2 * k], values[2 * k + 1], 0x7362);
    }
    bytes[0] = __byte_perm(low[0], low[1], 0x5410);
    bytes[1] = __byte_perm(low[0], low[1], 0x7632);
    bytes[2] = __byte_perm(high[0], high[1], 0x5410);
    if (BYTES == 4)
        bytes[BYTES - 1] = __byte_perm(high[0], high[1], 0x7632);
}

// Half of B of the second product, from the sums of two groups of 8 rows: of both 8 columns.
template <typename Sample>
__device__ static inline void split_sums(uint32_t (*words)[bytes_of<Sample>::ROW_SUM],
                                         const int32_t (*row_sums)[bytes_of<Sample>::ROW_PARTS][4])
{
    typedef struct bytes_of<Sample> bytes;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        uint32_t values[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int32_t(*parts)[4] = row_sums[k / 2];
            values[k] = 0;
#pragma unroll
            for (int p = bytes::ROW_PARTS - 1; p >= 0; p--)
                values[k] = (values[k] << 8) + (uint32_t)parts[p][2 * n + k % 2];
        }
        transpose_bytes<bytes::ROW_SUM>(words[n], values);
    }
}

// Adds the second product of 32 rows to the sums of coarse rows.
template <typename Sample>
__device__ static inline void add_block(int32_t (*sums)[bytes_of<Sample>::PARTS][4],
                                        const uint32_t (*words)[2][bytes_of<Sample>::ROW_SUM],
                                        const uint4 *table)
{
#pragma unroll
    for (int digit = 0; digit < 2; digit++) {
        uint4 weights = table[digit * WARP];
#pragma unroll
        for (int b = 0; b < bytes_of<Sample>::ROW_SUM; b++)
#pragma unroll
            for (int n = 0; n < 2; n++)
                multiply_bytes(sums[n][digit + b], weights, words[0][n][b], words[1][n][b]);
    }
}

// --- a part --------------------------------------------------------------------------------------

// A warp's strip of a part. Where a block has few strips, several warps share each: they multiply
// different segments, and the first one gets all sums.
struct strip {
    int x, column, flip;       // of its first pixel, and its first coarse sample; see struct part
    int segment, last_segment; // those of the warp that coarse samples of the plane depend on
    int share, shares;         // of the warps of a strip; others only load
    int shift;                 // see struct part
};

// Stores the sums of those of the coarse rows after `done` up to `end` that have more pixels in the
// part above or below: six rows of each part.
template <typename Sample>
__device__ static inline void store_seams(const int32_t (*sums)[bytes_of<Sample>::PARTS][4],
                                          const struct part &part, const struct strip &s, int done,
                                          int end, const struct grid<Sample> &grid)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int m = done + 1 + ((lane / 4 + 8 * half - 2 - done) & (STRIP - 1));
        int row = m < part.first ? m - part.first : m - part.last - 1;
        if (m > end || row < -SEAM_ROWS || row >= SEAM_ROWS || (m >= part.first && row < 0))
            continue;
        uint64_t *to =
            grid.seams + (int64_t)((2 * part.row + 1) * SEAM_ROWS + row) * grid.coarse_width;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = s.column + ((8 * (i / 2) + lane % 4 * 2 + i % 2) ^ s.flip);
            uint64_t sum = 0;
#pragma unroll
            for (int p = bytes_of<Sample>::PARTS - 1; p >= 0; p--)
                sum = (sum << 8) + (uint32_t)sums[i / 2][p][2 * half + i % 2];
            if (column >= 0 && column < grid.coarse_width)
                to[column] = sum;
        }
    }
}

// Stores the coarse rows after `done` up to `end`, which are complete, and begins others in their
// place. A sum has 16 bits of weights twice, less 8 of 8-bit samples.
template <typename Sample>
__device__ static inline void
store_complete(int32_t (*sums)[bytes_of<Sample>::PARTS][4], const struct part &part,
               const struct strip &s, int done, int end, const struct grid<Sample> &grid, int pad)
{
    typedef struct bytes_of<Sample> bytes;
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int place = lane / 4 + 8 * half, first = (done + 2) & (STRIP - 1);
        if (first / 8 != half && ((8 * half - first) & (STRIP - 1)) >= end - done)
            continue; // for all lanes: none is complete
        int m = done + 1 + ((place - 2 - done) & (STRIP - 1));
        if (m > end)
            continue;
        bool stored = m >= part.first && m <= part.last;
        uint16_t *to =
            grid.coarse + (uint64_t)(uint32_t)(m + 1 + pad) * (uint32_t)grid.coarse_pitch;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int column = s.column + ((8 * n + lane % 4 * 2) ^ (s.flip & -2));
            uint32_t both[2] = {};
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int p = 0; p < bytes::PARTS; p++) {
                    int32_t *sum = &sums[n][p][2 * half + k];
                    both[k] = (both[k] >> 8) + (uint32_t)*sum + (p == bytes::PARTS - 2 ? 128 : 0);
                    *sum = 0;
                }
            // Even, as pad is odd. Rows are longer than their samples, to a multiple of 8.
            if (stored && column >= 0 && column < grid.coarse_width)
                *(uint32_t *)&to[column] = __byte_perm(both[0], both[1], s.flip ? 0x1054 : 0x5410);
        }
    }
}

// Rows of a strip and a stage from `from` on, times weights of coarse columns.
template <typename Sample, int GROUPS, enum borders BORDERS>
__device__ static inline void reduce_rows(int32_t (*row_sums)[bytes_of<Sample>::ROW_PARTS][4],
                                          const uint8_t *from, const struct strip &s,
                                          const uint4 *tables, const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    int lane = (int)threadIdx.x % WARP;
    for (int i = s.segment; i <= s.last_segment; i++) {
        bool half = bytes::COUNT == 1 && i == f.half_segment;
        uint4 rows[GROUPS];
#pragma unroll
        for (int q = 0; q < GROUPS; q++) {
            const uint8_t *row = from + 8 * q * f.pitch + i * SEGMENT - (half ? lane % 4 * 8 : 0);
            if (BORDERS == MIRRORED && s.shift)
                load_any<4>(&rows[q].x, row);
            else if (half)
                *(uint2 *)&rows[q] = *(const uint2 *)row;
            else
                rows[q] = *(const uint4 *)row;
        }
        add_segment<Sample>(row_sums, rows, tables + i * bytes::PRODUCTS * TABLE_CELLS + lane,
                            half);
    }
}

// Moves the sums of warps that share a strip to the first one. `shared` is 0 before and after.
template <typename Sample>
__device__ static inline void collect_sums(int32_t (*sums)[bytes_of<Sample>::PARTS][4],
                                           uint32_t (*shared)[WARP], const struct strip &s)
{
    int lane = (int)threadIdx.x % WARP;
    int32_t *own = &sums[0][0][0];
#pragma unroll
    for (int i = 0; i < STRIP_SUMS(Sample); i++)
        if (s.share > 0 && s.share < s.shares) {
            atomicAdd(&shared[i][lane], (uint32_t)own[i]);
            own[i] = 0;
        }
    __syncthreads(); // sums of other threads; they are read before the next ones are added
#pragma unroll
    for (int i = 0; i < STRIP_SUMS(Sample); i++)
        if (s.share == 0) {
            own[i] += (int32_t)shared[i][lane];
            shared[i][lane] = 0;
        }
}

// STAGES of GROUPS groups of 8 rows each make a second product.
template <typename Sample, int GROUPS, int STAGES, bool SHARES, enum borders BORDERS>
__device__ static inline void
reduce_part(const uint4 *tables, uint8_t *ring, uint32_t (*shared)[WARP], uint64_t *full,
            uint32_t *parities, const struct part &part, const struct strip &s,
            const struct conv_stencil_plane &plane, const struct grid<Sample> &grid,
            const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    constexpr int ROWS = 8 * GROUPS;
    int lane = (int)threadIdx.x % WARP, steps = f.block_rows / f.step, size = ROWS * f.pitch;
    int at = lane / 4 * f.pitch + (s.x - part.x) * bytes::COUNT + lane % 4 * 16;
    const uint4 *along = tables + f.segments * bytes::PRODUCTS * TABLE_CELLS;
    int32_t sums[2][bytes::PARTS][4] = {};
    int phase = floor_div(part.y, f.block_rows) % f.phases;
    phase += phase < 0 ? f.phases : 0;
    int done = floor_div(part.y, f.step), rest = part.y - done * f.step, end = done;
    int until = f.store_blocks, stage = 0, asked = f.stages - 1;
    bool fills = part.fills && !part.shift &&
                 (part.x < 0 || part.x + part.chunks * bytes::SAMPLES > plane.width);
    for (int y = part.y; y < part.end; y += f.block_rows) {
        int32_t row_sums[ROW_GROUPS][bytes::ROW_PARTS][4] = {};
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            bool bulk = part.bytes && y + k * ROWS < part.end;
            wait_for(&full[stage], *parities >> stage & 1, bulk, f.stages);
            *parities ^= (uint32_t)bulk << stage;
            if (fills && !bulk)
                __syncthreads(); // samples of other threads
            if (fills)
                fill_outside<Sample, ROWS, BORDERS>(ring + stage * size, part, plane.width, f);
            __syncthreads(); // samples of other threads; all have read those of the stage before
            ask<Sample, ROWS, BORDERS>(ring + asked * size, &full[asked],
                                       y + (k + f.stages - 1) * ROWS, part, plane, f);
            if (s.segment <= s.last_segment)
                reduce_rows<Sample, GROUPS, BORDERS>(row_sums + k * GROUPS,
                                                     ring + stage * size + at, s, tables, f);
            stage = stage == f.stages - 1 ? 0 : stage + 1;
            asked = asked == f.stages - 1 ? 0 : asked + 1;
        }
        uint32_t words[2][2][bytes::ROW_SUM] = {};
        split_sums<Sample>(words[0], row_sums);
        if (GROUPS * STAGES == ROW_GROUPS)
            split_sums<Sample>(words[1], row_sums + 2);
        add_block<Sample>(sums, words, along + phase * TABLE_CELLS + lane);
        phase = phase == f.phases - 1 ? 0 : phase + 1;
        end += steps;
        rest += f.block_rows - steps * f.step;
        if (rest >= f.step)
            rest -= f.step, end++;
        if (--until && y + f.block_rows < part.end)
            continue;
        if (SHARES)
            collect_sums<Sample>(sums, shared, s);
        // A row ends 2 steps after it.
        if (f.seams && (done - 2 < part.first || y + f.block_rows >= part.end))
            store_seams<Sample>(sums, part, s, done - 2, end - 2 + SEAM_ROWS, grid);
        store_complete<Sample>(sums, part, s, done - 2, end - 2, grid, f.pad);
        done = end;
        until = f.store_blocks;
    }
    __pipeline_wait_prior(0);
    __syncthreads(); // all have read the last stages
}

// Strips of an axis of coarse samples, of which the first is number -1 - pad, and the first strip.
__host__ __device__ static inline int first_strip(int pad)
{
    return floor_div(-1 - pad - 2, STRIP);
}

__host__ __device__ static inline int count_strips(int pad, int width)
{
    return floor_div(width - 2 - pad - 2, STRIP) - first_strip(pad) + 1;
}

// How many blocks have a row of strips, which are all left of the plane, partly in it, or all right
// of it. Sets the strips of block `at` if there is one.
__host__ __device__ static inline int divide_strips(int *strip, int *strips, int at, int width,
                                                    int coarse_width,
                                                    const struct decimated_filter &f)
{
    int begin = first_strip(f.pad), end = begin + count_strips(f.pad, coarse_width), blocks = 0;
    bool apart = f.border == CONV_BORDER_REFLECT || f.border == CONV_BORDER_REFLECT101;
    const int ends[3] = {apart ? -1 : begin,
                         apart ? min(end, (width - 2) / (STRIP * f.step) + 1) : end, end};
    for (int k = 0; k < 3; k++) {
        int all = ends[k] - begin, own = (all - 1 + f.strips) / f.strips, block = at - blocks;
        if (block >= 0 && block < own) {
            *strip = begin + all * block / own; // about as many in each block
            *strips = begin + all * (block + 1) / own - *strip;
        }
        blocks += own;
        begin = ends[k];
    }
    return blocks;
}

__host__ __device__ static inline int count_rows(const struct decimated_filter &f,
                                                 int coarse_height)
{
    return f.seams ? (coarse_height - f.pad) * f.step - f.first_row : coarse_height;
}

// Without seams, parts have the rows around them that their coarse rows depend on as well. With
// seams, which are at multiples of the step, the sums of coarse rows around them are in two parts.
__device__ static inline void place_rows(struct part *part, int coarse_height,
                                         const struct decimated_filter &f)
{
    int first = -1 - f.pad, last = coarse_height - 2 - f.pad;
    if (f.seams) {
        part->y = f.first_row + part->row * f.part_rows;
        part->end = min(part->y + f.part_rows, (last + 2) * f.step);
        part->first = max(part->y / f.step + 2, first);
        part->last = part->end / f.step - 2;
    } else {
        part->first = part->row * f.part_rows + first;
        part->last = min(part->first + f.part_rows - 1, last);
        part->y = floor_div((part->first - 2) * f.step + 1, f.block_rows) * f.block_rows;
        part->end = (part->last + 2) * f.step;
    }
}

// Adds the sums of coarse rows at seams.
template <typename Sample>
static __global__ void __launch_bounds__(THREADS)
    join_seams(const __grid_constant__ struct decimated_filter f)
{
    constexpr int SHIFT = 8 * (bytes_of<Sample>::PARTS - 1);
    const struct grid<Sample> grid = find_grid<Sample>(f, f.planes[blockIdx.y]);
    int width = grid.coarse_width, rows = (count_rows(f, grid.coarse_height) - 1) / f.part_rows;
    wait_for_earlier_kernel();
    start_next_kernel();
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < rows * SEAM_ROWS * width;
         i += (int)gridDim.x * THREADS) {
        int seam = i / width / SEAM_ROWS, row = i / width % SEAM_ROWS, column = i % width;
        const uint64_t *sums =
            grid.seams + (int64_t)((2 * seam + 1) * SEAM_ROWS + row) * width + column;
        int y = (f.first_row + (seam + 1) * f.part_rows) / f.step + row + f.pad;
        if (y < grid.coarse_height)
            grid.coarse[(int64_t)y * grid.coarse_pitch + column] =
                (uint16_t)((sums[0] + sums[SEAM_ROWS * width] + (1ull << (SHIFT - 1))) >> SHIFT);
    }
}

// Blocks have parts from left to right and from top to bottom, and each warp a strip of these, or,
// if it SHARES one, some of its segments.
// Shared: the tables, sums of strips and a ring of stages.
template <typename Sample, int GROUPS, int STAGES, enum borders BORDERS, bool SHARES = false>
static __global__ void __launch_bounds__(REDUCE_THREADS, REDUCING_BLOCKS(Sample))
    reduce_bytes(const __grid_constant__ struct decimated_filter f)
{
    extern __shared__ __align__(16) uint8_t memory[];
    typedef struct bytes_of<Sample> bytes;
    constexpr int ROWS = 8 * GROUPS;
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    uint64_t *full = (uint64_t *)memory;
    uint4 *tables = (uint4 *)(memory + BARRIER_BYTES);
    uint32_t(*shared)[WARP] =
        (uint32_t(*)[WARP])(tables + (f.segments * bytes::PRODUCTS + f.phases) * TABLE_CELLS);
    int shared_rows = SHARES ? f.strips * STRIP_SUMS(Sample) : 0;
    uint8_t *ring = (uint8_t *)(shared + shared_rows);
    int warp = (int)threadIdx.x / WARP, step = f.step;
    struct part part;
    int across = divide_strips(&part.strip, &part.strips, -1, plane.width, grid.coarse_width, f);
    int items = across * ((count_rows(f, grid.coarse_height) - 1) / f.part_rows + 1);
    for (int i = (int)threadIdx.x; i < shared_rows * WARP; i += REDUCE_THREADS)
        ((uint32_t *)shared)[i] = 0;
    uint32_t parities = 0; // of the stages
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        for (int k = 0; k < f.stages; k++)
            barrier_init(&full[k], REDUCE_THREADS / WARP);
        fence_for_bulk();
    }
    __syncthreads(); // barriers are initialised
#endif
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        divide_strips(&part.strip, &part.strips, item % across, plane.width, grid.coarse_width, f);
        part.row = item / across;
        place_rows(&part, grid.coarse_height, f);
        place_columns<Sample, BORDERS>(&part, plane, f);
        if (item == (int)blockIdx.x)
            ask_tables(tables, f.tables->reduce,
                       (f.segments * bytes::PRODUCTS + f.phases) * TABLE_CELLS);
        for (int k = 0; k < f.stages - 1; k++)
            ask<Sample, ROWS, BORDERS>(ring + k * ROWS * f.pitch, &full[k], part.y + k * ROWS, part,
                                       plane, f);
        if (item == (int)blockIdx.x)
            start_next_kernel();
        struct strip s;
        s.shares = SHARES ? REDUCE_THREADS / WARP / part.strips : 1;
        s.share = warp / part.strips;
        int strip = warp - s.share * part.strips;
        int place = (part.strip + strip) * STRIP + 2; // of the first column
        int left = max(-1 - f.pad - place, 0);
        int right = min(grid.coarse_width - 2 - f.pad - place, STRIP - 1);
        if (part.flip) {
            int last = STRIP - 1 - left;
            left = STRIP - 1 - right;
            right = last;
        }
        int first = (left * step + 1) * bytes::COUNT / SEGMENT;
        int segments = ((right + 4) * step - 1) * bytes::COUNT / SEGMENT + 1 - first;
        s.flip = part.flip;
        s.shift = part.shift;
        s.x = part.x + part.shift + (part.flip ? part.strips - 1 - strip : strip) * STRIP * step;
        s.column = s.share == 0 ? place + 1 + f.pad : grid.coarse_width;
        s.segment = first + segments * s.share / s.shares;
        s.last_segment = s.share < s.shares ? first + segments * (s.share + 1) / s.shares - 1 : -1;
        reduce_part<Sample, GROUPS, STAGES, SHARES, BORDERS>(
            tables, ring, shared + strip * STRIP_SUMS(Sample), full, &parities, part, s, plane,
            grid, f);
    }
}
