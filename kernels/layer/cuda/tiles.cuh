// SPDX-License-Identifier: MIT
// The exact order by register tiles: a thread computes T neighbouring outputs of a row for MT maps.
// Input samples and weights of a few channels at a time are in shared memory; the next ones arrive
// while a block computes. Sums are sequential in c, u, v: only outputs and maps run in parallel.
#ifndef CONV_KERNELS_LAYER_CUDA_TILES_CUH
#define CONV_KERNELS_LAYER_CUDA_TILES_CUH

#include <cuda_pipeline.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

// A launch. A strip is `strip_rows` output rows of one image; a unit is what a thread computes.
// Units are numbered consecutively by strip, group of MT maps, row, tile of T columns. A block
// takes blockDim.x consecutive units, even of several strips, so that no thread is idle.
struct tiles_launch {
    const void *src;
    void *dst;
    const float *weights; // [chunk][channel][kernel row][kernel column][group][MT padded to 4]
    const float *bias;    // [chunk][group][MT padded to 4]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t strips;                        // of the whole batch
    int height, width, out_height, out_width;
    int channels, maps, kernel_height, stride, pad_top, pad_left;
    int pad_bottom, pad_right, border;
    float border_value, divisor;
    int activation, half, bytes;    // half: float16 output; bytes: 8-bit input
    int strip_rows, image_strips;   // output rows of a strip; strips of an image
    int tiles, groups, strip_units; // of T columns; of MT maps; groups * strip_rows * tiles
    int block_strips;               // the most strips that the units of a block belong to
    int in_rows, in_width, pitch;   // of a strip's plane in shared memory, in samples
    int strip_floats;               // of a strip's plane in shared memory, a multiple of 4
    int dense;                      // rows without gaps, no padding, float32
    int step;                       // channels loaded at a time
    int weight_floats;              // of a channel of this chunk
    int stage_floats;               // of one of the two stages
    int chunk_maps;                 // maps of a chunk, the last one has fewer
    int first_chunk;                // of blockIdx.y 0
};

#define TILES_FLOATS LAYER_PARAMETER_FLOATS

// With weights in the kernel's parameters, so that uniform registers hold them: a multiply-add
// whose weight comes from an ordinary register often waits for the register file, 1.6 instead
// of 1.0 cycles. A chunk is then one group. Pairs, because uniform registers are loaded one or two
// at a time.
struct tiles_uniform_launch {
    tiles_launch t;
    float2 weights[TILES_FLOATS / 2]; // [chunk][channel][kernel row][kernel column][MT]
};

// Shared memory: row and column tables, then two stages of [strip][channel][row][pitch] samples and
// [channel][kernel row][kernel column][group][MT] weights. The epilogue reuses the stages.
struct tiles_tables {
    int64_t *rows; // [block_strips][in_rows]: offset in bytes from src, or -1: padding
    int *columns;  // [in_width]: offset in bytes, or -1
    float *stages;
};

__device__ inline void tiles_fill_tables(const tiles_launch &p, const tiles_tables &tables,
                                         int64_t first_strip)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.block_strips * p.in_rows; i += (int)blockDim.x) {
        int n = i / p.in_rows, y = i - n * p.in_rows;
        int64_t strip = min(first_strip + n, p.strips - 1), image = strip / p.image_strips;
        int row = (int)(strip - image * p.image_strips) * p.strip_rows * p.stride + y;
        // Rows below the last one needed are read by outputs that are not stored.
        row = min(row, p.height + p.pad_top + p.pad_bottom - 1) - p.pad_top;
        row = conv_border_index((enum conv_border)p.border, row, p.height);
        tables.rows[i] = row < 0 ? -1 : image * p.src_image + row * p.src_row;
    }
#pragma unroll 1
    for (int x = (int)threadIdx.x; x < p.in_width; x += (int)blockDim.x) {
        int column = min(x, p.width + p.pad_left + p.pad_right - 1) - p.pad_left;
        column = conv_border_index((enum conv_border)p.border, column, p.width);
        tables.columns[x] = column < 0 ? -1 : p.bytes ? column : column * 4;
    }
}

