// SPDX-License-Identifier: MIT
// The exact order by register tiles, for layers whose arithmetic is the limit: a thread computes T
// neighbouring outputs of one or two rows for MT maps. Blocks stay on their multiprocessor and
// compute one image, or strip of rows of an image, after the other. Its samples arrive in shared
// memory by bulk copies, so that no thread waits while it copies, and no barrier joins the warps of
// a block.
#pragma once

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

#define BULK_MOST_SLOTS 8
#define BULK_BARRIER_BYTES (BULK_MOST_SLOTS * 20)
#define BULK_NOTHING INT32_MIN                // instead of an offset, which may be negative
#define BULK_BUFFER(columns) (32 * (columns)) // floats: an output row of each thread, for one map

static constexpr __host__ __device__ int bulk_pad(int floats)
{
    return (floats + 3) / 4 * 4;
}

// A launch. An item is `strip_rows` output rows of an image, for all maps. A unit is what a thread
// computes at a time; units of an item are numbered group of maps, row, tile of columns. Block b
// computes items b, b + gridDim.x, ..., whose units are numbered consecutively; warps take 32 of
// them in turn.
struct bulk_launch {
    const void *src;
    struct store_target to;
    // For each group its biases, then [channel][kernel row][kernel column][MT]; the biases and each
    // kernel row are padded to multiples of four floats.
    const float *weights;
    int64_t src_row, src_plane, src_image; // bytes
    struct layer_divider by_item_units, by_group_units, by_tiles, by_strips;
    int items, strips, strip_rows;
    int out_height, out_width, channels, maps, kernel_height;
    int pitch; // samples of an input row
    int tiles, group_units, item_units;
    int plane_floats;  // from one channel to the next in a slot
    int slot_floats;   // of one slot, which holds an item
    int slots;         // items in shared memory
    int copies;        // of an item: 1, one for each channel, or 0: a warp copies each sample
    int copy_bytes;    // of each copy
    int plane_step;    // floats from one channel to the next in memory, modulo 4: see bulk_phase
    int group_floats;  // biases and weights of a group
    int weight_floats; // of all groups, rounded up to a multiple of 4
};

// Shared memory: slots, weights, one buffer for each warp, barriers, counters.
struct bulk_memory {
    float *slots, *weights, *buffers;
    uint64_t *full;  // [slots]: an item has arrived
    uint64_t *empty; // [slots]: no thread needs its item any more
    uint32_t *done;  // [slots]: warps that do not need it any more
};

struct bulk_item {
    int64_t image;
    int row; // the first one of the output
};

__device__ inline bulk_item bulk_find_item(const bulk_launch &p, int number)
{
    int item = (int)blockIdx.x + number * (int)gridDim.x, image = layer_divide(item, p.by_strips);
    bulk_item found;
    found.image = image;
    // The last strip ends with the image and may overlap the one before.
    found.row = min((item - image * p.strips) * p.strip_rows, p.out_height - p.strip_rows);
    return found;
}

