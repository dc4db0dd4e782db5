// SPDX-License-Identifier: MIT
// CONV_HOST_DEVICE: for functions in headers that are called by C, C++ and CUDA code on the host
// and on the device.
#ifndef CONV_KERNELS_COMMON_HOST_DEVICE_H
#define CONV_KERNELS_COMMON_HOST_DEVICE_H

#ifdef __CUDACC__
#define CONV_HOST_DEVICE __host__ __device__
#else
#define CONV_HOST_DEVICE
#endif

#endif
