// SPDX-License-Identifier: MIT
// The exact order for few input channels, where writing the maps is the limit. A thread reads the
// samples of its outputs through the L1 cache and computes MT maps at a time. With up to three
// channels it reads them once, keeps them in registers and computes one group of maps after the
// other, so that outputs reach memory continuously; with more, each group of maps has threads of
// its own, which keep the sums and read one channel after the other.
#pragma once

#include "kernels/common/warp.cuh"
#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

struct few_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // few_looped: [group][1 + taps][MT], the bias first
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    int group_images, group_blocks; // images of a group, and blocks that compute them
    struct layer_divider by_group_blocks, by_image, by_tiles;
    int height, width, kernel_height; // of the input, and of the kernel
    int out_height, out_width, tiles, unit_rows, maps, groups;
    int channels, block_groups; // block_groups: few_looped: groups that a block computes
    int image_units;            // of an image; FEW_ROWS: rounded up to whole warps
};

// What a thread computes of each map. The first two write 16 bytes at a time, at multiples of 16.
enum few_form {
    FEW_WHOLE, // T = 4n columns of R rows; rows of outputs are multiples of T
    FEW_FLAT,  // 4 outputs that follow each other in the plane, in pairs that may lie in two rows
    FEW_RUNS,  // T columns of a row; warps put their outputs together in shared memory
    FEW_ROWS,  // the same; rows of outputs are multiples of T, and no warp computes two images
    FEW_SAME,  // FEW_WHOLE with K / 2 zeros around the input, whose rows are multiples of 4
    FEW_ZEROS, // FEW_RUNS with K / 2 zeros around the input
};

// Whether windows reach beyond the input; and whether outputs are put together in shared memory.
__host__ __device__ static constexpr bool few_is_padded(few_form form)
{
    return form == FEW_SAME || form == FEW_ZEROS;
}

__host__ __device__ static constexpr bool few_has_runs(few_form form)
{
    return form == FEW_RUNS || form == FEW_ZEROS;
}

// The same with weights at known places in the kernel's parameters, so that they are operands of
// the multiply-adds: no instruction loads them, and no register holds them.
template <int FLOATS> struct few_fixed_launch {
    few_launch p;
    float weights[FLOATS]; // [group][1 + taps][MT]
};

// N floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void few_read(float *to, const float *from)
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

// The same, or zeros.
template <int N, int VX>
__device__ inline void few_read_if(float *to, const float *from, bool inside)
{
#pragma unroll
    for (int i = 0; i < N; i += VX) {
        float part[VX];
#pragma unroll
        for (int k = 0; k < VX; k++)
            part[k] = 0;
        if (inside)
            few_read<VX, VX>(part, from + i);
#pragma unroll
        for (int k = 0; k < VX; k++)
            to[i + k] = part[k];
    }
}

// Bits of those of N samples from `first` on that are not outside.
template <int N> __device__ inline unsigned few_inside(int first, int limit)
{
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        bits |= (unsigned)(first + i) < (unsigned)limit ? 1u << i : 0;
    return bits;
}

// How outputs are stored. Properties known before the launch cost no instructions in the kernel.
enum few_output {
    FEW_ANY,   // any activation and element
    FEW_PLAIN, // no activation, float32, whole groups
    FEW_RELU,  // the same with relu
};

