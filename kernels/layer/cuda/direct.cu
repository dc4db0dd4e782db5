// SPDX-License-Identifier: MIT
// cuda_layer_direct: any layer in the exact order. A thread computes four outputs, each for eight
// maps of one group; samples and weights come through the L1 cache, and the border is resolved at
// each sample only where a window crosses the edge of the plane.

#include "kernels/layer/cuda/layer_device.cuh"

#define THREADS 256
#define OUTPUTS 4 // of a thread, THREADS apart, so that loads and stores of a warp are adjacent
#define MAPS 8

struct direct_launch {
    const void *src;
    void *dst;
    const float *weights;                  // [block][channel][kernel row][kernel column][MAPS]
    const float *bias;                     // [block][MAPS]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t outputs;                       // of one map of all images
    int height, width, out_height, out_width;
    int channels, maps, group_maps, group_blocks; // the channels of a group; blocks of MAPS maps
    int kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
    int border;
    float border_value, divisor;
    int activation, half;
};

// The window of an output: the first sample, which may lie in the padding, and the image.
struct window {
    const char *image;
    int y, x;
};

template <typename Input>
__device__ inline float direct_sample(const direct_launch &p, const char *row, int x, bool inside,
                                      const float *samples)
{
    if (!inside) {
        x = conv_border_index((enum conv_border)p.border, x, p.width);
        if (!row || x < 0)
            return p.border_value;
    }
    if (sizeof(Input) == 4)
        return __ldg((const float *)(const void *)row + x);
    return samples[((const uint8_t *)row)[x]];
}

