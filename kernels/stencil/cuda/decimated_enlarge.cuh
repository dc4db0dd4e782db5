// SPDX-License-Identifier: MIT
// From a filtered coarse image to results (decimated.cu).
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_ENLARGE_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_ENLARGE_CUH

#include "kernels/stencil/cuda/decimated_reduce.cuh"

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

// Of `count` columns; after the last it is repeated.
template <typename Sample, bool WHOLE>
__device__ static inline struct four<Sample> load_four(const uint8_t *row, int count) {
    struct four<Sample> result;
    if (WHOLE)
        return *(const struct four<Sample> *)row;
    Sample *samples = (Sample *)&result;
    for (int k = 0; k < ENLARGED; k++)
        samples[k] = ((const Sample *)row)[min(k, count - 1)];
    return result;
}

template <typename Result, bool WHOLE>
__device__ static inline void store_four(uint8_t *row, int count,
                                         const struct four<Result> &results)
{
    if (WHOLE)
        *(struct four<Result> *)row = results;
    for (int k = 0; k < count && !WHOLE; k++)
        ((Result *)row)[k] = ((const Result *)&results)[k];
}

// Where a thread's columns lie among filtered samples: the first has `cell` and the three after
// it, others these or the next four.
struct enlarged_columns {
    int cell, last; // last: of the row
    int phase[ENLARGED];
    bool next[ENLARGED];
};

// A row of filtered samples at the source's columns: sums of 10 more bits. `up`: f.up in shared
// memory.
template <typename Cell>
__device__ static inline void enlarge_row(uint32_t *to, const Cell *row,
                                          const struct enlarged_columns &c, const uint4 *up)
{
    Cell cells[5];
#pragma unroll
    for (int t = 0; t < 5; t++)
        cells[t] = row[min(c.cell + t, c.last)];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++) {
        uint4 u = up[c.phase[k]];
        const uint32_t weights[4] = {u.x, u.y, u.z, u.w};
        double sum = 0;
        to[k] = 0;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            Cell cell = c.next[k] ? cells[t + 1] : cells[t];
            if constexpr (std::is_same<Cell, float>::value)
                sum = fma((double)weights[t], (double)cell, sum);
            else
                to[k] += weights[t] * (uint32_t)cell;
        }
        if constexpr (std::is_same<Cell, float>::value)
            to[k] = __float_as_uint(__double2float_rn(sum * 0x1p-10));
    }
}

// The result of integers, from a sum with FRACTION bits after the point; float32 as its bits.
template <typename Sample, bool FLOATS, bool SHARPENS, typename Sum>
__device__ static inline uint32_t finish(Sum sum, uint32_t sample, const struct decimated_filter &f)
{
    constexpr int ONE = samples_of<Sample>::ONE, AMOUNT = 11; // 2^11 is CONV_DECIMATED_AMOUNT
    constexpr int MAX = samples_of<Sample>::MAX;
    if (!SHARPENS && FLOATS)
        return __float_as_uint((float)((double)sum * (1.0 / (1 << FRACTION))));
    if (!SHARPENS)
        return (uint32_t)((sum + (1u << (FRACTION - 1))) >> FRACTION);
    int32_t blurred = (int32_t)((sum + (1u << (FRACTION - ONE - 1))) >> (FRACTION - ONE));
    int64_t change = (int64_t)f.amount * ((int32_t)(sample << ONE) - blurred);
    int64_t total = ((int64_t)sample << (ONE + AMOUNT)) + change;
    if (f.keep_below && (change < 0 ? -change : change) < f.keep_below)
        return FLOATS ? __float_as_uint((float)sample) : sample;
    if (FLOATS)
        return __float_as_uint((float)((double)total * (1.0 / (1 << (ONE + AMOUNT)))));
    int32_t whole = (int32_t)((total + (1 << (ONE + AMOUNT - 1))) >> (ONE + AMOUNT));
    return (uint32_t)max(0, min(whole, MAX));
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

// One row of a thread's four columns.
template <typename Sample, typename Result, bool SHARPENS>
__device__ static inline struct four<Result>
finish_four(const uint32_t (*rows)[ENLARGED], const uint4 &u, const struct four<Sample> &source,
            const struct decimated_filter &f) {
    constexpr bool UPPER = sizeof(Result) == 1 && !SHARPENS; // the upper bytes of rounded sums
    const uint32_t up[4] = {u.x, u.y, u.z, u.w};
    uint32_t values[ENLARGED];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++) {
        if constexpr (sizeof(Sample) == 4) {
            double sum = 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum = fma((double)up[t], (double)__uint_as_float(rows[t][k]), sum);
            values[k] =
                __float_as_uint(finish_float<SHARPENS>(sum, __uint_as_float(source.get(k)), f));
        } else {
            typename std::conditional<sizeof(Sample) == 1, uint32_t, uint64_t>::type sum;
            sum = UPPER ? 1u << (FRACTION - 1) : 0;
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum += (decltype(sum))up[t] * rows[t][k];
            values[k] = UPPER
                            ? (uint32_t)sum
                            : finish<Sample, sizeof(Result) == 4, SHARPENS>(sum, source.get(k), f);
        }
    }
    struct four<Result> results;
    if constexpr (UPPER)
        results.word = __byte_perm(__byte_perm(values[0], values[1], 0x0073),
                                   __byte_perm(values[2], values[3], 0x0073), 0x5410);
    else
        results.set(values);
    return results;
}

