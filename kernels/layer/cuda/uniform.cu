// SPDX-License-Identifier: MIT
// cuda_layer_uniform: the exact order for layers of few input channels, which are limited by
// writing the maps: a thread computes T outputs of R rows for MT maps. Samples come through the L1
// cache. Weights lie in the kernel's parameters, so that uniform registers hold them: a
// multiply-add whose weight comes from an ordinary register often waits for the register file, 1.6
// instead of 1.0 cycles.
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

// --- the kernel ----------------------------------------------------------------------------------

// Weights and biases of a launch: as many as fit in its parameters, or a smaller array for layers
// that need less, since 30 KB of parameters delay a launch by 2 us and 10 KB by 0.5 us.
#define UNIFORM_FLOATS LAYER_PARAMETER_FLOATS
#define UNIFORM_FEW_FLOATS (UNIFORM_FLOATS < 2500 ? UNIFORM_FLOATS : 2500)

struct uniform_launch {
    const void *src;
    void *dst;
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    int group_images, group_blocks; // images of a group; blocks that compute them
    int tiles, image_units;         // units of a row; units of an image
    int out_height, out_width, channels, maps, activation, half;
};

template <int FLOATS> struct uniform_weights_launch {
    uniform_launch p;
    // [group][1 + channel * K * K][MT], bias first. Pairs, because uniform
    // registers are loaded one or two at a time.
    float2 weights[FLOATS / 2];
};

// N floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void uniform_read(float (&to)[N], const float *from)
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

// The source and destination of a unit.
struct uniform_unit {
    const char *src;
    int64_t at; // of its first output
};

// A unit beyond the last column or row of units ends with the plane and may overlap the one before.
template <int T, int R, bool WHOLE>
__device__ inline uniform_unit uniform_find(const uniform_launch &p, int64_t first_image, int unit,
                                            int first_map)
{
    int local = unit / p.image_units;
    int rest = unit - local * p.image_units, i = rest / p.tiles, j = (rest - i * p.tiles) * T;
    if (!WHOLE)
        j = min(j, p.out_width - T);
    if (R > 1)
        i = min(i * R, p.out_height - R);
    int64_t image = first_image + local;
    uniform_unit found;
    found.src = (const char *)p.src + image * p.src_image + (int64_t)i * p.src_row + j * 4;
    found.at = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    return found;
}

// blockIdx.x: THREADS units of a group of images; blockIdx.y: group of MT maps. A unit is T columns
// of R rows.
template <int K, int T, int R, int MT, int VX, bool WHOLE, int FLOATS, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS, BLOCKS) void uniform(
    const __grid_constant__ uniform_weights_launch<FLOATS> launch)
{
    const uniform_launch &p = launch.p;
    static_assert(WHOLE || R == 1, "several rows are stored 16 bytes at a time");
    int images = (int)blockIdx.x / p.group_blocks;
    int unit = ((int)blockIdx.x - images * p.group_blocks) * THREADS + (int)threadIdx.x;
    int64_t first_image = (int64_t)images * p.group_images;
    int units = (int)min((int64_t)p.group_images, p.images - first_image) * p.image_units;
    if (unit - (int)threadIdx.x % 32 >= units)
        return; // all of the warp
    int first_map = (int)blockIdx.y * MT;
    // Units beyond the last one repeat it.
    uniform_unit at = uniform_find<T, R, WHOLE>(p, first_image, min(unit, units - 1), first_map);
    int taps = p.channels * K * K;
    int weight = (int)blockIdx.y * (taps + 1) * (MT / 2);
    float sum[R][MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float2 bias = launch.weights[weight + m / 2];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = m % 2 ? bias.y : bias.x;
    }
    weight += MT / 2;

    const int N = T + K - 1;
    // With few images, waiting for memory takes most of the time, so all channels are prefetched.
    if (THREADS < 128) {
#pragma unroll 1
        for (int c = 1; c < p.channels; c++)
#pragma unroll
            for (int u = 0; u < K + R - 1; u += 2)
                asm volatile("prefetch.global.L2 [%0];"
                             :
                             : "l"(at.src + c * p.src_plane + u * p.src_row));
    }
#pragma unroll 1
    for (int c = 0; c < p.channels; c++) {
        // All rows at once: few loads come back before the first is needed.
        float x[K + R - 1][N];
#pragma unroll
        for (int u = 0; u < K + R - 1; u++)
            uniform_read<N, VX>(x[u], (const float *)(const void *)(at.src + u * p.src_row));
        at.src += p.src_plane;
#pragma unroll
        for (int u = 0; u < K; u++) {
#pragma unroll
            for (int v = 0; v < K; v++) {
#pragma unroll
                for (int m = 0; m < MT; m += 2) {
                    float2 w = launch.weights[weight + ((u * K + v) * MT + m) / 2];
#pragma unroll
                    for (int r = 0; r < R; r++) {
#pragma unroll
                        for (int t = 0; t < T; t++) {
                            sum[r][m][t] = fmaf(w.x, x[u + r][t + v], sum[r][m][t]);
                            sum[r][m + 1][t] = fmaf(w.y, x[u + r][t + v], sum[r][m + 1][t]);
                        }
                    }
                }
            }
        }
        weight += K * K * MT / 2;
    }

    int64_t plane = (int64_t)p.out_height * p.out_width;
    int maps = min(MT, p.maps - first_map);
#pragma unroll
    for (int r = 0; r < R; r++) {
        activate_outputs<T, MT>(p.activation, sum[r]);
        if (WHOLE)
            store_units<T, MT>(p.dst, p.half, at.at + r * p.out_width, plane, maps, sum[r]);
        else
            store_runs<T, MT>(p.dst, p.half, p.activation, at.at, plane, maps, sum[r]);
    }
}

