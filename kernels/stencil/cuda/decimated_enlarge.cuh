// SPDX-License-Identifier: MIT
// From a filtered coarse image to results (decimated.cu). A warp has 128 columns and walks down. It
// enlarges eight filtered rows to these columns at a time, integers on tensor cores in bytes, and
// passes them through shared memory; then a thread has four columns of `step` rows of results from
// each four of these rows.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_ENLARGE_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_ENLARGE_CUH

#include "kernels/stencil/cuda/decimated_reduce.cuh"

#define WARP_COLUMNS (WARP * ENLARGED)
#define BATCH 8                        // filtered rows that are enlarged at a time
#define BATCH_PITCH (WARP_COLUMNS + 4) // of these: the rows of a product use different banks
#define TILE 16                        // columns of a product
#define TILES (WARP_COLUMNS / TILE)
#define ENLARGING_BLOCKS 7 // of a processor, of integers

// Rows of samples that a warp has asked for.
template <typename Sample> constexpr int ROWS_AHEAD = sizeof(Sample) == 4 ? 8 : 16;

// Four samples of a row as they lie in memory; values are 32 bits, of float32 as well.
template <typename Sample> struct four;
template <> struct four<uint8_t> {
    uint32_t word;

    __device__ uint32_t get(int k) const
    {
        return __byte_perm(word, 0, 0x4440 | k);
    }
    __device__ void set(const uint32_t *values)
    {
        word = __byte_perm(__byte_perm(values[0], values[1], 0x0040),
                           __byte_perm(values[2], values[3], 0x0040), 0x5410);
    }
    __device__ void set_clamped(const uint32_t *values)
    {
        uint32_t high;
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;"
            : "=r"(high)
            : "r"(values[3]), "r"(values[2]), "r"(0));
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;"
            : "=r"(word)
            : "r"(values[1]), "r"(values[0]), "r"(high));
    }
};
template <> struct four<uint16_t> {
    uint2 word;

    __device__ uint32_t get(int k) const
    {
        return __byte_perm(k < 2 ? word.x : word.y, 0, k % 2 ? 0x4432 : 0x4410);
    }
    __device__ void set(const uint32_t *values)
    {
        word.x = __byte_perm(values[0], values[1], 0x5410);
        word.y = __byte_perm(values[2], values[3], 0x5410);
    }
    __device__ void set_clamped(const uint32_t *values)
    {
        asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(word.x) : "r"(values[1]), "r"(values[0]));
        asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(word.y) : "r"(values[3]), "r"(values[2]));
    }
};
template <> struct four<float> {
    uint4 word;

    __device__ uint32_t get(int k) const
    {
        return k == 0 ? word.x : k == 1 ? word.y : k == 2 ? word.z : word.w;
    }
    __device__ void set(const uint32_t *values)
    {
        word.x = values[0], word.y = values[1], word.z = values[2], word.w = values[3];
    }
};

// --- along rows ----------------------------------------------------------------------------------

// Shared memory. A of a product: weights of 8 filtered samples for 16 columns, as four bytes that
// add up to each. The tables repeat after enlarge_tables::phases tiles.
template <typename Sample, bool SHARPENS> struct enlarge_shared {
    uint4 up[MOST_STEP], tables[MOST_PHASES * MOST_PARTS][WARP];
    int cells[THREADS / WARP][TILES]; // the first filtered sample of a product, even
    uint32_t rows[THREADS / WARP][BATCH][BATCH_PITCH];
    struct four<Sample> ring[SHARPENS ? ROWS_AHEAD<Sample> : 1][THREADS];
};

// The tables for columns x and after, by the first sample of their products. `up`: f.up in shared
// memory.
__device__ static inline void write_up(uint32_t *words, const uint4 *up,
                                       const struct decimated_filter &f)
{
    for (int i = (int)threadIdx.x; i < f.up_phases * f.up_parts * WARP * 4; i += THREADS) {
        int table = i / (4 * WARP), lane = i / 4 % WARP, r = i % 4, phase = table / f.up_parts;
        int x = phase * TILE + lane / 4 + 8 * (r % 2), from = x / f.step;
        int cell = (phase * TILE / f.step & ~1) + table % f.up_parts * 8 + lane % 4 * 2 - from;
        const uint32_t *weights = (const uint32_t *)&up[x - from * f.step];
        uint32_t word = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int at = cell + k % 2, weight = at >= 0 && at < 4 ? (int)weights[at] : 0;
            word |= (uint32_t)min(max(weight - (r / 2 * 2 + k / 2) * 255, 0), 255) << 8 * k;
        }
        words[i] = word;
    }
}