// blockIdx.x: THREADS * OUTPUTS positions; blockIdx.y: MAPS maps of a group.
template <typename Input>
static __global__ __launch_bounds__(THREADS) void direct(const __grid_constant__ direct_launch p)
{
    __shared__ float samples[256]; // of each byte
    if (sizeof(Input) == 1) {
        for (int i = (int)threadIdx.x; i < 256; i += THREADS)
            samples[i] = __fdiv_rn((float)i, p.divisor);
        __syncthreads();
    }
    int64_t first = (int64_t)blockIdx.x * (THREADS * OUTPUTS) + threadIdx.x;
    int plane = p.out_height * p.out_width, block = (int)blockIdx.y;
    int group = block / p.group_blocks, first_map = (block - group * p.group_blocks) * MAPS;
    window at[OUTPUTS];
    float sum[OUTPUTS][MAPS];
    bool inside = true;
#pragma unroll
    for (int k = 0; k < OUTPUTS; k++) {
        int64_t q = min(first + k * THREADS, p.outputs - 1), image = q / plane;
        int rest = (int)(q - image * plane), i = rest / p.out_width, j = rest - i * p.out_width;
        at[k].image = (const char *)p.src + image * p.src_image + group * p.channels * p.src_plane;
        at[k].y = i * p.stride_y - p.pad_top;
        at[k].x = j * p.stride_x - p.pad_left;
        inside = inside && at[k].y >= 0 && at[k].x >= 0 &&
                 at[k].y + (p.kernel_height - 1) * p.dilation_y < p.height &&
                 at[k].x + (p.kernel_width - 1) * p.dilation_x < p.width;
#pragma unroll
        for (int m = 0; m < MAPS; m++)
            sum[k][m] = __ldg(p.bias + block * MAPS + m);
    }
    const float *weight =
        p.weights + (int64_t)block * p.channels * p.kernel_height * p.kernel_width * MAPS;
    for (int c = 0; c < p.channels; c++) {
        for (int u = 0; u < p.kernel_height; u++) {
            const char *rows[OUTPUTS];
#pragma unroll
            for (int k = 0; k < OUTPUTS; k++) {
                int y = at[k].y + u * p.dilation_y;
                if (!inside)
                    y = conv_border_index((enum conv_border)p.border, y, p.height);
                rows[k] = y < 0 ? NULL : at[k].image + c * p.src_plane + y * p.src_row;
            }
#pragma unroll 2
            for (int v = 0; v < p.kernel_width; v++, weight += MAPS) {
                float4 low = __ldg((const float4 *)(const void *)weight);
                float4 high = __ldg((const float4 *)(const void *)weight + 1);
                float w[MAPS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                for (int k = 0; k < OUTPUTS; k++) {
                    float x = direct_sample<Input>(p, rows[k], at[k].x + v * p.dilation_x, inside,
                                                   samples);
#pragma unroll
                    for (int m = 0; m < MAPS; m++)
                        sum[k][m] = fmaf(w[m], x, sum[k][m]);
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < OUTPUTS; k++) {
        int64_t q = first + k * THREADS, image = q / plane;
        int64_t map = image * p.maps + group * p.group_maps + first_map;
        int64_t to = map * plane + (q - image * plane);
        int maps = q < p.outputs ? min(MAPS, p.group_maps - first_map) : 0;
#pragma unroll
        for (int m = 0; m < MAPS; m++) {
            if (m < maps) {
                float y = layer_activate(p.activation, sum[k][m]);
                if (p.half)
                    layer_store((uint16_t *)p.dst + to + (int64_t)m * plane, y);
                else
                    layer_store((float *)p.dst + to + (int64_t)m * plane, y);
            }
        }
    }
}

// The blocks of MAPS maps of one group.
static int64_t blocks_of(const struct conv_layer *layer)
{
    return ceil_div(layer->maps / layer->groups, MAPS);
}

static bool plan_direct(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int64_t blocks = layer->groups * blocks_of(layer);
    plan->packed_bytes = (size_t)blocks * MAPS * (conv_layer_taps(layer) + 1) * sizeof(float);
    return conv_layer_out_height(layer, plan->shape.height) > 0 &&
           conv_layer_out_width(layer, plan->shape.width) > 0 && blocks < 65536;
}

static int score_direct(const struct conv_layer_plan *)
{
    return 40;
}

static void pack_direct(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    size_t taps = conv_layer_taps(layer), blocks = (size_t)blocks_of(layer);
    float *packed = (float *)plan->packed;
    float *bias = packed + (size_t)layer->groups * blocks * MAPS * taps;
    int maps = layer->maps / layer->groups;
    for (int m = 0; m < layer->maps; m++) {
        size_t block = (size_t)(m / maps) * blocks + (size_t)(m % maps / MAPS);
        size_t lane = (size_t)(m % maps % MAPS);
        for (size_t t = 0; t < taps; t++)
            packed[(block * taps + t) * MAPS + lane] = layer->weights[(size_t)m * taps + t];
        if (layer->bias)
            bias[block * MAPS + lane] = layer->bias[m];
    }
}

static enum conv_status run_direct(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    if (batch->images <= 0)
        return CONV_OK;
    int64_t blocks = layer->groups * blocks_of(layer);
    struct direct_launch p;
    layer_set_sizes(&p, plan, batch);
    layer_set_border(&p, layer);
    p.dst = batch->dst;
    p.weights = (const float *)plan->d_packed;
    p.bias = p.weights + (size_t)blocks * MAPS * conv_layer_taps(layer);
    p.outputs = batch->images * p.out_height * p.out_width;
    p.kernel_width = layer->kernel_width;
    p.channels = layer->channels / layer->groups;
    p.group_maps = layer->maps / layer->groups;
    p.group_blocks = (int)blocks_of(layer);
    p.stride_y = layer->stride_y;
    p.stride_x = layer->stride_x;
    p.dilation_y = layer->dilation_y;
    p.dilation_x = layer->dilation_x;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    dim3 grid((unsigned)ceil_div64(p.outputs, THREADS * OUTPUTS), (unsigned)blocks);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (layer->input == CONV_ELEMENT_U8)
        direct<uint8_t><<<grid, THREADS, 0, stream>>>(p);
    else
        direct<float><<<grid, THREADS, 0, stream>>>(p);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_direct = {
    "cuda_layer_direct",
    "four outputs and eight maps per thread, samples and weights through the L1 cache",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_ANY | CONV_LAYER_LATE,
    plan_direct,
    score_direct,
    pack_direct,
    run_direct,
};
