// SPDX-License-Identifier: MIT
// The CPU variants of layer.h's table, besides the reference.
#ifndef CONV_KERNELS_LAYER_CPU_CPU_LAYERS_H
#define CONV_KERNELS_LAYER_CPU_CPU_LAYERS_H

#include "kernels/layer/layer.h"

extern const struct conv_layer_variant conv_cpu_layer_portable;
#if defined __x86_64__
extern const struct conv_layer_variant conv_cpu_layer_avx2;
extern const struct conv_layer_variant conv_cpu_layer_avx512;
#elif defined __aarch64__
extern const struct conv_layer_variant conv_cpu_layer_neon;
#endif

#endif
