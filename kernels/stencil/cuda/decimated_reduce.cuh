// SPDX-License-Identifier: MIT
// What the kernels of large Gaussians share (decimated.cu), and the first of them, from an image of
// integers to its coarse image. It uses tensor cores, in bytes: weights have two, samples one or
// two, sums of a row three or four. A warp has a strip of 16 coarse columns and walks down, 32 rows
// of pixels at a time. No lane needs a value of another lane:
//
//   first product    A: weights of 16 coarse columns, of 32 pixels each. B: these pixels of 8 rows,
//                    as they lie in memory.
//   second product   A: weights of 16 coarse rows, of 32 rows of pixels each. B: bytes of the sums
//                    of 8 coarse columns; a lane holds those that it has from the first product.
//
// The order of pixels and rows is free as long as that of weights is the same. 16 coarse rows are
// more than those that 32 rows of pixels belong to: each has the place (m - 2) % 16 until it is
// complete. As a coarse sample depends on pixels (m - 2) * step + 1 and after, strips begin at m =
// 2 and multiples of 16 from there: their pixels then begin at a multiple of 16.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_REDUCE_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_REDUCE_CUH

#include <type_traits>

#include <cuda_pipeline.h>

#include "kernels/common/bulk.cuh"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define THREADS 128 // of a block, but of those that reduce
#define ENLARGED 4  // columns of a thread that enlarges
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
#define MOST_PHASES 4 // tables of weights of 16 columns
#define MOST_PARTS 2

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    // Coarse samples are computed from -1 - pad on, and as many after the last filtered sample.
    // Where the border repeats pixels, those further out are equal to the last one; else pad is
    // radius.
    int32_t pad;
    int32_t segments, phases, block_rows, store_blocks, strip_rows; // see reduce_bytes
    int32_t half_segment;                     // that of which 32 bytes are used; -1: there is none
    int32_t enlarged_rows;                    // tiles of a warp
    int32_t filter_rows;                      // of a warp that filters integers
    int32_t up_phases, up_parts, down_phases; // its tables: see write_up
    int32_t amount, shifted_amount;           // the latter times 2^32 / 2^23, for 8 bits
    int64_t keep_below;
    uint32_t down[MOST_STEP][4], up[MOST_STEP][4];
    uint16_t halves[MOST_STEP][4]; // of `up`, as half-precision numbers
    uint32_t line[MOST_RADIUS + 1];
};
static_assert(sizeof(struct decimated_filter) <= 4096, "kernel parameters end at 4 KB");

// What differs by the type of samples.
template <typename Sample> struct samples_of;
template <> struct samples_of<uint8_t> {
    typedef uint16_t coarse_type, filtered_type;
    static constexpr int FILTERED = 12; // bits of a filtered sample
    static constexpr int ONE = 12;      // bits after the point in the arithmetic of sharpening
};
template <> struct samples_of<uint16_t> {
    typedef uint16_t coarse_type;
    typedef uint32_t filtered_type;
    static constexpr int FILTERED = 20, ONE = 4;
};

// The cells of a plane.
template <typename Sample> struct grid {
    int coarse_width, coarse_height, width, height;
    int coarse_pitch, pitch; // of rows: a multiple of 8, and even
    typename samples_of<Sample>::coarse_type *coarse;
    typename samples_of<Sample>::filtered_type *filtered;
};

template <typename Sample>
__device__ static inline struct grid<Sample> find_grid(const struct decimated_filter &f,
                                                       const struct conv_stencil_plane &plane) {
    struct grid<Sample> grid;
    grid.width = (plane.width - 1) / f.step + 4;
    grid.height = (plane.height - 1) / f.step + 4;
    grid.coarse_width = grid.width + 2 * f.pad;
    grid.coarse_height = grid.height + 2 * f.pad;
    grid.coarse_pitch = (grid.coarse_width + 7) / 8 * 8;
    grid.pitch = (grid.width + 1) / 2 * 2;
    uint8_t *cells = f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN;
    size_t coarse = (size_t)grid.coarse_width * grid.coarse_height;
    size_t columns = (size_t)grid.coarse_width * grid.height;
    grid.coarse = (typename samples_of<Sample>::coarse_type *)cells;
    grid.filtered = (typename samples_of<Sample>::filtered_type *)cells +
                    (coarse + columns + 1) / 2 * 2 * sizeof(float) / sizeof *grid.filtered;
    return grid;
}

// The place of the coarse sample that counts as number i of those that filtered samples have:
// result x has 2 * radius + 1 of these, from x on.
__device__ static inline int
coarse_place(const struct decimated_filter &f, int i, int count)
{
    return min(max(i - f.radius + f.pad, 0), count - 1);
}

