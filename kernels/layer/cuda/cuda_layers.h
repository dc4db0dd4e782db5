// SPDX-License-Identifier: MIT
// The CUDA variants of layer.h's table.
#ifndef CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H
#define CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H

#include "kernels/layer/layer.h"

#endif
