// SPDX-License-Identifier: MIT
// Layers with 1x1 kernels on the tensor cores of compute capability 9.0 (wgmma): a product of
// matrices, positions x channels by channels x maps, with TF32 operands and float32 sums. A float32
// value is hi + lo, two TF32 numbers of 11 bits each; three products (hi hi, hi lo, lo hi) give
// float32's precision. Unlike float16, TF32 has float32's exponents, so nothing is scaled.
#ifndef CONV_KERNELS_LAYER_CUDA_POINTS_WGMMA_CUH
#define CONV_KERNELS_LAYER_CUDA_POINTS_WGMMA_CUH

#include "kernels/layer/cuda/points_ring.cuh"
#include "kernels/layer/cuda/wgmma_tf32.cuh"

#define PANEL 128       // positions of a task
#define PANEL_PITCH 136 // floats: 4 channels x 2 threads that read at once use all banks
#define PANEL_STAGE RING_STAGE(PANEL_PITCH)

// A block consists of warpgroups of consumers, which multiply and store, and one of producers, of
// which one or two warps copy the samples of each of the others. The fewer maps, the more consumers
// have the registers they need.
#define PANEL_GROUPS(N) ((N) == 16 ? 4 : (N) == 32 ? 3 : 2)
#define PANEL_THREADS(N) ((PANEL_GROUPS(N) + 1) * 128)
// Registers per thread. All threads start with equal shares of 65536; then producers release some
// and consumers request them. A request for more than were released never returns.
#define PANEL_REGISTERS(N) (65536 / PANEL_THREADS(N) / 8 * 8)
#define PANEL_CONSUMER_REGISTERS(N) ((N) >= 64 ? 232 : (N) == 16 ? 104 : 152)
#define PANEL_PRODUCER_REGISTERS 40

// Magnitudes, as float bits times 2, of which no product and no part of one overflows or loses
// bits.
#define PANEL_LEAST (2 * ((127u - 50) << 23))
#define PANEL_MOST (2 * ((127u + 50) << 23))

struct panel_launch {
    ring_source in;
    void *dst;
    const uint32_t *weights; // [chunk][8 channels][half of them][hi, lo][map][4]
    const float *bias;       // [maps padded]
    const float *exact;      // [map][channel]
    int maps, activation, half;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Rounds to 11 bits, to nearest.
__device__ inline uint32_t panel_round(float x)
{
    return (__float_as_uint(x) + 0x1000) & 0xffffe000u;
}

// The range of samples: float bits times 2; `least`, of those that are not 0, is less 1.
struct panel_range {
    uint32_t least, largest;
};

__device__ inline void panel_widen(panel_range &range, float x)
{
    uint32_t bits = __float_as_uint(x);
    bits += bits;
    range.least = min(range.least, bits - 1);
    range.largest = max(range.largest, bits);
}

__device__ inline bool panel_is_usual(const panel_range &range)
{
    return range.least >= PANEL_LEAST - 1 && range.largest <= PANEL_MOST;
}

// The operands of a step: 8 channels of two matrices of 64 positions.
template <int PRODUCTS> struct panel_operands {
    uint32_t high[2][4], low[PRODUCTS == 3 ? 2 : 1][4];
};

// Reads a step's samples. Matrix t has a thread's positions 2 t and 2 t + 1, of four that follow
// each other. Channels that do not exist are 0.
template <int PRODUCTS>
__device__ inline void panel_read(const float *from, int channels, panel_operands<PRODUCTS> &to,
                                  panel_range &range)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float x[4] = {0, 0, 0, 0};
        if (i * 4 < channels)
            layer_read<4, 4>(x, from + i * 4 * PANEL_PITCH);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            panel_widen(range, x[k]);
            uint32_t high = panel_round(x[k]);
            to.high[k / 2][i * 2 + k % 2] = high;
            if (PRODUCTS == 3)
                to.low[k / 2][i * 2 + k % 2] = panel_round(x[k] - __uint_as_float(high));
        }
    }
}

// The descriptor of a step's weights: 8 maps x 4 channels are 128 bytes, and those of the next maps
// follow. `at`: the address in units of 16 bytes.
template <int N, int PRODUCTS> __device__ inline uint64_t panel_descriptor(uint32_t at)
{
    return (uint64_t)8 << 32 | (uint32_t)((PRODUCTS == 3 ? 2 : 1) * N) << 16 | at;
}

