// SPDX-License-Identifier: MIT
// The exact order for layers of few input channels, which are limited by writing the maps: a thread
// computes T outputs of R rows for MT maps. Samples come through the L1 cache. Weights lie in the
// kernel's parameters, so that uniform registers hold them: a multiply-add whose weight comes from
// an ordinary register often waits for the register file, 1.6 instead of 1.0 cycles.
#ifndef CONV_KERNELS_LAYER_CUDA_UNIFORM_CUH
#define CONV_KERNELS_LAYER_CUDA_UNIFORM_CUH

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_run.cuh"

// Weights and biases of a launch: as many as fit in its parameters, or a smaller array for layers
// that need less, since 30 KB of parameters delay a launch by 2 us and 10 KB by 0.5 us.
#define UNIFORM_FLOATS LAYER_PARAMETER_FLOATS
#define UNIFORM_FEW_FLOATS (UNIFORM_FLOATS < 2500 ? UNIFORM_FLOATS : 2500)

struct uniform_launch {
    const void *src;
    void *dst;
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    int group_images, group_blocks; // images of a group; blocks that compute them
    int tiles, image_units;         // units of a row; units of an image
    int out_height, out_width, channels, maps, activation, half;
};

template <int FLOATS> struct uniform_weights_launch {
    uniform_launch p;
    // [group][1 + channel * K * K][MT], bias first. Pairs, because uniform
    // registers are loaded one or two at a time.
    float2 weights[FLOATS / 2];
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

// A unit beyond the last column or row of units ends with the plane and may overlap the one before.
template <int T, int R, bool WHOLE>
__device__ inline uniform_unit uniform_find(const uniform_launch &p, int64_t first_image, int unit,
                                            int first_map)
{
    int local = unit / p.image_units;
    int rest = unit - local * p.image_units, i = rest / p.tiles, j = (rest - i * p.tiles) * T;
    if (!WHOLE)
        j = min(j, p.out_width - T);
    if (R > 1)
        i = min(i * R, p.out_height - R);
    int64_t image = first_image + local;
    uniform_unit found;
    found.src = (const char *)p.src + image * p.src_image + (int64_t)i * p.src_row + j * 4;
    found.at = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    return found;
}

// blockIdx.x: THREADS units of a group of images; blockIdx.y: group of MT maps. A unit is T columns
// of R rows.
template <int K, int T, int R, int MT, int VX, bool WHOLE, int FLOATS, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS, BLOCKS) void uniform(
    const __grid_constant__ uniform_weights_launch<FLOATS> launch)
{
    const uniform_launch &p = launch.p;
    static_assert(WHOLE || R == 1, "several rows are stored 16 bytes at a time");
    int images = (int)blockIdx.x / p.group_blocks;
    int unit = ((int)blockIdx.x - images * p.group_blocks) * THREADS + (int)threadIdx.x;
    int64_t first_image = (int64_t)images * p.group_images;
    int units = (int)min((int64_t)p.group_images, p.images - first_image) * p.image_units;
    if (unit - (int)threadIdx.x % 32 >= units)
        return; // all of the warp
    int first_map = (int)blockIdx.y * MT;
    // Units beyond the last one repeat it.
    uniform_unit at = uniform_find<T, R, WHOLE>(p, first_image, min(unit, units - 1), first_map);
    int taps = p.channels * K * K;
    int weight = (int)blockIdx.y * (taps + 1) * (MT / 2);
    float sum[R][MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float2 bias = launch.weights[weight + m / 2];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = m % 2 ? bias.y : bias.x;
    }
    weight += MT / 2;

    const int N = T + K - 1;
    // With few images, waiting for memory takes most of the time, so all channels are prefetched.
    if (THREADS < 128) {
#pragma unroll 1
        for (int c = 1; c < p.channels; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u += 2)
                asm volatile("prefetch.global.L2 [%0];"
                             :
                             : "l"(at.src + c * p.src_plane + u * p.src_row));
    }
#pragma unroll 1
    for (int c = 0; c < p.channels; c++) {
        // All rows at once: few loads come back before the first is needed.
        float x[K + R - 1][N];
#pragma unroll
        for (int u = 0; u < K + R - 1; u++)
            uniform_read<N, VX>(x[u], (const float *)(const void *)(at.src + u * p.src_row));
        at.src += p.src_plane;
#pragma unroll
        for (int u = 0; u < K; u++) {
#pragma unroll
            for (int v = 0; v < K; v++) {
#pragma unroll
                for (int m = 0; m < MT; m += 2) {
                    float2 w = launch.weights[weight + ((u * K + v) * MT + m) / 2];
#pragma unroll
                    for (int r = 0; r < R; r++) {
#pragma unroll
                        for (int t = 0; t < T; t++) {
                            sum[r][m][t] = fmaf(w.x, x[u + r][t + v], sum[r][m][t]);
                            sum[r][m + 1][t] = fmaf(w.y, x[u + r][t + v], sum[r][m + 1][t]);
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
    for (int r = 0; r < R; r++) {
        activate_outputs<T, MT>(p.activation, sum[r]);
        if (WHOLE)
            store_units<T, MT>(p.dst, p.half, at.at + r * p.out_width, plane, maps, sum[r]);
        else
            store_runs<T, MT>(p.dst, p.half, p.activation, at.at, plane, maps, sum[r]);
    }
}

#endif
