// SPDX-License-Identifier: MIT
// Depthwise layers of cuda_layer_window on planes of few samples, where reading code, waiting and
// rows that are no vectors take most of the time: a block copies some whole planes as they lie in
// memory, and a thread computes all rows of some columns. Its code has no products with rows of the
// padding and, if a thread has all columns, none with padding at all.
#pragma once

#include "kernels/layer/cuda/depthwise.cuh"

// K x K taps, stride S, planes of N x N samples, C columns of outputs of a thread. Pads before are
// K / 2.
template <int K_, int S_, int N_, int C_> struct planes_config {
    static const int K = K_, S = S_, N = N_, C = C_, SIDE = K / 2;
    static const int R = (N + S - 1) / S,
                     UNITS = R / C; // a side of the outputs; threads of a plane
    // A row of a thread's samples: the whole one, or pairs of its window that lie in the row or are
    // zeros, OFFSET floats before it.
    static const bool WHOLE = C == R;
    static const int OFFSET = WHOLE ? 0 : SIDE % 2;
    static const int X = WHOLE ? N : (C + K + OFFSET) / 2 * 2;
    // Floats from a plane to the next in shared memory: without the gap, three threads instead of
    // two of those that read pairs at a time read the same bank.
    static const int PITCH = N * N + (WHOLE ? 0 : 8), QUADS = (K * K + 4) / 4; // of weights
    static_assert(WHOLE || (S == 1 && C % 2 == 0 && N % C == 0 && N % 2 == 0), "pairs");
};

// Starts copying planes, which follow each other without gaps.
template <typename Config>
__device__ inline void planes_copy(const depthwise_launch &p, float *to, int first, int planes)
{
    const int SIZE = Config::N * Config::N, GAP = Config::PITCH - SIZE;
    const float *from = (const float *)p.src + (int64_t)first * SIZE;
    int quads = planes * SIZE / 4;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < quads; i += (int)blockDim.x)
        __pipeline_memcpy_async(to + i * 4 + (GAP ? i / (SIZE / 4) * GAP : 0), from + i * 4, 16);
    int i = quads * 4 + (int)threadIdx.x; // up to three samples of planes that are no vectors
    if (i < planes * SIZE)
        __pipeline_memcpy_async(to + i, from + i, 4);
}

// The sums of a thread: rows from top to bottom, as in depthwise_add().
template <typename Config>
__device__ inline void planes_add(float (&sum)[Config::C][Config::R],
                                  const float *const (&from)[Config::X / 2], const float *plane,
                                  const float (&w)[Config::QUADS * 4], int quads)
{
    const int K = Config::K, S = Config::S, N = Config::N, C = Config::C, R = Config::R;
    float x[2][Config::X];
#pragma unroll
    for (int r = 0; r < N; r++) {
        float(&now)[Config::X] = x[r % 2];
        if constexpr (Config::WHOLE) {
            layer_read<N, N % 2 == 0 ? 2 : 1>(now, plane + r * N);
        } else {
#pragma unroll
            for (int k = 0; k < Config::X / 2; k++) {
                float2 pair = *(const float2 *)(const void *)(from[k] + r * N);
                now[2 * k] = pair.x, now[2 * k + 1] = pair.y;
            }
        }
        layer_await(now);
        if (K > 5 && quads < 0) // never: see depthwise_add()
            __nanosleep(1);
#pragma unroll
        for (int v = 0; v < K; v++)
#pragma unroll
            for (int i = 0; i < R; i++) {
                const int u = r - i * S + Config::SIDE;
                if (u < 0 || u >= K)
                    continue;
#pragma unroll
                for (int k = 0; k < C; k++) {
                    const int c = i % 2 ? C - 1 - k : k;
                    const int at =
                        Config::WHOLE ? c * S + v - Config::SIDE : Config::OFFSET + c * S + v;
                    if (at >= 0 && at < Config::X)
                        sum[c][i] = fmaf(w[u * K + v], now[at], sum[c][i]);
                }
            }
    }
}

// An output with all of its products.
template <typename Config>
__device__ __attribute__((noinline)) float planes_define(const depthwise_launch &p, int number,
                                                         int row, int column)
{
    const float *plane = (const float *)p.src + (int64_t)number * (Config::N * Config::N);
    int channel = number - layer_divide(number, p.by_channels) * p.channels;
    const float *w = p.weights + channel * (int64_t)(p.quads * 4);
    float sum = w[Config::K * Config::K];
#pragma unroll 1
    for (int k = 0; k < Config::K * Config::K; k++) {
        int y = row * Config::S + k / Config::K - Config::SIDE;
        int x = column * Config::S + k % Config::K - Config::SIDE;
        bool inside = (unsigned)y < (unsigned)Config::N && (unsigned)x < (unsigned)Config::N;
        sum = fmaf(w[k], inside ? plane[y * Config::N + x] : 0, sum);
    }
    return layer_activate(p.activation == CONV_ACTIVATION_TANH ? 0 : p.activation, sum);
}

