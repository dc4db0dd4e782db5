// SPDX-License-Identifier: MIT
// Functions that the kernels of PNG decoding need beyond include/cuda_runtime.h.
#pragma once

#include "block.h"
#include "shared.h"

#define __forceinline__ static inline

static inline int __syncthreads_or(int value, EMULATED_HERE)
{
    return emulated::meet_block_with(where, value != 0);
}
