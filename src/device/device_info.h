// SPDX-License-Identifier: MIT
// The properties of a device of any vendor. 0: unknown.
#ifndef CONV_DEVICE_DEVICE_INFO_H
#define CONV_DEVICE_DEVICE_INFO_H

#include <stddef.h>

struct conv_device_info {
    char name[128];      // "NVIDIA H200"
    unsigned capability; // a minimum that kernels may require: conv_place_offers. CUDA: 90 = 9.0
    int multiprocessors;
    size_t memory, free; // bytes
};

#endif
