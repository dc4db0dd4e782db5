// SPDX-License-Identifier: MIT
// The exact order for few input channels, where writing the maps is the limit. A thread reads the
// samples of T outputs of a row once, through the L1 cache, keeps them in registers and computes
// the maps in groups of MT, one group after the other, so that the memory gets outputs all the
// time.
#ifndef CONV_KERNELS_LAYER_CUDA_FEW_CUH
#define CONV_KERNELS_LAYER_CUDA_FEW_CUH

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

struct few_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // few_looped: [group][1 + taps][MT], the bias first
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    int group_images, group_blocks; // images of a group, and blocks that compute them
    struct layer_divider by_group_blocks, by_image, by_tiles;
    int out_height, out_width, tiles, maps, groups;
};

// The same with weights at known places in the kernel's parameters, so that they are operands of
// the multiply-adds: no instruction loads them, and no register holds them.
template <int FLOATS> struct few_fixed_launch {
    few_launch p;
    float weights[FLOATS]; // [group][1 + taps][MT]
};

// N floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void few_read(float (&to)[N], const float *from)
{
    const int quads = VX == 4 ? N / 4 * 4 : 0, pairs = VX >= 2 ? N / 2 * 2 : 0;
#pragma unroll
    for (int i = 0; i < quads; i += 4) {
        float4 v = __ldg((const float4 *)(const void *)(from + i));
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
#pragma unroll
    for (int i = quads; i < pairs; i += 2) {
        float2 v = __ldg((const float2 *)(const void *)(from + i));
        to[i] = v.x, to[i + 1] = v.y;
    }
#pragma unroll
    for (int i = quads > pairs ? quads : pairs; i < N; i++)
        to[i] = __ldg(from + i);
}

// What a thread computes. A unit is T columns of a row; the last one of a row ends with it and may
// overlap the one before. A block computes consecutive units of a group of images.
template <int C, int K, int T, int VX> struct few_unit {
    float x[C][K][T + K - 1];
    int64_t at; // of the first output of map 0
    int count;  // T, or 0 for a thread without outputs

    __device__ inline void find(const few_launch &p)
    {
        int group = layer_divide((int)blockIdx.x, p.by_group_blocks);
        int64_t first_image = (int64_t)group * p.group_images;
        int unit = ((int)blockIdx.x - group * p.group_blocks) * (int)blockDim.x + (int)threadIdx.x;
        int across = p.out_height * p.tiles;
        int units = (int)min((int64_t)p.group_images, p.images - first_image) * across;
        count = unit < units ? T : 0;
        unit = min(unit, units - 1);
        int local = layer_divide(unit, p.by_image), rest = unit - local * across;
        int i = layer_divide(rest, p.by_tiles);
        int j = min((rest - i * p.tiles) * T, p.out_width - T);
        int64_t image = first_image + local;
        at = (image * p.maps * p.out_height + i) * p.out_width + j;
        const char *src =
            (const char *)p.src + image * p.src_image + (int64_t)i * p.src_row + j * 4;
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int u = 0; u < K; u++)
                few_read<T + K - 1, VX>(
                    x[c][u], (const float *)(const void *)(src + c * p.src_plane + u * p.src_row));
    }

    // PLAIN: no activation, float32, whole groups.
    template <int MT, bool WHOLE, bool PLAIN>
    __device__ inline void store(const few_launch &p, float *buffer, int group, float (&sum)[MT][T])
    {
        int64_t to = at + (int64_t)(group * MT) * p.to.plane;
        int maps = PLAIN ? MT : min(MT, p.maps - group * MT);
        if (!PLAIN)
            activate_outputs<T, MT>(p.to.activation, sum);
        if (!WHOLE)
            store_runs<T, MT, MT>(p.to, buffer, to, count, maps, sum);
        else if (count)
            store_units<T, MT>(p.to, !PLAIN && p.to.half, to, maps, sum);
    }
};

// Adds a tap to a thread's sums. The first tap starts from the bias.
template <int T, int MT>
__device__ inline void few_add(float (&sum)[MT][T], const float *x, float w, int m, bool first,
                               float bias)
{
#pragma unroll
    for (int t = 0; t < T; t++)
        sum[m][t] = fmaf(w, x[t], first ? bias : sum[m][t]);
}

// Up to G groups of maps, all of them unrolled.
template <int C, int K, int T, int MT, int G, int VX, bool WHOLE, int THREADS, int BLOCKS,
          bool PLAIN>
static __global__ __launch_bounds__(THREADS, BLOCKS) void few_fixed(
    const __grid_constant__ few_fixed_launch<G * MT *(1 + C * K * K)> launch)
{
    const int taps = C * K * K;
    __shared__ float4 buffers[WHOLE ? 1 : THREADS / 32 * MT * STORE_ROOM(T) / 4];
    float *buffer = (float *)(void *)buffers + (WHOLE ? 0 : threadIdx.x / 32 * MT * STORE_ROOM(T));
    const few_launch &p = launch.p;
    few_unit<C, K, T, VX> unit;
    unit.find(p);
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g > 0 && g >= p.groups)
            return;
        float sum[MT][T];
#pragma unroll
        for (int k = 0; k < taps; k++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                few_add<T, MT>(sum, &unit.x[k / (K * K)][k / K % K][k % K],
                               launch.weights[(g * (1 + taps) + 1 + k) * MT + m], m, k == 0,
                               launch.weights[g * (1 + taps) * MT + m]);
        unit.template store<MT, WHOLE, PLAIN>(p, buffer, g, sum);
    }
}

// Any number of groups, with their weights in shared memory.
template <int C, int K, int T, int MT, int VX, bool WHOLE, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void few_looped(const __grid_constant__ few_launch p)
{
    const int taps = C * K * K, floats = (1 + taps) * MT;
    extern __shared__ float4 few_memory[];
    float *weights = (float *)(void *)few_memory;
    float *buffer = weights + (p.groups * floats + 3) / 4 * 4;
    if (!WHOLE)
        buffer += threadIdx.x / 32 * MT * STORE_ROOM(T);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.groups * floats / 2; i += THREADS)
        ((float2 *)(void *)weights)[i] = __ldg((const float2 *)(const void *)p.weights + i);
    few_unit<C, K, T, VX> unit;
    unit.find(p);
    __syncthreads();
#pragma unroll 1
    for (int g = 0; g < p.groups; g++, weights += floats) {
        const int vector = MT % 4 == 0 ? 4 : 2;
        float sum[MT][T], bias[MT];
#pragma unroll
        for (int k = -1; k < taps; k++) {
            float w[MT];
#pragma unroll
            for (int m = 0; m < MT; m += vector) {
                const float *from = weights + (1 + k) * MT + m;
                if (vector == 4) {
                    float4 v = *(const float4 *)(const void *)from;
                    w[m] = v.x, w[m + 1] = v.y, w[m + 2] = v.z, w[m + 3] = v.w;
                } else {
                    float2 v = *(const float2 *)(const void *)from;
                    w[m] = v.x, w[m + 1] = v.y;
                }
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                if (k < 0)
                    bias[m] = w[m];
                else
                    few_add<T, MT>(sum, &unit.x[k / (K * K)][k / K % K][k % K], w[m], m, k == 0,
                                   bias[m]);
            }
        }
        unit.template store<MT, WHOLE, false>(p, buffer, g, sum);
    }
}

#endif
