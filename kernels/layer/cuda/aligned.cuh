// SPDX-License-Identifier: MIT
// The exact order by register tiles whose samples are read four at a time: a thread computes T
// neighbouring outputs of a row for MT maps. Rows begin at any multiple of four bytes in memory;
// asynchronous copies of single samples bring them to multiples of 16 bytes in shared memory. Each
// block computes consecutive images, without a barrier that joins its warps.
#ifndef CONV_KERNELS_LAYER_CUDA_ALIGNED_CUH
#define CONV_KERNELS_LAYER_CUDA_ALIGNED_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

#define ALIGNED_MOST_SLOTS 16
#define ALIGNED_BARRIER_BYTES (ALIGNED_MOST_SLOTS * 20)
#define ALIGNED_MOST_RUNS 3   // of the outputs of a warp, for one map
#define ALIGNED_LEAST_ROWS 16 // of outputs: then there are no more runs
#define ALIGNED_MOST_IDLE 3   // columns of a tile beyond the image
#define ALIGNED_ROWS 11       // copied at a time
// Floats: an output row of each thread, and a gap between runs.
#define ALIGNED_BUFFER(columns) (32 * (columns) + 8 * (ALIGNED_MOST_RUNS + 1))

// A launch. A unit is a row of outputs for a group of maps, which a thread computes at a time; the
// units of all images are numbered image, group, row, and every block computes equally many. A
// stage is `stage_channels` channels of an image, which arrive together.
struct aligned_launch {
    const void *src;
    struct store_target to;
    // For each group its biases, then [channel][kernel row][kernel column][place]: maps by
    // aligned_place, kernel rows padded to multiples of four floats.
    const float *weights;
    int64_t src_row, src_plane, src_image; // bytes
    struct layer_divider by_item_units, by_out_height, by_stages, by_slots;
    int images, height, width, maps;
    int out_height, out_width;
    int item_units; // of an image
    int stage_channels, stages;
    int slots; // stages in shared memory
    int group_floats, weight_floats;
};

// Shared memory: slots, weights, one buffer for each warp, barriers, counters.
struct aligned_memory {
    float *slots, *weights, *buffers;
    uint64_t *full;  // [slots]: a stage has arrived
    uint64_t *empty; // [slots]: no thread needs its stage any more
    uint32_t *done;  // [slots]: warps that do not need it any more
};

// What a block computes: units `begin` to `end` - 1, counted from the first unit of image `image`,
// and so do its stages.
struct aligned_share {
    int64_t image;
    int begin, end, stages;
};

// What a thread computes; `image` is counted from the block's first one.
struct aligned_unit {
    int image, group, row;
};

static constexpr __host__ __device__ int aligned_pad(int floats)
{
    return (floats + 3) / 4 * 4;
}

// Samples from one row to the next in a slot. An odd multiple of four, so that threads with
// neighbouring rows read from different banks.
static constexpr __host__ __device__ int aligned_pitch(int columns, int kernel_width)
{
    return aligned_pad(columns + kernel_width - 1) / 4 % 2
               ? aligned_pad(columns + kernel_width - 1)
               : aligned_pad(columns + kernel_width - 1) + 4;
}

// Weights of a kernel column for a group of maps.
static constexpr __host__ __device__ int aligned_column(int maps)
{
    return (maps + 1) / 2 * 2;
}

// Where a column has map m's weight for output t. A register file has two banks, of even and of odd
// registers, and a multiply-add should read its weight from one and its sum from the other. Sums
// are loaded in pairs, of two maps or, for the last one of an odd number, of two outputs, so that
// their registers are even and odd. Their weights are in the opposite order; an odd last map's
// weights are there twice.
static constexpr __host__ __device__ int aligned_place(int maps, int m, int t)
{
    return maps % 2 && m == maps - 1 ? m + 1 - t % 2 : m ^ 1;
}

