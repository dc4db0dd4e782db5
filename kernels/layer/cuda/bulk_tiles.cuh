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
#define BULK_ZEROS 64 // with padding, floats before the slots: a row of it
#define BULK_MARGIN 4 // and floats of a slot before its samples

static constexpr __host__ __device__ int bulk_pad(int floats)
{
    return (floats + 3) / 4 * 4;
}

// Floats of a warp's buffer: outputs of a map, which are stored singly where samples are read so.
static constexpr __host__ __device__ int bulk_buffer(int columns, int vector)
{
    return vector > 1 ? STORE_ROOM(columns) : 32 * columns;
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
    int height, width; // of the input
    int pad, margin;   // zeros on each side of it: 0, or half of the kernel; see BULK_MARGIN
    int copy_rows;     // of the input, for an item
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

// Shared memory: zeros, slots, weights, one buffer for each warp, barriers, counters.
struct bulk_memory {
    float *zeros, *slots, *weights, *buffers;
    uint64_t *full;  // [slots]: an item has arrived
    uint64_t *empty; // [slots]: no thread needs its item any more
    uint32_t *done;  // [slots]: warps that do not need it any more
};

struct bulk_item {
    int64_t image;
    int row, from; // the first ones of the output and of the input that is copied
    int rows;      // that are stored
};

__device__ inline bulk_item bulk_find_item(const bulk_launch &p, int number)
{
    int item = (int)blockIdx.x + number * (int)gridDim.x, image = layer_divide(item, p.by_strips);
    bulk_item found;
    found.image = image;
    // The first strip stores only rows before the second one.
    int after = p.strips - 1 - (item - image * p.strips);
    found.row = max(p.out_height - (after + 1) * p.strip_rows, 0);
    found.rows = p.out_height - after * p.strip_rows - found.row;
    found.from = min(max(found.row - p.pad, 0), p.height - p.copy_rows);
    return found;
}

// A bulk copy begins at the multiple of 16 bytes before the first sample: the number of floats
// between them, modulo 4.
__device__ inline int bulk_phase(const bulk_launch &p, const bulk_item &item)
{
    return p.copies ? (int)(item.image * (p.src_image >> 2)) + item.from * p.width : 0;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Starts to load an item, by all threads of a warp.
__device__ inline void bulk_load(const bulk_launch &p, const bulk_memory &memory, int number,
                                 int slot)
{
    bulk_item item = bulk_find_item(p, number);
    const char *from = (const char *)p.src + item.image * p.src_image + item.from * p.src_row;
    float *to = memory.slots + slot * p.slot_floats + p.margin;
    int lane = (int)threadIdx.x % 32;
    if (!p.copies) {
        int samples = p.copy_rows * p.width;
#pragma unroll 1
        for (int c = 0; c < p.channels; c++, from += p.src_plane, to += p.plane_floats)
#pragma unroll 1
            for (int i = lane; i < samples; i += 32)
                to[i] = __ldg((const float *)(const void *)(from + i / p.width * p.src_row) +
                              i % p.width);
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
    memory->zeros = (float *)(void *)bulk_shared;
    memory->slots = memory->zeros + (p.pad > 0 ? BULK_ZEROS : 0);
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
    if (p.pad > 0 && threadIdx.x < BULK_ZEROS)
        memory->zeros[threadIdx.x] = 0;
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

// What a thread computes, and how many of its columns are stored: of the first tile of a padded row
// only those before the second one.
struct bulk_unit {
    int item, group, row, column, columns;
    bool left, right; // whether there is padding at these ends of its rows
};

template <int T> __device__ inline bulk_unit bulk_find_unit(const bulk_launch &p, int unit)
{
    bulk_unit found;
    found.item = layer_divide(unit, p.by_item_units);
    unit -= found.item * p.item_units;
    found.group = layer_divide(unit, p.by_group_units);
    unit -= found.group * p.group_units;
    found.row = layer_divide(unit, p.by_tiles);
    int tile = unit - found.row * p.tiles;
    int after = p.tiles - 1 - tile;
    found.column = p.pad > 0 ? max(p.out_width - (after + 1) * T, 0) : tile * T;
    found.columns =
        p.pad > 0 ? p.out_width - after * T - found.column : min(T, p.out_width - found.column);
    found.left = p.pad > 0 && tile == 0;
    found.right = p.pad > 0 && tile == p.tiles - 1;
    return found;
}

// Adds the products of an input row. BACK: every other map computes its outputs from last to first,
// so that a new weight meets the sample that was read last. Then fewer multiply-adds read three new
// registers, which takes the register file longer.
template <int K, int T, int MT, int VX, bool BACK>
__device__ inline void bulk_step(float (&sum)[MT][T], const bulk_unit &unit, const float *weight,
                                 const float *in)
{
    // The weights of one tap are read at once, or those of all taps.
    const int taps = MT % 4 == 0 ? 1 : K;
    float x[T + K - 1];
    layer_read<T + K - 1, VX>(x, in);
    if (VX == 1)
#pragma unroll
        for (int i = 0; i < K / 2; i++) {
            x[i] = unit.left ? 0 : x[i];
            x[T + K - 2 - i] = unit.right ? 0 : x[T + K - 2 - i];
        }
    layer_await<T + K - 1>(x);
#pragma unroll
    for (int first = 0; first < K; first += taps) {
        float w[taps * MT];
        layer_read<taps * MT, 4>(w, weight + first * MT);
#pragma unroll
        for (int v = 0; v < taps; v++)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < T; i++) {
                    int t = BACK && ((first + v) * MT + m) % 2 ? T - 1 - i : i;
                    sum[m][t] = fmaf(w[v * MT + m], x[t + first + v], sum[m][t]);
                }
    }
}

// Computes a unit once its item has arrived.
template <int K, int T, int MT, int VX, bool BACK>
__device__ inline void bulk_add_rows(const bulk_launch &p, const bulk_memory &memory,
                                     const bulk_ring &ring, const bulk_unit &unit,
                                     float (&sum)[MT][T])
{
    int slot = ring.slot + unit.item - ring.next; // all of a warp's items fit into the slots
    bool around = slot >= p.slots;
    slot -= around ? p.slots : 0;
    barrier_wait(memory.full + slot, ring.parity ^ (uint32_t)around);
    __syncwarp();
    bulk_item item = bulk_find_item(p, unit.item);
    int phase = bulk_phase(p, item);
    const float *weight = memory.weights + unit.group * p.group_floats;
    int first_row = item.row + unit.row - p.pad; // of the input
    const float *plane = memory.slots + slot * p.slot_floats + p.margin +
                         (first_row - item.from) * p.width + unit.column - p.pad;
    float bias[bulk_pad(MT)];
    layer_read<bulk_pad(MT), 4>(bias, weight);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[m][t] = bias[m];
    weight += bulk_pad(MT);
#pragma unroll 1
    for (int c = 0; c < p.channels; c++, plane += p.plane_floats, phase += p.plane_step) {
        const float *in = plane + (VX < 4 ? phase & 3 : 0);
#pragma unroll 1
        for (int u = 0; u < p.kernel_height; u++, in += p.width, weight += bulk_pad(K * MT)) {
            bool inside = VX > 1 || (unsigned)(first_row + u) < (unsigned)p.height;
            bulk_step<K, T, MT, VX, BACK>(sum, unit, weight, inside ? in : memory.zeros);
        }
    }
}

#endif

template <int K, int T, int MT, int VX, bool BACK, int THREADS>
static __global__ __launch_bounds__(THREADS,
                                    1) void bulk_rows(const __grid_constant__ bulk_launch p)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int warps = THREADS / 32;
    int warp = (int)threadIdx.x / 32;
    bulk_memory memory;
    int count;
    bulk_begin<THREADS>(p, bulk_buffer(T, VX), &memory, &count);
    bulk_ring ring = {0, 0, 0};
    int units = count * p.item_units;
#pragma unroll 1
    for (int first = warp * 32; first < units; first += THREADS) {
        bulk_release<warps>(p, memory, ring, layer_divide(first, p.by_item_units), count);
        int number = min(first + (int)threadIdx.x % 32, units - 1);
        float sum[MT][T];
        bulk_add_rows<K, T, MT, VX, BACK>(p, memory, ring, bulk_find_unit<T>(p, number), sum);
        int next = first + THREADS;
        bulk_release<warps>(p, memory, ring,
                            next < units ? layer_divide(next, p.by_item_units) : count, count);
        asm volatile("" : "+r"(number)); // not kept in registers, but derived again
        bulk_unit unit = bulk_find_unit<T>(p, number);
        bulk_item item = bulk_find_item(p, unit.item);
        // The last group ends with the maps and may overlap the one before.
        int64_t plane = item.image * p.maps + min(unit.group * MT, p.maps - MT);
        int64_t at = (plane * p.out_height + item.row + unit.row) * p.out_width + unit.column;
        bool stored = first + (int)threadIdx.x % 32 < units && unit.row < item.rows;
        activate_outputs<T, MT>(p.to.activation, sum);
        float *buffer = memory.buffers + warp * bulk_buffer(T, VX);
        store_runs<T, MT, 1>(p.to, buffer, at, stored ? unit.columns : 0, MT, sum);
    }
    bulk_release<warps>(p, memory, ring, count, count); // of a warp without units
#endif
}
