// SPDX-License-Identifier: MIT
#include "kernels/ladder/ladder.h"

#if CONV_HAVE_CUDA
#include "kernels/stencil/cuda/cuda_variants.h"

static const struct conv_ladder_step steps[] = {
    {.variant = &conv_cuda_interleaved, .interleaved = true},
#ifdef CONV_STUDENT // -DCONV_STUDENT=FILE
    {.variant = &conv_cuda_student},
#endif
    {.variant = &conv_cuda_naive},
    {.variant = &conv_cuda_constant},
    {.variant = &conv_cuda_shared},
    {.variant = &conv_cuda_shared_shapes[0], .shape = true},
    {.variant = &conv_cuda_shared_shapes[1], .shape = true},
    {.variant = &conv_cuda_shared_shapes[2], .shape = true},
    {.variant = &conv_cuda_shared_shapes[3], .shape = true},
    {.variant = &conv_cuda_shared_shapes[4], .shape = true},
    {.variant = &conv_cuda_unrolled},
    {.variant = &conv_cuda_unrolled_shapes[0], .shape = true},
    {.variant = &conv_cuda_unrolled_shapes[1], .shape = true},
    {.variant = &conv_cuda_unrolled_shapes[2], .shape = true},
    {.variant = &conv_cuda_planes},
    {.variant = &conv_cuda_blocked, .product = true},
    {.variant = &conv_cuda_dp4a},
};

static const struct conv_ladder_layer_step layer_steps[] = {
    {.variant = &conv_cuda_layer_naive},
    {.variant = &conv_cuda_layer_constant},
    {.variant = &conv_cuda_layer_shared},
    {.variant = &conv_cuda_layer_shared_constant},
    {.variant = &conv_cuda_layer_hoisted},
    {.variant = &conv_cuda_layer_channels},
    {.variant = &conv_cuda_layer_specialised},
    {.variant = &conv_cuda_layer_atomics},
    {.variant = &conv_cuda_layer_tree},
    {.variant = &conv_cuda_layer_im2col},
    {.variant = &conv_cuda_layer_fused},
    {.variant = &conv_cuda_layer_register},
    {.variant = &conv_cuda_layer_register_shapes[0], .shape = true},
    {.variant = &conv_cuda_layer_register_shapes[1], .shape = true},
    {.variant = &conv_cuda_layer_register_shapes[2], .shape = true},
    {.variant = &conv_cuda_layer_register_shapes[3], .shape = true},
    {.variant = &conv_cuda_layer_register_shapes[4], .shape = true},
    {.variant = &conv_cuda_layer_register_shapes[5], .shape = true},
};

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))
#else
static const struct conv_ladder_step *const steps = NULL;
static const struct conv_ladder_layer_step *const layer_steps = NULL;
#define COUNT(list) 0
#endif

const struct conv_ladder_step *conv_ladder_steps(int *count)
{
    *count = COUNT(steps);
    return steps;
}

const struct conv_ladder_layer_step *conv_ladder_layer_steps(int *count)
{
    *count = COUNT(layer_steps);
    return layer_steps;
}