// Floats before the weights of a group.
static constexpr __host__ __device__ int aligned_biases(int maps)
{
    return aligned_pad(aligned_column(maps));
}

// Floats of a kernel row.
static constexpr __host__ __device__ int aligned_weights(int maps, int kernel_width)
{
    return aligned_pad(kernel_width * aligned_column(maps));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Queues the copy of a sample to a shared address.
__device__ inline void aligned_copy(uint32_t to, const char *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// Arrives once the copies that this thread has queued are done.
__device__ inline void aligned_arrive(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

// Starts to load a stage, by all threads of a warp. WIDTH: of rows that follow each other, else 0.
// If it is known, copies differ by constants only, and need one instruction each.
template <int PITCH, int WIDTH>
__device__ inline void aligned_load(const aligned_launch &p, const aligned_memory &memory,
                                    const aligned_share &share, int stage, int slot)
{
    int lane = (int)threadIdx.x % 32, image = layer_divide(stage, p.by_stages);
    int64_t channel = (stage - image * p.stages) * p.stage_channels;
    int64_t step = WIDTH ? WIDTH * 4 : p.src_row;
    const char *from =
        (const char *)p.src + (share.image + image) * p.src_image + channel * p.src_plane;
    uint32_t to = shared_address(memory.slots + slot * p.stage_channels * p.height * PITCH);
#pragma unroll 1
    for (int c = 0; c < p.stage_channels; c++, from += p.src_plane, to += p.height * PITCH * 4) {
        // A row at a time, then what is beyond column 32.
        if (lane < p.width) {
            const char *row = from + lane * 4;
            uint32_t place = to + (uint32_t)lane * 4;
            int left = p.height;
#pragma unroll 1
            for (; left >= ALIGNED_ROWS; left -= ALIGNED_ROWS) {
#pragma unroll
                for (int r = 0; r < ALIGNED_ROWS; r++)
                    aligned_copy(place + (uint32_t)(r * PITCH) * 4, row + r * step);
                row += ALIGNED_ROWS * step;
                place += ALIGNED_ROWS * PITCH * 4;
            }
#pragma unroll
            for (int r = 0; r < ALIGNED_ROWS - 1; r++)
                if (r < left)
                    aligned_copy(place + (uint32_t)(r * PITCH) * 4, row + r * step);
        }
        if (p.width > 32) {
#pragma unroll 1
            for (int r = lane; r < p.height; r += 32)
                aligned_copy(to + (uint32_t)(r * PITCH + 32) * 4, from + r * step + 32 * 4);
        }
    }
    aligned_arrive(memory.full + slot);
}

// A warp's position in the ring of slots: stages before `next` are released; slot and parity are
// those of `next`.
struct aligned_ring {
    int next, slot;
    uint32_t parity;
};

// Releases stages before `end`, which the warp no longer needs, as far as they have arrived: a
// stage that it skips may still be missing, and waiting for it would keep warps close together.
// Those before `must` it waits for. The last warp to release a stage loads a later one into the
// slot. The counter only finds out which warp that is; the barrier `empty`, at which every thread
// arrives for itself, orders the reads of all warps before the copy.
template <int PITCH, int WIDTH, int WARPS>
__device__ inline void aligned_release(const aligned_launch &p, const aligned_memory &memory,
                                       const aligned_share &share, aligned_ring &ring, int must,
                                       int end)
{
#pragma unroll 1
    for (; ring.next < end; ring.next++) {
        // A stage that has not arrived may still be in its slot's earlier phase.
        if (ring.next < must)
            barrier_wait(memory.full + ring.slot, ring.parity);
        else if (!__all_sync(0xffffffffu, barrier_ended(memory.full + ring.slot, ring.parity)))
            return;
        barrier_arrive(memory.empty + ring.slot);
        uint32_t before = 0;
        if (threadIdx.x % 32 == 0)
            before = atomicAdd(memory.done + ring.slot, 1u);
        before = __shfl_sync(0xffffffffu, before, 0);
        if (before == (uint32_t)(WARPS - 1) && ring.next + p.slots < share.stages) {
            barrier_wait(memory.empty + ring.slot, ring.parity);
            if (threadIdx.x % 32 == 0)
                memory.done[ring.slot] = 0;
            __syncwarp();
            aligned_load<PITCH, WIDTH>(p, memory, share, ring.next + p.slots, ring.slot);
        }
        if (++ring.slot == p.slots) {
            ring.slot = 0;
            ring.parity ^= 1;
        }
    }
}

// Divides shared memory and starts to load.
template <int PITCH, int WIDTH, int THREADS>
__device__ inline void aligned_begin(const aligned_launch &p, int room, aligned_memory *memory,
                                     aligned_share *share)
{
    extern __shared__ __align__(128) char bulk_shared[];
    int warp = (int)threadIdx.x / 32;
    memory->slots = (float *)(void *)bulk_shared;
    memory->weights = memory->slots + p.slots * p.stage_channels * p.height * PITCH;
    memory->buffers = memory->weights + p.weight_floats;
    memory->full = (uint64_t *)(void *)(memory->buffers + THREADS / 32 * room);
    memory->empty = memory->full + ALIGNED_MOST_SLOTS;
    memory->done = (uint32_t *)(void *)(memory->empty + ALIGNED_MOST_SLOTS);
    int64_t units = (int64_t)p.images * p.item_units;
    int64_t low = units * blockIdx.x / gridDim.x, high = units * (blockIdx.x + 1) / gridDim.x;
    share->image = low / p.item_units;
    share->begin = (int)(low - share->image * p.item_units);
    share->end = (int)(high - share->image * p.item_units);
    share->stages = ((share->end - 1) / p.item_units + 1) * p.stages;
    if ((int)threadIdx.x < p.slots) {
        barrier_init(memory->full + threadIdx.x, 32);
        barrier_init(memory->empty + threadIdx.x, THREADS);
        memory->done[threadIdx.x] = 0;
    }
    __syncthreads(); // barriers are ready
#pragma unroll 1
    for (int i = warp; i < min(p.slots, share->stages); i += THREADS / 32)
        aligned_load<PITCH, WIDTH>(p, *memory, *share, i, i);
    const float4 *from = (const float4 *)(const void *)p.weights;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < p.weight_floats / 4; i += THREADS)
        ((float4 *)(void *)memory->weights)[i] = __ldg(from + i);
    __syncthreads(); // weights are ready
}

__device__ inline aligned_unit aligned_find_unit(const aligned_launch &p, int unit)
{
    aligned_unit found;
    found.image = layer_divide(unit, p.by_item_units);
    unit -= found.image * p.item_units;
    found.group = layer_divide(unit, p.by_out_height);
    found.row = unit - found.group * p.out_height;
    return found;
}

// Loads two floats into an even register and the next one, where they stay.
__device__ inline void aligned_load_pair(float &even, float &odd, const float *from)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(even), "=f"(odd)
                 : "r"(shared_address(from))
                 : "memory");
}