// Rows y to end - 1, of which the first is that of the first of four filtered rows.
template <typename Sample, typename Result, bool SHARPENS, bool WHOLE>
__device__ static inline void enlarge_tile(const struct conv_stencil_plane &plane, int x, int y,
                                           int end, const struct enlarged_columns &c,
                                           const typename samples_of<Sample>::cell_type *filtered,
                                           int64_t width, const uint4 *up,
                                           const struct decimated_filter &f)
{
    uint32_t rows[4][ENLARGED];
    int count = min(ENLARGED, plane.width - x);
    const uint8_t *src = plane.src + y * plane.src_stride + x * (int)sizeof(Sample);
    uint8_t *dst = plane.dst + y * plane.dst_stride + x * (int)sizeof(Result);
    struct four<Sample> next = {
    };
    if (SHARPENS)
        next = load_four<Sample, WHOLE>(src, count);
#pragma unroll
    for (int t = 0; t < 3; t++, filtered += width)
        enlarge_row(rows[t], filtered, c, up);
    while (y < end) {
        enlarge_row(rows[3], filtered, c, up);
        int stop = min(end, y + f.step);
        for (const uint4 *weights = up; y < stop; y++, weights++) {
            struct four<Sample> source = next;
            if (SHARPENS && y + 1 < end) { // a row ahead
                src += plane.src_stride;
                next = load_four<Sample, WHOLE>(src, count);
            }
            store_four<Result, WHOLE>(
                dst, count, finish_four<Sample, Result, SHARPENS>(rows, *weights, source, f));
            dst += plane.dst_stride;
        }
#pragma unroll
        for (int k = 0; k < ENLARGED; k++) {
            rows[0][k] = rows[1][k];
            rows[1][k] = rows[2][k];
            rows[2][k] = rows[3][k];
        }
        filtered += width;
    }
}

// Blocks of 128 threads: 512 columns, and rows of block_steps coarse ones. Shared: the weights.
template <typename Sample, typename Result, bool SHARPENS>
static __global__ void __launch_bounds__(THREADS, sizeof(Sample) == 4 ? 6 : 8)
    enlarge(const __grid_constant__ struct decimated_filter f)
{
    __shared__ uint4 up[MOST_STEP];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    int across = (plane.width - 1) / SPAN + 1, steps = grid.height - 3;
    int tiles = across * ((steps - 1) / f.block_steps + 1);
    bool words = has_words<four<Result>>(plane.dst, plane.dst_stride) &&
                 (!SHARPENS || has_words<four<Sample>>(plane.src, plane.src_stride));
    if (threadIdx.x < MOST_STEP)
        up[threadIdx.x] = as_uint4(f.up[threadIdx.x]);
    __syncthreads(); // weights of other threads
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        int x = tile % across * SPAN + (int)threadIdx.x * ENLARGED;
        int first = tile / across * f.block_steps, last = min(first + f.block_steps, steps);
        int y = first * f.step, end = min(last * f.step, plane.height);
        struct enlarged_columns c;
        if (x >= plane.width)
            continue;
        c.cell = x / f.step;
        c.last = grid.width - 1;
        for (int k = 0; k < ENLARGED; k++) {
            int at = min(x + k, plane.width - 1); // results past the end are not stored
            c.next[k] = at / f.step != c.cell;
            c.phase[k] = at % f.step;
        }
        const auto *filtered = grid.filtered + (int64_t)first * grid.width;
        if (words && x + ENLARGED <= plane.width)
            enlarge_tile<Sample, Result, SHARPENS, true>(plane, x, y, end, c, filtered, grid.width,
                                                         up, f);
        else
            enlarge_tile<Sample, Result, SHARPENS, false>(plane, x, y, end, c, filtered, grid.width,
                                                          up, f);
    }
}

#endif