template <int N, int PRODUCTS>
__device__ inline void panel_multiply(float (&sum)[2][N / 2],
                                      const panel_operands<PRODUCTS> &operands, uint32_t weights)
{
    uint64_t high = panel_descriptor<N, PRODUCTS>(weights);
#pragma unroll
    for (int t = 0; t < 2; t++)
        wgmma_tf32<N>(sum[t], operands.high[t], high);
    if constexpr (PRODUCTS == 3) {
        uint64_t low = panel_descriptor<N, PRODUCTS>(weights + N);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            wgmma_tf32<N>(sum[t], operands.high[t], low);
            wgmma_tf32<N>(sum[t], operands.low[t], high);
        }
    }
}

// Applies the activation. tanh is long and therefore a call.
template <int N> __device__ inline void panel_activate(int activation, float (&sum)[2][N / 2])
{
    if (activation == CONV_ACTIVATION_TANH) {
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sum[t][i] = layer_tanh<0>(sum[t][i]);
    } else {
        activate_outputs(activation, sum);
    }
}

// Stores a thread's outputs: four positions of maps 8 j + 2 (lane % 4) and the next one. A warp
// stores 128 bytes of each of four maps.
template <int N, bool VECTOR, typename Element>
__device__ inline void panel_store(const panel_launch &p, const ring_place &place, int maps,
                                   const float (&sum)[2][N / 2])
{
    Element *to = (Element *)p.dst + place.at;
    if (place.count <= 0)
        maps = 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float y[4] = {sum[0][j * 4 + i], sum[0][j * 4 + 2 + i], sum[1][j * 4 + i],
                                sum[1][j * 4 + 2 + i]};
            if (j * 8 + i < maps) {
                if (VECTOR) {
                    layer_store4(to, make_float4(y[0], y[1], y[2], y[3]));
                } else {
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (k < place.count)
                            layer_store(to + place.step[k], y[k]);
                }
            }
            to += i ? 7 * p.in.positions : p.in.positions;
        }
    }
}

// Computes a warp's outputs in the exact order: a sample is not finite, or too large or too small.
__device__ inline void panel_exact(const panel_launch &p, const ring_task &task, int local,
                                   int first_map, int maps)
{
    if (local >= task.count)
        return;
    ring_position first = ring_after(p.in, task.first, local);
    const char *src = ring_sample(p.in, first);
    int64_t at = (first.image * p.maps + first_map) * p.in.positions + first.at;
    const float *weight = p.exact + (int64_t)first_map * p.in.channels;
#pragma unroll 1
    for (int m = 0; m < maps; m++, at += p.in.positions) {
        float sum = __ldg(p.bias + first_map + m);
        const char *from = src;
#pragma unroll 1
        for (int c = 0; c < p.in.channels; c++, from += p.in.src_plane)
            sum = fmaf(__ldg(weight++), __ldg((const float *)(const void *)from), sum);
        sum = layer_activate(p.activation, sum);
        if (p.half)
            layer_store((uint16_t *)p.dst + at, sum);
        else
            layer_store((float *)p.dst + at, sum);
    }
}