// A bulk copy begins at the multiple of 16 bytes before the first sample: the number of floats
// between them, modulo 4.
__device__ inline int bulk_phase(const bulk_launch &p, const bulk_item &item)
{
    return p.copies ? (int)(item.image * (p.src_image >> 2)) + item.row * p.pitch : 0;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Starts to load an item, by all threads of a warp.
__device__ inline void bulk_load(const bulk_launch &p, const bulk_memory &memory, int number,
                                 int slot)
{
    bulk_item item = bulk_find_item(p, number);
    const char *from = (const char *)p.src + item.image * p.src_image + item.row * p.src_row;
    float *to = memory.slots + slot * p.slot_floats;
    int lane = (int)threadIdx.x % 32;
    if (!p.copies) {
        int samples = (p.strip_rows + p.kernel_height - 1) * p.pitch;
#pragma unroll 1
        for (int c = 0; c < p.channels; c++, from += p.src_plane, to += p.plane_floats)
#pragma unroll 1
            for (int i = lane; i < samples; i += 32)
                to[i] = __ldg((const float *)(const void *)(from + i / p.pitch * p.src_row) +
                              i % p.pitch);
        barrier_arrive(memory.full + slot); // every thread for its own stores
        return;
    }
    if (lane)
        return;
    uint32_t bytes = 0;
#pragma unroll 1
    for (int c = 0; c < p.copies; c++)
        bytes +=
            ((uint32_t)((uint64_t)(from + c * p.src_plane) % 16) + (uint32_t)p.copy_bytes + 15) /
            16 * 16;
    fence_for_bulk();
    barrier_arrive_expect(memory.full + slot, bytes);
#pragma unroll 1
    for (int c = 0; c < p.copies; c++, from += p.src_plane, to += p.plane_floats) {
        uint32_t before = (uint32_t)((uint64_t)from % 16);
        bulk_copy(shared_address(to), (uint64_t)from - before,
                  (before + (uint32_t)p.copy_bytes + 15) / 16 * 16,
                  shared_address(memory.full + slot));
    }
}

// A warp's position in the ring of slots: items before `next` are released; slot and parity are
// those of `next`.
struct bulk_ring {
    int next, slot;
    uint32_t parity;
};

// Called when the warp no longer needs the items before `end`. The last warp to do so loads a later
// item into the slot. The counter only tells which warp that is; the barrier `empty`, at which
// every thread arrives for itself, orders the reads of all warps before the copy.
template <int WARPS>
__device__ inline void bulk_release(const bulk_launch &p, const bulk_memory &memory,
                                    bulk_ring &ring, int end, int count)
{
#pragma unroll 1
    for (; ring.next < end; ring.next++) {
        // Also for an item that this warp did not need: otherwise it could count twice for one
        // item.
        barrier_wait(memory.full + ring.slot, ring.parity);
        barrier_arrive(memory.empty + ring.slot);
        uint32_t before = 0;
        if (threadIdx.x % 32 == 0)
            before = atomicAdd(memory.done + ring.slot, 1u);
        before = __shfl_sync(0xffffffffu, before, 0);
        if (before == (uint32_t)(WARPS - 1) && ring.next + p.slots < count) {
            barrier_wait(memory.empty + ring.slot, ring.parity);
            if (threadIdx.x % 32 == 0)
                memory.done[ring.slot] = 0;
            __syncwarp();
            bulk_load(p, memory, ring.next + p.slots, ring.slot);
        }
        if (++ring.slot == p.slots) {
            ring.slot = 0;
            ring.parity ^= 1;
        }
    }
}

// Divides shared memory, where a warp's buffer has `room` floats, and starts to load. *count: the
// number of items that this block computes.
template <int THREADS>
__device__ inline void bulk_begin(const bulk_launch &p, int room, bulk_memory *memory, int *count)
{
    extern __shared__ __align__(128) char bulk_shared[];
    memory->slots = (float *)(void *)bulk_shared;
    memory->weights = memory->slots + p.slots * p.slot_floats;
    memory->buffers = memory->weights + p.weight_floats;
    memory->full = (uint64_t *)(void *)(memory->buffers + THREADS / 32 * room);
    memory->empty = memory->full + BULK_MOST_SLOTS;
    memory->done = (uint32_t *)(void *)(memory->empty + BULK_MOST_SLOTS);
    *count = (p.items - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    if ((int)threadIdx.x < p.slots) {
        barrier_init(memory->full + threadIdx.x, p.copies ? 1 : 32);
        barrier_init(memory->empty + threadIdx.x, THREADS);
        memory->done[threadIdx.x] = 0;
    }
    const float4 *from = (const float4 *)(const void *)p.weights;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < p.weight_floats / 4; i += THREADS)
        ((float4 *)(void *)memory->weights)[i] = __ldg(from + i);
    fence_for_bulk();
    __syncthreads(); // weights and barriers are ready
    if (threadIdx.x / 32 == 0)
#pragma unroll 1
        for (int i = 0; i < min(p.slots, *count); i++)
            bulk_load(p, *memory, i, i);
}

// What a thread computes.
struct bulk_unit {
    int item, group, row, tile;
};

// R: rows of a unit. The last rows of an item end with it and may overlap those before.
template <int R> __device__ inline bulk_unit bulk_find_unit(const bulk_launch &p, int unit)
{
    bulk_unit found;
    found.item = layer_divide(unit, p.by_item_units);
    unit -= found.item * p.item_units;
    found.group = layer_divide(unit, p.by_group_units);
    unit -= found.group * p.group_units;
    int rows = layer_divide(unit, p.by_tiles);
    found.tile = unit - rows * p.tiles;
    found.row = R > 1 ? min(rows * R, p.strip_rows - R) : rows;
    return found;
}

// Adds the products of an input row to the thread's output rows FROM to TO - 1. `weight`: weights
// of the kernel row by which output row 0 multiplies it. BACK: every other map computes its outputs
// from last to first, so that a new weight meets the sample that was read last. Then fewer
// multiply-adds read three new registers, which takes the register file longer.
template <int K, int R, int T, int MT, int VX, bool BACK, int FROM, int TO>
__device__ inline void bulk_step(float (&sum)[R][MT][T], float (&x)[T + K - 1], const float *weight,
                                 const float *in)
{
    const int step = bulk_pad(K * MT);
    // The weights of one tap are read at once, or those of all taps: 6×6 is 2 % slower tap by tap.
    const int taps = K >= 5 && K % 2 && MT % 4 == 0 ? 1 : K;
    layer_read<T + K - 1, VX>(x, in);
    if (taps == 1)
        layer_await<T + K - 1>(x);
#pragma unroll
    for (int r = FROM; r < TO; r++)
#pragma unroll
        for (int first = 0; first < K; first += taps) {
            float w[taps * MT];
            layer_read<taps * MT, 4>(w, weight - r * step + first * MT);
#pragma unroll
            for (int v = 0; v < taps; v++)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int i = 0; i < T; i++) {
                        int t = BACK && (r + (first + v) * MT + m) % 2 ? T - 1 - i : i;
                        sum[r][m][t] = fmaf(w[v * MT + m], x[t + first + v], sum[r][m][t]);
                    }
        }
}

