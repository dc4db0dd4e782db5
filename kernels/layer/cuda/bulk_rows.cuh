// SPDX-License-Identifier: MIT
// As bulk_tiles.cuh, with three differences: a tile has R rows of outputs, which share samples; all
// weights of a kernel row or of a tap are read at once; and storing outputs takes fewer
// instructions.
#ifndef CONV_KERNELS_LAYER_CUDA_BULK_ROWS_CUH
#define CONV_KERNELS_LAYER_CUDA_BULK_ROWS_CUH

#include "kernels/layer/cuda/bulk_tiles.cuh"
#include "kernels/layer/cuda/layer_await.cuh"

#define BULK_NOTHING INT32_MIN                // instead of an offset, which may be negative
#define BULK_BUFFER(columns) (32 * (columns)) // floats: an output row of each thread, for one map

static constexpr __host__ __device__ int bulk_pad(int floats)
{
    return (floats + 3) / 4 * 4;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Adds the products of an input row to the thread's output rows FROM to TO - 1. `weight`: weights
// of the kernel row by which output row 0 multiplies it. BACK: every other map computes its outputs
// from last to first, so that a new weight meets the sample that was read last. Then fewer
// multiply-adds read three new registers, which takes the register file longer.
template <int K, int R, int T, int MT, int VX, bool BACK, int FROM, int TO>
__device__ inline void bulk_step(float (&sum)[R][MT][T], float (&x)[T + K - 1], const float *weight,
                                 const float *in)
{
    const int step = bulk_pad(K * MT);
    // The weights of one tap are read at once, or those of all taps: 6×6 is 2 % slower tap by tap.
    const int taps = K >= 5 && K % 2 && MT % 4 == 0 ? 1 : K;
    layer_read<T + K - 1, VX>(x, in);
    if (taps == 1)
        layer_await<T + K - 1>(x);
#pragma unroll
    for (int r = FROM; r < TO; r++)
#pragma unroll
        for (int first = 0; first < K; first += taps) {
            float w[taps * MT];
            layer_read<taps * MT, 4>(w, weight - r * step + first * MT);
#pragma unroll
            for (int v = 0; v < taps; v++)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int i = 0; i < T; i++) {
                        int t = BACK && (r + (first + v) * MT + m) % 2 ? T - 1 - i : i;
                        sum[r][m][t] = fmaf(w[v * MT + m], x[t + first + v], sum[r][m][t]);
                    }
        }
}

// Computes a unit once its item has arrived.
template <int K, int R, int T, int MT, int VX, bool BACK>
__device__ inline void bulk_add_rows(const bulk_launch &p, const bulk_memory &memory,
                                     const bulk_ring &ring, const bulk_unit &unit,
                                     float (&sum)[R][MT][T])
{
    static_assert(R <= 2, "one or two rows");
    const int step = bulk_pad(K * MT);
    int slot = ring.slot + unit.item - ring.next; // all of a warp's items fit into the slots
    bool around = slot >= p.slots;
    slot -= around ? p.slots : 0;
    barrier_wait(memory.full + slot, ring.parity ^ (uint32_t)around);
    __syncwarp();
    bulk_item item = bulk_find_item(p, unit.item);
    int phase = bulk_phase(p, item);
    const float *weight = memory.weights + unit.group * p.group_floats;
    const float *plane = memory.slots + slot * p.slot_floats + unit.row * p.pitch + unit.tile * T;
    float bias[bulk_pad(MT)];
    layer_read<bulk_pad(MT), 4>(bias, weight);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = bias[m];
    weight += bulk_pad(MT);
    const float *in = plane + (VX < 4 ? phase & 3 : 0);
    float x[T + K - 1];
    int left = p.channels;
#pragma unroll 1
    do { // for each channel
        if (left > 1) {
            plane += p.plane_floats;
            phase += p.plane_step;
        }
        const float *following = plane + (VX < 4 ? phase & 3 : 0);
        if (R > 1) {
            bulk_step<K, R, T, MT, VX, BACK, 0, 1>(sum, x, weight, in);
            weight += step;
            in += p.pitch;
        }
        int u = R - 1;
#pragma unroll 1
        do {
            bulk_step<K, R, T, MT, VX, BACK, 0, R>(sum, x, weight, in);
            weight += step;
            in += p.pitch;
        } while (++u < p.kernel_height);
        if (R > 1)
            bulk_step<K, R, T, MT, VX, BACK, R - 1, R>(sum, x, weight, in);
        in = following;
    } while (--left > 0);
}

// VS neighbouring outputs.
template <int VS> __device__ inline void bulk_read_some(float *to, const float *from)
{
    if (VS == 2) {
        float2 pair = *(const float2 *)(const void *)from;
        to[0] = pair.x, to[1] = pair.y;
    } else {
        to[0] = *from;
    }
}

