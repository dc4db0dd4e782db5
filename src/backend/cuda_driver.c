// SPDX-License-Identifier: MIT
#include "backend/backend.h"

#include <dlfcn.h>

// What the CUDA runtime opens, too. Its own cudaDriverGetVersion() would wake the devices up, which
// takes a tenth of a second. Stays open: the runtime is about to want it.
bool conv_backend_cuda_has_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW) != NULL;
}