// Computes a unit once its item has arrived.
template <int K, int R, int T, int MT, int VX, bool BACK>
__device__ inline void bulk_add_rows(const bulk_launch &p, const bulk_memory &memory,
                                     const bulk_ring &ring, const bulk_unit &unit,
                                     float (&sum)[R][MT][T])
{
    static_assert(R <= 2, "one or two rows");
    const int step = bulk_pad(K * MT);
    int slot = ring.slot + unit.item - ring.next; // all of a warp's items fit into the slots
    bool around = slot >= p.slots;
    slot -= around ? p.slots : 0;
    barrier_wait(memory.full + slot, ring.parity ^ (uint32_t)around);
    __syncwarp();
    bulk_item item = bulk_find_item(p, unit.item);
    int phase = bulk_phase(p, item);
    const float *weight = memory.weights + unit.group * p.group_floats;
    const float *plane = memory.slots + slot * p.slot_floats + unit.row * p.pitch + unit.tile * T;
    float bias[bulk_pad(MT)];
    layer_read<bulk_pad(MT), 4>(bias, weight);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = bias[m];
    weight += bulk_pad(MT);
    const float *in = plane + (VX < 4 ? phase & 3 : 0);
    float x[T + K - 1];
    int left = p.channels;
#pragma unroll 1
    do { // for each channel
        if (left > 1) {
            plane += p.plane_floats;
            phase += p.plane_step;
        }
        const float *following = plane + (VX < 4 ? phase & 3 : 0);
        if (R > 1) {
            bulk_step<K, R, T, MT, VX, BACK, 0, 1>(sum, x, weight, in);
            weight += step;
            in += p.pitch;
        }
        int u = R - 1;
#pragma unroll 1
        do {
            bulk_step<K, R, T, MT, VX, BACK, 0, R>(sum, x, weight, in);
            weight += step;
            in += p.pitch;
        } while (++u < p.kernel_height);
        if (R > 1)
            bulk_step<K, R, T, MT, VX, BACK, R - 1, R>(sum, x, weight, in);
        in = following;
    } while (--left > 0);
}

// VS neighbouring outputs.
template <int VS> __device__ inline void bulk_read_some(float *to, const float *from)
{
    if (VS == 2) {
        float2 pair = *(const float2 *)(const void *)from;
        to[0] = pair.x, to[1] = pair.y;
    } else {
        to[0] = *from;
    }
}

template <int VS> __device__ inline void bulk_write(float *to, const float *from)
{
    if (VS == 2) {
        float2 pair;
        pair.x = from[0], pair.y = from[1];
        __stcs((float2 *)(void *)to, pair);
    } else {
        __stcs(to, *from);
    }
}