// Starts loading `count` channels of input from `channel` on, sample by sample: for padding, 8-bit
// input, rows with gaps.
template <typename Input>
__device__ inline void tiles_load_samples(const tiles_launch &p, const tiles_tables &tables,
                                          float *stage, int channel, int count)
{
    int lines = p.block_strips * p.in_rows, plane = p.block_strips * p.strip_floats;
    const char *src = (const char *)p.src + channel * p.src_plane;
#pragma unroll 1
    for (int line = (int)threadIdx.x / 32; line < lines; line += (int)blockDim.x / 32) {
        int64_t row = tables.rows[line];
        int strip = line / p.in_rows;
        float *to = stage + strip * p.strip_floats + (line - strip * p.in_rows) * p.pitch;
#pragma unroll 1
        for (int x = (int)threadIdx.x % 32; x < p.in_width; x += 32) {
            int column = tables.columns[x];
            bool padding = row < 0 || column < 0;
            const char *from = src + row + column;
#pragma unroll 1
            for (int c = 0; c < count; c++, from += p.src_plane) {
                if (padding)
                    to[c * plane + x] = p.border_value;
                else if (sizeof(Input) == 4)
                    __pipeline_memcpy_async(to + c * plane + x, from, 4);
                else
                    to[c * plane + x] = layer_sample((const Input *)from, p.divisor);
            }
        }
    }
}

// The same for strips whose rows follow each other without a gap: 16 bytes at a time, from the
// multiple of 16 before the first sample on.
__device__ inline void tiles_load_dense(const tiles_launch &p, const tiles_tables &tables,
                                        float *stage, int channel, int count)
{
    int plane = p.block_strips * p.strip_floats;
#pragma unroll 1
    for (int n = 0; n < p.block_strips; n++) {
        const int64_t *rows = tables.rows + n * p.in_rows;
#pragma unroll 1
        for (int c = 0; c < count; c++) {
            int64_t at = rows[0] + (channel + c) * p.src_plane;
            const char *from = (const char *)p.src + (at & ~(int64_t)15);
            // The last strip of a plane may have fewer rows; the table repeats the last one.
            int length = (int)((at & 15) + rows[p.in_rows - 1] - rows[0] + p.src_row);
            char *to = (char *)(stage + c * plane + n * p.strip_floats);
#pragma unroll 1
            for (int i = (int)threadIdx.x * 16; i < length; i += (int)blockDim.x * 16)
                __pipeline_memcpy_async(to + i, from + i, 16);
        }
    }
}

__device__ inline void tiles_load(const tiles_launch &p, const tiles_tables &tables, float *stage,
                                  const float *weights, int channel, int count)
{
    if (p.dense)
        tiles_load_dense(p, tables, stage, channel, count);
    else if (p.bytes)
        tiles_load_samples<uint8_t>(p, tables, stage, channel, count);
    else
        tiles_load_samples<float>(p, tables, stage, channel, count);
    float *to = stage + p.step * p.block_strips * p.strip_floats;
    const float *from = weights + (int64_t)channel * p.weight_floats;
#pragma unroll 1
    for (int i = (int)threadIdx.x * 4; i < count * p.weight_floats; i += (int)blockDim.x * 4)
        __pipeline_memcpy_async(to + i, from + i, 16);
    __pipeline_commit();
}

// `N` floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void tiles_read(float (&to)[N], const float *from)
{
    if (VX == 4) {
#pragma unroll
        for (int i = 0; i + 4 <= N; i += 4) {
            float4 v = *(const float4 *)(const void *)(from + i);
            to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
        }
        if constexpr (N % 4 >= 2) {
            float2 v = *(const float2 *)(const void *)(from + N / 4 * 4);
            to[N / 4 * 4] = v.x, to[N / 4 * 4 + 1] = v.y;
        }
        if (N % 2)
            to[N - 1] = from[N - 1];
    } else if (VX == 2) {
#pragma unroll
        for (int i = 0; i + 2 <= N; i += 2) {
            float2 v = *(const float2 *)(const void *)(from + i);
            to[i] = v.x, to[i + 1] = v.y;
        }
        if (N % 2)
            to[N - 1] = from[N - 1];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = from[i];
    }
}

// Adds one channel, with weights from the kernel's parameters.
template <int KW, int S, int T, int MT, int VX>
__device__ inline void tiles_add(float (&sum)[MT][T], const float *in,
                                 const tiles_uniform_launch &p, int weight)
{
#pragma unroll 1
    for (int u = 0; u < p.t.kernel_height; u++) {
        float x[(T - 1) * S + KW];
        tiles_read<(T - 1) * S + KW, VX>(x, in);
#pragma unroll
        for (int v = 0; v < KW; v++) {
#pragma unroll
            for (int m = 0; m < MT; m += 2) {
                float2 w = p.weights[weight + (v * MT + m) / 2];
#pragma unroll
                for (int t = 0; t < T; t++) {
                    sum[m][t] = fmaf(w.x, x[t * S + v], sum[m][t]);
                    sum[m + 1][t] = fmaf(w.y, x[t * S + v], sum[m + 1][t]);
                }
            }
        }
        in += p.t.pitch;
        weight += KW * MT / 2;
    }
}

