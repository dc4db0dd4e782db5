// SPDX-License-Identifier: MIT
// cuda_layer_points_bulk: layers with 1x1 kernels, exact, on compute capability 9.0. A product of
// matrices by tiles of maps x positions, with 8 x 8 sums per thread. A part of the channels at a
// time is copied in bulk, so that a tile may have many channels.
#include <string.h>

#include "kernels/layer/cuda/points_ring.cuh"

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10)     // of a multiprocessor, for a block
#define MOST_OUTPUTS (1 << 27) // of an image

// A block consists of consumers, which compute, and a warpgroup of producers, which copies samples.
// Registers per thread: all threads start with equal shares of 65536; then producers release some
// and consumers request them. A request for more than were released never returns.
#define CONSUMERS 512
#define COPIERS 128
#define THREADS (CONSUMERS + COPIERS)
#define START_REGISTERS (65536 / THREADS / 8 * 8)
#define CONSUMER_REGISTERS 112
#define PRODUCER_REGISTERS 24

#define SIDE 8                                         // maps and positions of a thread
#define COUNT(maps) (CONSUMERS * SIDE * SIDE / (maps)) // positions of a tile

struct points_bulk_launch {
    ring_source in;
    void *dst;
    const float *weights; // [chunk][channel][map], before them [map] of bias
    int maps, activation, half;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Four neighbours and four others, half a tile further on.
__device__ inline void read_pair(float (&to)[SIDE], const float *from, int distance)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float4 v = *(const float4 *)(const void *)(from + k * distance);
        to[k * 4] = v.x, to[k * 4 + 1] = v.y, to[k * 4 + 2] = v.z, to[k * 4 + 3] = v.w;
    }
}

// Adds a channel.
template <int MAPS>
__device__ inline void add_channel(float (&sum)[SIDE][SIDE], const float *weight, const float *in)
{
    float w[SIDE], x[SIDE];
    read_pair(w, weight, MAPS / 2);
    read_pair(x, in, COUNT(MAPS) / 2);
#pragma unroll
    for (int m = 0; m < SIDE; m++)
#pragma unroll
        for (int k = 0; k < SIDE; k++)
            sum[m][k] = fmaf(w[m], x[k], sum[m][k]);
}

// Stores four neighbouring outputs of a thread, at position `local` and on of a task.
template <int MAPS, typename Element>
__device__ inline void store_half(const points_bulk_launch &p, const float (&sum)[SIDE][SIDE],
                                  const ring_task &task, int local, int map, int half)
{
    int count = min(4, task.count - local);
    if (count <= 0)
        return;
    ring_position at = ring_after(p.in, task.first, local);
#pragma unroll
    for (int m = 0; m < SIDE; m++) {
        int to_map = map + m % 4 + m / 4 * (MAPS / 2);
        if (to_map >= p.maps)
            continue;
        Element *to = (Element *)p.dst + (at.image * p.maps + to_map) * p.in.positions + at.at;
        if (p.in.vector) {
            layer_store4(to, make_float4(sum[m][half * 4], sum[m][half * 4 + 1],
                                         sum[m][half * 4 + 2], sum[m][half * 4 + 3]));
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < count)
                    layer_store(to + k +
                                    (at.at + k) / p.in.positions * (p.maps - 1) * p.in.positions,
                                sum[m][half * 4 + k]);
        }
    }
}

