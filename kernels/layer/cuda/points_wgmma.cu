// SPDX-License-Identifier: MIT
// cuda_layer_points_wgmma and cuda_layer_points_tf32: layers with 1x1 kernels on the tensor cores
// of compute capability 9.0 (wgmma): a product of matrices, positions x channels by channels x
// maps, with TF32 operands and float32 sums. A float32 value is hi + lo, two TF32 numbers of 11
// bits each; three products (hi hi, hi lo, lo hi) give float32's precision. Unlike float16, TF32
// has float32's exponents, so nothing is scaled.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/points_ring.cuh"
#include "kernels/layer/cuda/wgmma.cuh"

// --- the kernel ----------------------------------------------------------------------------------

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

// --- the choice and the launch -------------------------------------------------------------------

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10)     // of a multiprocessor, for a block
#define MOST_CHANNELS 512      // for the bound
#define MOST_OUTPUTS (1 << 27) // of an image
#define FEW 65536              // positions of a launch

struct panel_shape {
    int maps, products, groups; // of a chunk; warpgroups
    void (*kernel)(panel_launch);
};

#define SHAPE(maps, products)                                                                      \
    {                                                                                              \
        maps, products, PANEL_GROUPS(maps), points_panels<maps, products>                          \
    }
static const struct panel_shape shapes[] = {
    SHAPE(128, 3), SHAPE(64, 3), SHAPE(32, 3), SHAPE(16, 3),
    SHAPE(128, 1), SHAPE(64, 1), SHAPE(32, 1), SHAPE(16, 1),
};

// Values derived from a layer; a plan's constants.
struct panel_config {
    int shape, chunks, steps, stages, weight_bytes, shared_bytes; // weight_bytes: of a chunk
};

// Completes a configuration whose shape is set; false if it needs too much memory.
static bool fill_config(const struct conv_layer *layer, struct panel_config *c)
{
    const struct panel_shape *s = &shapes[c->shape];
    c->chunks = ceil_div(layer->maps, s->maps);
    c->steps = ceil_div(layer->channels, RING_CHANNELS) * 2;
    c->weight_bytes = c->steps * (s->products == 3 ? 2 : 1) * s->maps * 32;
    int fixed =
        c->weight_bytes + s->maps * (int)sizeof(float) + s->groups * (int)sizeof(ring_barriers);
    int stages = (SHARED - fixed) / (s->groups * PANEL_STAGE);
    c->stages = stages < RING_MOST_STAGES ? stages : RING_MOST_STAGES;
    c->shared_bytes = fixed + c->stages * s->groups * PANEL_STAGE;
    return c->stages >= 2;
}

// The instance that computes fewest maps; a chunk costs as much as 32 more, since it reads the
// samples again.
static bool configure(const struct conv_layer *layer, int products, struct panel_config *best)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct panel_config c = {};
        c.shape = (int)i;
        if (shapes[i].products != products || !fill_config(layer, &c))
            continue;
        int64_t cost = (int64_t)c.chunks * (shapes[i].maps + 32);
        if (cost < least) {
            least = cost;
            *best = c;
        }
    }
    return least < INT64_MAX;
}

// Magnitudes of samples are compared with the same limits.
static bool weights_are_usual(const struct conv_layer *layer)
{
    size_t count = (size_t)layer->maps * (size_t)layer->channels;
    for (size_t i = 0; i < count; i++) {
        float magnitude = fabsf(layer->weights[i]);
        if (magnitude != 0 && !(magnitude >= 0x1p-50f && magnitude <= 0x1p50f))
            return false;
    }
    return true;
}

// Bytes of each part of the packed weights.
struct panel_parts {
    size_t weights, bias, exact;
};

static struct panel_parts parts_of(const struct conv_layer *layer, const struct panel_config *c)
{
    struct panel_parts parts;
    parts.weights = (size_t)c->chunks * (size_t)c->weight_bytes;
    parts.bias = (size_t)(c->chunks * shapes[c->shape].maps) * sizeof(float);
    parts.exact = (size_t)layer->maps * (size_t)layer->channels * sizeof(float);
    return parts;
}