// Adds one channel, with weights from shared memory.
template <int KW, int S, int T, int MT, int VX>
__device__ inline void tiles_add(float (&sum)[MT][T], const float *in, const float *weight,
                                 int kernel_height, int pitch, int taps_step)
{
#pragma unroll 1
    for (int u = 0; u < kernel_height; u++) {
        float x[(T - 1) * S + KW];
        tiles_read<(T - 1) * S + KW, VX>(x, in);
#pragma unroll
        for (int v = 0; v < KW; v++) {
            float w[MT];
            tiles_read<MT, 4>(w, weight + v * taps_step);
            // Alternates the direction, so that neighbouring multiply-adds share an operand.
#pragma unroll
            for (int t = 0; t < T; t++) {
#pragma unroll
                for (int k = 0; k < MT; k++) {
                    const int m = t % 2 ? MT - 1 - k : k;
                    sum[m][t] = fmaf(w[m], x[t * S + v], sum[m][t]);
                }
            }
        }
        in += pitch;
        weight += KW * taps_step;
    }
}

// The destination of a thread's outputs.
struct tiles_place {
    int64_t at; // of the first output of its first map, in elements
    int count;  // columns, 0 for a thread without outputs
    int maps;   // that exist
};

// Maps staged at a time.
template <int T, int MT> struct tiles_batch {
    static const int maps = T > 12 ? 1 : MT % 4 ? 2 : 4;
    static const int floats = 32 * T;                     // of one map
    static const int bytes = 32 * 16 + maps * floats * 4; // of a warp
};

// Stores a warp's outputs through its part of shared memory, so that whole sectors are written: in
// each map, the outputs of its threads mostly follow each other.
template <int T, int MT>
__device__ inline void tiles_store(const tiles_launch &p, float (&sum)[MT][T],
                                   const tiles_place &place, char *memory)
{
    const unsigned all = 0xffffffffu;
    int lane = (int)threadIdx.x % 32;
    int64_t *starts = (int64_t *)(void *)memory;
    int *counts = (int *)(void *)(memory + 32 * 8), *limits = counts + 32;
    float *buffer = (float *)(void *)(memory + 32 * 16);
    int64_t plane = (int64_t)p.out_height * p.out_width;

    activate_outputs<T, MT>(p.activation, sum);
    starts[lane] = place.at;
    counts[lane] = place.count;
    limits[lane] = place.maps;
    __syncwarp();
    int64_t first = starts[0];
    int maps = limits[0];
    bool follows =
        place.count == 0 ||
        (place.maps == maps &&
         (lane == 0 || (counts[lane - 1] && starts[lane - 1] + counts[lane - 1] == place.at)));
    bool run = __all_sync(all, follows) && counts[0];
    int length = 0;
    if (run) {
        int last = 31 - __clz((int)__ballot_sync(all, place.count > 0));
        length = (int)(starts[last] + counts[last] - first);
    }
    int offset = run ? (int)(place.at - first) : lane * T;
    const int batch = tiles_batch<T, MT>::maps, floats = tiles_batch<T, MT>::floats;
#pragma unroll
    for (int m0 = 0; m0 < MT; m0 += batch) {
#pragma unroll
        for (int m = 0; m < batch; m++) {
#pragma unroll
            for (int t = 0; t < T; t++)
                if (t < place.count)
                    buffer[m * floats + offset + t] = sum[m0 + m][t];
        }
        __syncwarp();
        if (p.activation == CONV_ACTIVATION_TANH)
            activate_tanh(buffer, batch * floats, lane);
        if (run) {
#pragma unroll 1
            for (int m = 0; m < batch && m0 + m < maps; m++)
                store_run<T>(p.dst, p.half, first + (m0 + m) * plane, buffer + m * floats, length,
                             lane);
        } else {
#pragma unroll 1
            for (int i = lane; i < batch * 32 * T; i += 32) {
                int m = i / (32 * T), unit = (i - m * 32 * T) / T, t = i - (m * 32 + unit) * T;
                if (t < counts[unit] && m0 + m < limits[unit])
                    store_output(p.dst, p.half, starts[unit] + (m0 + m) * plane + t,
                                 buffer[m * floats + unit * T + t]);
            }
        }
        __syncwarp();
    }
}

__device__ inline const tiles_launch &tiles_common(const tiles_launch &p)
{
    return p;
}

__device__ inline const tiles_launch &tiles_common(const tiles_uniform_launch &p)
{
    return p.t;
}

