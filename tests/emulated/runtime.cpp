// SPDX-License-Identifier: MIT
// The CUDA runtime of cuda_runtime_api.h. Nothing is executed before a thread waits, so a launch
// whose memory is freed or changed too early is detected. The environment variable CONV_EMULATED
// has words that restrict the device:
//   memory=N   it has N bytes
//   lost=N     it is lost when it has done N copies and launches
//   devices=N  number of devices; using the stream, event or memory of one with another fails.
//              They share their memory, and all are lost together
#include "cuda_runtime_api.h"

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "block.h"
#include "launch.h"
#include "queue.h"
#include "scheduler.h"

#if CONV_EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define MOST_THREADS 1024
#define PLAIN_SHARED (48 << 10) // bytes that a launch may have without an attribute
#define SYSTEM_SHARED 1024      // bytes of a block's shared memory that the system reserves
#define ALIGN 256               // of device memory
#define GRAIN 16                // its least size: what a bulk copy may read of a row's end
#define PAGE 4096               // bytes
#define NOISE_BYTES (1 << 20)   // of noise, repeated in large memory
#define MAPPED (1 << 20)        // size from which memory is mapped, a page of guard on either side

struct allocation {
    size_t size;
    int device;
    bool is_mapped; // by map_memory
};

struct cudaStream {
    int device;
};

static thread_local int current; // device
static std::mutex lock;          // guards what follows
static std::map<const uint8_t *, allocation> allocations;
static std::map<const uint8_t *, size_t> registered; // memory of the host
// The limits that kernels have set, on a device with this much shared memory.
static std::map<std::pair<const void *, int>, size_t> shared_limits;
static size_t taken; // bytes of all allocations
static std::atomic_ulong allocation_count, wait_count, copy_count;
static cudaError_t last_error;
static bool lost; // for good: a kernel has failed
static char message[1024];
// Properties of the device that depend on the seed: few processors, so that a block has much to do,
// and as much shared memory per block as compute capability 9.0 or 12.0.
static int processors = 3, most_shared = 227 << 10;

static unsigned long word(const char *name, unsigned long otherwise)
{
    const char *text = getenv("CONV_EMULATED"), *at = text ? strstr(text, name) : nullptr;
    return at ? strtoul(at + strlen(name), nullptr, 10) : otherwise;
}

static size_t memory_size()
{
    static const size_t size = word("memory=", 1ul << 32);
    return size;
}