// --- the choice and the launch -------------------------------------------------------------------

#define SCHEDULERS 528.0f // of 132 multiprocessors

struct uniform_shape {
    int kernel_width, columns, rows, maps, vector;
    bool whole; // rows of outputs are multiples of `columns`, which is one of 4
    int floats, threads;
    void (*launch)(const struct conv_layer *layer, const uniform_launch &p, int groups, dim3 grid,
                   cudaStream_t stream);
};

// Writes the weights of a launch: [group][1 + taps][maps], the bias first.
static void fill_weights(const struct conv_layer *layer, int maps, int groups, float *to)
{
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    for (int m = 0; m < groups * maps; m++) {
        float *first = to + m / maps * (taps + 1) * maps + m % maps;
        first[0] = layer->bias && m < layer->maps ? layer->bias[m] : 0;
        for (int t = 0; t < taps; t++)
            first[(t + 1) * maps] = m < layer->maps ? layer->weights[m * taps + t] : 0;
    }
}

template <int K, int T, int R, int MT, int VX, bool WHOLE, int FLOATS, int THREADS, int BLOCKS>
static void launch(const struct conv_layer *layer, const uniform_launch &p, int groups, dim3 grid,
                   cudaStream_t stream)
{
    struct uniform_weights_launch<FLOATS> launch;
    launch.p = p;
    fill_weights(layer, MT, groups, &launch.weights[0].x);
    uniform<K, T, R, MT, VX, WHOLE, FLOATS, THREADS, BLOCKS><<<grid, THREADS, 0, stream>>>(launch);
}

template <int K, int T, int R, int MT, int VX, bool WHOLE, int FLOATS, int THREADS, int BLOCKS>
static uniform_shape instance()
{
    return {K,      T,       R,
            MT,     VX,      WHOLE,
            FLOATS, THREADS, launch<K, T, R, MT, VX, WHOLE, FLOATS, THREADS, BLOCKS>};
}

static const struct uniform_shape shapes[] = {
    // The last number, blocks of a multiprocessor, limits registers: with more of them the compiler
    // reads weights into ordinary ones.
    instance<5, 4, 2, 4, 4, true, UNIFORM_FEW_FLOATS, 128, 6>(),
    instance<5, 4, 2, 4, 4, true, UNIFORM_FLOATS, 128, 6>(),
    // For few images: many threads with few outputs each.
    instance<5, 4, 1, 2, 4, true, UNIFORM_FEW_FLOATS, 64, 16>(),
    instance<5, 4, 1, 12, 4, true, UNIFORM_FLOATS, 256, 3>(),
    instance<5, 4, 1, 10, 4, true, UNIFORM_FLOATS, 256, 3>(),
    instance<5, 4, 1, 8, 4, true, UNIFORM_FLOATS, 256, 4>(),
    instance<5, 4, 1, 6, 4, true, UNIFORM_FLOATS, 256, 4>(),
    instance<5, 6, 1, 12, 2, false, UNIFORM_FLOATS, 256, 2>(),
    instance<5, 6, 1, 6, 2, false, UNIFORM_FLOATS, 256, 3>(),
    instance<5, 5, 1, 8, 1, false, UNIFORM_FLOATS, 256, 3>(),
    instance<3, 6, 1, 8, 2, false, UNIFORM_FLOATS, 256, 3>(),
    instance<3, 5, 1, 8, 1, false, UNIFORM_FLOATS, 256, 3>(),
    instance<3, 4, 1, 8, 4, true, UNIFORM_FLOATS, 256, 4>(),
};

struct uniform_config {
    int shape, tiles, image_units, groups, group_images;
    float cost;
};