// The loop of a warpgroup. `bias`, `weights` and `stages` lie in shared memory.
template <int N, int PRODUCTS>
__device__ inline void panel_consume(const panel_launch &p, int64_t worker, const float *bias,
                                     const char *weights, const char *stages, ring_barriers *ring)
{
    const int step_bytes = (PRODUCTS == 3 ? 2 : 1) * N * 32;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    int local = warp * 32 + lane / 4 * 4, first_map = (int)blockIdx.y * N;
    int maps = min(N, p.maps - first_map);
    uint32_t first_weights = uniform(shared_address(weights) >> 4);
    const char *in = stages + (lane % 4 * PANEL_PITCH + local) * (int)sizeof(float);
    pipeline_state state = {0, 0};
    for (int64_t round = 0; round <= p.in.rounds; round++) {
        ring_task task = ring_find<PANEL>(p.in, worker, round);
        if (task.count == 0)
            break;
        float sum[2][N / 2];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            float2 b = *(const float2 *)(const void *)(bias + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[0][j * 4 + k] = sum[1][j * 4 + k] = k % 2 ? b.y : b.x;
        }
        panel_range range = {0xffffffffu, 0};
        uint32_t at = first_weights;
#pragma unroll 1
        for (int c = 0; c < p.in.channels; c += RING_CHANNELS) {
            int channels = p.in.channels - c - lane % 4;
            const float *from = (const float *)(const void *)(in + state.stage * PANEL_STAGE);
            panel_operands<PRODUCTS> operands[2];
            barrier_wait(&ring->full[state.stage], state.parity);
            panel_read(from, channels, operands[0], range);
            panel_read(from + 8 * PANEL_PITCH, channels - 8, operands[1], range);
            wgmma_fence();
            panel_multiply<N, PRODUCTS>(sum, operands[0], at);
            panel_multiply<N, PRODUCTS>(sum, operands[1], at + step_bytes / 16);
            at += 2 * step_bytes / 16;
            wgmma_commit();
            wgmma_wait();
            // The products are complete, so this thread's samples have been read.
            barrier_arrive(&ring->empty[state.stage]);
            advance(&state, p.in.stages);
        }
        bool usual = panel_is_usual(range) || local >= task.count;
        if (!__all_sync(0xffffffffu, usual)) {
            panel_exact(p, task, warp * 32 + lane, first_map, maps);
            continue;
        }
        panel_activate<N>(p.activation, sum);
        int map = lane % 4 * 2;
        ring_place place = ring_find_place(p.in, task, local, p.maps, first_map + map);
        if (p.in.vector && !p.half)
            panel_store<N, true, float>(p, place, maps - map, sum);
        else if (p.in.vector)
            panel_store<N, true, uint16_t>(p, place, maps - map, sum);
        else if (p.half)
            panel_store<N, false, uint16_t>(p, place, maps - map, sum);
        else
            panel_store<N, false, float>(p, place, maps - map, sum);
    }
}

#endif

// The warpgroups of a block take tasks in turn, blockIdx.y is the chunk of N maps. Shared memory:
// weights, biases, a ring_barriers and the stages of each warpgroup.
template <int N, int PRODUCTS>
static __global__ __launch_bounds__(PANEL_THREADS(N),
                                    1) void points_panels(const __grid_constant__ panel_launch p)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static_assert(PANEL_GROUPS(N) * PANEL_CONSUMER_REGISTERS(N) + PANEL_PRODUCER_REGISTERS <=
                      (PANEL_GROUPS(N) + 1) * PANEL_REGISTERS(N),
                  "registers of a block");
    extern __shared__ __align__(128) char panel_memory[];
    const int groups = PANEL_GROUPS(N), warps = 4 / groups; // warps: that fill a ring
    int weight_bytes = (p.in.channels + 15) / 16 * (PRODUCTS == 3 ? 4 : 2) * N * 32;
    char *weights = panel_memory;
    float *bias = (float *)(void *)(weights + weight_bytes);
    ring_barriers *rings = (ring_barriers *)(void *)(bias + N);
    char *stages = (char *)(rings + groups);
    int thread = (int)threadIdx.x;
    if (thread < groups * p.in.stages)
        ring_init(p.in, &rings[thread / p.in.stages], thread % p.in.stages, 128, warps);
    if (thread == 0)
        barrier_init(rings->ready, 2);
    fence_for_bulk();
    __syncthreads(); // barriers are ready
    if (thread < groups * 128) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(PANEL_CONSUMER_REGISTERS(N)));
        barrier_wait(rings->ready, 0);
        int group = (int)uniform((uint32_t)thread / 128);
        panel_consume<N, PRODUCTS>(p, (int64_t)blockIdx.x * groups + group, bias, weights,
                                   stages + group * p.in.stages * PANEL_STAGE, &rings[group]);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PANEL_PRODUCER_REGISTERS));
        thread -= groups * 128;
        if (thread == 0) {
            ring_fill_weights((const char *)p.weights + (int64_t)blockIdx.y * weight_bytes, weights,
                              weight_bytes, rings->ready);
            ring_fill_weights(p.bias + (int)blockIdx.y * N, bias, N * (int)sizeof(float),
                              rings->ready);
        }
        __syncwarp();
        int group = (int)uniform((uint32_t)(thread / 32 / warps));
        if (group < groups)
            ring_produce<warps, PANEL, PANEL_PITCH>(p.in, (int64_t)blockIdx.x * groups + group,
                                                    stages + group * p.in.stages * PANEL_STAGE,
                                                    &rings[group], thread % (warps * 32));
    }
#endif
}

#endif