__device__ static inline uint4 as_uint4(const uint32_t *values)
{
    return make_uint4(values[0], values[1], values[2], values[3]);
}

template <typename Word>
__device__ static inline bool has_words(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % sizeof(Word) == 0;
}

// Each kernel lets the next one start, whose blocks then write their tables while the last blocks
// of the one before end, and wait for its cells.
__device__ static inline void start_next(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    start_next_kernel();
#endif
}

__device__ static inline void wait_for_cells(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    wait_for_earlier_kernel();
#endif
}

// --- from an image to its coarse image ----------------------------------------------------------

#define STRIP 16        // coarse columns of a warp, and coarse rows under way
#define ROW_GROUPS 4    // of 8 rows of pixels, for a second product
#define SEGMENT 64      // bytes of a row of pixels: 16 of a lane
#define REDUCE_STAGES 4 // segments of all these rows that a warp has asked for
#define STAGE_CELLS (ROW_GROUPS * WARP)
#define REDUCE_WARPS 8         // of a block, 4 where shared memory is small
#define TABLE_CELLS (2 * WARP) // uint4 of A of a product: both bytes of weights

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

// --- weights -------------------------------------------------------------------------------------

__host__ __device__ static inline int floor_div(int a, int b)
{
    return a / b - (a % b < 0);
}

// Both bytes of the weights of a lane's word of A, which weight(0 ... 3) returns.
template <typename Weight>
__device__ static inline void write_word(uint32_t *tables, int table, int lane, int r,
                                         Weight weight)
{
    uint32_t low = 0, high = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t w = weight(k);
        low |= (w & 0xff) << 8 * k;
        high |= w >> 8 << 8 * k;
    }
    tables[table * TABLE_CELLS * 4 + 4 * lane + r] = low;
    tables[table * TABLE_CELLS * 4 + 4 * (lane + WARP) + r] = high;
}

// Tables in shared memory: A of the products of a strip from left to right, and of those of 32 rows
// that begin at each multiple of block_rows until the places repeat. `down`: weights by distance,
// up to 2 * step.
template <typename Sample>
__device__ static inline void write_tables(uint32_t *tables, const uint32_t *down,
                                           const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    int step = f.step, products = f.segments * bytes::PRODUCTS, words = WARP * 4;
    for (int i = (int)threadIdx.x; i < (products + f.phases) * words; i += (int)blockDim.x) {
        int table = i / words, lane = i / 4 % WARP, r = i % 4, t = lane % 4, half = r / 2;
        int away = step * (lane / 4 + 8 * (r % 2) + 2); // of pixel 0 from the coarse sample
        if (table < products) {
            int segment = table / bytes::PRODUCTS;
            away -= SEGMENT / bytes::COUNT * segment + 8 * (table % bytes::PRODUCTS) + 4 * half +
                    (segment == f.half_segment ? 8 : bytes::SAMPLES) * t;
            write_word(tables, table, lane, r,
                       [&](int k) { return down[min(abs(away - k), 2 * step)]; });
        } else {
            int row = 16 * half + 2 * t, period = STRIP * step;
            away = (away - f.block_rows * (table - products) - row + 3 * period) % period;
            write_word(tables, table, lane, r, [&](int k) {
                int below = k % 2 + k / 2 * 8, distance = abs(away - below);
                bool used = row + below < f.block_rows;
                return used ? down[min(min(distance, period - distance), 2 * step)] : 0;
            });
        }
    }
}

// --- samples -------------------------------------------------------------------------------------

// A warp's part of a plane.
struct strip {
    int x, y, end;             // pixels; rows up to `end` are multiplied
    int segment, last_segment; // those that coarse samples of the plane depend on
    int column;                // of the strip's first coarse sample
    int first, last;           // coarse rows to store
    int inside, last_inside;   // segments that are, if addresses are multiples of 16
    bool aligned, repeats;     // these addresses are; the border repeats samples, too
};

// The next segment to ask for.
struct request {
    int y, segment;
    uint4 *to;           // the lane's place in the ring
    bool rows_inside;    // all 32
    const uint8_t *from; // the lane's samples of the first eight of these
};

