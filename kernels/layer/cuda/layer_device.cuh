// SPDX-License-Identifier: MIT
// Shared by the CUDA layer kernels: table rows, plan constants, output elements.
#pragma once

#include <math.h>
#include <stdint.h>

#include "kernels/common/border.h"
#include "kernels/layer/cuda/cuda_layers.h"
#include "kernels/layer/layer.h"

// The constants of a plan, zeroed by conv_layer_plan_find.
template <typename Constants> static Constants *layer_constants(struct conv_layer_plan *plan)
{
    static_assert(sizeof(Constants) <= sizeof plan->constants && alignof(Constants) <= 16,
                  "a plan holds them");
    return (Constants *)plan->constants;
}

template <typename Constants>
static const Constants *layer_constants(const struct conv_layer_plan *plan)
{
    return (const Constants *)plan->constants;
}

// Sets the members of a launch that most kernels share: the input and the sizes.
template <typename Launch>
static inline void layer_set_sizes(Launch *p, const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    p->src = batch->src;
    p->src_row = batch->src_row;
    p->src_plane = batch->src_plane;
    p->src_image = batch->src_image;
    p->height = plan->shape.height;
    p->width = plan->shape.width;
    p->out_height = conv_layer_out_height(layer, p->height);
    p->out_width = conv_layer_out_width(layer, p->width);
    p->channels = layer->channels;
    p->maps = layer->maps;
    p->kernel_height = layer->kernel_height;
}

// Sets the members that describe what is around the input, and its divisor.
template <typename Launch>
static inline void layer_set_border(Launch *p, const struct conv_layer *layer)
{
    p->pad_top = layer->pad_top;
    p->pad_left = layer->pad_left;
    p->border = (int)layer->border;
    p->border_value = layer->border_value;
    p->divisor = layer->input_divisor;
}

// Whether there are pads; and whether those that there are hold zeros.
static inline bool layer_is_padded(const struct conv_layer *layer)
{
    return layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right;
}

static inline bool layer_pads_zeros(const struct conv_layer *layer)
{
    bool zero = layer->border_value == 0 && !signbit(layer->border_value);
    return !layer_is_padded(layer) || (layer->border == CONV_BORDER_CONSTANT && zero);
}

// Whether there are as many outputs as samples, with zeros around float32 input.
static inline bool layer_is_same(const struct conv_layer *layer)
{
    int side = layer->kernel_width / 2;
    return layer_is_padded(layer) && layer_pads_zeros(layer) && layer->pad_top == side &&
           layer->pad_bottom == side && layer->pad_left == side && layer->pad_right == side &&
           layer->kernel_width == layer->kernel_height && layer->kernel_width % 2 == 1 &&
           layer->input == CONV_ELEMENT_F32;
}

// Padding before is a launch and a pass over the input, which few outputs do not repay.
static inline bool layer_repays_padding(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    float outputs = (float)conv_layer_out_height(layer, shape->height) *
                    (float)conv_layer_out_width(layer, shape->width) * (float)layer->maps *
                    (float)shape->images;
    return !plan->pads || shape->images <= 0 || outputs >= 8e6f;
}

#define LAYER_SCORE_PADDED 80 // where they do not

static inline int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

// Of a that is not negative, up to INT64_MAX.
static inline int64_t ceil_div64(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

// Division by a number that is constant in a launch: n / d for n below 2^31.
struct layer_divider {
    uint32_t factor;
    int shift;
};

static inline struct layer_divider layer_divider_of(int d)
{
    int bits = 0;
    while ((int64_t)1 << bits < d)
        bits++;
    struct layer_divider divider;
    divider.factor = (uint32_t)(((uint64_t)1 << (31 + bits)) / (uint64_t)d + 1);
    divider.shift = 31 + bits;
    return divider;
}

__device__ inline int layer_divide(int n, layer_divider d)
{
    return (int)((uint64_t)(uint32_t)n * d.factor >> d.shift);
}

#define LAYER_USUAL_SHARED (48 << 10) // bytes that a block can have without the following

// Allows each launch of a kernel as much dynamic shared memory as a block can have: the limit
// belongs to the kernel, and other threads may launch it at the same time with different needs.
static inline cudaError_t layer_allow_shared_memory(const void *kernel)
{
    int device, bytes;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (!error)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return error;
}

// The status of a launch. It peeks, so that the caller can still ask cudaGetLastError for the
// cause.
static inline enum conv_status layer_launch_status(void)
{
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// One sample as float32.
__device__ inline float layer_sample(const float *sample, float)
{
    return *sample;
}

__device__ inline float layer_sample(const uint8_t *sample, float divisor)
{
    return __fdiv_rn((float)*sample, divisor);
}

// Starts copying a sample to shared memory, or a zero.
__device__ inline void layer_copy(float *place, const float *from, bool outside)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(place)),
                 "l"(from), "r"(outside ? 0 : 4)
                 : "memory");
