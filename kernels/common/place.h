// SPDX-License-Identifier: MIT
// The place where a kernel runs, its requirements, and for which GPUs the CUDA kernels were
// compiled: shared by all families of kernels.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// For functions in headers that are called by C, C++ and CUDA code on the host and on the device.
#ifdef __CUDACC__
#define CONV_HOST_DEVICE __host__ __device__
#else
#define CONV_HOST_DEVICE
#endif

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
