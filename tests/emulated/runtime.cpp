// SPDX-License-Identifier: MIT
// The CUDA runtime of cuda_runtime_api.h. Nothing is executed before a thread waits, so a launch
// whose memory is freed or changed too early is detected. The environment variable CONV_EMULATED
// has words that restrict the device:
//   memory=N   it has N bytes
//   open=MS    time to open it
//   gate       it begins to work once a byte can be read from the pipe `gate`
//   lost=N     it is lost when it has done N copies and launches
//   devices=N  number of devices; using the stream, event or memory of one with another fails.
//              They share their memory, and all are lost together
#include "runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "launch.h"
#include "scheduler.h"

#define SYSTEM_SHARED 1024 // bytes of a block's shared memory that the system reserves

static std::mutex lock; // guards what follows
static cudaError_t last_error;
static bool lost; // for good: a kernel has failed
static char message[EMULATED_MESSAGE_SIZE];

namespace emulated
{

thread_local int current;
std::atomic_ulong allocation_count, wait_count, copy_count;

unsigned long option(const char *name, unsigned long otherwise)
{
    const char *text = getenv("CONV_EMULATED"), *at = text ? strstr(text, name) : nullptr;
    return at ? strtoul(at + strlen(name), nullptr, 10) : otherwise;
}

cudaError_t report(cudaError_t error)
{
    std::lock_guard<std::mutex> held(lock);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void note_failure(const char *text)
{
    std::lock_guard<std::mutex> held(lock);
    if (!lost)
        snprintf(message, sizeof message, "%s", text);
    lost = true;
}

bool is_lost()
{
    std::lock_guard<std::mutex> held(lock);
    return lost;
}

} // namespace emulated

using namespace emulated;

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorHostMemoryAlreadyRegistered:
        return "part or all of the requested memory range is already mapped";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
        break; // of machines without a device
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorNotSupported:
        return "operation not supported";
    case cudaErrorLaunchFailure:
        return message;
    }
    return "unknown error";
}

cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::mutex> held(lock);
    return lost ? cudaErrorLaunchFailure : last_error;
}

cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::mutex> held(lock);
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return lost ? cudaErrorLaunchFailure : error;
}

// --- the device ----------------------------------------------------------------------------------

// Properties of the device that depend on the seed: few processors, so that a block has much to do,
// and as much shared memory per block as compute capability 9.0 or 12.0.
static int processors = 3, shared_bytes = 227 << 10;

size_t emulated::memory_size()
{
    static const size_t size = option("memory=", 1ul << 32);
    return size;
}

int emulated::most_shared()
{
    return shared_bytes;
}

static int device_count()
{
    static const int count = (int)option("devices=", 1);
    return count;
}

static bool is_device(int device)
{
    return device >= 0 && device < device_count();
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidValue);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidValue);
    *properties = {"emulation", 9, 0, processors, memory_size()};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = memory_size();
    *free = *total - taken_memory();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidValue);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = processors;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = 1 << 20;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: // queried when the device is opened
        std::this_thread::sleep_for(std::chrono::milliseconds(option("open=", 0)));
        *value = shared_bytes < 227 << 10 ? 12 : 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = shared_bytes + SYSTEM_SHARED;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_bytes;
        return cudaSuccess;
    }
    return report(cudaErrorInvalidValue);
}

void emulated_seed(uint64_t seed)
{
    seed_order(seed);
    processors = 1 + (int)(seed % 3);
    shared_bytes = (seed / 3 % 2 ? 227 : 99) << 10;
}

struct emulated_calls emulated_count(void)
{
    return {allocation_count, wait_count, copy_count};
}
