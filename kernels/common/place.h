// SPDX-License-Identifier: MIT
// The place where a kernel runs, and its requirements: shared by all families of kernels.
#ifndef CONV_KERNELS_COMMON_PLACE_H
#define CONV_KERNELS_COMMON_PLACE_H

#include <stdbool.h>

enum conv_place { CONV_ON_CPU, CONV_ON_CUDA };

// True if a machine that offers `have` meets `needs`. On a CPU both are bits of enum
// conv_cpu_feature; on a CUDA device both are compute capabilities, 75 = 7.5. With CONV_CUDA_ONLY
// added, the device must have exactly this one: some instructions exist in a single generation.
#define CONV_CUDA_ONLY 1000u

static inline bool conv_place_offers(enum conv_place place, unsigned have, unsigned needs)
{
    if (place == CONV_ON_CUDA)
        return needs >= CONV_CUDA_ONLY ? have == needs - CONV_CUDA_ONLY : needs <= have;
    return (needs & ~have) == 0;
}

#endif
