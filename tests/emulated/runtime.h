// SPDX-License-Identifier: MIT
// What the files of the emulated CUDA runtime share: runtime.cpp (errors, the device),
// runtime_memory.cpp and runtime_streams.cpp (copies, launches, streams, events).
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "cuda_runtime_api.h"

namespace emulated
{

// The number given for `name` in the variable CONV_EMULATED; `otherwise` if it is not there.
unsigned long option(const char *name, unsigned long otherwise);

// Stores the error for cudaGetLastError, and returns it. Any thread.
cudaError_t report(cudaError_t error);

// Loses the device with this failure, unless it is lost already; like a real one, it then executes
// nothing more. Any thread.
void note_failure(const char *text);
bool is_lost();
#define EMULATED_MESSAGE_SIZE 1024

extern thread_local int current; // the calling thread's device
size_t memory_size();            // bytes of a device
int most_shared();               // bytes of shared memory that a block may request

extern std::atomic_ulong allocation_count, wait_count, copy_count;

size_t taken_memory(); // bytes of all allocations
// True if all of it is in one allocation of the device.
bool is_on_device(const void *p, size_t size, int device);

} // namespace emulated
