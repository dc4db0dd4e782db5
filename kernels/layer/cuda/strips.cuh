// SPDX-License-Identifier: MIT
// Layers on the tensor cores of compute capability 9.0 (wgmma): implicit GEMM with float16
// operands, samples in registers and weights in shared memory, and float32 sums.
#ifndef CONV_KERNELS_LAYER_CUDA_STRIPS_CUH
#define CONV_KERNELS_LAYER_CUDA_STRIPS_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/strips_products.cuh"

// --- stages --------------------------------------------------------------------------------------
// Producers of strips.cuh whose tasks are whole images without gaps: bulk copies bring the samples
// of later tasks to stages in shared memory, from which the producers read them.

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline int strips_images(const strips_launch &p, int64_t number)
{
    return (int)min((int64_t)p.group, p.images - number * p.group);
}

// Copies the samples of task `number`, if there is one, to a stage. Called by a whole warp.
__device__ inline void strips_copy(const strips_launch &p, int64_t number, char *stage,
                                   uint64_t *arrived)
{
    if (number >= p.tasks || !elect())
        return;
    uint32_t bytes = (uint32_t)strips_images(p, number) * (uint32_t)p.src_image;
    fence_for_bulk();
    barrier_arrive_expect(arrived, bytes);
    bulk_copy(shared_address(stage), (uint64_t)p.src + (uint64_t)(number * p.stage_bytes), bytes,
              shared_address(arrived));
}

// Writes all atoms of a task of `images` images from a stage, as strips_fill does. The positions of
// whole images are numbered like their samples.
template <int PRODUCTS, int THREADS>
__device__ inline wgmma_range strips_fill_from(const strips_launch &p, const char *stage,
                                               int images, char *atoms, int thread)
{
    wgmma_range range = {0, 0xffffffffu};
    int end = p.positions * p.planes;
#pragma unroll 1
    for (int q = thread; q < end; q += THREADS) {
        int plane = (int)__umulhi((uint32_t)q, p.positions_inverse);
        int position = q - plane * p.positions;
        int image = (int)__umulhi((uint32_t)position, p.image_inverse);
        const char *at =
            stage + image * (int)p.src_image + (position - image * p.image_positions) * 4;
        float v[8];
        if (plane * 8 + 8 <= p.channels) {
            at += plane * 8 * (int)p.src_plane;
#pragma unroll
            for (int i = 0; i < 8; i++, at += (int)p.src_plane)
                v[i] = image < images ? *(const float *)(const void *)at : 0;
        } else {
            int line = (int)__umulhi((uint32_t)position, p.pitch_inverse);
            int columns = image < images ? p.pitch - (position - line * p.pitch) : 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = p.last_pixel[i] < columns
                           ? *(const float *)(const void *)(at + (int)p.last_offset[i])
                           : 0;
        }
        strips_fill_atom<PRODUCTS>(p, v, WGMMA_SCALE, atoms + q * 16, range);
    }
    return range;
}