template <int PRODUCTS> static bool plan_products(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct panel_config *c = layer_constants<struct panel_config>(plan);
    if (layer->kernel_height != 1 || layer->kernel_width != 1 || layer->stride_x != 1 ||
        layer->channels > MOST_CHANNELS || layer->maps > 1 << 20 || shape->height <= 0 ||
        shape->width <= 0 ||
        (int64_t)shape->height * shape->width > MOST_OUTPUTS / (layer->maps + 8) ||
        !configure(layer, PRODUCTS, c) || c->chunks >= 65536 || !weights_are_usual(layer))
        return false;
    struct panel_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact;
    return true;
}

// The nearest number of 11 bits. The kernel rounds samples in the same way.
static float round_tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000) & 0xffffe000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static void pack_products(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct panel_config *c = layer_constants<struct panel_config>(plan);
    struct panel_parts parts = parts_of(layer, c);
    float *weights = (float *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    memcpy((char *)bias + parts.bias, layer->weights, parts.exact);
    size_t maps = (size_t)shapes[c->shape].maps, halves = shapes[c->shape].products == 3 ? 2 : 1;
    for (size_t m = 0; m < (size_t)layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        for (size_t k = 0; k < (size_t)layer->channels; k++) {
            float w = layer->weights[m * (size_t)layer->channels + k];
            float *to = weights +
                        ((m / maps * (size_t)c->steps * 2 + k / 4) * halves * maps + m % maps) * 4 +
                        k % 4;
            to[0] = round_tf32(w);
            if (halves == 2)
                to[maps * 4] = round_tf32(w - to[0]);
        }
    }
}

static enum conv_status run_panels(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct panel_config *c = layer_constants<struct panel_config>(plan);
    void (*kernel)(panel_launch) = shapes[c->shape].kernel;
    if (batch->images <= 0)
        return CONV_OK;
    struct panel_parts parts = parts_of(layer, c);
    const char *packed = (const char *)plan->d_packed;
    panel_launch p = {};
    p.dst = batch->dst;
    p.weights = (const uint32_t *)(const void *)packed;
    p.bias = (const float *)(const void *)(packed + parts.weights);
    p.exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    p.maps = layer->maps;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    int groups = shapes[c->shape].groups;
    int64_t positions = batch->images * plan->shape.height * plan->shape.width;
    int64_t most = processors / c->chunks, blocks = ceil_div64(positions, groups * RING_LEAST);
    blocks = blocks < most ? blocks : most > 1 ? most : 1;
    p.in = ring_source_of(plan, batch, c->stages, blocks * groups, PANEL);
    dim3 grid((unsigned)blocks, (unsigned)c->chunks);
    int threads = (groups + 1) * 128;
    kernel<<<grid, threads, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// With fewer than 8 channels half of a step or more is unused, and exact variants are as fast; with
// up to 16 they are in launches of few positions.
static bool is_worth_it(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int64_t positions = (int64_t)shape->height * shape->width;
    bool few = shape->images > 0 && shape->images < FEW && shape->images * positions < FEW;
    return layer->channels > 16 || (layer->channels >= 8 && !few);
}

static int score_panels(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    return is_worth_it(layer, shape) ? 126 : 25;
}

static int score_tf32(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    return is_worth_it(layer, shape) ? 136 : 25;
}

// Error in units of 2^-24: 12 from the operands, and 4 for each of three additions of the tensor
// cores per 8 channels, which truncate.
const struct conv_layer_variant conv_cuda_layer_points_wgmma = {
    "cuda_layer_points_wgmma",
    "1x1 kernels on tensor cores of Hopper, three TF32 products, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_FAST,
    12 + 4 * 3 * MOST_CHANNELS / 8,
    0,
    plan_products<3>,
    score_panels,
    pack_products,
    run_panels,
};

// Operands of 11 bits: 2^-11 each.
const struct conv_layer_variant conv_cuda_layer_points_tf32 = {
    "cuda_layer_points_tf32",
    "1x1 kernels on tensor cores of Hopper, one TF32 product, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_TF32,
    16400 + 4 * MOST_CHANNELS / 8,
    0,
    plan_products<1>,
    score_tf32,
    pack_products,
    run_panels,
};
