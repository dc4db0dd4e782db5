// SPDX-License-Identifier: MIT
// Layers on the tensor cores of compute capability 9.0 (wgmma): implicit GEMM with float16 operands
// in shared memory and float32 sums.
#ifndef CONV_KERNELS_LAYER_CUDA_LAYER_WGMMA_CUH
#define CONV_KERNELS_LAYER_CUDA_LAYER_WGMMA_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/wgmma.cuh"
#include "kernels/layer/cuda/wgmma_atoms.cuh"

// Shared by the warps of a block, besides weights and atoms.
struct wgmma_shared {
    uint64_t full[WGMMA_BUFFERS], empty[WGMMA_BUFFERS]; // buffers of atoms
    uint64_t turn[WGMMA_GROUPS];                        // of a warpgroup, to multiply
    uint64_t together;                                  // consumers
    uint32_t unfit[WGMMA_BUFFERS]
                  [WGMMA_PRODUCERS / 32]; // 1: samples that WGMMA_SCALE does not suit
    uint32_t largest[WGMMA_CONSUMERS / 32], least[WGMMA_CONSUMERS / 32];
};

#define WGMMA_SHARED_BYTES ((int)(sizeof(wgmma_shared) + 127) / 128 * 128)

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void wgmma_meet(wgmma_shared *shared, uint32_t &parity)
{
    barrier_arrive(&shared->together);
    barrier_wait(&shared->together, parity);
    parity ^= 1;
}

