// SPDX-License-Identifier: MIT
// How a warp stores its outputs: T neighbouring ones of each thread, for MT maps.
#ifndef CONV_KERNELS_LAYER_CUDA_STORE_RUN_CUH
#define CONV_KERNELS_LAYER_CUDA_STORE_RUN_CUH

#include "kernels/layer/cuda/layer_device.cuh"

// One output: float32 or float16.
__device__ inline void store_output(void *dst, bool half, int64_t at, float value)
{
    if (half)
        layer_store((uint16_t *)dst + at, value);
    else
        layer_store((float *)dst + at, value);
}

// Stores a run of `count` outputs, at most 32 * T, that begins at element `at`, from `buffer`.
// Sectors that two stores of a warp share are merged in the L2 cache.
template <int T>
__device__ inline void store_run(void *dst, bool half, int64_t at, const float *buffer, int count,
                                 int lane)
{
    if (half) {
#pragma unroll 1
        for (int i = lane; i < count; i += 32)
            layer_store((uint16_t *)dst + at + i, buffer[i]);
        return;
    }
    float *to = (float *)dst + at + lane;
    buffer += lane;
    count -= lane;
#pragma unroll
    for (int i = 0; i < 32 * T; i += 32)
        if (i < count)
            to[i] = buffer[i];
}

// Threads whose outputs begin at multiples of four elements, without tanh.
template <int T, int MT>
__device__ inline void store_units(void *dst, bool half, int64_t at, int64_t plane, int maps,
                                   float (&sum)[MT][T])
{
    if (half) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t += 4)
                if (m < maps)
                    layer_store4(
                        (uint16_t *)dst + at + m * plane + t,
                        make_float4(sum[m][t], sum[m][t + 1], sum[m][t + 2], sum[m][t + 3]));
        return;
    }
    float *to = (float *)dst + at;
#pragma unroll
    for (int m = 0; m < MT; m++, to += plane)
#pragma unroll
        for (int t = 0; t < T; t += 4)
            if (m < maps)
                layer_store4(to + t,
                             make_float4(sum[m][t], sum[m][t + 1], sum[m][t + 2], sum[m][t + 3]));
}

// Threads whose outputs follow each other or overlap in the order of lanes, at any address: they
// pass through shared memory, so that whole sectors are written. Warps between two images store
// directly.
template <int T, int MT>
__device__ inline void store_runs(void *dst, bool half, int activation, int64_t at, int64_t plane,
                                  int maps, float (&sum)[MT][T])
{
    const int room = 32 * T, batch = MT % 2 ? 1 : 2;
    __shared__ float4 buffers[8][(batch * room + 3) / 4];
    const unsigned all = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    float *buffer = &buffers[threadIdx.x / 32][0].x;
    uint32_t low = __shfl_sync(all, (uint32_t)at, 0);
    uint32_t high = __shfl_sync(all, (uint32_t)(at >> 32), 0);
    int64_t first = (int64_t)((uint64_t)high << 32 | low);
    int offset = (int)(at - first);
    // Images may be so small that a warp's outputs lie close together without following each other.
    int offset_before = (int)__shfl_sync(all, (uint32_t)offset, (lane + 31) % 32);
    bool follows = lane == 0 || (offset >= offset_before && offset - offset_before <= T);
    bool run = __all_sync(all, follows && at - first <= 32 * T - T && at >= first);
    int length = (int)__shfl_sync(all, (uint32_t)offset, 31) + T;
#pragma unroll
    for (int m0 = 0; m0 < MT; m0 += batch) {
#pragma unroll
        for (int m = 0; m < batch; m++) {
            int to = m * room + (run ? offset : lane * T);
#pragma unroll
            for (int t = 0; t < T; t++)
                buffer[to + t] = sum[m0 + m][t];
        }
        __syncwarp();
        if (activation == CONV_ACTIVATION_TANH)
            activate_tanh(buffer, batch * room, lane);
#pragma unroll
        for (int m = 0; m < batch; m++) {
            if (m0 + m < maps) {
                if (run) {
                    store_run<T>(dst, half, first + (m0 + m) * plane, buffer + m * room, length,
                                 lane);
                } else {
#pragma unroll 1
                    for (int t = 0; t < T; t++)
                        store_output(dst, half, at + (m0 + m) * plane + t,
                                     buffer[m * room + lane * T + t]);
                }
            }
        }
        __syncwarp();
    }
}

#endif
