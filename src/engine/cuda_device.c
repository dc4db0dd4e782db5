// SPDX-License-Identifier: MIT
#include "engine/cuda_device.h"

#include <dlfcn.h>
#include <stdio.h>

#include "base/clock.h"
#include "kernels/common/place.h"

enum conv_status conv_cuda_device_report(struct conv_err *err, cudaError_t code, const char *doing)
{
    (void)cudaGetLastError();
    enum conv_status status = code == cudaErrorMemoryAllocation ? CONV_ERR_MEMORY : CONV_ERR_DEVICE;
    return conv_err_set(err, status, "CUDA failed to %s: %s", doing, cudaGetErrorString(code));
}

#ifndef CONV_CUDA_DRIVER // the emulation has none
#define CONV_CUDA_DRIVER "libcuda.so.1"
#endif

// Loads the driver, which stays loaded: the CUDA runtime is about to load it, too.
// cudaDriverGetVersion() would initialise the devices.
bool conv_cuda_device_has_driver(void)
{
    return dlopen(CONV_CUDA_DRIVER, RTLD_NOW) != NULL;
}

// Reports why a machine has no usable device, so that its user sees what to install.
static enum conv_status report_no_device(struct conv_err *err, cudaError_t code)
{
    (void)cudaGetLastError();
    int driver = 0;
    if (!conv_cuda_device_has_driver())
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA driver on this machine");
    (void)cudaDriverGetVersion(&driver);
    if (code == cudaErrorInsufficientDriver)
        return conv_err_set(
            err, CONV_ERR_DEVICE,
            "the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d or newer",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device: %s", cudaGetErrorString(code));
}

enum conv_status conv_cuda_device_use(int device, struct conv_err *err)
{
    return conv_cuda_check(cudaSetDevice(device), "select the device", err);
}

// At least 1, or CONV_ERR_DEVICE with what the machine lacks, and *count 0.
static enum conv_status count_devices(int *count, struct conv_err *err)
{
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count == 0)
        code = cudaErrorNoDevice;
    if (code) {
        *count = 0;
        return report_no_device(err, code);
    }
    return CONV_OK;
}

enum conv_status conv_cuda_device_check(int device, struct conv_err *err)
{
    int count;
    enum conv_status status = count_devices(&count, err);
    if (!status && (device < 0 || device >= count))
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device %d: the devices are 0 to %d",
                            device, count - 1);
    return status;
}

enum conv_status conv_cuda_device_capability(int device, int *capability, struct conv_err *err)
{
    int major = 0, minor = 0;
    cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!code)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = conv_cuda_code_capability(major * 10 + minor);
    return conv_cuda_check(code, "read the compute capability", err);
}

static enum conv_status read_info(struct conv_device_info *info, int device, struct conv_err *err)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code)
        return conv_cuda_device_report(err, code, "read the device's properties");
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, properties.name);
    int capability = properties.major * 10 + properties.minor;
    info->capability = (unsigned)capability;
    info->offers = (unsigned)conv_cuda_code_capability(capability);
    info->multiprocessors = properties.multiProcessorCount;
    info->memory = properties.totalGlobalMem;
    info->free = 0;
    return CONV_OK;
}

enum conv_status conv_cuda_device_read_memory(struct conv_device_info *info, int device,
                                              struct conv_err *err)
{
    cudaError_t code = cudaSetDevice(device);
    if (!code)
        code = cudaMemGetInfo(&info->free, &info->memory);
    return conv_cuda_check(code, "read the device's memory", err);
}

enum conv_status conv_cuda_device_list(struct conv_device_info *info, int room, int *count,
                                       struct conv_err *err)
{
    enum conv_status status = count_devices(count, err);
    for (int i = 0; !status && i < *count && i < room; i++)
        status = read_info(&info[i], i, err);
    return status;
}

// --- memory --------------------------------------------------------------------------------------

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

// --- events --------------------------------------------------------------------------------------

enum conv_status conv_cuda_event_create(cudaEvent_t *event, unsigned flags, struct conv_err *err)
{
    cudaError_t code = cudaEventCreateWithFlags(event, flags);
    if (code)
        *event = NULL;
    return conv_cuda_check(code, "make an event", err);
}

void conv_cuda_event_destroy(cudaEvent_t *event)
{
    if (*event)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

enum conv_status conv_cuda_event_record(cudaEvent_t event, cudaStream_t stream,
                                        struct conv_err *err)
{
    return conv_cuda_check(cudaEventRecord(event, stream), "record an event", err);
}

enum conv_status conv_cuda_event_elapsed(cudaEvent_t from, cudaEvent_t to, uint64_t *ns,
                                         struct conv_err *err)
{
    float ms = 0;
    cudaError_t code = cudaEventElapsedTime(&ms, from, to);
    *ns = (uint64_t)((double)ms * 1e6);
    return conv_cuda_check(code, "read the time between events", err);
}

// --- the host's clock ----------------------------------------------------------------------------

#define CLOSE_ENOUGH_NS 100000 // recording and waiting take about 10,000 on an idle machine
#define ATTEMPTS 10

// The event happens between two readings of the host's clock. Where the thread was interrupted in
// between, another attempt is closer. The earlier reading is taken, so that no time of the device
// is placed later than it was.
static enum conv_status set_origin(struct conv_cuda_clock *clock, cudaStream_t stream,
                                   struct conv_err *err)
{
    uint64_t best = UINT64_MAX;
    for (int attempt = 0; attempt < ATTEMPTS && best > CLOSE_ENOUGH_NS; attempt++) {
        uint64_t before = conv_clock_ns();
        cudaError_t code = cudaEventRecord(clock->probe, stream);
        if (!code)
            code = cudaEventSynchronize(clock->probe);
        if (code)
            return conv_cuda_device_report(err, code, "bring the clocks together");
        uint64_t took = conv_clock_ns() - before;
        if (took < best) {
            best = took;
            clock->origin_ns = before;
            cudaEvent_t event = clock->origin;
            clock->origin = clock->probe;
            clock->probe = event;
        }
    }
    return CONV_OK;
}

enum conv_status conv_cuda_clock_open(struct conv_cuda_clock *clock, cudaStream_t stream,
                                      struct conv_err *err)
{
    cudaError_t code = cudaEventCreate(&clock->origin); // not blocking: waking up takes too long
    if (!code)
        code = cudaEventCreate(&clock->probe);
    return code ? conv_cuda_device_report(err, code, "make an event")
                : set_origin(clock, stream, err);
}

void conv_cuda_clock_close(struct conv_cuda_clock *clock)
{
    conv_cuda_event_destroy(&clock->origin);
    conv_cuda_event_destroy(&clock->probe);
}

// The device counts the time since the origin in a float of milliseconds and by a clock of its own,
// so the origin is set anew before either is off by much: after 4 s a float still resolves 0.5 us.
enum conv_status conv_cuda_clock_read(struct conv_cuda_clock *clock, cudaStream_t stream,
                                      cudaEvent_t event, uint64_t *ns, struct conv_err *err)
{
    float ms = 0;
    cudaError_t code = cudaEventElapsedTime(&ms, clock->origin, event);
    if (code)
        return conv_cuda_device_report(err, code, "read the time of an event");
    *ns = clock->origin_ns + (uint64_t)((double)ms * 1e6);
    return ms < 4000 ? CONV_OK : set_origin(clock, stream, err);
}
