// SPDX-License-Identifier: MIT
// The table of layer variants and the choice among them.
#include "kernels/layer/layer.h"

#include <string.h>

#if CONV_HAVE_CUDA
#include "kernels/layer/cuda/cuda_layers.h"
#endif
#include "kernels/layer/cpu/blocked.h"

const char *const conv_layer_activations[] = {"none", "relu", "tanh", "abs", NULL};
const char *const conv_layer_precisions[] = {"exact", "fast", "tf32", "fp16", "bf16", NULL};

static const struct conv_layer_variant *const variants[] = {
#if CONV_HAVE_CUDA
    &conv_cuda_layer_gemm,          &conv_cuda_layer_window,  &conv_cuda_layer_few,
    &conv_cuda_layer_bulk,          &conv_cuda_layer_direct,
#endif
#if defined __x86_64__
    &conv_cpu_layer_group_avx512,   &conv_cpu_layer_avx512,   &conv_cpu_layer_group_avx2,
    &conv_cpu_layer_avx2,
#elif defined __aarch64__
    &conv_cpu_layer_group_neon,     &conv_cpu_layer_neon,
#endif
    &conv_cpu_layer_group_portable, &conv_cpu_layer_portable, &conv_cpu_layer_reference,
};

const struct conv_layer_variant *const *conv_layer_variants(int *count)
{
    *count = (int)(sizeof variants / sizeof variants[0]);
    return variants;
}

// The pads of an axis; `lower`: the extra one is the first.
static void share_padding(int *before, int *after, int lower, int size, int stride, int reach)
{
    int64_t total = (int64_t)(size - 1) / stride * stride + reach - size;
    *before = total > 0 ? (int)((total + lower) / 2) : 0;
    *after = total > 0 ? (int)(total - *before) : 0;
}

struct conv_layer conv_layer_sized(const struct conv_layer *layer, int height, int width)
{
    struct conv_layer sized = *layer;
    int lower = layer->same == CONV_LAYER_SAME_LOWER;
    sized.same = CONV_LAYER_PADS_GIVEN;
    if (layer->same) {
        share_padding(&sized.pad_top, &sized.pad_bottom, lower, height, layer->stride_y,
                      conv_layer_reach_y(layer));
        share_padding(&sized.pad_left, &sized.pad_right, lower, width, layer->stride_x,
                      conv_layer_reach_x(layer));
    }
    return sized;
}

// What a variant must handle to do the layer, as enum conv_layer_handles.
static unsigned demands_of(const struct conv_layer *layer)
{
    bool pads = layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right ||
                layer->input != CONV_ELEMENT_F32;
    return (pads ? CONV_LAYER_PADS : 0u) | (layer->groups > 1 ? CONV_LAYER_GROUPS : 0u) |
           (layer->dilation_y > 1 || layer->dilation_x > 1 ? CONV_LAYER_DILATION : 0u) |
           (layer->stride_y != layer->stride_x ? CONV_LAYER_STRIDES : 0u) |
           (layer->weights ? 0u : CONV_LAYER_LATE) |
           (layer->channels_last ? CONV_LAYER_CHANNELS_LAST : 0u);
}

void conv_layer_plan_pad(struct conv_layer_plan *plan)
{
    struct conv_layer *layer = &plan->layer;
    plan->pads = true;
    plan->shape.height += layer->pad_top + layer->pad_bottom;
    plan->shape.width += layer->pad_left + layer->pad_right;
    layer->pad_top = layer->pad_bottom = layer->pad_left = layer->pad_right = 0;
    layer->input = CONV_ELEMENT_F32;
    layer->input_divisor = 1;
}

bool conv_layer_plan_find(struct conv_layer_plan *plan, const struct conv_layer_variant *variant,
                          const struct conv_layer *layer, const struct conv_layer_shape *shape,
                          unsigned have)
{
    if (!conv_place_offers(variant->place, have, variant->needs))
        return false;
    *plan = (struct conv_layer_plan){
        .variant = variant,
        .layer = *layer,
        .shape = *shape,
    };
    if (layer->kernel_height == 1)
        plan->layer.dilation_y = 1;
    if (layer->kernel_width == 1)
        plan->layer.dilation_x = 1;
    unsigned missing = demands_of(&plan->layer) & ~variant->handles;
    if (missing & ~(unsigned)CONV_LAYER_PADS)
        return false;
    if (missing || (layer->input != CONV_ELEMENT_U8 && layer->input != CONV_ELEMENT_F32))
        conv_layer_plan_pad(plan);
    if (variant->place == CONV_ON_CUDA && layer->output == CONV_ELEMENT_BF16) {
        plan->rounds = true;
        plan->layer.output = CONV_ELEMENT_F32;
    }
    return !variant->plan || variant->plan(plan);
}

bool conv_layer_plan_best(struct conv_layer_plan *plan, const struct conv_layer *layer,
                          const struct conv_layer_shape *shape, enum conv_place place,
                          unsigned have, const char *name)
{
    int best = -1;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const struct conv_layer_variant *variant = variants[i];
        struct conv_layer_plan candidate;
        if (variant->place != place || variant->precision > layer->precision ||
            (name && strcmp(variant->name, name) != 0) ||
            !conv_layer_plan_find(&candidate, variant, layer, shape, have))
            continue;
        int score = variant->score(&candidate);
        if (score > best) {
            *plan = candidate;
            best = score;
        }
    }
    return best >= 0;
}

void conv_layer_plan_pack(struct conv_layer_plan *plan, void *packed)
{
    plan->packed = packed;
    if (plan->packed_bytes > 0)
        memset(packed, 0, plan->packed_bytes);
    if (plan->variant->pack)
        plan->variant->pack(plan);
}
