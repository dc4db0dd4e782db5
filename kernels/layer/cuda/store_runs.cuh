// SPDX-License-Identifier: MIT
// How a warp stores its outputs: up to T neighbouring ones of each thread, for MT maps.
#pragma once

#include "kernels/layer/cuda/layer_device.cuh"

struct store_target {
    void *dst;
    int64_t plane;        // outputs of a map
    int activation, half; // half: float16
    int vectors;          // float32, even rows and planes of 4n outputs: see store_vectors
};

static inline struct store_target store_target_of(const struct conv_layer *layer, void *dst,
                                                  int out_height, int out_width)
{
    struct store_target to;
    to.dst = dst;
    to.plane = (int64_t)out_height * out_width;
    to.activation = (int)layer->activation;
    to.half = layer->output == CONV_ELEMENT_F16;
    to.vectors = !to.half && out_width % 2 == 0 && to.plane % 4 == 0;
    return to;
}

// Threads whose T outputs begin at multiples of four elements, without tanh.
template <int T, int MT>
__device__ inline void store_units(const store_target &target, bool half, int64_t at, int maps,
                                   float (&sum)[MT][T])
{
    if (half) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t += 4)
                if (m < maps)
                    layer_store4(
                        (uint16_t *)target.dst + at + m * target.plane + t,
                        make_float4(sum[m][t], sum[m][t + 1], sum[m][t + 2], sum[m][t + 3]));
        return;
    }
    float *to = (float *)target.dst + at;
#pragma unroll
    for (int m = 0; m < MT; m++, to += target.plane)
#pragma unroll
        for (int t = 0; t < T; t += 4)
            if (m < maps)
                layer_store4(to + t,
                             make_float4(sum[m][t], sum[m][t + 1], sum[m][t + 2], sum[m][t + 3]));
}

// The outputs of one map that a warp's threads store follow each other, except where the threads
// pass from one image to the next: a few runs. They pass through shared memory, so that whole
// sectors are written. Lanes are in the order of addresses and may overlap.

#define STORE_MOST_RUNS 4 // runs whose 16-byte alignment is kept
// Floats of a map in a warp's buffer: each run begins as far from a multiple of four as in memory.
#define STORE_ROOM(columns) (32 * (columns) + 8 * STORE_MOST_RUNS)

struct store_runs_of_warp {
    unsigned starts, stored; // lanes that begin a run; that store anything
    int position;            // of the thread's first output in the buffer
    bool vectors;
};

__device__ inline int64_t store_shuffle(int64_t value, int lane)
{
    uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)value, lane);
    uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(value >> 32), lane);
    return (int64_t)((uint64_t)high << 32 | low);
}

// Where the run that begins at lane `lane` lies in the buffer, without its phase.
template <int T> __device__ inline int store_run_place(const store_runs_of_warp &runs, int lane)
{
    if (!runs.vectors)
        return lane * T;
    return (lane * T + 3) / 4 * 4 + 8 * __popc(runs.starts & ((1u << lane) - 1));
}

// `at`: the thread's first output of map 0; `count`: how many it stores, 0 only after all others.
template <int T>
__device__ inline store_runs_of_warp store_find_runs(const store_target &target, int64_t at,
                                                     int count)
{
    const unsigned all = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    store_runs_of_warp runs;
    int64_t before = store_shuffle(at, (lane + 31) % 32);
    int count_before = (int)__shfl_sync(all, (uint32_t)count, (lane + 31) % 32);
    bool starts = count > 0 && (lane == 0 || at < before || at - before > count_before);
    runs.stored = __ballot_sync(all, count > 0);
    runs.starts = __ballot_sync(all, starts);
    runs.vectors = target.vectors && __popc(runs.starts) <= STORE_MOST_RUNS;
    int first = max(31 - __clz((int)(runs.starts & ((2u << lane) - 1))), 0);
    int64_t run_at = store_shuffle(at, first);
    runs.position = store_run_place<T>(runs, first) + (runs.vectors ? (int)(run_at & 3) : 0) +
                    (int)(at - run_at);
    return runs;
}

// Stores MB maps of a run of `length` outputs from `first` on: 16 bytes at a time, and single
// outputs at its ends.
template <int MB>
__device__ inline void store_vectors(const store_target &target, const float *buffer, int room,
                                     int64_t first, int length, int maps)
{
    int phase = (int)(first & 3);
    float *to = (float *)target.dst + (first - phase);
#pragma unroll 1
    for (int k = (int)threadIdx.x % 32 * 4; k < phase + length; k += 128) {
        if (k >= phase && k + 4 <= phase + length) {
#pragma unroll
            for (int m = 0; m < MB; m++)
                if (m < maps)
                    layer_store4(to + m * target.plane + k,
                                 *(const float4 *)(const void *)(buffer + m * room + k));
            continue;
        }
#pragma unroll 1
        for (int z = max(phase - k, 0); z < min(4, phase + length - k); z++)
#pragma unroll
            for (int m = 0; m < MB; m++)
                if (m < maps)
                    to[m * target.plane + k + z] = buffer[m * room + k + z];
    }
}