// A lane's samples of four rows, each by itself. `rows`: -1 for constant ones.
template <typename Sample>
__device__ static inline void load_samples(uint4 *to, int x, const int *rows,
                                           const struct conv_stencil_plane &plane,
                                           const struct decimated_filter &f)
{
    constexpr int IN_WORD = 4 / sizeof(Sample), WORDS = 2; // loaded at once: their latency counts
#pragma unroll 1
    for (int first = 0; first < 4; first += WORDS) {
        uint32_t words[ROW_GROUPS][WORDS] = {};
#pragma unroll
        for (int k = 0; k < WORDS * IN_WORD; k++) {
            int column =
                conv_border_index((enum conv_border)f.border, x + first * IN_WORD + k, plane.width);
#pragma unroll
            for (int q = 0; q < ROW_GROUPS; q++) {
                const uint8_t *row = plane.src + rows[q] * plane.src_stride;
                uint32_t sample = (uint32_t)f.border_value;
                if (column >= 0 && rows[q] >= 0)
                    sample = ((const Sample *)row)[column];
                words[q][k / IN_WORD] |= sample << 8 * (int)sizeof(Sample) * (k % IN_WORD);
            }
        }
#pragma unroll
        for (int q = 0; q < ROW_GROUPS; q++)
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                ((uint32_t *)&to[q * WARP])[first + w] = words[q][w];
    }
}

// The first of `count` aligned samples that are the nearest to those of columns x and after.
__device__ static inline int nearest_samples(int x, int width, int count)
{
    return min(max(x, 0), (width - 1) & -count);
}

// Puts repeated samples in the place of those of columns x to x + count - 1 that the border stands
// for. `rows` begin at nearest_samples.
template <typename Sample>
__device__ static inline void repeat_samples(uint4 (&rows)[ROW_GROUPS], int x, int width, int count)
{
    constexpr int COUNT = sizeof(Sample);
    bool outside = x < 0 || x >= width;
    int last = x < 0 ? 0 : x >= width ? (width - 1) & (count - 1) : min(width - 1 - x, count - 1);
    int valid = outside ? 0 : (last + 1) * COUNT * 8; // bits
    uint32_t masks[4];
#pragma unroll
    for (int w = 0; w < 4; w++)
        masks[w] = valid >= 32 * w + 32 ? 0xffffffff : (1u << max(valid - 32 * w, 0)) - 1;
    int selector = COUNT == 1 ? last % 4 * 0x1111 : last % 2 * 0x2222 + 0x1010;
#pragma unroll
    for (int q = 0; q < ROW_GROUPS; q++) {
        uint32_t words[4] = {rows[q].x, rows[q].y, rows[q].z, rows[q].w};
        uint32_t lower = last * COUNT / 4 % 2 ? words[1] : words[0];
        uint32_t upper = last * COUNT / 4 % 2 ? words[3] : words[2];
        uint32_t repeated = __byte_perm(last * COUNT < 8 ? lower : upper, 0, selector);
#pragma unroll
        for (int w = 0; w < 4; w++)
            words[w] = (words[w] & masks[w]) | (repeated & ~masks[w]);
        rows[q] = as_uint4(words);
    }
}

__device__ static inline void copy_samples(uint4 *to, const uint8_t *from, bool half)
{
    if (half)
        __pipeline_memcpy_async(to, from, 8);
    else
        __pipeline_memcpy_async(to, from, 16);
}

// A lane's samples where the border stands for some of the strip's, or their addresses are not
// multiples of 16.
template <typename Sample>
__device__ static inline void
ask_near_border(uint4 *to, int x, int y, bool half, const struct strip &s,
                const struct conv_stencil_plane &plane, const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    int rows[ROW_GROUPS], least = 0;
#pragma unroll
    for (int q = 0; q < ROW_GROUPS; q++) {
        rows[q] = conv_border_index((enum conv_border)f.border, y + 8 * q, plane.height);
        least = min(least, rows[q]);
    }
    int count = half ? 8 : bytes::SAMPLES;
    if (s.repeats)
        x = nearest_samples(x, plane.width, count);
    bool inside = least == 0 && x >= 0 && x + count <= plane.width;
    if (s.repeats || (s.aligned && inside)) {
#pragma unroll
        for (int q = 0; q < ROW_GROUPS; q++)
            copy_samples(&to[q * WARP], plane.src + rows[q] * plane.src_stride + x * bytes::COUNT,
                         half);
    } else if (inside && has_words<uint32_t>(plane.src, plane.src_stride)) {
#pragma unroll
        for (int q = 0; q < ROW_GROUPS; q++)
            for (int w = 0; w < (half ? 2 : 4); w++)
                __pipeline_memcpy_async(
                    (uint32_t *)&to[q * WARP] + w,
                    plane.src + rows[q] * plane.src_stride + x * bytes::COUNT + 4 * w, 4);
    } else {
        load_samples<Sample>(to, x, rows, plane, f);
    }
}

