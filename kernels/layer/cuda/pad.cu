// SPDX-License-Identifier: MIT
// Padding and the conversion of 8-bit samples on the device, for variants that require their caller
// to do both: the same values as conv_layer_pad's. And the packing of weights that are there.
#include <cuda_runtime.h>

#include "kernels/common/border.h"
#include "kernels/layer/cuda/cuda_layers.h"

#define WARP 32
#define ROWS 8 // of a block: one per warp

// The kernel's parameters from the layer, by value.
struct padding {
    enum conv_border border;
    float border_value, divisor;
    int top, left;
    int height, width;               // of the source planes
    int padded_height, padded_width; // of the planes of dst
    int channels;
    int64_t src_row, src_plane, src_image;
    int64_t rows; // of all planes of dst
};

// Blocks of 32 x 8 threads. A warp fills one row of one plane, so that its stores are adjacent and
// the divisions that find the row are done once per row.
template <typename Sample>
static __global__ void pad(struct padding padding, const uint8_t *src, float *dst)
{
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= padding.rows)
        return;
    int64_t plane = row / padding.padded_height;
    int i = (int)(row - plane * padding.padded_height);
    int64_t image = plane / padding.channels;
    int channel = (int)(plane - image * padding.channels);
    int y = conv_border_index(padding.border, i - padding.top, padding.height);
    src += image * padding.src_image + channel * padding.src_plane + y * padding.src_row;
    dst += row * padding.padded_width;
    for (int j = (int)threadIdx.x; j < padding.padded_width; j += WARP) {
        int x = conv_border_index(padding.border, j - padding.left, padding.width);
        float value = padding.border_value;
        if (x >= 0 && y >= 0)
            value = sizeof(Sample) == 1 ? (float)((const Sample *)src)[x] / padding.divisor
                                        : (float)((const Sample *)src)[x];
        dst[j] = value;
    }
}

enum conv_status conv_cuda_layer_pad(const struct conv_layer *layer,
                                     const struct conv_layer_shape *shape,
                                     const struct conv_layer_batch *batch, float *d_dst)
{
    struct padding padding = {};
    padding.border = layer->border;
    padding.border_value = layer->border_value;
    padding.divisor = layer->input_divisor;
    padding.top = layer->pad_top;
    padding.left = layer->pad_left;
    padding.height = shape->height;
    padding.width = shape->width;
    padding.padded_height = shape->height + layer->pad_top + layer->pad_bottom;
    padding.padded_width = shape->width + layer->pad_left + layer->pad_right;
    padding.channels = layer->channels;
    padding.src_row = batch->src_row;
    padding.src_plane = batch->src_plane;
    padding.src_image = batch->src_image;
    padding.rows = batch->images * layer->channels * padding.padded_height;
    int64_t blocks = (padding.rows + ROWS - 1) / ROWS;
    if (blocks == 0)
        return CONV_OK;
    if (blocks > INT32_MAX)
        return CONV_ERR_DEVICE;
    dim3 block(WARP, ROWS);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    const uint8_t *src = (const uint8_t *)batch->src;
    if (layer->input == CONV_ELEMENT_U8)
        pad<uint8_t><<<(unsigned)blocks, block, 0, stream>>>(padding, src, d_dst);
    else
        pad<float><<<(unsigned)blocks, block, 0, stream>>>(padding, src, d_dst);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// A thread for each element.
static __global__ void gather(float *packed, const int32_t *index, size_t count,
                              const float *weights, size_t weight_count, const float *bias)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    int64_t from = index[i], of_bias = from - (int64_t)weight_count;
    float value = from == -2 ? -0.0f : 0.0f;
    if (from >= 0 && of_bias < 0)
        value = weights[from];
    else if (from >= 0 && bias)
        value = bias[of_bias];
    packed[i] = value;
}

enum conv_status conv_cuda_layer_gather(float *d_packed, const int32_t *d_index, size_t count,
                                        const float *d_weights, size_t weight_count,
                                        const float *d_bias, void *stream)
{
    unsigned blocks = (unsigned)((count + 255) / 256); // count is below 2^31
    gather<<<blocks, 256, 0, (cudaStream_t)stream>>>(d_packed, d_index, count, d_weights,
                                                     weight_count, d_bias);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
