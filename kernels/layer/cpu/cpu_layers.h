// SPDX-License-Identifier: MIT
// The CPU variants of layer.h's table.
#ifndef CONV_KERNELS_LAYER_CPU_CPU_LAYERS_H
#define CONV_KERNELS_LAYER_CPU_CPU_LAYERS_H

#include "kernels/layer/layer.h"

#endif
