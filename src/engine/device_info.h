// SPDX-License-Identifier: MIT
// The properties of a device of any vendor. 0: unknown.
#ifndef CONV_ENGINE_DEVICE_INFO_H
#define CONV_ENGINE_DEVICE_INFO_H

#include <stddef.h>

struct conv_device_info {
    char name[128];      // "NVIDIA H200"
    unsigned capability; // CUDA's compute capability: 90 = 9.0
    unsigned offers;     // what kernels of this program may require: conv_place_offers
    int multiprocessors;
    size_t memory, free; // bytes
};

#endif