// What a thread computes. A unit is T columns of R rows; the last one of a row or column ends with
// it and may overlap the one before. FEW_FLAT: a unit is two pairs of neighbouring outputs, and T
// is 4. A block computes consecutive units of a group of images.
template <int C, int K, int T, int R, int VX, few_form FORM> struct few_unit {
    static const int window = FORM == FEW_FLAT ? 2 * (K + 1) : T + K - 1;
    float x[C][K + R - 1][window];
    const char *src; // of the window, which begins outside a padded input
    int64_t at;      // of the first output of the next group's first map
    int count;       // T, or 0 for a thread without outputs
    int row, column; // of the first output; FEW_FLAT: column of the first pair
    // With zeros around the input: the rows and columns of the window that lie in it.
    unsigned rows, columns;

    // The sample of output t of row r for a tap.
    static __device__ inline const float &sample(const few_unit &unit, int k, int r, int t)
    {
        int first = FORM == FEW_FLAT ? t / 2 * (K + 1) + t % 2 : t;
        return unit.x[k / (K * K)][k / K % K + r][first + k % K];
    }

    __device__ inline void find(const few_launch &p)
    {
        int group = layer_divide((int)blockIdx.x, p.by_group_blocks);
        int64_t first_image = (int64_t)group * p.group_images;
        int unit = ((int)blockIdx.x - group * p.group_blocks) * (int)blockDim.x + (int)threadIdx.x;
        int across = p.image_units;
        int units = (int)min((int64_t)p.group_images, p.images - first_image) * across;
        count = unit < units ? T : 0;
        unit = min(unit, units - 1);
        int local = layer_divide(unit, p.by_image), rest = unit - local * across;
        int place = rest; // of the thread in its image
        if (FORM == FEW_ROWS && rest >= p.unit_rows * p.tiles) {
            count = 0;
            rest = p.unit_rows * p.tiles - 1;
        }
        int64_t image = first_image + local;
        src = (const char *)p.src + image * p.src_image;
        row = layer_divide(FORM == FEW_FLAT ? rest * 4 : rest, p.by_tiles);
        if (FORM == FEW_FLAT) { // by_tiles: by the width of a row
            column = rest * 4 - row * p.out_width;
            at = image * p.maps * p.to.plane + rest * 4;
        } else {
            column = min((rest - row * p.tiles) * T, p.out_width - T);
            if (R > 1)
                row = min(row * R, p.out_height - R);
            at = (image * p.maps * p.out_height + row) * p.out_width + column;
            if (FORM == FEW_ROWS) // also for threads without outputs, which help to store
                at = image * p.maps * p.to.plane + (int64_t)place * T;
        }
        if (few_is_padded(FORM)) {
            rows = few_inside<K + R - 1>(row - K / 2, p.out_height);
            columns = few_inside<window>(column - K / 2, p.out_width);
            src -= K / 2 * (p.src_row + 4);
        }
        src += (int64_t)row * p.src_row + column * 4;
        asm volatile("" : "+l"(at)); // keeps it in registers instead of deriving it per group
    }

    // The samples of C channels from `src` on.
    __device__ inline void read(const few_launch &p)
    {
        if (FORM == FEW_FLAT) {
            bool next = column + 2 >= p.out_width;
            read_rows<K + 1>(p, src, 0);
            read_rows<K + 1>(p, src + (next ? p.src_row - column * 4 : 8), K + 1);
        } else if (FORM == FEW_SAME) {
            read_same(p);
        } else if (FORM == FEW_ZEROS) {
            read_zeros(p);
        } else {
            read_rows<window>(p, src, 0);
        }
    }

    // N samples of each row of the window.
    template <int N>
    __device__ inline void read_rows(const few_launch &p, const char *from, int at_column)
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u++)
                few_read<N, VX>(
                    x[c][u] + at_column,
                    (const float *)(const void *)(from + c * p.src_plane + u * p.src_row));
    }

    // The T columns of the window lie in the input, and either all or none of those on a side do.
    __device__ inline void read_same(const few_launch &p)
    {
        const int side = K / 2, VS = side % 2 == 0 ? 2 : 1;
        unsigned left = columns & 1 ? rows : 0, right = columns >> (window - 1) & 1 ? rows : 0;
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u++) {
                const float *from =
                    (const float *)(const void *)(src + c * p.src_plane + u * p.src_row);
                few_read_if<side, VS>(x[c][u], from, left & 1u << u);
                few_read_if<T, VX>(x[c][u] + side, from + side, rows & 1u << u);
                few_read_if<side, VS>(x[c][u] + side + T, from + side + T, right & 1u << u);
            }
    }

    __device__ inline void read_zeros(const few_launch &p)
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u++) {
                const float *from =
                    (const float *)(const void *)(src + c * p.src_plane + u * p.src_row);
                unsigned inside = rows >> u & 1 ? columns : 0;
#pragma unroll
                for (int k = 0; k < window; k++)
                    few_read_if<1, 1>(x[c][u] + k, from + k, inside & 1u << k);
            }
    }

    // A warp's outputs follow each other in the plane, from a multiple of four on. All warps but an
    // image's last one have 32 * T of them.
    template <int MT, typename Element>
    __device__ inline void store_rows(Element *dst, int64_t to, int64_t plane, float *buffer,
                                      int maps, float (&sum)[MT][T])
    {
        int lane = (int)threadIdx.x % 32;
        int length = __popc(__ballot_sync(0xffffffffu, count > 0)) * T;
        dst += to - lane * (T - 4); // lanes are T outputs apart
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t += 2) {
                float2 pair;
                pair.x = sum[m][t];
                pair.y = sum[m][t + 1];
                *(float2 *)(void *)(buffer + (m * 32 + lane) * T + t) = pair;
            }
        __syncwarp();