template <int VS> __device__ inline void bulk_write(float *to, const float *from)
{
    if (VS == 2) {
        float2 pair;
        pair.x = from[0], pair.y = from[1];
        __stcs((float2 *)(void *)to, pair);
    } else {
        __stcs(to, *from);
    }
}

// Stores a warp's outputs through its buffer, VS per store, so that whole sectors are written.
// `at`: the thread's first output of the first map; `count`: the outputs that it stores per row.
template <int R, int T, int MT, int VS>
__device__ inline void bulk_store_rows(const bulk_launch &p, float *buffer, int64_t at, int count,
                                       const float (&sum)[R][MT][T])
{
    static_assert(T % VS == 0 && VS <= 2, "whole vectors");
    const unsigned everyone = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    int64_t first = store_shuffle(at, 0);
    int place = (int)(at - first);
    int offsets[T / VS]; // from the warp's first output to those that the thread writes
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int t = 0; t < T; t += VS) {
                if (VS == 2) {
                    float2 pair;
                    pair.x = sum[r][m][t];
                    pair.y = sum[r][m][t + 1];
                    *(float2 *)(void *)(buffer + lane * T + t) = pair;
                } else {
                    buffer[lane * T + t] = sum[r][m][t];
                }
            }
            __syncwarp();
            if (r == 0 && m == 0) // only now that the first sums have left their registers
#pragma unroll
                for (int i = 0; i < T / VS; i++) {
                    int k = (i * 32 + lane) * VS, unit = k / T, t = k - unit * T;
                    int from = (int)__shfl_sync(everyone, (uint32_t)place, unit);
                    int stored = (int)__shfl_sync(everyone, (uint32_t)count, unit);
                    offsets[i] = t < stored ? from + t : BULK_NOTHING;
                }
            if (p.to.activation == CONV_ACTIVATION_TANH)
                activate_tanh(buffer, 32 * T, lane);
            int64_t to = first + m * p.to.plane + r * p.out_width;
            if (p.to.half) {
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    if (offsets[i] != BULK_NOTHING)
#pragma unroll
                        for (int k = 0; k < VS; k++)
                            layer_store((uint16_t *)p.to.dst + to + offsets[i] + k,
                                        buffer[(i * 32 + lane) * VS + k]);
            } else {
                // All reads precede the first write, because the compiler does not reorder them.
                float values[T];
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    bulk_read_some<VS>(values + i * VS, buffer + (i * 32 + lane) * VS);
                float *dst = (float *)p.to.dst + to;
                asm volatile("" : "+l"(dst)); // without it an address takes four instructions
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    if (offsets[i] != BULK_NOTHING)
                        bulk_write<VS>(dst + offsets[i], values + i * VS);
            }
            __syncwarp();
        }
}

#endif

template <int K, int R, int T, int MT, int VX, bool BACK, int THREADS>
static __global__ __launch_bounds__(THREADS,
                                    1) void bulk_rows(const __grid_constant__ bulk_launch p)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int warps = THREADS / 32;
    int warp = (int)threadIdx.x / 32;
    bulk_memory memory;
    int count;
    bulk_begin<THREADS>(p, BULK_BUFFER(T), &memory, &count);
    bulk_ring ring = {0, 0, 0};
    int units = count * p.item_units;
#pragma unroll 1
    for (int first = warp * 32; first < units; first += THREADS) {
        bulk_release<warps>(p, memory, ring, layer_divide(first, p.by_item_units), count);
        int number = min(first + (int)threadIdx.x % 32, units - 1);
        float sum[R][MT][T];
        bulk_add_rows<K, R, T, MT, VX, BACK>(p, memory, ring, bulk_find_unit<R>(p, number), sum);
        int next = first + THREADS;
        bulk_release<warps>(p, memory, ring,
                            next < units ? layer_divide(next, p.by_item_units) : count, count);
        asm volatile("" : "+r"(number)); // not kept in registers, but derived again
        bulk_unit unit = bulk_find_unit<R>(p, number);
        bulk_item item = bulk_find_item(p, unit.item);
        // The last group ends with the maps and may overlap the one before.
        int map = min(unit.group * MT, p.maps - MT), j = unit.tile * T;
        int64_t at =
            ((item.image * p.maps + map) * p.out_height + item.row + unit.row) * p.out_width + j;
        int outputs = first + (int)threadIdx.x % 32 < units ? min(T, p.out_width - j) : 0;
#pragma unroll
        for (int r = 0; r < R; r++)
            activate_outputs<T, MT>(p.to.activation, sum[r]);
        // Rows of outputs are of even length if those of samples are and K is odd.
        bulk_store_rows<R, T, MT, VX == 4 && K % 2 ? 2 : 1>(
            p, memory.buffers + warp * BULK_BUFFER(T), at, outputs, sum);
    }
    bulk_release<warps>(p, memory, ring, count, count); // of a warp without units
#endif
}

#endif
