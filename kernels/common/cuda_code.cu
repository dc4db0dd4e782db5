// SPDX-License-Identifier: MIT
#include "kernels/common/place.h"

int conv_cuda_code_capability(int capability)
{
#ifdef __CUDA_ARCH_LIST__ // nvcc: the virtual architectures of the command line
    static const int built[] = {__CUDA_ARCH_LIST__};
    return conv_cuda_code_newest(built, sizeof built / sizeof built[0], capability);
#else
    return capability;
#endif
}