#pragma unroll
        for (int m = 0; m < MT; m++, dst += plane)
#pragma unroll
            for (int k = 0; k < 32 * T; k += 128)
                if (k + lane * 4 < length && m < maps)
                    layer_store4(dst + k, *(const float4 *)(const void *)(buffer + m * 32 * T + k +
                                                                          lane * 4));
        __syncwarp();
    }

    // Stores the sums of a group of maps and moves `at` to the next one.
    template <int MT, few_output OUTPUT, int MB = MT>
    __device__ inline void store(const few_launch &p, float *buffer, int group,
                                 float (&sum)[R][MT][T])
    {
        int64_t to = at;
        at += MT * p.to.plane;
        const bool plain = OUTPUT != FEW_ANY;
        int maps = plain ? MT : min(MT, p.maps - group * MT);
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (OUTPUT == FEW_RELU)
                activate_outputs<T, MT>(CONV_ACTIVATION_RELU, sum[r]);
            else if (!plain)
                activate_outputs<T, MT>(p.to.activation, sum[r]);
            if (FORM == FEW_ROWS && !plain && p.to.half)
                store_rows<MT>((uint16_t *)p.to.dst, to, p.to.plane, buffer, maps, sum[r]);
            else if (FORM == FEW_ROWS)
                store_rows<MT>((float *)p.to.dst, to, p.to.plane, buffer, maps, sum[r]);
            else if (few_has_runs(FORM))
                store_runs<T, MT, MB>(p.to, buffer, to + r * p.out_width, count, maps, sum[r]);
            else if (count)
                store_units<T, MT>(p.to, !plain && p.to.half, to + r * p.out_width, maps, sum[r]);
        }
    }
};

// Adds tap k to a thread's sums of map m. The first tap starts from the bias.
template <int T, int R, int MT, typename Unit>
__device__ inline void few_add(float (&sum)[R][MT][T], const Unit &unit, int k, int m, float w,
                               float bias)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[r][m][t] = fmaf(w, Unit::sample(unit, k, r, t), k == 0 ? bias : sum[r][m][t]);
}

// Up to G groups of maps, all of them unrolled.
template <int C, int K, int T, int R, int MT, int G, int VX, few_form FORM, int THREADS, int BLOCKS,
          few_output OUTPUT>
static __global__ __launch_bounds__(THREADS, RESIDENT(THREADS, BLOCKS)) void few_fixed(
    const __grid_constant__ few_fixed_launch<G * MT *(1 + C * K * K)> launch)
{
    const int taps = C * K * K;
    const bool runs = FORM == FEW_RUNS || FORM == FEW_ROWS;
    __shared__ float4 buffers[runs ? THREADS / 32 * MT * STORE_ROOM(T) / 4 : 1];
    float *buffer = (float *)(void *)buffers + (runs ? threadIdx.x / 32 * MT * STORE_ROOM(T) : 0);
    const few_launch &p = launch.p;
    few_unit<C, K, T, R, VX, FORM> unit;
    unit.find(p);
    unit.read(p);
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g > 0 && g >= p.groups)
            return;
        float sum[R][MT][T];
#pragma unroll
        for (int k = 0; k < taps; k++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                few_add<T, R, MT>(sum, unit, k, m,
                                  launch.weights[(g * (1 + taps) + 1 + k) * MT + m],
                                  launch.weights[g * (1 + taps) * MT + m]);
        unit.template store<MT, OUTPUT>(p, buffer, g, sum);
    }
}

// Weights of a tap in shared memory: how many are read at a time.
static constexpr __host__ __device__ int few_padded(int maps)
{
    return maps < 2 ? 1 : maps < 3 ? 2 : (maps + 3) / 4 * 4;
}

template <int MT> __device__ inline void few_weights(float (&to)[MT], const float *from)
{
    layer_read<MT, few_padded(MT) < 4 ? few_padded(MT) : 4>(to, from);
}