// The loop of the consumers.
template <int MAPS>
__device__ inline void consume(const points_bulk_launch &p, const float *weights,
                               const char *stages, ring_barriers *ring)
{
    const int count = COUNT(MAPS), rows = MAPS / SIDE / 4; // rows of warps
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int map = (warp % rows * 4 + lane / 8) * 4, local = (warp / rows * 8 + lane % 8) * 4;
    pipeline_state state = {0, 0};
    for (int64_t round = 0; round <= p.in.rounds; round++) {
        ring_task task = ring_find<count>(p.in, blockIdx.x, round);
        if (task.count == 0)
            break;
        float sum[SIDE][SIDE], bias[SIDE];
        read_pair(bias, weights + map, MAPS / 2);
#pragma unroll
        for (int m = 0; m < SIDE; m++)
#pragma unroll
            for (int k = 0; k < SIDE; k++)
                sum[m][k] = bias[m];
        const float *weight = weights + MAPS + map;
#pragma unroll 1
        for (int c = 0; c < p.in.channels; c += RING_CHANNELS) {
            const float *in =
                (const float *)(const void *)(stages + state.stage * RING_STAGE(count)) + local;
            int channels = min(RING_CHANNELS, p.in.channels - c);
            barrier_wait(&ring->full[state.stage], state.parity);
            if (channels == RING_CHANNELS) {
#pragma unroll 8
                for (int i = 0; i < RING_CHANNELS; i++)
                    add_channel<MAPS>(sum, weight + i * MAPS, in + i * count);
            } else {
#pragma unroll 1
                for (int i = 0; i < channels; i++)
                    add_channel<MAPS>(sum, weight + i * MAPS, in + i * count);
            }
            weight += channels * MAPS;
            fence_for_bulk(); // the samples have been read, not only requested
            barrier_arrive(&ring->empty[state.stage]);
            advance(&state, p.in.stages);
        }
        if (p.activation == CONV_ACTIVATION_TANH) {
#pragma unroll
            for (int m = 0; m < SIDE; m++)
#pragma unroll
                for (int k = 0; k < SIDE; k++)
                    sum[m][k] = layer_tanh<0>(sum[m][k]);
        }
        activate_outputs(p.activation, sum);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = local + half * (count / 2);
            if (p.half)
                store_half<MAPS, uint16_t>(p, sum, task, at, (int)blockIdx.y * MAPS + map, half);
            else
                store_half<MAPS, float>(p, sum, task, at, (int)blockIdx.y * MAPS + map, half);
        }
    }
}

#endif

// Blocks take tiles in turn, blockIdx.y is the chunk of MAPS maps. Shared memory: biases and
// weights, ring_barriers, the stages of the ring.
template <int MAPS>
static __global__
__launch_bounds__(THREADS, 1) void points_bulk(const __grid_constant__ points_bulk_launch p)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static_assert(CONSUMERS * CONSUMER_REGISTERS + COPIERS * PRODUCER_REGISTERS <=
                      THREADS * START_REGISTERS,
                  "registers of a block");
    extern __shared__ __align__(128) char points_memory[];
    float *weights = (float *)(void *)points_memory;
    int floats = (1 + p.in.channels) * MAPS, thread = (int)threadIdx.x;
    ring_barriers *ring = (ring_barriers *)(void *)(weights + floats);
    char *stages = (char *)(ring + 1);
    if (thread < p.in.stages)
        ring_init(p.in, ring, thread, CONSUMERS, COPIERS / 32);
    if (thread == 0)
        barrier_init(ring->ready, CONSUMERS);
    fence_for_bulk();
    __syncthreads(); // barriers are ready
    if (thread < CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
        const float4 *from =
            (const float4 *)(const void *)(p.weights + (int64_t)blockIdx.y * floats);
        for (int i = thread; i < floats / 4; i += CONSUMERS)
            ((float4 *)(void *)weights)[i] = __ldg(from + i);
        barrier_arrive(ring->ready);
        barrier_wait(ring->ready, 0);
        consume<MAPS>(p, weights, stages, ring);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
        ring_produce<COPIERS / 32, COUNT(MAPS), COUNT(MAPS)>(p.in, blockIdx.x, stages, ring,
                                                             thread - CONSUMERS);
    }
#endif
}

struct points_bulk_shape {
    int maps; // of a chunk
    void (*kernel)(points_bulk_launch);
};

static const struct points_bulk_shape shapes[] = {{128, points_bulk<128>}, {64, points_bulk<64>}};

// Values derived from a layer; a plan's constants.
struct points_bulk_config {
    int shape, chunks, stages, shared_bytes;
};