// PLANES: of a block, a multiple of four.
template <typename Config, int PLANES, int BLOCKS>
static __global__ __launch_bounds__(
    PLANES *Config::UNITS,
    RESIDENT(PLANES *Config::UNITS,
             BLOCKS)) void depthwise_planes(const __grid_constant__ depthwise_launch p)
{
    const int N = Config::N, C = Config::C, R = Config::R, TAPS = Config::K * Config::K;
    const int PITCH = Config::PITCH;
    // The planes, which the outputs overwrite, weights, and a plane of zeros.
    __shared__ float4 weights[PLANES * Config::QUADS];
    __shared__ float4 planes_shared[PLANES * PITCH / 4 + (Config::WHOLE ? 0 : N * N / 4)];
    float *samples = (float *)(void *)planes_shared, *zeros = samples + PLANES * PITCH;
    const int first = (int)blockIdx.x * PLANES, planes = min(PLANES, p.count - first);
    planes_copy<Config>(p, samples, first, planes);
    depthwise_copy_weights(p, (float *)(void *)weights, {0, first, planes, 0});
    __pipeline_commit();
    if (!Config::WHOLE)
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < N * N; i += PLANES * Config::UNITS)
            zeros[i] = 0;
    const bool valid = (int)threadIdx.x / Config::UNITS < planes;
    const int local = valid ? (int)threadIdx.x / Config::UNITS : 0;
    const int column = (int)threadIdx.x % Config::UNITS * C;
    const float *plane = samples + local * PITCH, *from[Config::X / 2];
#pragma unroll
    for (int k = 0; k < Config::X / 2; k++) {
        int at = column - Config::SIDE - Config::OFFSET + 2 * k;
        from[k] = at >= 0 && at < N ? plane + at : zeros;
    }
    __pipeline_wait_prior(0);
    __syncthreads(); // samples, weights and zeros of all threads have arrived
    float w[Config::QUADS * 4];
    layer_read<Config::QUADS * 4, 4>(
        w, (const float *)(const void *)(weights + local * Config::QUADS));
    float sum[C][R];
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < R; i++)
            sum[c][i] = w[TAPS];
    planes_add<Config>(sum, from, plane, w, p.quads);
    // Products with padding are zeros, which change a sum only from -0 to 0; or NaN, if a weight is
    // not finite, which then shows in an output of the thread.
    bool defined = true;
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < R; i++)
            defined =
                defined && fabsf(sum[c][i]) < INFINITY && __float_as_uint(sum[c][i]) != 1u << 31;
    activate_outputs<R, C>(p.activation, sum);
    __syncthreads(); // the samples have been read
    float *to = samples + local * (R * R) + column;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < C; c++)
            if (valid)
                to[i * R + c] = sum[c][i];
    if (valid && !defined)
#pragma unroll 1
        for (int k = 0; k < R * C; k++)
            to[k / C * R + k % C] = planes_define<Config>(p, first + local, k / C, column + k % C);
    __syncthreads(); // all outputs are there
    int64_t at = (int64_t)first * (R * R);
    if (p.half)
        depthwise_store<uint16_t>(p, samples, at, planes * (R * R));
    else
        depthwise_store<float>(p, samples, at, planes * (R * R));
}

// Instances for small planes.
struct planes_shape {
    int kernel, stride, side, planes, threads; // of planes; of a block
    void (*function)(depthwise_launch);
};

template <int K, int S, int N, int C, int PLANES, int BLOCKS> static planes_shape planes_of()
{
    typedef planes_config<K, S, N, C> config;
    return {K, S, N, PLANES, PLANES * config::UNITS, depthwise_planes<config, PLANES, BLOCKS>};
}

static const struct planes_shape planes_shapes[] = {
    planes_of<3, 1, 7, 7, 64, 12>(),  planes_of<5, 1, 7, 7, 64, 10>(),
    planes_of<7, 1, 7, 7, 64, 8>(),   planes_of<3, 2, 14, 7, 32, 20>(),
    planes_of<5, 2, 14, 7, 32, 16>(), planes_of<7, 2, 14, 7, 32, 14>(),
    planes_of<3, 1, 14, 2, 16, 8>(),  planes_of<5, 1, 14, 2, 8, 12>(),
    planes_of<7, 1, 14, 2, 8, 8>(),
};
