// SPDX-License-Identifier: MIT
// What a device says of itself, whatever its maker.
#ifndef CONV_DEVICE_DEVICE_INFO_H
#define CONV_DEVICE_DEVICE_INFO_H

#include <stddef.h>

struct conv_device_info {
    char name[128]; // "NVIDIA H200"
    int capability; // 90 = 9.0
    int multiprocessors;
    size_t memory, free; // bytes
};

#endif