// The producers' loop, like strips_produce. Their first warp refills a stage as soon as all
// producers have read it, which is when a buffer of atoms is full.
template <int PRODUCTS, int PRODUCERS>
__device__ inline void strips_produce_from(const strips_launch &p, char *atoms,
                                           strips_shared *shared)
{
    int buffer = 0, thread = (int)threadIdx.x - STRIPS_CONSUMERS;
    uint32_t parity = 1;
    char *stages = atoms + p.stages_at;
    bool copies = uniform((uint32_t)thread / 32) == 0;
    pipeline_state state = {0, 0};
    if (copies)
        for (int i = 0; i < p.stages; i++)
            strips_copy(p, blockIdx.x + (int64_t)i * gridDim.x, stages + i * p.stage_bytes,
                        &shared->arrived[i]);
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        char *stage = stages + state.stage * p.stage_bytes;
        barrier_wait(&shared->empty[buffer], parity);
        barrier_wait(&shared->arrived[state.stage], state.parity);
        wgmma_range range = strips_fill_from<PRODUCTS, PRODUCERS>(
            p, stage, strips_images(p, number), atoms + buffer * p.buffer_bytes, thread);
        bool unfit = !__all_sync(0xffffffffu, wgmma_is_within<PRODUCTS>(range, WGMMA_SCALE));
        if (thread % 32 == 0)
            shared->unfit[buffer][thread / 32] = unfit;
        barrier_arrive(&shared->full[buffer]);
        if (copies) {
            barrier_wait(&shared->full[buffer], parity ^ 1);
            strips_copy(p, number + (int64_t)p.stages * gridDim.x, stage,
                        &shared->arrived[state.stage]);
        }
        advance(&state, p.stages);
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

#endif

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void strips_meet(strips_shared *shared, uint32_t &parity)
{
    barrier_arrive(&shared->together);
    barrier_wait(&shared->together, parity);
    parity ^= 1;
}

// Finds the range of a task's samples. Called by all consumers.
__device__ inline wgmma_range strips_find_range(const strips_launch &p, const strips_task &task,
                                                strips_shared *shared, uint32_t &parity)
{
    wgmma_range range = {0, 0xffffffffu};
#pragma unroll 1
    for (int q = (int)threadIdx.x; q < p.positions * p.planes; q += STRIPS_CONSUMERS) {
        float v[8];
        strips_read_atom(p, task, q, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            wgmma_widen(range, v[i]);
    }
    uint32_t largest = __float_as_uint(range.largest), least = range.least; // as integers: NaN wins
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
        least = min(least, __shfl_xor_sync(0xffffffffu, least, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        shared->largest[threadIdx.x / 32] = largest;
        shared->least[threadIdx.x / 32] = least;
    }
    strips_meet(shared, parity);
#pragma unroll
    for (int i = 0; i < STRIPS_CONSUMERS / 32; i++) {
        largest = max(largest, shared->largest[i]);
        least = min(least, shared->least[i]);
    }
    strips_meet(shared, parity); // all have read `largest` and `least`
    range.largest = __uint_as_float(largest);
    range.least = least;
    return range;
}

// Computes a task in the exact order: its samples differ too much in magnitude, or are not finite.
__device__ inline void strips_exact(const strips_launch &p, const strips_task &task, int first_map,
                                    int maps)
{
    int rows = min(p.tile_rows, p.out_height - task.top);
    int columns = min(p.tile_columns, p.out_width - task.left);
    int outputs = task.images * maps * rows * columns;
    int taps = p.channels * p.kernel_height * p.kernel_width;
    for (int q = (int)threadIdx.x; q < outputs; q += STRIPS_CONSUMERS) {
        int j = q % columns, i = q / columns % rows, line = q / columns / rows;
        int m = first_map + line % maps, image = line / maps;
        const float *weight = p.exact + (int64_t)m * taps;
        const char *src =
            task.src + image * p.src_image + i * p.src_row + j * (int64_t)sizeof(float);
        float sum = p.bias[m];
        for (int c = 0; c < p.channels; c++)
            for (int u = 0; u < p.kernel_height; u++) {
                const float *row =
                    (const float *)(const void *)(src + c * p.src_plane + u * p.src_row);
                for (int v = 0; v < p.kernel_width; v++)
                    sum = fmaf(*weight++, __ldg(row + v), sum);
            }
        int64_t at = (((task.first_image + image) * p.maps + m) * p.out_height + task.top + i) *
                         p.out_width +
                     task.left + j;
        sum = layer_activate(p.activation, sum);
        if (p.half)
            layer_store((uint16_t *)p.dst + at, sum);
        else
            layer_store((float *)p.dst + at, sum);
    }
}

// A strip of a task: its first row and column. Columns are numbered through all images of the task.
struct strips_strip {
    int row, column;
};

__device__ inline strips_strip strips_find_strip(const strips_launch &p, int number, int across)
{
    strips_strip strip;
    strip.row = number / across;
    strip.column = (number - strip.row * across) * p.strip_columns;
    strip.row *= p.strip_rows;
    return strip;
}

// Bytes from a task's first atom to the first atom that this lane loads for a strip. Columns after
// the last repeat it.
__device__ inline uint32_t strips_lane_offset(const strips_launch &p, const strips_strip &strip)
{
    int lane = (int)threadIdx.x % 32, second = lane / 8 % 2;
    bool wide = p.second_row == 0;
    int column = strip.column + lane % 8 + (wide ? second * 8 : 0);
    column = min(column, p.group * p.tile_columns - 1);
    int image = layer_divide(column, p.columns_divider);
    int row = strip.row + image * p.in_rows + (wide ? 0 : second * p.second_row);
    return (uint32_t)((row * p.pitch + column - image * p.tile_columns) * 16);
}

// The outputs of a strip that a thread stores: those of `rows` rows.
template <int NB, int T> struct strips_outputs {
    float y[T][NB * 4];
    int64_t at; // element of the first map
    int rows;
};

// Of 8 maps, a thread has maps 2 q and 2 q + 1 (q: lane % 4), at column lane / 4 and at the same
// place 8 columns, or T rows, further on. In a strip of 16 columns, neighbouring threads swap two
// of their four values, so that a store writes 16 columns of two maps instead of 8 columns of four:
// even q send those of the second 8 columns, odd q those of the first.
__device__ inline bool strips_is_odd(const strips_launch &p)
{
    return p.second_row == 0 && threadIdx.x % 2;
}

// The first map that a thread stores, of those of a warpgroup.
__device__ inline int strips_map(const strips_launch &p)
{
    int q = (int)threadIdx.x % 4;
    return p.second_row == 0 ? q / 2 * 4 : q * 2;
}

// Finds where a strip's outputs are stored.
template <int NB, int T>
__device__ inline void strips_find_outputs(const strips_launch &p, const strips_task &task,
                                           const strips_strip &strip, int first_map,
                                           strips_outputs<NB, T> &outputs)
{
    int lane = (int)threadIdx.x % 32, plane = p.out_height * p.out_width;
    int column = strip.column + lane / 4 + (strips_is_odd(p) ? 8 : 0);
    int image = layer_divide(column, p.columns_divider);
    column -= image * p.tile_columns;
    outputs.rows = min(p.tile_rows, p.out_height - task.top) - strip.row;
    if (image >= task.images || task.left + column >= p.out_width)
        outputs.rows = 0;
    outputs.at = ((task.first_image + image) * p.maps + first_map + strips_map(p)) * plane +
                 (task.top + strip.row) * p.out_width + task.left + column;
}

// Converts sums to outputs. `bias`: bias and inverse scale of two maps.
template <int NB, int PRODUCTS, int T, int U>
__device__ inline void strips_finish(const strips_launch &p, const float4 *bias, float unscale,
                                     const strips_sums<NB, PRODUCTS, T, U> &sums,
                                     float (&y)[T][NB * 4])
{
#pragma unroll
    for (int n = 0; n < NB; n++) {
        float4 b = bias[n * 4 + threadIdx.x % 4];
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float value = sums.high[t][n * 4 + i];
                if (PRODUCTS == 3) {
                    float low = sums.low[t][n * 4 + i];
                    if (sums.wide == 2)
                        low += sums.high[t][(sums.wide - 1) * NB * 4 + n * 4 + i];
                    value = fmaf(low, 1 / WGMMA_LO, value);
                }
                y[t][n * 4 + i] = fmaf(value * unscale, i % 2 ? b.w : b.y, i % 2 ? b.z : b.x);
            }
    }
    if (p.activation == CONV_ACTIVATION_NONE)
        return;
#pragma unroll
    for (int t = 0; t < T; t++)
        if (p.activation == CONV_ACTIVATION_RELU) {
#pragma unroll
            for (int i = 0; i < NB * 4; i++)
                y[t][i] = y[t][i] < 0 ? 0 : y[t][i];
        } else {
#pragma unroll
            for (int i = 0; i < NB * 4; i++)
                y[t][i] = layer_activate(p.activation, y[t][i]);
        }
}

// Stores a strip's outputs, as strips_is_odd describes.
template <typename Element, int NB, int T>
__device__ inline void strips_store(const strips_launch &p, int first_map,
                                    const strips_outputs<NB, T> &outputs)
{
    int plane = p.out_height * p.out_width, rows = outputs.rows;
    bool wide = p.second_row == 0, odd = strips_is_odd(p);
    int maps = p.maps - first_map - strips_map(p);
    int kept_map = odd ? 2 : 0, other_map = wide && !odd ? 2 : 0, other_rows = rows - p.second_row;
    Element *kept = (Element *)p.dst + outputs.at + kept_map * plane;
    Element *other = (Element *)p.dst + outputs.at + other_map * plane + p.second_row * p.out_width;
#pragma unroll
    for (int n = 0; n < NB; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bool has_kept = n * 8 + i + kept_map < maps, has_other = n * 8 + i + other_map < maps;
            Element *to = kept, *to_other = other;
#pragma unroll
            for (int t = 0; t < T; t++, to += p.out_width, to_other += p.out_width) {
                float first = outputs.y[t][n * 4 + i], second = outputs.y[t][n * 4 + 2 + i];
                float come = __shfl_xor_sync(0xffffffffu, odd ? first : second, wide ? 1 : 0);
                if (t < rows && has_kept)
                    layer_store(to, odd ? second : first);
                if (t < other_rows && has_other)
                    layer_store(to_other, come);
            }
            kept += i ? 7 * plane : plane;
            other += i ? 7 * plane : plane;
        }
    }
}

// The producers' loop: writes the atoms of one task after the other.
template <int PRODUCTS, int PRODUCERS>
__device__ inline void strips_produce(const strips_launch &p, char *atoms, strips_shared *shared)
{
    int buffer = 0, thread = (int)threadIdx.x - STRIPS_CONSUMERS;
    uint32_t parity = 1;
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        strips_task task = strips_find_task(p, number);
        barrier_wait(&shared->empty[buffer], parity);
        wgmma_range range = strips_fill<PRODUCTS, PRODUCERS>(
            p, task, WGMMA_SCALE, atoms + buffer * p.buffer_bytes, thread);
        bool unfit = !__all_sync(0xffffffffu, wgmma_is_within<PRODUCTS>(range, WGMMA_SCALE));
        if (thread % 32 == 0)
            shared->unfit[buffer][thread / 32] = unfit;
        barrier_arrive(&shared->full[buffer]);
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

// The consumers' loop: multiplies and stores.
template <int NB, int PRODUCTS, int T, int U>
__device__ inline void strips_consume(const strips_launch &p, const char *weights,
                                      const float *bias, char *atoms, strips_shared *shared)
{
    int group = (int)__shfl_sync(0xffffffffu, threadIdx.x / 128, 0), buffer = 0;
    int block_maps = NB * 8 << p.split, block_map = (int)blockIdx.y * block_maps;
    int mine = p.split ? group : 0; // the warpgroup's chunk of maps in the block
    uint32_t b = (uint32_t)__cvta_generic_to_shared(weights) >> 4;
    b += (uint32_t)(mine * p.steps * (PRODUCTS == 3 ? 2 : 1) * NB * 16);
    bias += mine * NB * 16;
    int first_map = block_map + mine * NB * 8, warp = (int)threadIdx.x / 32 % 4;
    uint32_t parity = 0, together = 1;
    int next = 0; // the warpgroup whose turn it is
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        strips_task task = strips_find_task(p, number);
        char *in = atoms + buffer * p.buffer_bytes;
        float unscale = 1 / WGMMA_SCALE;
        bool exact = false;
        barrier_wait(&shared->full[buffer], parity);
        uint32_t unfit = 0;
#pragma unroll
        for (int i = 0; i < STRIPS_PRODUCERS(NB, PRODUCTS, U) / 32; i++)
            unfit |= shared->unfit[buffer][i];
        if (unfit) {
            wgmma_range range = strips_find_range(p, task, shared, together);
            // A power of two that makes the largest magnitude 2^14 to 2^15.
            int exponent = min(268 - (int)(__float_as_uint(range.largest) >> 23), 253);
            float scale = __uint_as_float((uint32_t)exponent << 23);
            unscale = __uint_as_float((uint32_t)(254 - exponent) << 23);
            exact = !(range.largest < INFINITY) || !wgmma_is_within<PRODUCTS>(range, scale);
            if (exact) {
                strips_exact(p, task, block_map, min(block_maps, p.maps - block_map));
            } else {
                strips_fill<PRODUCTS, STRIPS_CONSUMERS>(p, task, scale, in, (int)threadIdx.x);
                strips_meet(shared, together);
            }
        }
        int across = (task.images * p.tile_columns + p.strip_columns - 1) / p.strip_columns;
        int strips = exact ? 0 : across * p.strips_down, units = (strips + 3) / 4;
        int groups = p.split ? 1 : STRIPS_GROUPS;
        int unit = p.split ? 0 : group - next + (group < next ? STRIPS_GROUPS : 0);
        if (unit >= units)
            barrier_arrive(&shared->empty[buffer]);
        for (; unit < units; unit += groups) {
            int index = unit * 4 + warp; // warps without a strip repeat the last one and discard it
            strips_strip strip = strips_find_strip(p, min(index, strips - 1), across);
            uint32_t at = (uint32_t)__cvta_generic_to_shared(in) + strips_lane_offset(p, strip);
            strips_sums<NB, PRODUCTS, T, U> sums;
            strips_multiply(p, at, b, sums);
            if (unit + groups >= units) // the warpgroup's last one
                barrier_arrive(&shared->empty[buffer]);
            strips_outputs<NB, T> outputs;
            strips_find_outputs(p, task, strip, first_map, outputs);
            if (index >= strips)
                outputs.rows = 0;
            strips_finish(p, (const float4 *)(const void *)bias, unscale, sums, outputs.y);
            if (p.half)
                strips_store<uint16_t>(p, first_map, outputs);
            else
                strips_store<float>(p, first_map, outputs);
        }
        next = (next + units) % STRIPS_GROUPS;
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

#endif

// Blocks take tasks in turn and keep the weights of one or two chunks of NB * 8 maps (blockIdx.y).
// Shared memory: weights, bias and inverse scales, strips_shared, two buffers of atoms, stages.
template <int NB, int PRODUCTS, int T, int U>
static __global__ __launch_bounds__(STRIPS_THREADS(NB, PRODUCTS, U),
                                    1) void strips_layer(const __grid_constant__ strips_launch p)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int threads = STRIPS_THREADS(NB, PRODUCTS, U),
              producers = STRIPS_PRODUCERS(NB, PRODUCTS, U),
              consumer_registers = STRIPS_CONSUMER_REGISTERS(NB, PRODUCTS, U),
              producer_registers = STRIPS_PRODUCER_REGISTERS(NB, PRODUCTS, U);
    static_assert(STRIPS_CONSUMERS * consumer_registers + producers * producer_registers <=
                      threads * STRIPS_REGISTERS(NB, PRODUCTS, U),
                  "registers of a block");
    extern __shared__ __align__(128) char strips_memory[];
    const int maps = NB * 8 << p.split;
    int weight_bytes = p.steps * (PRODUCTS == 3 ? 2 : 1) * NB * 256 << p.split;
    int chunk = (int)blockIdx.y;
    char *weights = strips_memory;
    float *bias = (float *)(void *)(weights + weight_bytes);
    strips_shared *shared = (strips_shared *)(void *)(bias + 2 * maps);
    char *atoms = (char *)shared + STRIPS_SHARED_BYTES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STRIPS_BUFFERS; i++) {
            barrier_init(&shared->full[i], producers);
            barrier_init(&shared->empty[i], STRIPS_CONSUMERS);
        }
        for (int i = 0; i < STRIPS_STAGES; i++)
            barrier_init(&shared->arrived[i], 1);
        barrier_init(&shared->together, STRIPS_CONSUMERS);
    }
    __syncthreads();
    if (threadIdx.x < STRIPS_CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(consumer_registers));
        const uint4 *from = (const uint4 *)(const void *)p.weights + chunk * (weight_bytes / 16);
        for (int i = (int)threadIdx.x; i < weight_bytes / 16; i += STRIPS_CONSUMERS)
            ((uint4 *)(void *)weights)[i] = __ldg(from + i);
        for (int i = (int)threadIdx.x; i < maps; i += STRIPS_CONSUMERS) {
            bias[2 * i] = __ldg(p.bias + chunk * maps + i);
            bias[2 * i + 1] = __ldg(p.bias + ((int)gridDim.y + chunk) * maps + i);
        }
        wgmma_fence_shared();
        uint32_t parity = 0;
        strips_meet(shared, parity);
        strips_consume<NB, PRODUCTS, T, U>(p, weights, bias, atoms, shared);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(producer_registers));
        if (p.stages > 0)
            strips_produce_from<PRODUCTS, producers>(p, atoms, shared);
        else
            strips_produce<PRODUCTS, producers>(p, atoms, shared);
    }
#endif
}

#endif