// Asks for a lane's samples, into a part of the ring that only this lane reads.
template <typename Sample>
__device__ static inline void ask(uint4 *ring, struct request *next, const struct strip &s,
                                  const struct conv_stencil_plane &plane,
                                  const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    if (next->y < s.end) {
        bool inside = next->segment >= s.inside && next->segment <= s.last_inside;
        bool half = bytes::COUNT == 1 && next->segment == f.half_segment;
        int lane = (int)threadIdx.x % WARP, count = half ? 8 : bytes::SAMPLES;
        int x = s.x + next->segment * (SEGMENT / bytes::COUNT) + lane % 4 * count;
        if (next->rows_inside && (inside || s.repeats)) {
            const uint8_t *from = next->from - (half ? lane % 4 * 8 : 0);
            if (!inside) // see repeat_samples
                from += (nearest_samples(x, plane.width, count) - x) * bytes::COUNT;
#pragma unroll
            for (int q = 0; q < ROW_GROUPS; q++)
                copy_samples(&next->to[q * WARP], from + q * 8 * plane.src_stride, half);
        } else {
            ask_near_border<Sample>(next->to, x, next->y + lane / 4, half, s, plane, f);
        }
        next->from += SEGMENT;
        if (next->segment++ == s.last_segment) {
            next->from +=
                f.block_rows * plane.src_stride - (s.last_segment + 1 - s.segment) * SEGMENT;
            next->segment = s.segment;
            next->y += f.block_rows;
            next->rows_inside = next->y >= 0 && next->y + 8 * ROW_GROUPS <= plane.height;
        }
    }
    __pipeline_commit();
    next->to += STAGE_CELLS;
    if (next->to == ring + REDUCE_STAGES * STAGE_CELLS)
        next->to = ring;
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

// Stores the coarse rows after `done` up to `end`, which are complete, and begins others in their
// place. A sum has 16 bits of weights twice, less 8 of 8-bit samples.
template <typename Sample>
__device__ static inline void
store_complete(int32_t (*sums)[bytes_of<Sample>::PARTS][4], const struct strip &s, int done,
               int end, const struct grid<Sample> &grid, const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int m = done + 1 + ((lane / 4 + 8 * half + 1 - done) & (STRIP - 1));
        if (m > end)
            continue;
        bool stored = m >= s.first && m <= s.last;
        uint16_t *to = grid.coarse + (int64_t)(m + 1 + f.pad) * grid.coarse_pitch;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int column = s.column + 8 * n + lane % 4 * 2;
            uint32_t both[2] = {};
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int p = 0; p < bytes::PARTS; p++) {
                    int32_t *sum = &sums[n][p][2 * half + k];
                    both[k] = (both[k] >> 8) + (uint32_t)*sum + (p == bytes::PARTS - 2 ? 128 : 0);
                    *sum = 0;
                }
            if (column % 2 == 0) { // rows are longer than their samples, to a multiple of 8
                if (stored && column >= 0 && column < grid.coarse_width)
                    *(uint32_t *)&to[column] = __byte_perm(both[0], both[1], 0x5410);
                continue;
            }
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (stored && column + k >= 0 && column + k < grid.coarse_width)
                    to[column + k] = (uint16_t)both[k];
        }
    }
}

