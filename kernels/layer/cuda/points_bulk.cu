// SPDX-License-Identifier: MIT
// cuda_layer_points_bulk: layers with 1x1 kernels, exact, on compute capability 9.0. A product of
// matrices by tiles of maps x positions, with 8 x 16 sums per thread. A part of the channels at a
// time is copied in bulk, so that a tile may have many channels.
#include <string.h>

#include "kernels/layer/cuda/points_ring.cuh"

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10)     // of a multiprocessor, for a block
#define MOST_OUTPUTS (1 << 27) // of an image
#define FEW 4096               // positions of a launch, times chunks of maps

// A block consists of consumers, which compute, and a warpgroup of producers, which copies samples.
// Registers per thread: all threads start with equal shares of 65536; then producers release some
// and consumers request them. A request for more than were released never returns.
#define CONSUMERS 256
#define COPIERS 128
#define THREADS (CONSUMERS + COPIERS)
#define START_REGISTERS (65536 / THREADS / 8 * 8)
#define CONSUMER_REGISTERS 232
#define PRODUCER_REGISTERS 40

// A thread computes 8 maps x 16 positions: per channel it reads 24 numbers from shared memory, at
// 16 bytes per instruction, for 128 multiply-adds. With 8 x 8 reading takes as long as these.
#define MAPS_EACH 8
#define QUARTERS 4                                                  // of 4 positions
#define COUNT(maps) (CONSUMERS * MAPS_EACH * QUARTERS * 4 / (maps)) // positions of a tile

struct points_bulk_launch {
    ring_source in;
    void *dst;
    const float *weights; // [chunk][channel][map], before them [map] of bias
    int maps, activation, half;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Reads N / 4 groups of four neighbours, that far from each other.
template <int N> __device__ inline void read_groups(float (&to)[N], const float *from, int distance)
{
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
        float4 v = *(const float4 *)(const void *)(from + k * distance);
        to[k * 4] = v.x, to[k * 4 + 1] = v.y, to[k * 4 + 2] = v.z, to[k * 4 + 3] = v.w;
    }
}

typedef float points_sums[MAPS_EACH][QUARTERS * 4];

// Adds `channels` channels to the sums of a thread's first PARTS quarters.
template <int MAPS, int PARTS, int UNROLLED>
__device__ inline void add_channels(points_sums &sum, const float *weight, const float *in,
                                    int channels)
{
    const int count = COUNT(MAPS);
#pragma unroll UNROLLED
    for (int c = 0; c < channels; c++) {
        float w[MAPS_EACH], x[PARTS * 4];
        read_groups(w, weight + c * MAPS, MAPS / 2);
        read_groups(x, in + c * count, count / QUARTERS);
#pragma unroll
        for (int m = 0; m < MAPS_EACH; m++)
#pragma unroll
            for (int k = 0; k < PARTS * 4; k++)
                sum[m][k] = fmaf(w[m], x[k], sum[m][k]);
    }
}

// Computes the sums of a task, of PARTS quarters. `idle`: no position of the thread's warp exists,
// so it only takes part in the ring.
template <int MAPS, int PARTS>
__device__ inline void multiply(const points_bulk_launch &p, points_sums &sum, bool idle,
                                const float *weight, const char *stages, int local,
                                ring_barriers *ring, pipeline_state &state)
{
    const int count = COUNT(MAPS);
#pragma unroll 1
    for (int c = 0; c < p.in.channels; c += RING_CHANNELS) {
        const float *in =
            (const float *)(const void *)(stages + state.stage * RING_STAGE(count)) + local;
        int channels = min(RING_CHANNELS, p.in.channels - c);
        barrier_wait(&ring->full[state.stage], state.parity);
        if (!idle && channels == RING_CHANNELS)
            add_channels<MAPS, PARTS, 8>(sum, weight, in, RING_CHANNELS);
        else if (!idle)
            add_channels<MAPS, PARTS, 1>(sum, weight, in, channels);
        weight += channels * MAPS;
        fence_for_bulk(); // the samples have been read, not only requested
        barrier_arrive(&ring->empty[state.stage]);
        advance(&state, p.in.stages);
    }
}

// Stores a quarter of a thread's outputs. `maps`: that exist from its first one on.
template <int MAPS, bool VECTOR, typename Element>
__device__ inline void store_quarter(const points_bulk_launch &p, const points_sums &sum,
                                     const ring_place &place, int maps, int quarter)
{
    Element *to = (Element *)p.dst + place.at;
    if (place.count <= 0)
        maps = 0;
#pragma unroll
    for (int m = 0; m < MAPS_EACH; m++) {
        const float *y = &sum[m][quarter * 4];
        if (m % 4 + m / 4 * (MAPS / 2) < maps) {
            if (VECTOR) {
                layer_store4(to, make_float4(y[0], y[1], y[2], y[3]));
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (k < place.count)
                        layer_store(to + place.step[k], y[k]);
            }
        }
        to += (m == 3 ? MAPS / 2 - 3 : 1) * p.in.positions;
    }
}