// Any number of groups, with their weights in shared memory. With too few images for all
// multiprocessors, blocks share the groups: blockIdx.y is the number of the block's share.
template <int C, int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static __global__
__launch_bounds__(THREADS,
                  RESIDENT(THREADS, BLOCKS)) void few_looped(const __grid_constant__ few_launch p)
{
    const int taps = C * K * K, padded = few_padded(MT), floats = (1 + taps) * padded;
    extern __shared__ float4 few_memory[];
    int begin = (int)blockIdx.y * p.block_groups, end = min(begin + p.block_groups, p.groups);
    // Reads begin at a multiple of four floats.
    int skipped = begin * floats % 4, read = skipped + (end - begin) * floats;
    const float4 *from = (const float4 *)(const void *)(p.weights + (begin * floats - skipped));
    float *weights = (float *)(void *)few_memory + skipped;
    float *buffer = (float *)(void *)few_memory + (p.block_groups * floats + 6) / 4 * 4;
    if (FORM == FEW_RUNS || FORM == FEW_ROWS)
        buffer += threadIdx.x / 32 * MT * STORE_ROOM(T);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < (read + 3) / 4; i += THREADS)
        few_memory[i] = __ldg(from + i);
    few_unit<C, K, T, R, VX, FORM> unit;
    unit.find(p);
    unit.read(p);
    __syncthreads();
    unit.at += (int64_t)(begin * MT) * p.to.plane;
#pragma unroll 1
    for (int g = begin; g < end; g++, weights += floats) {
        float sum[R][MT][T], bias[MT];
        few_weights<MT>(bias, weights);
#pragma unroll
        for (int k = 0; k < taps; k++) {
            float w[MT];
            few_weights<MT>(w, weights + (1 + k) * padded);
#pragma unroll
            for (int m = 0; m < MT; m++)
                few_add<T, R, MT>(sum, unit, k, m, w[m], bias[m]);
        }
        unit.template store<MT, FEW_ANY>(p, buffer, g, sum);
    }
}

// Any number of channels, which are read one after the other; blockIdx.y is the group of maps. Its
// weights are in shared memory: of those in parameters, a scheduler loads two to a uniform register
// in about 24 cycles.
template <int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static __global__
__launch_bounds__(THREADS,
                  RESIDENT(THREADS, BLOCKS)) void few_channels(const __grid_constant__ few_launch p)
{
    static_assert(MT % 4 == 0, "weights are read in quads");
    const int taps = K * K, MB = 2; // maps that are stored together
    extern __shared__ float4 few_memory[];
    int floats = (1 + p.channels * taps) * MT;
    const float4 *from =
        (const float4 *)(const void *)(p.weights + (int64_t)((int)blockIdx.y * floats));
    const float *weights = (const float *)(const void *)few_memory;
    float *buffer = (float *)(void *)few_memory + floats;
    if (few_has_runs(FORM))
        buffer += threadIdx.x / 32 * MB * STORE_ROOM(T);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < floats / 4; i += THREADS)
        few_memory[i] = __ldg(from + i);
    few_unit<1, K, T, R, VX, FORM> unit;
    unit.find(p);
    unit.at += (int64_t)((int)blockIdx.y * MT) * p.to.plane;
    // With few images, waiting for memory takes most of the time, so all channels are prefetched.
    if (THREADS < 128) {
#pragma unroll 1
        for (int c = 0; c < p.channels; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u += 2)
                asm volatile("prefetch.global.L2 [%0];"
                             :
                             : "l"(unit.src + c * p.src_plane + u * p.src_row));
    }
    __syncthreads(); // the weights are complete
    float sum[R][MT][T], bias[MT];
    few_weights<MT>(bias, weights);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = bias[m];
    weights += MT;
#pragma unroll 1
    for (int c = 0; c < p.channels; c++, weights += taps * MT) {
        unit.read(p); // all rows at once: few loads come back before the first is needed
        unit.src += p.src_plane;
#pragma unroll
        for (int k = 0; k < taps; k++) {
            float w[MT];
            few_weights<MT>(w, weights + k * MT);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int t = 0; t < T; t++)
                        sum[r][m][t] =
                            fmaf(w[m], few_unit<1, K, T, R, VX, FORM>::sample(unit, k, r, t),
                                 sum[r][m][t]);
        }
    }
    unit.template store<MT, FEW_ANY, MB>(p, buffer, (int)blockIdx.y, sum);
}