// blockIdx.x: units; blockIdx.y: chunk of maps.
template <typename Launch, int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void tiles(const __grid_constant__ Launch launch)
{
    extern __shared__ __align__(16) char tiles_memory[];
    const tiles_launch &p = tiles_common(launch);
    const bool uniform = sizeof(Launch) > sizeof(tiles_launch);
    const int MP = (MT + 3) / 4 * 4;
    tiles_tables tables;
    tables.rows = (int64_t *)(void *)tiles_memory;
    tables.columns = (int *)(void *)(tables.rows + p.block_strips * p.in_rows);
    int table_bytes = p.block_strips * p.in_rows * 8 + p.in_width * 4;
    tables.stages = (float *)(void *)(tiles_memory + (table_bytes + 15) / 16 * 16);

    int64_t unit = (int64_t)blockIdx.x * THREADS;
    int64_t first_strip = unit / p.strip_units;
    int chunk = (int)blockIdx.y + p.first_chunk;
    tiles_fill_tables(p, tables, first_strip);

    // What this thread computes.
    int rest = (int)(unit - first_strip * p.strip_units) + (int)threadIdx.x;
    int strip = rest / p.strip_units;
    rest -= strip * p.strip_units;
    int group_units = p.strip_rows * p.tiles;
    int group = rest / group_units;
    rest -= group * group_units;
    int row = rest / p.tiles, tile = rest - row * p.tiles;

    float sum[MT][T];
    const float *bias = p.bias + (chunk * p.groups + group) * MP;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float b = __ldg(bias + m);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[m][t] = b;
    }
    int plane = p.block_strips * p.strip_floats;
    int in = strip * p.strip_floats + row * S * p.pitch + tile * T * S;
    int weight = p.step * plane + group * MP;
    const float *weights = p.weights + (int64_t)chunk * p.channels * p.weight_floats;
    __syncthreads(); // the tables are complete
    int first_byte = (int)tables.rows[strip * p.in_rows] & 15;

    for (int k = 0, c = 0; c < p.channels; k++) {
        int next = k * p.step;
        if (next < p.channels)
            tiles_load(p, tables, tables.stages + k % 2 * p.stage_floats, weights, next,
                       min(p.step, p.channels - next));
        if (k == 0)
            continue;
        int stage = (k - 1) % 2;
        if (next < p.channels)
            __pipeline_wait_prior(1);
        else
            __pipeline_wait_prior(0);
        __syncthreads(); // all threads' parts of this stage have arrived
        const float *from = tables.stages + stage * p.stage_floats;
        int count = min(p.step, p.channels - c);
        for (int i = 0; i < count; i++) {
            // Dense strips begin at the multiple of 16 bytes before them.
            int phase = p.dense ? ((first_byte + (c + i) * (int)p.src_plane) & 15) / 4 : 0;
            if constexpr (uniform) {
                int taps = p.kernel_height * KW;
                tiles_add<KW, S, T, MT, VX>(sum, from + in + phase + i * plane, launch,
                                            ((int)blockIdx.y * p.channels + c + i) * taps *
                                                (MT / 2));
            } else {
                tiles_add<KW, S, T, MT, VX>(sum, from + in + phase + i * plane,
                                            from + weight + i * p.weight_floats, p.kernel_height,
                                            p.pitch, p.groups * MP);
            }
        }
        __syncthreads(); // the stage may be overwritten
        c += p.step;
    }

    tiles_place place;
    int64_t all = first_strip + strip, image = all / p.image_strips;
    int i = (int)(all - image * p.image_strips) * p.strip_rows + row, j = tile * T;
    int first_map = chunk * p.chunk_maps + group * MT;
    place.maps = min(min(MT, p.maps - first_map), p.chunk_maps - group * MT);
    place.count = all < p.strips && i < p.out_height ? min(T, p.out_width - j) : 0;
    place.at = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    char *memory = (char *)tables.stages + threadIdx.x / 32 * tiles_batch<T, MT>::bytes;
    tiles_store<T, MT>(p, sum, place, memory);
}

// Describes an instance to the host.
struct tiles_shape {
    int kernel_width, stride, columns, maps, vector, threads, blocks;
    int epilogue_bytes;           // of a warp
    void (*kernel)(tiles_launch); // one of these two
    void (*uniform)(tiles_uniform_launch);
};

template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static tiles_shape tiles_instance()
{
    return {KW,
            S,
            T,
            MT,
            VX,
            THREADS,
            BLOCKS,
            tiles_batch<T, MT>::bytes,
            tiles<tiles_launch, KW, S, T, MT, VX, THREADS, BLOCKS>,
            nullptr};
}

template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static tiles_shape tiles_uniform()
{
    return {KW,      S,
            T,       MT,
            VX,      THREADS,
            BLOCKS,  tiles_batch<T, MT>::bytes,
            nullptr, tiles<tiles_uniform_launch, KW, S, T, MT, VX, THREADS, BLOCKS>};
}

#endif
