// SPDX-License-Identifier: MIT
// For which GPUs the CUDA kernels were compiled.
#ifndef CONV_KERNELS_COMMON_CUDA_CODE_H
#define CONV_KERNELS_COMMON_CUDA_CODE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The compute capability, as conv_place_offers() takes it, of a device that runs kernels compiled
// for `built` (in units of __CUDA_ARCH__: 900 = 9.0): its own if that is among them. Else the
// newest older one, plus 1: a device of capability 9.0 also runs kernels compiled for 8.0 alone, in
// which the parts for 9.0 are empty, and a device of 10.0 those for 9.0, but not as a device of
// exactly 9.0. If there is none, or `built` is empty, its own.
static inline int conv_cuda_code_newest(const int *built, size_t count, int capability)
{
    int newest = 0;
    for (size_t i = 0; i < count; i++)
        if (built[i] / 10 <= capability && built[i] / 10 > newest)
            newest = built[i] / 10;
    return newest == 0 || newest == capability ? capability : newest + 1;
}

// The same for the kernels of this library.
int conv_cuda_code_capability(int capability);

#ifdef __cplusplus
}
#endif

#endif