template <typename Sample>
__device__ static inline void reduce_strip(const uint4 *tables, uint4 *ring, const struct strip &s,
                                           const struct conv_stencil_plane &plane,
                                           const struct grid<Sample> &grid,
                                           const struct decimated_filter &f)
{
    typedef struct bytes_of<Sample> bytes;
    int lane = (int)threadIdx.x % WARP, steps = f.block_rows / f.step;
    const uint4 *along = tables + f.segments * bytes::PRODUCTS * TABLE_CELLS;
    int32_t sums[2][bytes::PARTS][4] = {};
    const uint8_t *from = plane.src + (s.y + lane / 4) * plane.src_stride + s.x * bytes::COUNT +
                          s.segment * SEGMENT + lane % 4 * 16;
    bool rows_inside = s.y >= 0 && s.y + 8 * ROW_GROUPS <= plane.height;
    ring += lane;
    struct request next = {s.y, s.segment, ring, rows_inside, from};
    for (int i = 0; i < REDUCE_STAGES; i++)
        ask<Sample>(ring, &next, s, plane, f);
    int phase = floor_div(s.y, f.block_rows) % f.phases;
    phase += phase < 0 ? f.phases : 0;
    int done = floor_div(s.y, f.step), rest = s.y - done * f.step, end = done;
    int x = s.x + lane % 4 * bytes::SAMPLES, until = f.store_blocks;
    for (int y = s.y; y < s.end; y += f.block_rows) {
        int32_t row_sums[ROW_GROUPS][bytes::ROW_PARTS][4] = {};
        for (int i = s.segment; i <= s.last_segment; i++) {
            __pipeline_wait_prior(REDUCE_STAGES - 1);
            uint4 rows[ROW_GROUPS];
#pragma unroll
            for (int q = 0; q < ROW_GROUPS; q++)
                rows[q] = next.to[q * WARP];
            bool half = bytes::COUNT == 1 && i == f.half_segment;
            if (s.repeats && (i < s.inside || i > s.last_inside))
                repeat_samples<Sample>(rows,
                                       x + i * (SEGMENT / bytes::COUNT) - (half ? lane % 4 * 8 : 0),
                                       plane.width, half ? 8 : bytes::SAMPLES);
            add_segment<Sample>(row_sums, rows, tables + i * bytes::PRODUCTS * TABLE_CELLS + lane,
                                half);
            ask<Sample>(ring, &next, s, plane, f);
        }
        uint32_t words[2][2][bytes::ROW_SUM];
        split_sums<Sample>(words[0], row_sums);
        split_sums<Sample>(words[1], row_sums + 2);
        add_block<Sample>(sums, words, along + phase * TABLE_CELLS + lane);
        phase = phase == f.phases - 1 ? 0 : phase + 1;
        end += steps;
        rest += f.block_rows - steps * f.step;
        if (rest >= f.step)
            rest -= f.step, end++;
        if (--until && y + f.block_rows < s.end)
            continue;
        store_complete<Sample>(sums, s, done - 2, end - 2, grid, f); // a row ends 2 steps after
        done = end;
        until = f.store_blocks;
    }
    __pipeline_wait_prior(0);
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

// Warps have strips from left to right and from top to bottom. Shared: the tables, and a ring per
// warp.
template <typename Sample>
static __global__ void __launch_bounds__(REDUCE_WARPS *WARP, sizeof(Sample) == 1 ? 2 : 1)
    reduce_bytes(const __grid_constant__ struct decimated_filter f)
{
    extern __shared__ __align__(16) uint8_t memory[];
    typedef struct bytes_of<Sample> bytes;
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    uint4 *tables = (uint4 *)memory;
    uint4 *rings = tables + (f.segments * bytes::PRODUCTS + f.phases) * TABLE_CELLS;
    uint32_t *down = (uint32_t *)rings; // for a while
    for (int i = (int)threadIdx.x; i <= 2 * f.step; i += (int)blockDim.x)
        down[i] = i < f.step ? f.down[i][1] : i < 2 * f.step ? f.down[i - f.step][0] : 0;
    __syncthreads(); // weights of other threads
    write_tables<Sample>((uint32_t *)tables, down, f);
    __syncthreads(); // tables
    start_next();
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP, step = f.step;
    int strips = count_strips(f.pad, grid.coarse_width);
    bool aligned = has_words<uint4>(plane.src, plane.src_stride);
    int items = strips * ((grid.coarse_height - 1) / f.strip_rows + 1);
    for (int item = (int)blockIdx.x * warps + warp; item < items; item += (int)gridDim.x * warps) {
        struct strip s;
        int place = (first_strip(f.pad) + item % strips) * STRIP + 2; // of the first coarse column
        int left = max(-1 - f.pad - place, 0);
        int right = min(grid.coarse_width - 2 - f.pad - place, STRIP - 1);
        s.x = (place - 2) * step;
        s.column = place + 1 + f.pad;
        s.segment = (left * step + 1) * bytes::COUNT / SEGMENT;
        s.last_segment = ((right + 4) * step - 1) * bytes::COUNT / SEGMENT;
        s.first = item / strips * f.strip_rows - 1 - f.pad;
        s.last = min(s.first + f.strip_rows, grid.coarse_height - 1 - f.pad) - 1;
        s.y = floor_div((s.first - 2) * step + 1, f.block_rows) * f.block_rows;
        s.end = (s.last + 2) * step;
        s.inside = s.x < 0 ? (-s.x * bytes::COUNT - 1) / SEGMENT + 1 : 0;
        s.aligned = aligned;
        s.repeats = aligned && f.border == CONV_BORDER_REPLICATE;
        s.last_inside = aligned ? (plane.width - s.x) * bytes::COUNT / SEGMENT - 1 : -1;
        reduce_strip<Sample>(tables, rings + warp * (REDUCE_STAGES * ROW_GROUPS * WARP), s, plane,
                             grid, f);
    }
}

#endif