static cudaError_t report(cudaError_t error)
{
    std::lock_guard<std::mutex> held(lock);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

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

static int device_count()
{
    static const int count = (int)word("devices=", 1);
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

extern "C" bool conv_cuda_device_has_driver()
{
    return true;
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
    std::lock_guard<std::mutex> held(lock);
    *total = memory_size();
    *free = *total - taken;
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
        std::this_thread::sleep_for(std::chrono::milliseconds(word("open=", 0)));
        *value = most_shared < 227 << 10 ? 12 : 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = most_shared + SYSTEM_SHARED;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = most_shared;
        return cudaSuccess;
    }
    return report(cudaErrorInvalidValue);
}

void emulated_seed(uint64_t seed)
{
    emulated::seed_order(seed);
    processors = 1 + (int)(seed % 3);
    most_shared = (seed / 3 % 2 ? 227 : 99) << 10;
}

struct emulated_calls emulated_count(void)
{
    return {allocation_count, wait_count, copy_count};
}

// --- memory --------------------------------------------------------------------------------------

static bool take(size_t size)
{
    std::lock_guard<std::mutex> held(lock);
    if (size > memory_size() - taken)
        return false;
    taken += size;
    return true;
}

// A file in memory with NOISE_BYTES of noise.
static int noise_file()
{
    static const int file = [] {
        int made = memfd_create("noise", MFD_CLOEXEC);
        void *noise = made < 0 || ftruncate(made, NOISE_BYTES) != 0
                          ? MAP_FAILED
                          : mmap(nullptr, NOISE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
        if (noise == MAP_FAILED)
            abort();
        emulated::fill_with_noise(noise, NOISE_BYTES);
        munmap(noise, NOISE_BYTES);
        return made;
    }();
    return file;
}

// Fills whole pages with noise, each when it is first touched, since a test with small images uses
// few of a stream's 100 MB.
static void map_noise(uint8_t *pages, size_t size)
{
    for (size_t done = 0; done < size; done += NOISE_BYTES) {
        size_t part = size - done < NOISE_BYTES ? size - done : NOISE_BYTES;
        if (mmap(pages + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, noise_file(),
                 0) == MAP_FAILED)
            abort();
    }
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

// Noise between two pages without access. To the address sanitizer, the last page ends where the
// memory does. Its own allocator would write the state of every byte twice, which is a sixth of the
// memory.
static uint8_t *map_memory(size_t size)
{
    size_t pages = whole_pages(size);
    void *map = mmap(nullptr, PAGE + pages + PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        abort();
    uint8_t *memory = (uint8_t *)map + PAGE;
    map_noise(memory, pages);
#if CONV_EMULATED_ASAN
    ASAN_POISON_MEMORY_REGION(memory + size, pages - size);
#endif
    return memory;
}

// Under the address sanitizer the addresses stay without access for good, so that any use of freed
// memory is found.
static void unmap_memory(uint8_t *memory, size_t size)
{
    size_t pages = whole_pages(size);
    bool ok = CONV_EMULATED_ASAN ? mmap(memory, pages, PROT_NONE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                                        0) != MAP_FAILED
                                 : munmap(memory - PAGE, PAGE + pages + PAGE) == 0;
    if (!ok)
        abort();
}

// Memory of exactly the requested size that begins as noise: the address sanitizer sees accesses
// after it, as memcheck does.
static uint8_t *allocate_noise(size_t size)
{
    if (size >= MAPPED)
        return map_memory(size);
    void *memory;
    if (posix_memalign(&memory, ALIGN, size))
        abort();
    emulated::fill_with_noise(memory, size);
    return (uint8_t *)memory;
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
    allocation_count++;
    size_t taken_size = (size + GRAIN - 1) / GRAIN * GRAIN;
    if (size == 0 || !take(taken_size))
        return report(cudaErrorMemoryAllocation);
    *memory = allocate_noise(size);
    std::lock_guard<std::mutex> held(lock);
    allocations[(const uint8_t *)*memory] = {taken_size, current, size >= MAPPED};
    return cudaSuccess;
}

static bool release(void *memory)
{
    std::lock_guard<std::mutex> held(lock);
    auto found = allocations.find((const uint8_t *)memory);
    if (found == allocations.end())
        return false;
    if (found->second.is_mapped)
        unmap_memory((uint8_t *)memory, found->second.size);
    else
        free(memory);
    taken -= found->second.size;
    allocations.erase(found);
    return true;
}

cudaError_t cudaFree(void *memory)
{
    allocation_count++;
    cudaError_t error = cudaDeviceSynchronize();
    if (memory && !release(memory))
        return report(cudaErrorInvalidValue);
    return error;
}

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned flags)
{
    allocation_count++;
    if (posix_memalign(memory, ALIGN, size))
        return report(cudaErrorMemoryAllocation);
    return cudaHostRegister(*memory, size, flags);
}

cudaError_t cudaFreeHost(void *memory)
{
    allocation_count++;
    cudaError_t error = memory ? cudaHostUnregister(memory) : cudaSuccess;
    free(memory);
    return error;
}

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned)
{
    std::lock_guard<std::mutex> held(lock);
    bool added = registered.emplace((const uint8_t *)memory, size).second;
    return added ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    std::lock_guard<std::mutex> held(lock);
    *device = host;
    return registered.count((const uint8_t *)host) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t error = cudaDeviceSynchronize();
    std::lock_guard<std::mutex> held(lock);
    return !registered.erase((const uint8_t *)memory) && !error ? cudaErrorInvalidValue : error;
}

static bool is_on_device(const void *p, size_t size, int device)
{
    std::lock_guard<std::mutex> held(lock);
    auto next = allocations.upper_bound((const uint8_t *)p);
    if (next == allocations.begin())
        return false;
    --next;
    return (size_t)((const uint8_t *)p - next->first) + size <= next->second.size &&
           next->second.device == device;
}

// NULL is the default stream of the thread's device.
static int device_of(cudaStream_t stream)
{
    return stream && stream != cudaStreamLegacy ? stream->device : current;
}

static int running; // the device whose launch is being executed; used by the queue's thread alone

void emulated::check_global(const void *p, size_t size, size_t align)
{
    if ((uintptr_t)p % align)
        fail("%zu bytes of global memory at %p, which is no multiple of %zu", size, p, align);
    if (!is_on_device(p, size, running))
        fail("%zu bytes of global memory at %p are in no allocation of the device", size, p);
}

static bool is_lost()
{
    std::lock_guard<std::mutex> held(lock);
    return lost;
}

// The first failure stays, as on a real device, which executes nothing afterwards.
static void note_failure(const char *text)
{
    std::lock_guard<std::mutex> held(lock);
    if (!lost)
        snprintf(message, sizeof message, "%s", text);
    lost = true;
}

static void queue_counted(std::function<void()> work)
{
    emulated::queue_work([work] {
        static unsigned long left = word("lost=", ULONG_MAX);
        if (left-- == 0)
            note_failure("unspecified launch failure");
        if (!is_lost())
            work();
    });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    int device = device_of(stream);
    copy_count++;
    if ((kind != cudaMemcpyDeviceToHost && !is_on_device(to, size, device)) ||
        (kind != cudaMemcpyHostToDevice && !is_on_device(from, size, device)))
        return report(cudaErrorInvalidValue);
    queue_counted([to, from, size] { memcpy(to, from, size); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    if (!is_on_device(to, size, device_of(stream)))
        return report(cudaErrorInvalidValue);
    queue_counted([to, value, size] { memset(to, value, size); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, size, kind, nullptr);
    return error ? error : cudaDeviceSynchronize();
}

// --- launches ------------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > most_shared)
        return report(cudaErrorInvalidValue);
    std::unique_lock<std::mutex> held(lock);
    size_t &limit = shared_limits[{function, most_shared}];
    if ((size_t)value < limit) {
        fprintf(stderr, "emulated: a kernel's limit of shared memory is lowered: another thread's "
                        "launch may need the higher one\n");
        held.unlock();
        return report(cudaErrorInvalidValue);
    }
    limit = (size_t)value;
    return cudaSuccess;
}

static size_t shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> held(lock);
    auto limit = shared_limits.find({kernel, most_shared});
    return limit == shared_limits.end() ? PLAIN_SHARED : limit->second;
}

void emulated::queue_launch(const char *name, const void *kernel, const launch_shape &shape,
                            std::function<void()> body)
{
    size_t threads = (size_t)shape.block.x * shape.block.y * shape.block.z;
    if (threads == 0 || threads > MOST_THREADS || shape.grid.x == 0 || shape.grid.y == 0 ||
        shape.grid.y > UINT16_MAX || shape.grid.z == 0 || shape.grid.z > UINT16_MAX) {
        report(cudaErrorInvalidConfiguration);
        return;
    }
    if (shape.bytes > shared_limit(kernel) || device_of(shape.stream) != current) {
        report(cudaErrorInvalidValue);
        return;
    }
    int device = current;
    queue_counted([name, shape, body, device] {
        char text[sizeof message];
        running = device;
        run_launch(name, shape, body, text, sizeof text);
        if (text[0])
            note_failure(text);
    });
}

static cudaError_t wait_until(uint64_t number)
{
    wait_count++;
    emulated::wait_for_work(number);
    return is_lost() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return wait_until(emulated::last_queued());
}

// --- streams and events --------------------------------------------------------------------------

struct cudaEvent {
    int device;
    uint64_t number;
    std::chrono::steady_clock::time_point time;
};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new cudaStream{current};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new cudaEvent{current, 0, {}};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = wait_until(event->number);
    delete event;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (event->device != device_of(stream))
        return report(cudaErrorInvalidValue);
    event->number =
        emulated::queue_work([event] { event->time = std::chrono::steady_clock::now(); });
    return cudaSuccess;
}

// The queue is executed in the order of the calls, so the stream waits in any case.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    return device_of(stream) < 0 || !event ? report(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!emulated::is_done(event->number))
        return report(cudaErrorNotReady);
    return is_lost() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_until(event->number);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}