// The instance that computes fewest maps; false if none has the memory.
static bool configure(const struct conv_layer *layer, struct points_bulk_config *best)
{
    int least = INT32_MAX;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int maps = shapes[i].maps, chunks = ceil_div(layer->maps, maps);
        int stage = RING_STAGE(COUNT(maps));
        int64_t fixed = (1 + (int64_t)layer->channels) * maps * (int)sizeof(float) +
                        (int64_t)sizeof(ring_barriers);
        int stages = (int)((SHARED - fixed) / stage);
        if (fixed > SHARED || stages < 2 || chunks * maps >= least)
            continue;
        least = chunks * maps;
        best->shape = (int)i;
        best->chunks = chunks;
        best->stages = stages < RING_MOST_STAGES ? stages : RING_MOST_STAGES;
        best->shared_bytes = (int)fixed + best->stages * stage;
    }
    return least < INT32_MAX;
}

static bool can_points_bulk(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    struct points_bulk_config c;
    return layer->kernel_height == 1 && layer->kernel_width == 1 && layer->stride == 1 &&
           layer->maps <= 1 << 20 && shape->height > 0 && shape->width > 0 &&
           (int64_t)shape->height * shape->width <= MOST_OUTPUTS / (layer->maps + 8) &&
           configure(layer, &c) && c.chunks < 65536;
}

// With few channels or maps, or too few tiles for all multiprocessors, `points` is faster, unless
// its shared memory cannot hold the channels.
static int score_points_bulk(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    struct points_bulk_config c = {};
    configure(layer, &c);
    int maps = shapes[c.shape].maps;
    int64_t positions = shape->images * shape->height * shape->width;
    bool few = shape->images > 0 && positions * c.chunks < 200 * COUNT(maps);
    if (layer->channels < 64 || layer->maps * 2 < c.chunks * maps ||
        (few && layer->channels <= 160))
        return 40;
    return 97;
}

static size_t packed_points_bulk(const struct conv_layer *layer, const struct conv_layer_shape *)
{
    struct points_bulk_config c;
    if (!configure(layer, &c))
        return 0;
    return (size_t)c.chunks * (1 + (size_t)layer->channels) * (size_t)shapes[c.shape].maps *
           sizeof(float);
}

static void plan_points_bulk(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = plan->layer;
    struct points_bulk_config *c = layer_constants<struct points_bulk_config>(plan);
    configure(layer, c);
    memset(plan->packed, 0, plan->packed_bytes);
    size_t maps = (size_t)shapes[c->shape].maps, channels = (size_t)layer->channels;
    for (size_t m = 0; m < (size_t)layer->maps; m++) {
        float *to = (float *)plan->packed + m / maps * (1 + channels) * maps + m % maps;
        if (layer->bias)
            *to = layer->bias[m];
        for (size_t k = 0; k < channels; k++)
            to[(1 + k) * maps] = layer->weights[m * channels + k];
    }
}

static enum conv_status run_points_bulk(const struct conv_layer_plan *plan,
                                        const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = plan->layer;
    const struct points_bulk_config *c = layer_constants<struct points_bulk_config>(plan);
    void (*kernel)(points_bulk_launch) = shapes[c->shape].kernel;
    if (batch->images <= 0)
        return CONV_OK;
    points_bulk_launch p = {};
    p.dst = batch->dst;
    p.weights = (const float *)plan->d_packed;
    p.maps = layer->maps;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    int64_t positions = batch->images * plan->shape.height * plan->shape.width;
    int64_t most = processors / c->chunks, blocks = ceil_div64(positions, RING_LEAST);
    blocks = blocks < most ? blocks : most > 1 ? most : 1;
    p.in = ring_source_of(plan, batch, c->stages, blocks, COUNT(shapes[c->shape].maps));
    dim3 grid((unsigned)blocks, (unsigned)c->chunks);
    kernel<<<grid, THREADS, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_points_bulk = {
    "cuda_layer_points_bulk",
    "1x1 kernels: 8 positions of a plane and 8 maps per thread, samples by bulk copies",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_EXACT,
    0,
    false,
    can_points_bulk,
    score_points_bulk,
    packed_points_bulk,
    plan_points_bulk,
    run_points_bulk,
};
