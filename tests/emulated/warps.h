// SPDX-License-Identifier: MIT
// Functions that the kernels of PNG decoding need beyond include/cuda_runtime.h.
#ifndef CONV_EMULATED_WARPS_H
#define CONV_EMULATED_WARPS_H

#include "block.h"
#include "shared.h"

#define __forceinline__ static inline

static inline int __syncthreads_or(int value, const char *file = __builtin_FILE(),
                                   int line = __builtin_LINE())
{
    return emulated::meet_block_with({file, line}, value != 0);
}

#endif
