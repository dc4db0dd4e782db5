// SPDX-License-Identifier: MIT
// Memory of the emulated device, and memory of the host that is pinned or registered.
#include "runtime.h"

#include <cstdlib>
#include <map>

#include <sys/mman.h>
#include <unistd.h>

#include "block.h"
#include "scheduler.h"

#if CONV_EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define ALIGN 256             // of device memory
#define GRAIN 16              // its least size: what a bulk copy may read of a row's end
#define PAGE 4096             // bytes
#define NOISE_BYTES (1 << 20) // of noise, repeated in large memory
#define MAPPED (1 << 20)      // size from which memory is mapped, a page of guard on either side

struct allocation {
    size_t size;
    int device;
    bool is_mapped; // by map_memory
};

static std::mutex lock; // guards what follows
static std::map<const uint8_t *, allocation> allocations;
static std::map<const uint8_t *, size_t> registered; // memory of the host
static size_t taken;                                 // bytes of all allocations

using namespace emulated;

size_t emulated::taken_memory()
{
    std::lock_guard<std::mutex> held(lock);
    return taken;
}

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
        fill_with_noise(noise, NOISE_BYTES);
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
    fill_with_noise(memory, size);
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

// In place of conv_staging_touch(), for conv_emulated. The pages of groups were half of the time of
// a run of small images, and pinning them takes none here.
extern "C" void __wrap_conv_staging_touch(void *, size_t)
{
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

bool emulated::is_on_device(const void *p, size_t size, int device)
{
    std::lock_guard<std::mutex> held(lock);
    auto next = allocations.upper_bound((const uint8_t *)p);
    if (next == allocations.begin())
        return false;
    --next;
    return (size_t)((const uint8_t *)p - next->first) + size <= next->second.size &&
           next->second.device == device;
}