// Sets all sums of a map to its bias.
template <int T, int MT>
__device__ inline void aligned_begin_sums(float (&sum)[MT][T], const float *bias)
{
#pragma unroll
    for (int m = 0; m + 1 < MT; m += 2)
#pragma unroll
        for (int t = 0; t < T; t++)
            aligned_load_pair(sum[m][t], sum[m + 1][t], bias + m);
    if (MT % 2) {
        float unused;
#pragma unroll
        for (int t = 0; t < T; t += 2)
            aligned_load_pair(sum[MT - 1][t], t + 1 < T ? sum[MT - 1][t + 1] : unused,
                              bias + MT - 1);
    }
}

// Adds the products of sample `J` of a row. The second map is first and the first one last, and odd
// samples take all backwards, so that a sample can follow another with the same weight.
template <int K, int T, int MT, int J>
__device__ inline void aligned_add_sample(float (&sum)[MT][T], const float *w, float x)
{
#pragma unroll
    for (int i = 0; i < K * MT; i++) {
        int z = J % 2 ? K * MT - 1 - i : i, v = z / MT, m = (z + 1) % MT, t = J - v;
        if (t >= 0 && t < T)
            sum[m][t] = fmaf(w[v * aligned_column(MT) + aligned_place(MT, m, t)], x, sum[m][t]);
    }
}