#else
    *place = outside ? 0 : *from;
#endif
}

// The activation of one output. tanh is long and therefore a call: kernels have dozens of outputs
// per thread.
template <int> __device__ __attribute__((noinline)) float layer_tanh(float x)
{
    return conv_layer_tanh(x);
}

__device__ inline float layer_activate(int activation, float x)
{
    if (activation == CONV_ACTIVATION_RELU)
        return x < 0 ? 0 : x;
    if (activation == CONV_ACTIVATION_ABS)
        return fabsf(x);
    return activation == CONV_ACTIVATION_TANH ? layer_tanh<0>(x) : x;
}

// The bits of binary16, like conv_half_from_float.
__device__ inline uint16_t layer_half(float value)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    if (value != value)
        half = (uint16_t)(0x7e00 | (__float_as_uint(value) >> 16 & 0x8000));
    return half;
}

// Output elements: float32, or the bits of float16.
__device__ inline void layer_store(float *to, float value)
{
    *to = value;
}

__device__ inline void layer_store(uint16_t *to, float value)
{
    *to = layer_half(value);
}

// Four neighbouring outputs at a multiple of four elements.
__device__ inline void layer_store4(float *to, float4 value)
{
    __stcs((float4 *)(void *)to, value);
}

__device__ inline void layer_store4(uint16_t *to, float4 value)
{
    uint2 halves = make_uint2(layer_half(value.x) | (uint32_t)layer_half(value.y) << 16,
                              layer_half(value.z) | (uint32_t)layer_half(value.w) << 16);
    *(uint2 *)(void *)to = halves;
}

// Applies the activation to a thread's outputs; a layer without one skips the code.
template <int T, int MT>
__device__ inline void activate_outputs(int activation, float (&sum)[MT][T])
{
    if (activation == CONV_ACTIVATION_NONE)
        return;
    if (activation == CONV_ACTIVATION_RELU) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[m][t] = sum[m][t] < 0 ? 0 : sum[m][t];
    } else if (activation == CONV_ACTIVATION_ABS) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[m][t] = fabsf(sum[m][t]);
    }
}

// tanh is long, hence a loop over a warp's buffer.
__device__ inline void activate_tanh(float *buffer, int count, int lane)
{
#pragma unroll 1
    for (int i = lane; i < count; i += 32)
        buffer[i] = conv_layer_tanh(buffer[i]);
    __syncwarp();
}

// At least N floats from an address that is a multiple of VX floats.
template <int N, int VX> __device__ inline void layer_read(float (&to)[N], const float *from)
{
#pragma unroll
    for (int i = 0; i < N; i += VX) {
        if (VX == 4) {
            float4 v = *(const float4 *)(const void *)(from + i);
            const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k < N)
                    to[i + k] = values[k];
        } else if (VX == 2) {
            float2 v = *(const float2 *)(const void *)(from + i);
            to[i] = v.x;
            if (i + 1 < N)
                to[i + 1] = v.y;
        } else {
            to[i] = from[i];
        }
    }
}

// Waits for samples that were read, before the first multiply-add. Otherwise the compiler begins
// with those that arrive first, so that each weight is new to several groups of samples: more
// multiply-adds then read three new registers, which takes the register file longer.
template <int N> __device__ inline void layer_await(float (&x)[N])
{
    (void)x; // the emulated device leaves the statement out
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i]));
}
