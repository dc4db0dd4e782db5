// SPDX-License-Identifier: MIT
// The table of layer variants and the choice among them.
#include "kernels/layer/layer.h"

#include <string.h>

#if CONV_HAVE_CUDA
#include "kernels/layer/cuda/cuda_layers.h"
#endif
#include "kernels/layer/cpu/cpu_layers.h"

static const struct conv_layer_variant *const variants[] = {
#if CONV_HAVE_CUDA
    &conv_cuda_layer_points_tf32,
    &conv_cuda_layer_points_wgmma,
    &conv_cuda_layer_strips_half,
    &conv_cuda_layer_strips,
    &conv_cuda_layer_wgmma_half,
    &conv_cuda_layer_wgmma,
    &conv_cuda_layer_mma_half,
    &conv_cuda_layer_few,
    &conv_cuda_layer_uniform,
    &conv_cuda_layer_aligned,
    &conv_cuda_layer_slices,
    &conv_cuda_layer_bulk,
    &conv_cuda_layer_tiles,
    &conv_cuda_layer_rows,
    &conv_cuda_layer_large,
    &conv_cuda_layer_points_bulk,
    &conv_cuda_layer_points,
    &conv_cuda_layer_direct,
    // The ladder, its last step first.
    &conv_cuda_layer_register,
    &conv_cuda_layer_fused,
    &conv_cuda_layer_im2col,
    &conv_cuda_layer_tree,
    &conv_cuda_layer_atomics,
    &conv_cuda_layer_specialised,
    &conv_cuda_layer_channels,
    &conv_cuda_layer_hoisted,
    &conv_cuda_layer_shared_constant,
    &conv_cuda_layer_shared,
    &conv_cuda_layer_constant,
    &conv_cuda_layer_naive,
#endif
#if defined __x86_64__
    &conv_cpu_layer_avx512,
    &conv_cpu_layer_avx2,
#elif defined __aarch64__
    &conv_cpu_layer_neon,
#endif
    &conv_cpu_layer_portable,
    &conv_cpu_layer_reference,
};

const struct conv_layer_variant *const *conv_layer_variants(int *count)
{
    *count = (int)(sizeof variants / sizeof variants[0]);
    return variants;
}

const struct conv_layer_extra *conv_layer_extras(int *count)
{
#if CONV_HAVE_CUDA
    static const struct conv_layer_extra extras[] = {
        {&conv_cuda_layer_register_shapes[0], &conv_cuda_layer_register},
        {&conv_cuda_layer_register_shapes[1], &conv_cuda_layer_register},
        {&conv_cuda_layer_register_shapes[2], &conv_cuda_layer_register},
        {&conv_cuda_layer_register_shapes[3], &conv_cuda_layer_register},
        {&conv_cuda_layer_register_shapes[4], &conv_cuda_layer_register},
        {&conv_cuda_layer_register_shapes[5], &conv_cuda_layer_register},
    };
    *count = (int)(sizeof extras / sizeof extras[0]);
    return extras;
#else
    *count = 0;
    return NULL;
#endif
}

bool conv_layer_needs_pad(const struct conv_layer_variant *variant, const struct conv_layer *layer)
{
    return !variant->pads && (layer->pad_top || layer->pad_bottom || layer->pad_left ||
                              layer->pad_right || layer->input != CONV_ELEMENT_F32);
}

void conv_layer_inner(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct conv_layer *inner, struct conv_layer_shape *inner_shape)
{
    *inner = *layer;
    inner->pad_top = inner->pad_bottom = inner->pad_left = inner->pad_right = 0;
    inner->input = CONV_ELEMENT_F32;
    inner->input_divisor = 1;
    *inner_shape = *shape;
    inner_shape->height += layer->pad_top + layer->pad_bottom;
    inner_shape->width += layer->pad_left + layer->pad_right;
}

bool conv_layer_can(const struct conv_layer_variant *variant, const struct conv_layer *layer,
                    const struct conv_layer_shape *shape, unsigned have)
{
    if (!conv_place_offers(variant->place, have, variant->needs))
        return false;
    if (!variant->can)
        return true;
    if (!conv_layer_needs_pad(variant, layer))
        return variant->can(layer, shape);
    struct conv_layer inner;
    struct conv_layer_shape inner_shape;
    conv_layer_inner(layer, shape, &inner, &inner_shape);
    return variant->can(&inner, &inner_shape);
}

const struct conv_layer_variant *conv_layer_pick(const struct conv_layer *layer,
                                                 const struct conv_layer_shape *shape,
                                                 enum conv_place place, unsigned have,
                                                 const char *name)
{
    const struct conv_layer_variant *best = NULL;
    int best_score = -1;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const struct conv_layer_variant *variant = variants[i];
        if (variant->place != place || variant->precision > layer->precision ||
            (name && strcmp(variant->name, name) != 0) ||
            !conv_layer_can(variant, layer, shape, have))
            continue;
        int score = variant->score(layer, shape);
        if (score > best_score) {
            best = variant;
            best_score = score;
        }
    }
    return best;
}

size_t conv_layer_packed_bytes(const struct conv_layer_variant *variant,
                               const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return variant->packed_bytes ? variant->packed_bytes(layer, shape) : 0;
}

void conv_layer_plan_init(struct conv_layer_plan *plan, const struct conv_layer_variant *variant,
                          const struct conv_layer *layer, const struct conv_layer_shape *shape,
                          void *packed)
{
    *plan = (struct conv_layer_plan){
        .variant = variant,
        .layer = layer,
        .shape = *shape,
        .packed = packed,
        .packed_bytes = conv_layer_packed_bytes(variant, layer, shape),
    };
    if (variant->plan)
        variant->plan(plan);
}