template <int MB>
__device__ inline void store_singly(const store_target &target, const float *buffer, int room,
                                    int64_t first, int length, int maps)
{
    int lane = (int)threadIdx.x % 32;
    if (target.half) {
#pragma unroll 1
        for (int k = lane; k < length; k += 32)
#pragma unroll
            for (int m = 0; m < MB; m++)
                if (m < maps)
                    layer_store((uint16_t *)target.dst + first + m * target.plane + k,
                                buffer[m * room + k]);
        return;
    }
#pragma unroll
    for (int m = 0; m < MB; m++) {
        if (m >= maps)
            break;
        float *to = (float *)target.dst + first + m * target.plane;
#pragma unroll 4
        for (int k = lane; k < length; k += 32)
            to[k] = buffer[m * room + k];
    }
}

// Stores MB maps of one run, those from `begin` on, from the buffer.
template <int T, int MB>
__device__ inline void store_run(const store_target &target, const store_runs_of_warp &runs,
                                 const float *buffer, int begin, int64_t first, int length,
                                 int maps)
{
    const int room = STORE_ROOM(T);
    const float *from = buffer + store_run_place<T>(runs, begin);
    // With vectors, planes are multiples of four outputs: the phase is that of all maps.
    if (runs.vectors)
        store_vectors<MB>(target, from, room, first, length, maps);
    else
        store_singly<MB>(target, from, room, first, length, maps);
}

// The lane that stores the end of the run that begins at lane `begin`; *left: the runs from it on.
__device__ inline int store_run_end(const store_runs_of_warp &runs, int begin, unsigned left)
{
    unsigned lanes = ~((1u << begin) - 1), next = left & (left - 1);
    if (next)
        lanes &= (next & (0 - next)) - 1;
    return 31 - __clz((int)(runs.stored & lanes));
}

// Stores a warp's outputs by way of `buffer`, MB * STORE_ROOM(T) floats of its own (32 * T of the
// last map without vectors), MB maps at a time. The activation has been applied, except tanh.
template <int T, int MT, int MB>
__device__ inline void store_runs(const store_target &target, float *buffer, int64_t at, int count,
                                  int maps, float (&sum)[MT][T])
{
    static_assert(MT % MB == 0, "whole batches");
    const int room = STORE_ROOM(T);
    const unsigned all = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    store_runs_of_warp runs = store_find_runs<T>(target, at, count);
    // With several batches of maps, the values of a run are derived once. With one batch that costs
    // more registers than it saves time.
    const bool several = MB < MT;
    int64_t first = 0;
    int length = 0;
    if (several) {
        int end = max(store_run_end(runs, 0, runs.starts), 0);
        first = store_shuffle(at, 0);
        length =
            (int)(store_shuffle(at, end) - first) + (int)__shfl_sync(all, (uint32_t)count, end);
    }
    float *to = buffer + runs.position;
#pragma unroll
    for (int m0 = 0; m0 < MT; m0 += MB) {
        if (T % 2 == 0 && runs.vectors && count == T) {
#pragma unroll
            for (int m = 0; m < MB; m++)
#pragma unroll
                for (int t = 0; t + 1 < T; t += 2) {
                    float2 pair;
                    pair.x = sum[m0 + m][t];
                    pair.y = sum[m0 + m][t + 1];
                    *(float2 *)(void *)(to + m * room + t) = pair;
                }
        } else {
#pragma unroll
            for (int m = 0; m < MB; m++)
#pragma unroll
                for (int t = 0; t < T; t++)
                    if (t < count)
                        to[m * room + t] = sum[m0 + m][t];
        }
        __syncwarp();
        if (target.activation == CONV_ACTIVATION_TANH)
            activate_tanh(buffer, (MB - 1) * room + (runs.vectors ? room : 32 * T), lane);
        if (several && runs.starts == 1) {
            store_run<T, MB>(target, runs, buffer, 0, first + m0 * target.plane, length, maps - m0);
        } else {
#pragma unroll 1
            for (unsigned left = runs.starts; left; left &= left - 1) {
                int begin = __ffs((int)left) - 1, last = store_run_end(runs, begin, left);
                int64_t run = store_shuffle(at, begin);
                int size = (int)(store_shuffle(at, last) - run) +
                           (int)__shfl_sync(all, (uint32_t)count, last);
                store_run<T, MB>(target, runs, buffer, begin, run + m0 * target.plane, size,
                                 maps - m0);
            }
        }
        __syncwarp();
    }
}
