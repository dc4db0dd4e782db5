// SPDX-License-Identifier: MIT
// Copies, launches, streams and events of the emulated device: what goes through the queue.
#include "runtime.h"

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "block.h"
#include "launch.h"
#include "queue.h"
#include "scheduler.h"

#define MOST_THREADS 1024
#define PLAIN_SHARED (48 << 10) // bytes that a launch may have without an attribute

struct cudaStream {
    int device;
};

using namespace emulated;

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

static void queue_counted(std::function<void()> work)
{
    queue_work([work] {
        static unsigned long left = option("lost=", ULONG_MAX);
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

static std::mutex lock; // guards what follows
// The limits that kernels have set, on a device with this much shared memory.
static std::map<std::pair<const void *, int>, size_t> shared_limits;

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > most_shared())
        return report(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> held(lock);
    size_t &limit = shared_limits[{function, most_shared()}];
    if ((size_t)value < limit)
        fail("a kernel's limit of shared memory is lowered: another thread may need the higher");
    limit = (size_t)value;
    return cudaSuccess;
}

static size_t shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> held(lock);
    auto limit = shared_limits.find({kernel, most_shared()});
    return limit == shared_limits.end() ? PLAIN_SHARED : limit->second;
}

void emulated::queue_launch(const char *name, const void *kernel, const launch_shape &shape,
                            const launch_body *body_)
{
    std::shared_ptr<const launch_body> body(body_);
    size_t threads = (size_t)shape.block.x * shape.block.y * shape.block.z;
    if (threads == 0 || threads > MOST_THREADS || shape.grid.x == 0 || shape.grid.y == 0 ||
        shape.grid.y > UINT16_MAX || shape.grid.z == 0 || shape.grid.z > UINT16_MAX)
        return (void)report(cudaErrorInvalidConfiguration);
    if (shape.bytes > shared_limit(kernel) || device_of(shape.stream) != current)
        return (void)report(cudaErrorInvalidValue);
    int device = current;
    queue_counted([name, shape, body, device] {
        char text[EMULATED_MESSAGE_SIZE];
        running = device;
        run_launch(name, shape, *body, text, sizeof text);
        if (text[0])
            note_failure(text);
    });
}

static cudaError_t wait_until(uint64_t number)
{
    wait_count++;
    wait_for_work(number);
    return is_lost() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return wait_until(last_queued());
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

// Streams have no priorities here.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
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
    event->number = queue_work([event] { event->time = std::chrono::steady_clock::now(); });
    return cudaSuccess;
}

// The queue is executed in the order of the calls, so the stream waits in any case.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    return device_of(stream) < 0 || !event ? report(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!is_done(event->number))
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

// --- graphs --------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t, enum cudaStreamCaptureMode)
{
    return report(cudaErrorNotSupported);
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *)
{
    return report(cudaErrorNotSupported);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long)
{
    return report(cudaErrorNotSupported);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)
{
    return report(cudaErrorNotSupported);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t)
{
    return cudaSuccess;
}
