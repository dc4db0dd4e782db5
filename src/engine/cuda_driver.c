// SPDX-License-Identifier: MIT
// A file of its own, because a build with an emulated device omits it.
#include "engine/cuda_device.h"

#include <dlfcn.h>

// Loads the driver, which stays loaded: the CUDA runtime is about to load it, too.
// cudaDriverGetVersion() would initialise the devices.
bool conv_cuda_device_has_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW) != NULL;
}