// Stores a warp's outputs through its buffer, VS per store, so that whole sectors are written.
// `at`: the thread's first output of the first map; `count`: the outputs that it stores per row.
template <int R, int T, int MT, int VS>
__device__ inline void bulk_store_rows(const bulk_launch &p, float *buffer, int64_t at, int count,
                                       const float (&sum)[R][MT][T])
{
    static_assert(T % VS == 0 && VS <= 2, "whole vectors");
    const unsigned everyone = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    int64_t first = store_shuffle(at, 0);
    int place = (int)(at - first);
    int offsets[T / VS]; // from the warp's first output to those that the thread writes
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int t = 0; t < T; t += VS) {
                if (VS == 2) {
                    float2 pair;
                    pair.x = sum[r][m][t];
                    pair.y = sum[r][m][t + 1];
                    *(float2 *)(void *)(buffer + lane * T + t) = pair;
                } else {
                    buffer[lane * T + t] = sum[r][m][t];
                }
            }
            __syncwarp();
            if (r == 0 && m == 0) // only now that the first sums have left their registers
#pragma unroll
                for (int i = 0; i < T / VS; i++) {
                    int k = (i * 32 + lane) * VS, unit = k / T, t = k - unit * T;
                    int from = (int)__shfl_sync(everyone, (uint32_t)place, unit);
                    int stored = (int)__shfl_sync(everyone, (uint32_t)count, unit);
                    offsets[i] = t < stored ? from + t : BULK_NOTHING;
                }
            if (p.to.activation == CONV_ACTIVATION_TANH)
                activate_tanh(buffer, 32 * T, lane);
            int64_t to = first + m * p.to.plane + r * p.out_width;
            if (p.to.half) {
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    if (offsets[i] != BULK_NOTHING)
#pragma unroll
                        for (int k = 0; k < VS; k++)
                            layer_store((uint16_t *)p.to.dst + to + offsets[i] + k,
                                        buffer[(i * 32 + lane) * VS + k]);
            } else {
                // All reads precede the first write, because the compiler does not reorder them.
                float values[T];
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    bulk_read_some<VS>(values + i * VS, buffer + (i * 32 + lane) * VS);
                float *dst = (float *)p.to.dst + to;
                asm volatile("" : "+l"(dst)); // without it an address takes four instructions
#pragma unroll
                for (int i = 0; i < T / VS; i++)
                    if (offsets[i] != BULK_NOTHING)
                        bulk_write<VS>(dst + offsets[i], values + i * VS);
            }
            __syncwarp();
        }
}

#endif

template <int K, int R, int T, int MT, int VX, bool BACK, int THREADS>
static __global__ __launch_bounds__(THREADS,
                                    1) void bulk_rows(const __grid_constant__ bulk_launch p)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int warps = THREADS / 32;
    int warp = (int)threadIdx.x / 32;
    bulk_memory memory;
    int count;
    bulk_begin<THREADS>(p, BULK_BUFFER(T), &memory, &count);
    bulk_ring ring = {0, 0, 0};
    int units = count * p.item_units;
#pragma unroll 1
    for (int first = warp * 32; first < units; first += THREADS) {
        bulk_release<warps>(p, memory, ring, layer_divide(first, p.by_item_units), count);
        int number = min(first + (int)threadIdx.x % 32, units - 1);
        float sum[R][MT][T];
        bulk_add_rows<K, R, T, MT, VX, BACK>(p, memory, ring, bulk_find_unit<R>(p, number), sum);
        int next = first + THREADS;
        bulk_release<warps>(p, memory, ring,
                            next < units ? layer_divide(next, p.by_item_units) : count, count);
        asm volatile("" : "+r"(number)); // not kept in registers, but derived again
        bulk_unit unit = bulk_find_unit<R>(p, number);
        bulk_item item = bulk_find_item(p, unit.item);
        // The last group ends with the maps and may overlap the one before.
        int map = min(unit.group * MT, p.maps - MT), j = unit.tile * T;
        int64_t at =
            ((item.image * p.maps + map) * p.out_height + item.row + unit.row) * p.out_width + j;
        int outputs = first + (int)threadIdx.x % 32 < units ? min(T, p.out_width - j) : 0;
#pragma unroll
        for (int r = 0; r < R; r++)
            activate_outputs<T, MT>(p.to.activation, sum[r]);
        // Rows of outputs are of even length if those of samples are and K is odd.
        bulk_store_rows<R, T, MT, VX == 4 && K % 2 ? 2 : 1>(
            p, memory.buffers + warp * BULK_BUFFER(T), at, outputs, sum);
    }
    bulk_release<warps>(p, memory, ring, count, count); // of a warp without units
#endif
}