// Two neighbouring samples: bytes[b] has byte b of both, twice.
__device__ static inline void split_bytes(uint32_t (&bytes)[2], uint32_t both)
{
    bytes[0] = __byte_perm(both, 0, 0x2020);
    bytes[1] = __byte_perm(both, 0, 0x3131);
}

__device__ static inline void split_bytes(uint32_t (&bytes)[3], uint2 both)
{
    bytes[0] = __byte_perm(both.x, both.y, 0x4040);
    bytes[1] = __byte_perm(both.x, both.y, 0x5151);
    bytes[2] = __byte_perm(both.x, both.y, 0x6262);
}

// Filtered rows `first` to `first` + 7 at the columns from x on: sums of 10 more bits. A product
// has PARTS.
template <typename Sample, int PARTS, typename Shared>
__device__ static inline void multiply_batch(Shared &shared, const struct grid<Sample> &grid,
                                             int first, int x, const struct decimated_filter &f)
{
    constexpr int BYTES = sizeof(Sample) + 1, LOADED = TILES / 2; // at once
    typedef typename std::conditional<sizeof(Sample) == 1, uint32_t, uint2>::type two;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const auto *row = grid.filtered + (int64_t)min(first + g, grid.height - 1) * grid.pitch + 2 * t;
    int phase = x / TILE % f.up_phases;
    two loaded[LOADED][PARTS];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i % LOADED == 0)
#pragma unroll
            for (int k = 0; k < LOADED * PARTS; k++)
                loaded[k / PARTS][k % PARTS] =
                    *(const two *)(row + shared.cells[warp][i + k / PARTS] + k % PARTS * 8);
        int32_t sums[BYTES][4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            uint32_t bytes[BYTES];
            split_bytes(bytes, loaded[i % LOADED][part]);
            uint4 weights = shared.tables[phase * PARTS + part][lane];
#pragma unroll
            for (int b = 0; b < BYTES; b++)
                multiply_bytes(sums[b], weights, bytes[b], bytes[b]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t sum = 0;
#pragma unroll
            for (int b = BYTES - 1; b >= 0; b--)
                sum = (sum << 8) + (uint32_t)sums[b][k];
            shared.rows[warp][2 * t + k % 2][TILE * i + g + k / 2 * 8] = sum;
        }
        phase = phase == f.up_phases - 1 ? 0 : phase + 1;
    }
}

template <typename Sample, typename Shared>
__device__ static inline void enlarge_batch(Shared &shared, const struct grid<Sample> &grid,
                                            int first, int x, int, const struct decimated_filter &f)
{
    if (f.up_parts == 1)
        multiply_batch<Sample, 1>(shared, grid, first, x, f);
    else
        multiply_batch<Sample, MOST_PARTS>(shared, grid, first, x, f);
}

// The same of floats: a thread has its own columns.
template <typename Shared>
__device__ static inline void enlarge_batch(Shared &shared, const struct grid<float> &grid,
                                            int first, int x, int width,
                                            const struct decimated_filter &f)
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
            shared.rows[warp][r][lane * ENLARGED + k] =
                __float_as_uint(__double2float_rn(sum * 0x1p-10));
        }
    }
}

// --- results -------------------------------------------------------------------------------------

// Four results of integers, from sums with FRACTION bits after the point; float32 as its bits.
template <typename Sample, typename Result, typename Sum>
__device__ static inline struct four<Result> finish_blurred(const Sum (&sums)[ENLARGED]) {
    uint32_t values[ENLARGED];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++)
        values[k] = sizeof(Result) == 4
                        ? __float_as_uint((float)((double)sums[k] * (1.0 / (1 << FRACTION))))
                        : (uint32_t)((sums[k] + (1u << (FRACTION - 1))) >> FRACTION);
    struct four<Result> results;
    results.set(values);
    return results;
}

