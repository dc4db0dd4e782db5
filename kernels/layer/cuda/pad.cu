// SPDX-License-Identifier: MIT
// What is done on the device around a layer: padding and the conversion of samples before, for
// variants that require their caller to do both, with the same values as conv_layer_pad's; bias,
// activation and rounding after; and the packing of weights that are there.
#include <cuda_runtime.h>

#include "kernels/common/border.h"
#include "kernels/layer/cuda/cuda_layers.h"
#include "kernels/layer/cuda/layer_device.cuh"

#define WARP 32
#define ROWS 8   // of a block: one per warp
#define PART 512 // samples of a row, of which each part has its own blocks
#define MOST_PARTS 65535

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

// --- elements ------------------------------------------------------------------------------------

// The types of elements: what they are in memory, to and from float32.

struct bytes {
    typedef uint8_t type;
    static __device__ float load(uint8_t sample, float divisor)
    {
        return __fdiv_rn((float)sample, divisor);
    }
};

struct floats {
    typedef float type;
    static __device__ float load(float sample, float)
    {
        return sample;
    }
    static __device__ float store(float value)
    {
        return value;
    }
};

struct halves {
    typedef uint16_t type;
    static __device__ float load(uint16_t sample, float)
    {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(sample));
        return value;
    }
    static __device__ uint16_t store(float value)
    {
        return layer_half(value);
    }
};

struct bfloats {
    typedef uint16_t type;
    static __device__ float load(uint16_t sample, float)
    {
        return __uint_as_float((uint32_t)sample << 16);
    }
    static __device__ uint16_t store(float value) // as conv_bfloat_from_float
    {
        uint32_t bits = __float_as_uint(value);
        if (value != value)
            return (uint16_t)(bits >> 16 | 0x40);
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

// --- before --------------------------------------------------------------------------------------

// Blocks of 32 x 8 threads. A warp fills one row of one plane, so that its stores are adjacent and
// the divisions that find the row are done once per row.
template <typename From, typename To>
static __global__ void pad(struct padding padding, const uint8_t *src, void *dst)
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
    typename To::type *to = (typename To::type *)dst + row * padding.padded_width;
    for (int64_t at = blockIdx.y * WARP + threadIdx.x; at < padding.padded_width;
         at += gridDim.y * WARP) {
        int j = (int)at;
        int x = conv_border_index(padding.border, j - padding.left, padding.width);
        float value = padding.border_value;
        if (x >= 0 && y >= 0)
            value =
                From::load(((const typename From::type *)(const void *)src)[x], padding.divisor);
        to[j] = To::store(value);
    }
}

typedef void (*pad_fn)(struct padding, const uint8_t *, void *);

template <typename To> static pad_fn choose_pad(enum conv_element from)
{
    return from == CONV_ELEMENT_U8     ? pad<bytes, To>
           : from == CONV_ELEMENT_F16  ? pad<halves, To>
           : from == CONV_ELEMENT_BF16 ? pad<bfloats, To>
                                       : pad<floats, To>;
}

enum conv_status conv_cuda_layer_pad(const struct conv_layer *layer,
                                     const struct conv_layer_shape *shape,
                                     const struct conv_layer_batch *batch, void *d_dst,
                                     enum conv_element to)
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
    pad_fn kernel = to == CONV_ELEMENT_F16    ? choose_pad<halves>(layer->input)
                    : to == CONV_ELEMENT_BF16 ? choose_pad<bfloats>(layer->input)
                                              : choose_pad<floats>(layer->input);
    int parts = ceil_div(padding.padded_width, PART);
    dim3 grid((unsigned)blocks, (unsigned)(parts < MOST_PARTS ? parts : MOST_PARTS));
    kernel<<<grid, block, 0, (cudaStream_t)batch->stream>>>(padding, (const uint8_t *)batch->src,
                                                            d_dst);
    return layer_launch_status();
}

// --- after ---------------------------------------------------------------------------------------

#define FINISH_THREADS 256
#define FINISH_BLOCK 4096 // samples of a plane per block

template <typename T, int V> struct alignas(V * sizeof(T)) adjacent {
    T value[V];
};

// V samples per thread and step, at a multiple of V samples of the plane.
template <typename From, typename To, int V>
static __global__ void finish(struct conv_layer_finish finish, int64_t parts, const void *src,
                              void *dst)
{
    int64_t plane = blockIdx.x / parts, first = (blockIdx.x - plane * parts) * FINISH_BLOCK;
    int64_t end = first + FINISH_BLOCK < finish.plane ? first + FINISH_BLOCK : finish.plane;
    float bias = finish.d_bias ? finish.d_bias[plane % finish.maps] : 0; // if all have the same
    const typename From::type *from = (const typename From::type *)src + plane * finish.plane;
    typename To::type *to = (typename To::type *)dst + plane * finish.plane;
    for (int64_t i = first + threadIdx.x * V; i < end; i += FINISH_THREADS * V) {
        auto in = *(const adjacent<typename From::type, V> *)(const void *)(from + i);
        adjacent<typename To::type, V> out;
        for (int v = 0; v < V; v++) {
            float sum = From::load(in.value[v], 1);
            if (finish.d_bias)
                sum += finish.last ? finish.d_bias[(i + v) % finish.maps] : bias;
            out.value[v] = To::store(layer_activate(finish.activation, sum));
        }
        *(adjacent<typename To::type, V> *)(void *)(to + i) = out;
    }
}

typedef void (*finish_fn)(struct conv_layer_finish, int64_t, const void *, void *);

template <typename From, int V> static finish_fn choose_finish(enum conv_element to)
{
    return to == CONV_ELEMENT_F16    ? finish<From, halves, V>
           : to == CONV_ELEMENT_BF16 ? finish<From, bfloats, V>
                                     : finish<From, floats, V>;
}

template <int V> static finish_fn choose_finish(enum conv_element from, enum conv_element to)
{
    return from == CONV_ELEMENT_F16    ? choose_finish<halves, V>(to)
           : from == CONV_ELEMENT_BF16 ? choose_finish<bfloats, V>(to)
                                       : choose_finish<floats, V>(to);
}

enum conv_status conv_cuda_layer_finish(const struct conv_layer_finish *finish, const void *src,
                                        void *dst, void *stream)
{
    int64_t parts = ceil_div64(finish->plane, FINISH_BLOCK), blocks = parts * finish->planes;
    if (blocks == 0)
        return CONV_OK;
    if (blocks > INT32_MAX)
        return CONV_ERR_DEVICE;
    bool wide = finish->plane % 4 == 0 && (uintptr_t)src % 16 == 0 && (uintptr_t)dst % 16 == 0;
    finish_fn kernel = wide ? choose_finish<4>(finish->from, finish->to)
                            : choose_finish<1>(finish->from, finish->to);
    kernel<<<(unsigned)blocks, FINISH_THREADS, 0, (cudaStream_t)stream>>>(*finish, parts, src, dst);
    return layer_launch_status();
}

// --- weights -------------------------------------------------------------------------------------

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
    return layer_launch_status();
}
