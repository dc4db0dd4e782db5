// SPDX-License-Identifier: MIT
// The exact order for some input channels, where writing the maps is the limit: a thread computes T
// outputs of a row for MT maps. Samples come through the L1 cache. Weights lie in the kernel's
// parameters, so that uniform registers hold them: a multiply-add whose weight comes from an
// ordinary register often waits for the register file, 1.6 instead of 1.0 cycles.
#ifndef CONV_KERNELS_LAYER_CUDA_UNIFORM_CUH
#define CONV_KERNELS_LAYER_CUDA_UNIFORM_CUH

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_run.cuh"

#define UNIFORM_THREADS 256
#define UNIFORM_FLOATS LAYER_PARAMETER_FLOATS // of weights and biases

struct uniform_launch {
    const void *src;
    void *dst;
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    int group_images, group_blocks; // images of a group, and blocks that compute them
    int out_height, out_width, tiles, channels, maps, activation, half;
    // [group][1 + channel * K * K][MT], bias first. Pairs, because uniform
    // registers are loaded one or two at a time.
    float2 weights[UNIFORM_FLOATS / 2];
};

// N floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void uniform_read(float (&to)[N], const float *from)
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

// The source and destination of a unit.
struct uniform_unit {
    const char *src;
    int64_t at; // of its first output
};

template <int T, bool WHOLE>
__device__ inline uniform_unit uniform_find(const uniform_launch &p, int64_t first_image, int unit,
                                            int first_map)
{
    int across = p.out_height * p.tiles, local = unit / across;
    int rest = unit - local * across, i = rest / p.tiles, j = (rest - i * p.tiles) * T;
    if (!WHOLE)
        j = min(j, p.out_width - T);
    int64_t image = first_image + local;
    uniform_unit found;
    found.src = (const char *)p.src + image * p.src_image + (int64_t)i * p.src_row + j * 4;
    found.at = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    return found;
}

// blockIdx.x: PIECES * 256 units of a group of images; blockIdx.y: group of MT maps. A unit is T
// columns of a row; the last one of a row ends with it and may overlap the one before. A thread
// computes PIECES units, 256 apart, with the same weights.
template <int K, int T, int MT, int VX, bool WHOLE, int PIECES, int BLOCKS>
static __global__ __launch_bounds__(UNIFORM_THREADS,
                                    BLOCKS) void uniform(const __grid_constant__ uniform_launch p)
{
    int images = (int)blockIdx.x / p.group_blocks;
    int unit =
        ((int)blockIdx.x - images * p.group_blocks) * (PIECES * UNIFORM_THREADS) + (int)threadIdx.x;
    int64_t first_image = (int64_t)images * p.group_images;
    int units = (int)min((int64_t)p.group_images, p.images - first_image) * p.out_height * p.tiles;
    if (unit - (int)threadIdx.x % 32 >= units)
        return; // all of the warp
    int first_map = (int)blockIdx.y * MT;
    // Units beyond the last one repeat it.
    uniform_unit at[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        at[i] = uniform_find<T, WHOLE>(p, first_image, min(unit + i * UNIFORM_THREADS, units - 1),
                                       first_map);
    int taps = p.channels * K * K;
    int weight = (int)blockIdx.y * (taps + 1) * (MT / 2);
    float sum[PIECES][MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float2 bias = p.weights[weight + m / 2];
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[i][m][t] = m % 2 ? bias.y : bias.x;
    }
    weight += MT / 2;

    const int N = T + K - 1;
#pragma unroll 1
    for (int c = 0; c < p.channels; c++) {
        // All rows at once: few loads come back before the first is needed.
        float x[PIECES][K][N];
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
#pragma unroll
            for (int u = 0; u < K; u++)
                uniform_read<N, VX>(x[i][u],
                                    (const float *)(const void *)(at[i].src + u * p.src_row));
            at[i].src += p.src_plane;
        }
#pragma unroll
        for (int u = 0; u < K; u++) {
#pragma unroll
            for (int v = 0; v < K; v++) {
#pragma unroll
                for (int m = 0; m < MT; m += 2) {
                    float2 w = p.weights[weight + ((u * K + v) * MT + m) / 2];
#pragma unroll
                    for (int i = 0; i < PIECES; i++) {
#pragma unroll
                        for (int t = 0; t < T; t++) {
                            sum[i][m][t] = fmaf(w.x, x[i][u][t + v], sum[i][m][t]);
                            sum[i][m + 1][t] = fmaf(w.y, x[i][u][t + v], sum[i][m + 1][t]);
                        }
                    }
                }
            }
        }
        weight += K * K * MT / 2;
    }

    int64_t plane = (int64_t)p.out_height * p.out_width;
    int maps = min(MT, p.maps - first_map);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (unit - (int)threadIdx.x % 32 + i * UNIFORM_THREADS >= units)
            return;
        activate_outputs<T, MT>(p.activation, sum[i]);
        if (WHOLE)
            store_units<T, MT>(p.dst, p.half, at[i].at, plane, maps, sum[i]);
        else
            store_runs<T, MT>(p.dst, p.half, p.activation, at[i].at, plane, maps, sum[i]);
    }
}

#endif