// As the sample is an integer, only the change is rounded: that of 8 bits is the upper half of 64.
template <typename Sample, typename Result, typename Sum>
__device__ static inline struct four<Result> finish_sharpened(const Sum (&sums)[ENLARGED],
                                                              const struct four<Sample> &source,
                                                              const struct decimated_filter &f) {
    constexpr int ONE = samples_of<Sample>::ONE, BITS = ONE + 11; // 2^11 is CONV_DECIMATED_AMOUNT
    uint32_t values[ENLARGED];
    int32_t off[ENLARGED];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++) {
        int32_t sample = (int32_t)source.get(k);
        off[k] = (sample << ONE) -
                 (int32_t)((sums[k] + (1u << (FRACTION - ONE - 1))) >> (FRACTION - ONE));
        if constexpr (sizeof(Result) == 4) {
            int64_t total = ((int64_t)sample << BITS) + (int64_t)f.amount * off[k];
            values[k] = __float_as_uint((float)((double)total * (1.0 / (1 << BITS))));
        } else if (sizeof(Sample) == 1) {
            int64_t change = (int64_t)f.shifted_amount * off[k] + (1ll << 31);
            values[k] = (uint32_t)(sample + (int32_t)(change >> 32));
        } else {
            int64_t change = (int64_t)f.amount * off[k] + (1 << (BITS - 1));
            values[k] = (uint32_t)(sample + (int32_t)(change >> BITS));
        }
    }
    if (f.keep_below) {
#pragma unroll
        for (int k = 0; k < ENLARGED; k++) {
            int64_t change = (int64_t)f.amount * off[k];
            if ((change < 0 ? -change : change) < f.keep_below)
                values[k] =
                    sizeof(Result) == 4 ? __float_as_uint((float)source.get(k)) : source.get(k);
        }
    }
    struct four<Result> results;
    if constexpr (sizeof(Result) == 4)
        results.set(values);
    else
        results.set_clamped(values);
    return results;
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
template <typename Sample, typename Result, bool SHARPENS>
__device__ static inline struct four<Result>
finish_four(const uint4 (&rows)[4], int first, const uint4 &u, const struct four<Sample> &source,
            const struct decimated_filter &f) {
    constexpr bool UPPER = sizeof(Result) == 1 && !SHARPENS; // the upper bytes of rounded sums
    typedef typename std::conditional<sizeof(Sample) == 1, uint32_t, uint64_t>::type integer;
    typename std::conditional<sizeof(Sample) == 4, double, integer>::type sums[ENLARGED];
    const uint32_t up[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int k = 0; k < ENLARGED; k++)
        sums[k] = UPPER ? 1u << (FRACTION - 1) : 0;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const uint4 &row = rows[(first + t) & 3];
        const uint32_t values[ENLARGED] = {row.x, row.y, row.z, row.w};
#pragma unroll
        for (int k = 0; k < ENLARGED; k++)
            if constexpr (sizeof(Sample) == 4)
                sums[k] = fma((double)up[t], (double)__uint_as_float(values[k]), sums[k]);
            else
                sums[k] += (integer)up[t] * values[k];
    }
    struct four<Result> results;
    if constexpr (sizeof(Sample) == 4) {
        uint32_t values[ENLARGED];
#pragma unroll
        for (int k = 0; k < ENLARGED; k++)
            values[k] =
                __float_as_uint(finish_float<SHARPENS>(sums[k], __uint_as_float(source.get(k)), f));
        results.set(values);
    } else if constexpr (UPPER) {
        results.word = __byte_perm(__byte_perm(sums[0], sums[1], 0x0073),
                                   __byte_perm(sums[2], sums[3], 0x0073), 0x5410);
    } else if constexpr (SHARPENS) {
        results = finish_sharpened<Sample, Result>(sums, source, f);
    } else {
        results = finish_blurred<Sample, Result>(sums);
    }
    return results;
}

// A thread's columns in the source, which it asks for ahead, and in the result.
template <typename Sample>
struct enlarged_columns {
    const uint8_t *src, *next; // of the row to finish, and of the next to ask for
    struct four<Sample> *ring; // where the row to finish arrives
    uint8_t *dst;
    int count;        // 0 to 4
    bool asks, whole; // words: four samples of the source may be read, of the result stored
};

// Asks for row y, into a part of the ring that only this thread reads.
template <typename Sample, bool WHOLE>
__device__ static inline void ask_row(int y, int end, struct enlarged_columns<Sample> &c,
                                      struct four<Sample> *ring,
                                      const struct conv_stencil_plane &plane)
{
    if (y < end && (WHOLE || c.asks))
        __pipeline_memcpy_async(c.ring, c.next, sizeof *c.ring);
    c.next += plane.src_stride;
    c.ring += THREADS;
    if (c.ring == ring + ROWS_AHEAD<Sample> * THREADS)
        c.ring = ring;
    __pipeline_commit();
}

template <typename Sample, bool WHOLE>
__device__ static inline struct four<Sample>
take_row(int y, int end, struct enlarged_columns<Sample> &c, struct four<Sample> *ring,
         const struct conv_stencil_plane &plane) {
    __pipeline_wait_prior(ROWS_AHEAD<Sample> - 1);
    struct four<Sample> result = *c.ring;
    if (!WHOLE && !c.asks)
        for (int k = 0; k < c.count; k++)
            ((Sample *)&result)[k] = ((const Sample *)c.src)[k];
    c.src += plane.src_stride;
    ask_row<Sample, WHOLE>(y + ROWS_AHEAD<Sample>, end, c, ring, plane);
    return result;
}