// Adds the products of an input row and a kernel row, sample by sample: a multiply-add finds its
// sample in the register that was read last, and reads a weight and a sum.
//
// The compiler would mix multiply-adds of several samples, which then read three registers, but
// does not move them past a label. So a label follows every two samples, the target of a branch
// that is never taken: `never` is not negative.
template <int K, int T, int MT>
__device__ inline void aligned_add_row(float (&sum)[MT][T], const float *weight, const float *in,
                                       int never, int any)
{
    static_assert(T + K - 1 > 32 && T + K - 1 <= 36, "nine times four samples");
    float w[aligned_weights(MT, K)], x[4], y[4] = {};
    layer_read<aligned_weights(MT, K), 4>(w, weight);
    layer_read<4, 4>(x, in);
    if (never < 0) {
#define ALIGNED_JUMP(q)                                                                            \
    if (any >> (2 * q + 1) & 1)                                                                    \
        goto whole##q;                                                                             \
    if (any >> (2 * q) & 1)                                                                        \
        goto half##q;
        ALIGNED_JUMP(8)
        ALIGNED_JUMP(7)
        ALIGNED_JUMP(6)
        ALIGNED_JUMP(5)
        ALIGNED_JUMP(4)
        ALIGNED_JUMP(3)
        ALIGNED_JUMP(2)
        ALIGNED_JUMP(1)
        ALIGNED_JUMP(0)
#undef ALIGNED_JUMP
    }
#define ALIGNED_FOUR(q, now, next)                                                                 \
    if (q < 8)                                                                                     \
        layer_read<4, 4>(next, in + 4 * q + 4);                                                    \
    aligned_add_sample<K, T, MT, 4 * q>(sum, w, now[0]);                                           \
    aligned_add_sample<K, T, MT, 4 * q + 1>(sum, w, now[1]);                                       \
    half##q : aligned_add_sample<K, T, MT, 4 * q + 2>(sum, w, now[2]);                             \
    aligned_add_sample<K, T, MT, 4 * q + 3>(sum, w, now[3]);                                       \
    whole##q:
    ALIGNED_FOUR(0, x, y)
    ALIGNED_FOUR(1, y, x)
    ALIGNED_FOUR(2, x, y)
    ALIGNED_FOUR(3, y, x)
    ALIGNED_FOUR(4, x, y)
    ALIGNED_FOUR(5, y, x)
    ALIGNED_FOUR(6, x, y)
    ALIGNED_FOUR(7, y, x)
    ALIGNED_FOUR(8, x, y)
#undef ALIGNED_FOUR
    return;
}

// Adds the products of a stage; `in`: the thread's first sample of its first channel.
template <int K, int T, int MT>
__device__ inline void aligned_add_stage(const aligned_launch &p, const float *in,
                                         const float *&weight, float (&sum)[MT][T])
{
    const int pitch = aligned_pitch(T, K);
#pragma unroll 1
    for (int c = 0; c < p.stage_channels; c++, in += (p.height - K) * pitch) {
        int left = K;
#pragma unroll 1
        do {
            aligned_add_row<K, T, MT>(sum, weight, in, p.maps, p.images);
            weight += aligned_weights(MT, K);
            in += pitch;
        } while (--left > 0);
    }
}

