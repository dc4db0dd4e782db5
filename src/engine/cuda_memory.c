// SPDX-License-Identifier: MIT
#include "engine/cuda_memory.h"

#include <stdio.h>

#include "engine/cuda_device.h"

// The message has the amount and what is free: other processes, or other streams of this one, may
// hold the rest.
static enum conv_status report_no_room(size_t bytes, const char *purpose, cudaError_t code,
                                       struct conv_err *err)
{
    char doing[128];
    size_t unused = 0, all = 0;
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&unused, &all) != cudaSuccess)
        (void)cudaGetLastError(); // the message then says that 0 bytes are free
    snprintf(doing, sizeof doing, "allocate %zu KiB of device memory %s (%zu KiB are free)",
             (bytes >> 10) + 1, purpose, unused >> 10);
    return conv_cuda_device_report(err, code, doing);
}

enum conv_status conv_cuda_memory_reserve(struct conv_cuda_memory *memory, size_t bytes,
                                          size_t spare, const char *purpose, struct conv_err *err)
{
    if (bytes <= memory->bytes)
        return CONV_OK;
    conv_cuda_memory_free(memory);
    cudaError_t code = cudaMalloc((void **)&memory->d_data, bytes + spare);
    if (code == cudaErrorMemoryAllocation && spare > 0) {
        (void)cudaGetLastError();
        spare = 0;
        code = cudaMalloc((void **)&memory->d_data, bytes);
    }
    if (code) {
        memory->d_data = NULL;
        return report_no_room(bytes, purpose, code, err);
    }
    memory->bytes = bytes + spare;
    return CONV_OK;
}

void conv_cuda_memory_free(struct conv_cuda_memory *memory)
{
    if (memory->d_data)
        (void)cudaFree(memory->d_data); // nothing can be done about a failure
    *memory = (struct conv_cuda_memory){0};
}

enum conv_status conv_cuda_mapped_reserve(struct conv_cuda_mapped *memory, size_t bytes,
                                          const char *purpose, struct conv_err *err)
{
    if (bytes <= memory->bytes)
        return CONV_OK;
    conv_cuda_mapped_free(memory);
    cudaError_t code = cudaHostAlloc((void **)&memory->h_data, bytes, cudaHostAllocMapped);
    if (code) {
        char doing[96];
        snprintf(doing, sizeof doing, "allocate pinned memory %s", purpose);
        memory->h_data = NULL;
        return conv_cuda_device_report(err, code, doing);
    }
    memory->bytes = bytes;
    return CONV_OK;
}

void conv_cuda_mapped_free(struct conv_cuda_mapped *memory)
{
    if (memory->h_data)
        (void)cudaFreeHost(memory->h_data);
    *memory = (struct conv_cuda_mapped){0};
}

// Portable: pinned for every thread and device.
bool conv_cuda_memory_pin(int device, void *memory, size_t bytes)
{
    if (cudaSetDevice(device) == cudaSuccess &&
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

bool conv_cuda_memory_unpin(int device, void *memory)
{
    if (cudaSetDevice(device) == cudaSuccess && cudaHostUnregister(memory) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}