template <typename Sample, typename Result, bool WHOLE>
__device__ static inline void store_row(struct enlarged_columns<Sample> &c,
                                        const struct four<Result> &results,
                                        const struct conv_stencil_plane &plane)
{
    if (WHOLE || c.whole)
        *(struct four<Result> *)c.dst = results;
    else
        for (int k = 0; k < c.count; k++)
            ((Result *)c.dst)[k] = ((const Result *)&results)[k];
    c.dst += plane.dst_stride;
}

// Rows y to end - 1 of a warp, of which the first is that of the first of four filtered rows.
template <typename Sample, typename Result, bool SHARPENS, bool WHOLE>
__device__ static inline void
enlarge_rows(struct enlarge_shared<Sample, SHARPENS> &shared, int x, int y, int end,
             struct enlarged_columns<Sample> c, const struct conv_stencil_plane &plane,
             const struct grid<Sample> &grid, const struct decimated_filter &f)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int first = y / f.step, count = (end - 1) / f.step - first + 4; // filtered rows
    uint4 rows[4];
    struct four<Sample> *ring = shared.ring[0] + threadIdx.x;
    c.ring = ring;
    for (int r = 0; SHARPENS && r < ROWS_AHEAD<Sample>; r++)
        ask_row<Sample, WHOLE>(y + r, end, c, ring, plane);
    for (int begin = 0; begin < count; begin += BATCH) {
        __syncwarp(); // the lanes have read the batch before
        enlarge_batch(shared, grid, first + begin, x, plane.width, f);
        __syncwarp(); // rows of other lanes
        for (int half = 0; half < BATCH; half += 4) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                rows[k] = *(const uint4 *)&shared.rows[warp][half + k][lane * ENLARGED];
                int stop = begin + half + k < 3 ? y : min(end, y + f.step);
                for (const uint4 *up = shared.up; y < stop; y++, up++) {
                    struct four<Sample> source = {
                    };
                    if (SHARPENS)
                        source = take_row<Sample, WHOLE>(y, end, c, ring, plane);
                    store_row<Sample, Result, WHOLE>(
                        c, finish_four<Sample, Result, SHARPENS>(rows, k + 1, *up, source, f),
                        plane);
                }
            }
        }
    }
    if (SHARPENS)
        __pipeline_wait_prior(0);
}

// Warps have strips of columns from left to right, and block_steps coarse rows of these.
template <typename Sample, typename Result, bool SHARPENS>
static __global__ void __launch_bounds__(THREADS, sizeof(Sample) == 4 ? 4 : ENLARGING_BLOCKS)
    enlarge(const __grid_constant__ struct decimated_filter f)
{
    typedef struct enlarge_shared<Sample, SHARPENS> shared_type;
    __shared__ shared_type memory[1];
    shared_type &shared = memory[0];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    int across = (plane.width - 1) / WARP_COLUMNS + 1, steps = grid.height - 3;
    int items = across * ((steps - 1) / f.block_steps + 1);
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    bool words = has_words<four<Result>>(plane.dst, plane.dst_stride);
    bool samples = has_words<four<Sample>>(plane.src, plane.src_stride);
    bool padded = has_words<uint4>(plane.src, plane.src_stride); // to be read up to that
    if (threadIdx.x < MOST_STEP)
        shared.up[threadIdx.x] = as_uint4(f.up[threadIdx.x]);
    __syncthreads(); // weights of other threads
    if (sizeof(Sample) < 4) {
        write_up((uint32_t *)shared.tables, shared.up, f);
        __syncthreads(); // tables
    }
    wait_for_cells();
    for (int item = (int)blockIdx.x * (THREADS / WARP) + warp; item < items;
         item += (int)gridDim.x * (THREADS / WARP)) {
        int left = item % across * WARP_COLUMNS, x = left + lane * ENLARGED;
        int first = item / across * f.block_steps, last = min(first + f.block_steps, steps);
        int y = first * f.step, end = min(last * f.step, plane.height);
        __syncwarp(); // the lanes have read the cells of the item before
        if (lane < TILES)
            shared.cells[warp][lane] = min(left + lane * TILE, plane.width - 1) / f.step & ~1;
        struct enlarged_columns<Sample> c;
        c.count = min(max(plane.width - x, 0), ENLARGED);
        c.whole = words && c.count == ENLARGED;
        c.asks = samples && (padded ? c.count > 0 : c.count == ENLARGED);
        c.src = c.next = plane.src + y * plane.src_stride + x * (int)sizeof(Sample);
        c.dst = plane.dst + y * plane.dst_stride + x * (int)sizeof(Result);
        if (words && (!SHARPENS || samples) && left + WARP_COLUMNS <= plane.width)
            enlarge_rows<Sample, Result, SHARPENS, true>(shared, left, y, end, c, plane, grid, f);
        else
            enlarge_rows<Sample, Result, SHARPENS, false>(shared, left, y, end, c, plane, grid, f);
    }
}

#endif