// The loop of the threads that compute. A warp has 8 threads in the direction of positions.
template <int MAPS>
__device__ inline void consume(const points_bulk_launch &p, const float *weights,
                               const char *stages, ring_barriers *ring)
{
    const int count = COUNT(MAPS), rows = MAPS / MAPS_EACH / 4; // rows of warps
    int lane = (int)threadIdx.x % 32, warp = (int)uniform(threadIdx.x / 32);
    int map = (warp % rows * 4 + lane / 8) * 4, local = (warp / rows * 8 + lane % 8) * 4;
    int first_map = (int)blockIdx.y * MAPS + map;
    pipeline_state state = {0, 0};
    for (int64_t round = 0; round <= p.in.rounds; round++) {
        ring_task task = ring_find<count>(p.in, blockIdx.x, round);
        if (task.count == 0)
            break;
        points_sums sum;
        float bias[MAPS_EACH];
        read_groups(bias, weights + map, MAPS / 2);
#pragma unroll
        for (int m = 0; m < MAPS_EACH; m++)
#pragma unroll
            for (int k = 0; k < QUARTERS * 4; k++)
                sum[m][k] = bias[m];
        const float *weight = weights + MAPS + map;
        bool idle = warp / rows * 32 >= task.count;
        if (task.count > count / 2)
            multiply<MAPS, 4>(p, sum, false, weight, stages, local, ring, state);
        else if (task.count > count / 4)
            multiply<MAPS, 2>(p, sum, false, weight, stages, local, ring, state);
        else
            multiply<MAPS, 1>(p, sum, idle, weight, stages, local, ring, state);
        if (p.activation == CONV_ACTIVATION_TANH) {
#pragma unroll
            for (int m = 0; m < MAPS_EACH; m++)
#pragma unroll
                for (int k = 0; k < QUARTERS * 4; k++)
                    sum[m][k] = layer_tanh<0>(sum[m][k]);
        }
        activate_outputs(p.activation, sum);
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            ring_place place =
                ring_find_place(p.in, task, local + q * (count / QUARTERS), p.maps, first_map);
            int maps = p.maps - first_map;
            if (p.in.vector && !p.half)
                store_quarter<MAPS, true, float>(p, sum, place, maps, q);
            else if (p.in.vector)
                store_quarter<MAPS, true, uint16_t>(p, sum, place, maps, q);
            else if (p.half)
                store_quarter<MAPS, false, uint16_t>(p, sum, place, maps, q);
            else
                store_quarter<MAPS, false, float>(p, sum, place, maps, q);
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
        barrier_init(ring->ready, 1);
    fence_for_bulk();
    __syncthreads(); // barriers are ready
    if (thread < CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
        barrier_wait(ring->ready, 0);
        consume<MAPS>(p, weights, stages, ring);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
        thread -= CONSUMERS;
        if (thread == 0)
            ring_fill_weights(p.weights + (int64_t)blockIdx.y * floats, weights,
                              floats * (int)sizeof(float), ring->ready);
        __syncwarp();
        ring_produce<COPIERS / 32, COUNT(MAPS), COUNT(MAPS)>(p.in, blockIdx.x, stages, ring,
                                                             thread);
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

static bool plan_points_bulk(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct points_bulk_config *c = layer_constants<struct points_bulk_config>(plan);
    if (layer->kernel_height != 1 || layer->kernel_width != 1 || layer->stride_x != 1 ||
        layer->maps > 1 << 20 || shape->height <= 0 || shape->width <= 0 ||
        (int64_t)shape->height * shape->width > MOST_OUTPUTS / (layer->maps + 8) ||
        !configure(layer, c) || c->chunks >= 65536)
        return false;
    plan->packed_bytes = (size_t)c->chunks * (1 + (size_t)layer->channels) *
                         (size_t)shapes[c->shape].maps * sizeof(float);
    return true;
}

// A launch of so few outputs is faster than on tensor cores with three products. `points`, which
// keeps all channels of a tile in shared memory, is faster with few channels, also of layers that
// leave a part of a chunk of maps unused.
static int score_points_bulk(const struct conv_layer_plan *plan)
{
    const struct points_bulk_config *c = layer_constants<struct points_bulk_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    int64_t positions = (int64_t)shape->height * shape->width * c->chunks;
    bool few = shape->images > 0 && shape->images < FEW && shape->images * positions < FEW;
    bool full = (int64_t)layer->maps * 5 >= (int64_t)c->chunks * shapes[c->shape].maps * 4;
    if (few && full && layer->channels >= 32 && layer->channels <= 256)
        return 130;
    return layer->channels >= 96 || (layer->channels >= 48 && full) ? 97 : 40;
}

static void pack_points_bulk(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct points_bulk_config *c = layer_constants<struct points_bulk_config>(plan);
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
    const struct conv_layer *layer = &plan->layer;
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
    "1x1 kernels: 16 positions of a plane and 8 maps per thread, samples by bulk copies",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_EXACT,
    0,
    0,
    plan_points_bulk,
    score_points_bulk,
    pack_points_bulk,
    run_points_bulk,
};