// Computes a unit, stage by stage as they arrive, and releases the warp's stages. `first`: the
// image of the warp's first unit; `last`: the warp has no further units in it.
template <int K, int T, int MT, int WIDTH, int WARPS>
__device__ inline void
aligned_add(const aligned_launch &p, const aligned_memory &memory, const aligned_share &share,
            aligned_ring &ring, const aligned_unit &unit, int first, bool last, float (&sum)[MT][T])
{
    const int pitch = aligned_pitch(T, K);
    const float *weight = memory.weights + unit.group * p.group_floats;
    aligned_begin_sums<T, MT>(sum, weight);
    weight += aligned_biases(MT);
    int stage = unit.image * p.stages,
        final = (int)__shfl_sync(0xffffffffu, (uint32_t)unit.image, 31);
#pragma unroll 1
    for (int s = 0; s < p.stages; s++, stage++) {
        // The stages of the last thread are loaded into the slots of these.
        aligned_release<pitch, WIDTH, WARPS>(p, memory, share, ring,
                                             final * p.stages + s + 1 - p.slots,
                                             first * p.stages + (last ? s : 0));
        int turn = layer_divide(stage, p.by_slots), slot = stage - turn * p.slots;
        barrier_wait(memory.full + slot, (uint32_t)turn & 1);
        __syncwarp();
        const float *in = memory.slots + (slot * p.stage_channels * p.height + unit.row) * pitch;
        aligned_add_stage<K, T, MT>(p, in, weight, sum);
    }
}