// Finds the range of a task's samples, together with all consumers.
__device__ inline wgmma_range wgmma_find_range(const wgmma_launch &p, const wgmma_task &task,
                                               wgmma_shared *shared, uint32_t &parity)
{
    wgmma_range range = {0, 0xffffffffu};
#pragma unroll 1
    for (int q = (int)threadIdx.x; q < p.positions * p.planes; q += WGMMA_CONSUMERS) {
        float v[8];
        wgmma_read_atom(p, task, q, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            wgmma_widen(range, v[i]);
    }
    uint32_t largest = __float_as_uint(range.largest), least = range.least; // NaN is the largest
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
        least = min(least, __shfl_xor_sync(0xffffffffu, least, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        shared->largest[threadIdx.x / 32] = largest;
        shared->least[threadIdx.x / 32] = least;
    }
    wgmma_meet(shared, parity);
#pragma unroll
    for (int i = 0; i < WGMMA_CONSUMERS / 32; i++) {
        largest = max(largest, shared->largest[i]);
        least = min(least, shared->least[i]);
    }
    wgmma_meet(shared, parity); // both may be overwritten
    range.largest = __uint_as_float(largest);
    range.least = least;
    return range;
}

// Applies the activation to the outputs of a position and stores those of the first `maps_left`
// maps: 2 of 8 maps each. `at`: of the first.
template <int COUNT>
__device__ inline void wgmma_store(const wgmma_launch &p, float (&y)[COUNT], int64_t at, int plane,
                                   int maps_left)
{
    if (p.activation == CONV_ACTIVATION_RELU) {
#pragma unroll
        for (int d = 0; d < COUNT; d++)
            y[d] = y[d] < 0 ? 0 : y[d];
    } else if (p.activation != CONV_ACTIVATION_NONE) {
#pragma unroll
        for (int d = 0; d < COUNT; d++)
            y[d] = layer_activate(p.activation, y[d]);
    }
    if (p.half) {
        uint16_t *to = (uint16_t *)p.dst + at;
#pragma unroll
        for (int d = 0; d < COUNT; d++, to += d % 2 ? plane : 7 * plane)
            if (d / 2 * 8 + d % 2 < maps_left)
                layer_store(to, y[d]);
    } else if (maps_left > COUNT / 2 * 8 - 7) { // all
        float *to = (float *)p.dst + at;
#pragma unroll
        for (int d = 0; d < COUNT; d++, to += d % 2 ? plane : 7 * plane)
            layer_store(to, y[d]);
    } else {
        float *to = (float *)p.dst + at;
#pragma unroll
        for (int d = 0; d < COUNT; d++, to += d % 2 ? plane : 7 * plane)
            if (d / 2 * 8 + d % 2 < maps_left)
                layer_store(to, y[d]);
    }
}

// The exact order for a task whose samples differ too much in magnitude, or are not finite.
__device__ inline void wgmma_exact(const wgmma_launch &p, const wgmma_task &task, int first_map,
                                   int maps)
{
    int rows = min(p.tile_rows, p.out_height - task.top);
    int columns = min(p.tile_columns, p.out_width - task.left);
    int outputs = task.images * maps * rows * columns;
    int taps = p.channels * p.kernel_height * p.kernel_width;
    for (int q = (int)threadIdx.x; q < outputs; q += WGMMA_CONSUMERS) {
        int j = q % columns, i = q / columns % rows, line = q / columns / rows;
        int m = first_map + line % maps, image = line / maps;
        const float *weight = p.exact + (int64_t)m * taps;
        const char *src =
            task.src + image * p.src_image + i * p.src_row + j * (int64_t)sizeof(float);
        float sum = p.bias[m];
        for (int c = 0; c < p.channels; c++)
            for (int u = 0; u < p.kernel_height; u++) {
                const float *row =
                    (const float *)(const void *)(src + c * p.src_plane + u * p.src_row);
                for (int v = 0; v < p.kernel_width; v++)
                    sum = fmaf(*weight++, __ldg(row + v), sum);
            }
        int64_t at = (((task.first_image + image) * p.maps + m) * p.out_height + task.top + i) *
                         p.out_width +
                     task.left + j;
        sum = layer_activate(p.activation, sum);
        if (p.half)
            layer_store((uint16_t *)p.dst + at, sum);
        else
            layer_store((float *)p.dst + at, sum);
    }
}

// Multiplies and stores T matrices of 64 positions, from number `first` on. Sums of hi hi and of
// (hi lo + lo hi) are separate. The three products take two instructions, one with high samples and
// all parts of the weights; or three, where registers are short. The warpgroups take turns: one
// multiplies while the others store. `empty`: the buffer's barrier if these are the warpgroup's
// last matrices, or NULL.
template <int NB, int PRODUCTS, int T, bool SQUARE>
__device__ inline void wgmma_matrices(const wgmma_launch &p, const wgmma_task &task, uint32_t atoms,
                                      uint32_t weights, const float *bias, int first, int first_map,
                                      float unscale, wgmma_shared *shared, uint32_t &turn,
                                      uint64_t *empty)
{
    const int parts = PRODUCTS == 3 ? 2 : 1, maps = NB * 8, numbers = NB * 4;
    const bool apart = PRODUCTS == 3 && NB > 6;
    const int wide = PRODUCTS == 3 && !apart ? 2 : 1;
    float sum[T][wide * numbers], low[PRODUCTS == 3 ? T : 1][PRODUCTS == 3 ? numbers : 1];
    int base[T];
    uint32_t a[T], b = weights >> 4 | parts * NB * 8 << 16;
    int all = task.images * p.m_tiles;
#pragma unroll
    for (int t = 0; t < T; t++) {
        int number = min(first + t, all - 1);
        int image = task.images > 1 ? number / p.m_tiles : 0, rest = number - image * p.m_tiles;
        int down = SQUARE ? rest / p.m_across : 0, across = rest - down * p.m_across;
        base[t] = image * p.in_rows * p.pitch + down * p.m_row + across * p.m_column;
        a[t] = __shfl_sync(0xffffffffu, (atoms >> 4) + (uint32_t)base[t], 0);
#pragma unroll
        for (int i = 0; i < wide * numbers; i++)
            sum[t][i] = 0;
#pragma unroll
        for (int i = 0; i < numbers; i++)
            if (PRODUCTS == 3)
                low[t][i] = 0;
    }
    const int segment = SQUARE ? p.pitch : 8, group = (int)threadIdx.x / 128;
    const int pairs = p.steps / 2;
    const uint32_t part = (uint32_t)(p.part_bytes >> 4);
    uint2 next = p.offsets[0]; // read a pair of steps ahead: its latency is that of a step
    barrier_wait(&shared->turn[group], turn);
    turn ^= 1;
    wgmma_fence();
#pragma unroll 1
    for (int i = 0; i < pairs; i++) {
        uint2 offsets = next;
        next = p.offsets[min(i + 1, WGMMA_MOST_STEPS / 2 - 1)];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t offset = k ? offsets.y : offsets.x, w = b + (uint32_t)k * parts * NB * 16;
#pragma unroll
            for (int t = 0; t < T; t++) {
                uint64_t hi = wgmma_descriptor(a[t] + offset, segment);
                wgmma<wide * maps>(sum[t], hi, wgmma_descriptor(w, 8), 1);
                if constexpr (apart)
                    wgmma<maps>(low[t], hi, wgmma_descriptor(w + NB * 8, 8), 1);
                if constexpr (PRODUCTS == 3)
                    wgmma<maps>(low[t], wgmma_descriptor(a[t] + offset + part, segment),
                                wgmma_descriptor(w, 8), 1);
            }
        }
        b += parts * NB * 32;
    }
    wgmma_commit();
    barrier_arrive(&shared->turn[group + 1 < WGMMA_GROUPS ? group + 1 : 0]);
    wgmma_wait();
    if (empty)
        barrier_arrive(empty);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    int rows = min(p.tile_rows, p.out_height - task.top);
    int columns = min(p.tile_columns, p.out_width - task.left), map = lane % 4 * 2;
    int plane = p.out_height * p.out_width;
    int64_t at = (task.first_image * p.maps + first_map) * plane + task.top * p.out_width +
                 task.left + map * plane;
#pragma unroll
    for (int t = 0; t < T; t++) {
        if (first + t >= all)
            break;
        int64_t to[2];
        bool exists[2];
        float y[2][numbers / 2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int position = base[t] + (warp * 2 + h) * segment + lane / 4;
            int line = (int)__umulhi((uint32_t)position, p.pitch_inverse);
            int j = position - line * p.pitch;
            int image = (int)__umulhi((uint32_t)line, p.rows_inverse);
            int i = line - image * p.in_rows;
            exists[h] = image < task.images && i < rows && j < columns;
            to[h] = at + (image * p.maps * plane + i * p.out_width + j);
        }
#pragma unroll
        for (int d = 0; d < numbers / 2; d++) {
            float add = bias[map + d / 2 * 8 + d % 2], back = bias[maps + map + d / 2 * 8 + d % 2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int from = d / 2 * 4 + h * 2 + d % 2;
                float value = sum[t][from];
                if (PRODUCTS == 3)
                    value = fmaf(low[t][from] + (apart ? 0 : sum[t][(wide - 1) * numbers + from]),
                                 1 / WGMMA_LO, value);
                y[h][d] = fmaf(value * unscale, back, add);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (exists[h])
                wgmma_store<numbers / 2>(p, y[h], to[h], plane, p.maps - first_map - map);
    }
}

// Writes the atoms of one task after the other.
template <int PRODUCTS>
__device__ inline void wgmma_produce(const wgmma_launch &p, char *atoms, wgmma_shared *shared)
{
    int buffer = 0, thread = (int)threadIdx.x - WGMMA_CONSUMERS;
    uint32_t parity = 1;
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        wgmma_task task = wgmma_find_task(p, number);
        barrier_wait(&shared->empty[buffer], parity);
        wgmma_range range =
            wgmma_fill<PRODUCTS>(p, task, WGMMA_SCALE, atoms + buffer * p.buffer_bytes, thread);
        bool unfit = !__all_sync(0xffffffffu, wgmma_is_within<PRODUCTS>(range, WGMMA_SCALE));
        if (thread % 32 == 0)
            shared->unfit[buffer][thread / 32] = unfit;
        wgmma_fence_shared();
        barrier_arrive(&shared->full[buffer]);
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

// Multiplies and stores.
template <int NB, int PRODUCTS, int T, bool SQUARE>
__device__ inline void wgmma_consume(const wgmma_launch &p, const char *weights, const float *bias,
                                     char *atoms, wgmma_shared *shared)
{
    // The shuffle shows the compiler that all lanes have the same value, so that descriptors are in
    // uniform registers.
    int group = (int)__shfl_sync(0xffffffffu, threadIdx.x / 128, 0), buffer = 0;
    int first_map = (int)blockIdx.y * NB * 8;
    uint32_t parity = 0, together = 1, turn = group == 0; // the first one begins
    int next = 0;                                         // warpgroup
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        wgmma_task task = wgmma_find_task(p, number);
        char *in = atoms + buffer * p.buffer_bytes;
        float unscale = 1 / WGMMA_SCALE;
        bool exact = false;
        barrier_wait(&shared->full[buffer], parity);
        uint32_t unfit = 0;
#pragma unroll
        for (int i = 0; i < WGMMA_PRODUCERS / 32; i++)
            unfit |= shared->unfit[buffer][i];
        if (unfit) {
            wgmma_range range = wgmma_find_range(p, task, shared, together);
            // A power of two that makes the largest magnitude 2^14 to 2^15.
            int exponent = min(268 - (int)(__float_as_uint(range.largest) >> 23), 253);
            float scale = __uint_as_float((uint32_t)exponent << 23);
            unscale = __uint_as_float((uint32_t)(254 - exponent) << 23);
            exact = !(range.largest < INFINITY) || !wgmma_is_within<PRODUCTS>(range, scale);
            if (exact) {
                wgmma_exact(p, task, first_map, min(NB * 8, p.maps - first_map));
            } else {
                wgmma_fill<PRODUCTS>(p, task, scale, in, (int)threadIdx.x);
                wgmma_fence_shared();
                wgmma_meet(shared, together);
            }
        }
        int units = exact ? 0 : (task.images * p.m_tiles + T - 1) / T;
        int unit = group - next + (group < next ? WGMMA_GROUPS : 0);
        if (unit >= units)
            barrier_arrive(&shared->empty[buffer]);
        for (; unit < units; unit += WGMMA_GROUPS) {
            uint64_t *empty = unit + WGMMA_GROUPS < units ? NULL : &shared->empty[buffer];
            wgmma_matrices<NB, PRODUCTS, T, SQUARE>(p, task, (uint32_t)__cvta_generic_to_shared(in),
                                                    (uint32_t)__cvta_generic_to_shared(weights),
                                                    bias, unit * T, first_map, unscale, shared,
                                                    turn, empty);
        }
        next = (next + units) % WGMMA_GROUPS;
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

#endif

// Blocks take tasks in turn and keep the weights of a chunk of NB * 8 maps (blockIdx.y). Shared
// memory: weights, bias and inverse scales, wgmma_shared, two buffers of atoms.
template <int NB, int PRODUCTS, int T, bool SQUARE>
static __global__ __launch_bounds__(WGMMA_THREADS,
                                    1) void wgmma_layer(const __grid_constant__ wgmma_launch p)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static_assert(WGMMA_CONSUMERS * WGMMA_CONSUMER_REGISTERS +
                          WGMMA_PRODUCERS * WGMMA_PRODUCER_REGISTERS <=
                      WGMMA_THREADS * WGMMA_REGISTERS,
                  "registers of a block");
    extern __shared__ __align__(128) char wgmma_memory[];
    const int maps = NB * 8;
    int weight_bytes = p.steps * (PRODUCTS == 3 ? 2 : 1) * NB * 256, chunk = (int)blockIdx.y;
    char *weights = wgmma_memory;
    float *bias = (float *)(void *)(weights + weight_bytes);
    wgmma_shared *shared = (wgmma_shared *)(void *)(bias + 2 * maps);
    char *atoms = (char *)shared + WGMMA_SHARED_BYTES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < WGMMA_BUFFERS; i++) {
            barrier_init(&shared->full[i], WGMMA_PRODUCERS);
            barrier_init(&shared->empty[i], WGMMA_CONSUMERS);
        }
        for (int i = 0; i < WGMMA_GROUPS; i++)
            barrier_init(&shared->turn[i], WGMMA_CONSUMERS / WGMMA_GROUPS);
        barrier_init(&shared->together, WGMMA_CONSUMERS);
    }
    __syncthreads();
    if (threadIdx.x < WGMMA_CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(WGMMA_CONSUMER_REGISTERS));
        const uint4 *from = (const uint4 *)(const void *)p.weights + chunk * (weight_bytes / 16);
        for (int i = (int)threadIdx.x; i < weight_bytes / 16; i += WGMMA_CONSUMERS)
            ((uint4 *)(void *)weights)[i] = __ldg(from + i);
        for (int i = (int)threadIdx.x; i < maps; i += WGMMA_CONSUMERS) {
            bias[i] = __ldg(p.bias + chunk * maps + i);
            bias[maps + i] = __ldg(p.bias + ((int)gridDim.y + chunk) * maps + i);
        }
        wgmma_fence_shared();
        uint32_t parity = 0;
        wgmma_meet(shared, parity);
        wgmma_consume<NB, PRODUCTS, T, SQUARE>(p, weights, bias, atoms, shared);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(WGMMA_PRODUCER_REGISTERS));
        wgmma_produce<PRODUCTS>(p, atoms, shared);
    }
#endif
}

#endif
