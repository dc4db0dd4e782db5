// SPDX-License-Identifier: MIT
// A file of its own: a build with an emulated device leaves it out.
#include "device/cuda_device.h"

#include <dlfcn.h>

// Loads what the CUDA runtime loads, too, which is about to need it: it stays loaded.
// cudaDriverGetVersion() would initialise the devices.
bool conv_cuda_device_has_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW) != NULL;
}