// Queues a copy from shared memory, addresses and bytes in multiples of 16.
__device__ inline void aligned_bulk_store(float *to, const float *from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the copies that this thread has queued have read shared memory.
__device__ inline void aligned_wait_stored(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// A run of a warp's outputs that follow each other in a map: one for each group of maps from which
// the warp has units.
struct aligned_run {
    int64_t at;        // of the group's first map
    int begin, length; // in outputs of the warp
    int place;         // in the buffer, where it begins as far from a multiple of 16 bytes
};

// Run r of the units from `first` on.
template <int MT>
__device__ inline aligned_run aligned_find_run(const aligned_launch &p, const aligned_share &share,
                                               int first, int r)
{
    aligned_unit unit = aligned_find_unit(p, first);
    int before = r ? r * p.out_height - unit.row : 0; // units
    int end = min(share.end - first, 32);
    aligned_run run;
    run.begin = before * p.out_width;
    run.length = max(min((r + 1) * p.out_height - unit.row, end) - before, 0) * p.out_width;
    unit = aligned_find_unit(p, first + before);
    // The last group ends with the maps and may overlap the one before.
    int map = min(unit.group * MT, p.maps - MT);
    run.at = ((share.image + unit.image) * p.maps + map) * p.to.plane + unit.row * p.out_width;
    run.place = aligned_pad(run.begin) + 8 * r;
    return run;
}

// Stores the outputs of map m as float16 or after tanh. Lanes 0 to 2 have the warp's runs.
template <int T>
__device__ inline void aligned_store_singly(const aligned_launch &p, const float *buffer,
                                            const aligned_run &run, int m)
{
    const unsigned everyone = 0xffffffffu;
    int begin1 = (int)__shfl_sync(everyone, (uint32_t)run.begin, 1);
    int begin2 = (int)__shfl_sync(everyone, (uint32_t)run.begin, 2);
#pragma unroll 1
    for (int i = (int)threadIdx.x % 32; i < 32 * T; i += 32) {
        int r = (i >= begin1) + (i >= begin2);
        int64_t at = store_shuffle(run.at, r) + m * p.to.plane;
        int place = (int)__shfl_sync(everyone, (uint32_t)run.place, r) + (int)(at & 3);
        int length = (int)__shfl_sync(everyone, (uint32_t)run.length, r);
        int k = i - (r == 0 ? 0 : r == 1 ? begin1 : begin2);
        if (k >= length)
            continue;
        float value = buffer[place + k];
        if (p.to.activation == CONV_ACTIVATION_TANH)
            value = layer_tanh<0>(value);
        if (p.to.half)
            layer_store((uint16_t *)p.to.dst + at + k, value);
        else
            layer_store((float *)p.to.dst + at + k, value);
    }
}

// Stores a warp's outputs, of the units from `first` on, by way of its buffer: by bulk copies, and
// up to three floats singly at both ends of a run.
template <int T, int MT>
__device__ inline void aligned_store(const aligned_launch &p, const aligned_share &share,
                                     float *buffer, int first, const float (&sum)[MT][T])
{
    int lane = (int)threadIdx.x % 32;
    // The run of a thread's own outputs, and the one that it helps to store.
    int row = aligned_find_unit(p, first).row + lane;
    aligned_run own = aligned_find_run<MT>(p, share, first, layer_divide(row, p.by_out_height));
    aligned_run run = aligned_find_run<MT>(p, share, first, lane % 4);
    if (lane % 4 >= ALIGNED_MOST_RUNS)
        run.length = 0;
    bool single = p.to.half || p.to.activation == CONV_ACTIVATION_TANH;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        aligned_wait_stored();
        __syncwarp();
        int phase = (int)(own.at + m * p.to.plane) & 3;
        float *mine = buffer + own.place + phase + lane * p.out_width - own.begin;
#pragma unroll
        for (int t = 0; t < T; t++)
            if (t < T - ALIGNED_MOST_IDLE || t < p.out_width)
                mine[t] = sum[m][t];
        fence_for_bulk();
        __syncwarp();
        int64_t at = run.at + m * p.to.plane;
        const float *from = buffer + run.place + ((int)at & 3);
        int head = min((int)-at & 3, run.length), body = (run.length - head) / 4 * 4;
        if (single) {
            aligned_store_singly<T>(p, buffer, run, m);
            continue;
        }
        float *to = (float *)p.to.dst + at;
        if (lane < 4 && body > 0)
            aligned_bulk_store(to + head, from + head, body * 4);
        int i = lane / 4; // 0 to 3: of the head, 4 to 7: of the tail
        i = i < 4 ? i : head + body + i - 4;
        if (lane / 4 < 4 ? i < head : i < run.length)
            to[i] = from[i];
    }
}
#endif

template <int K, int T, int MT, int WIDTH, int THREADS>
static __global__ __launch_bounds__(THREADS,
                                    1) void aligned(const __grid_constant__ aligned_launch p)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int warps = THREADS / 32, pitch = aligned_pitch(T, K);
    int warp = (int)threadIdx.x / 32;
    aligned_memory memory;
    aligned_share share;
    aligned_begin<pitch, WIDTH, THREADS>(p, ALIGNED_BUFFER(T), &memory, &share);
    aligned_ring ring = {0, 0, 0};
#pragma unroll 1
    for (int first = share.begin + warp * 32; first < share.end; first += THREADS) {
        int image = layer_divide(first, p.by_item_units), next = share.stages / p.stages;
        if (first + THREADS < share.end)
            next = layer_divide(first + THREADS, p.by_item_units);
        float sum[MT][T];
        int number = min(first + (int)threadIdx.x % 32, share.end - 1);
        aligned_add<K, T, MT, WIDTH, warps>(p, memory, share, ring, aligned_find_unit(p, number),
                                            image, next > image, sum);
        aligned_release<pitch, WIDTH, warps>(p, memory, share, ring, 0, next * p.stages);
        asm volatile("" : "+r"(first)); // what follows is not kept in registers until here
        activate_outputs<T, MT>(p.to.activation, sum);
        aligned_store<T, MT>(p, share, memory.buffers + warp * ALIGNED_BUFFER(T), first, sum);
    }
    aligned_wait_stored();
    // Later stages are loaded only once this warp has released these too.
    int loaded = share.stages - p.slots;
    aligned_release<pitch, WIDTH, warps>(p, memory, share, ring, loaded, loaded);
#endif
}

#endif
