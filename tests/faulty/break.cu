// SPDX-License-Identifier: MIT
// Makes a device really fail: a kernel that traps, memory that is taken.
#include <cuda_runtime.h>

extern "C" {
#include "faulty.h"
}

static __global__ void trap()
{
    asm("trap;");
}

void faulty_trap(int device)
{
    if (cudaSetDevice(device) != cudaSuccess)
        return;
    trap<<<1, 1>>>();
    (void)cudaDeviceSynchronize(); // the error is intended and stays
}

void faulty_hog(int device, size_t leave)
{
    if (cudaSetDevice(device) != cudaSuccess)
        return;
    size_t unused = 0, all = 0;
    for (size_t piece = (size_t)1 << 30; piece >= (size_t)1 << 20;) {
        void *d_memory;
        if (cudaMemGetInfo(&unused, &all) != cudaSuccess)
            return;
        if (unused < leave + piece || cudaMalloc(&d_memory, piece) != cudaSuccess) {
            (void)cudaGetLastError();
            piece /= 2;
        }
    }
}
