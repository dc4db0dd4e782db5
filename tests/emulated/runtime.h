// SPDX-License-Identifier: MIT
// What the files of the emulated CUDA runtime share: runtime.cpp (errors, the device),
// runtime_memory.cpp and runtime_streams.cpp (copies, launches, streams, events).
#ifndef CONV_EMULATED_RUNTIME_H
#define CONV_EMULATED_RUNTIME_H

#include <atomic>
#include <cstddef>
#include <mutex>

#include "cuda_runtime_api.h"

namespace emulated
{

// The number of a word in CONV_EMULATED.
unsigned long option(const char *name, unsigned long otherwise);

// Keeps the error for cudaGetLastError, and returns it. Any thread.
cudaError_t report(cudaError_t error);

// The first failure stays, as on a real device, which executes nothing afterwards. Any thread.
void note_failure(const char *text);
bool is_lost();
#define EMULATED_MESSAGE_SIZE 1024

extern thread_local int current; // device
size_t memory_size();            // of a device
int most_shared();               // bytes of a block's shared memory that a kernel may ask for

extern std::atomic_ulong allocation_count, wait_count, copy_count;

size_t taken_memory(); // bytes of all allocations
// True if all of it is in one allocation of the device.
bool is_on_device(const void *p, size_t size, int device);

} // namespace emulated

#endif