// `anywhere`: rows of input may begin at any sample.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      bool anywhere, struct uniform_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    bool found = false;
    if (layer->stride_x != 1)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct uniform_shape *s = &shapes[i];
        struct uniform_config c;
        c.shape = (int)i;
        c.groups = ceil_div(layer->maps, s->maps);
        c.tiles = ceil_div(out_width, s->columns);
        if (s->kernel_width != layer->kernel_width || s->kernel_width != layer->kernel_height ||
            out_width < s->columns || out_height < s->rows || (anywhere && s->vector > 1) ||
            (s->whole && (out_width % s->columns || layer->activation == CONV_ACTIVATION_TANH)) ||
            (!s->whole && out_width % s->vector) || (shape->width % s->vector) ||
            c.groups * s->maps * (taps + 1) > s->floats)
            continue;
        c.image_units = ceil_div(out_height, s->rows) * c.tiles;
        c.cost =
            (float)(c.image_units * s->columns * s->rows * c.groups * s->maps) *
            (1 + 1 / (float)(s->columns * s->rows) + 0.3f / (float)s->maps + (s->whole ? 0 : 0.1f));
        // With fewer warps than schedulers, some schedulers are idle.
        float warps = (float)shape->images * (float)c.image_units * (float)c.groups / 32;
        if (shape->images > 0 && warps < SCHEDULERS)
            c.cost *= SCHEDULERS / warps;
        // The number of images with which the last block of a group is nearly full.
        c.group_images = ceil_div(64 * s->threads, c.image_units);
        if (!found || c.cost < best->cost) {
            *best = c;
            found = true;
        }
    }
    return found;
}

// The chosen instance, and the one that handles rows at any sample.
struct uniform_plan {
    struct uniform_config at_vectors, anywhere;
};

static bool plan_uniform(struct conv_layer_plan *plan)
{
    struct uniform_plan *c = layer_constants<struct uniform_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    return conv_layer_out_height(layer, shape->height) > 0 &&
           conv_layer_out_width(layer, shape->width) > 0 &&
           configure(layer, shape, true, &c->anywhere) &&
           configure(layer, shape, false, &c->at_vectors);
}

// Best with up to 4 channels, with 3x3, and with rows of 4n outputs: 6 to 16, 14 x 14, 5x5, 10,000
// images: 0.071 ms, cuda_layer_gemm 0.168 (H200).
static int score_uniform(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int out_width = conv_layer_out_width(layer, plan->shape.width);
    bool whole = out_width % 4 == 0;
    // With padding, 64 images, H200: 64 to 1, 180 x 180, 3x3: 0.797 ms, cuda_layer_window 0.285; 32
    // to 1, 256 x 256, 5x5: 1.07 and 0.43.
    if (plan->pads && layer->maps < 3)
        return 70;
    // 32 to 9, 240 x 320, 3x3, one image: 0.042, cuda_layer_window 0.204.
    if (!layer_repays_padding(plan))
        return LAYER_SCORE_PADDED;
    // 8 to 8, 64 x 64, 3x3 with padding, 1,000 images: 0.262 ms, cuda_layer_window 0.191 (H200).
    if (plan->pads && layer->maps < 2 * layer->channels)
        return 70;
    // Short rows of other lengths leave threads idle.
    if (layer->kernel_width == 3 && layer->channels > 4 && !whole && out_width < 12)
        return 70;
    return layer->channels <= 4 ? 89
           : layer->channels <= 8 || layer->kernel_width == 3 || (whole && layer->channels <= 12)
               ? 88
               : 70;
}

static enum conv_status run_uniform(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct uniform_plan *plans = layer_constants<struct uniform_plan>(plan);
    if (batch->images <= 0)
        return CONV_OK;
    int bytes = shapes[plans->at_vectors.shape].vector * 4;
    bool anywhere = batch->src_row % bytes || batch->src_plane % bytes || batch->src_image % bytes;
    const struct uniform_config *c = anywhere ? &plans->anywhere : &plans->at_vectors;
    const struct uniform_shape *s = &shapes[c->shape];
    struct uniform_launch p;
    p.src = batch->src;
    p.dst = batch->dst;
    p.src_row = batch->src_row;
    p.src_plane = batch->src_plane;
    p.src_image = batch->src_image;
    p.images = batch->images;
    p.out_height = conv_layer_out_height(layer, plan->shape.height);
    p.out_width = conv_layer_out_width(layer, plan->shape.width);
    p.tiles = c->tiles;
    p.channels = layer->channels;
    p.maps = layer->maps;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    p.group_images = (int)(c->group_images < batch->images ? c->group_images : batch->images);
    p.image_units = c->image_units;
    p.group_blocks = ceil_div(p.group_images * p.image_units, s->threads);
    int64_t blocks = ceil_div64(batch->images, p.group_images) * p.group_blocks;
    dim3 grid((unsigned)blocks, (unsigned)c->groups);
    s->launch(layer, p, c->groups, grid, (cudaStream_t)batch->stream);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_uniform = {
    "cuda_layer_uniform",
    "columns and maps in registers, weights in uniform registers, whole sectors stored",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    0,
    plan_uniform,
    score_uniform,
    NULL,
    run_uniform,
};
