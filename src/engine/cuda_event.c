// SPDX-License-Identifier: MIT
#include "engine/cuda_event.h"

#include "base/clock.h"
#include "engine/cuda_device.h"

enum conv_status conv_cuda_event_create(cudaEvent_t *event, struct conv_err *err)
{
    cudaError_t code = cudaEventCreateWithFlags(event, cudaEventBlockingSync);
    if (code)
        *event = NULL;
    return code ? conv_cuda_device_report(err, code, "make an event") : CONV_OK;
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
    cudaError_t code = cudaEventRecord(event, stream);
    return code ? conv_cuda_device_report(err, code, "record an event") : CONV_OK;
}

enum conv_status conv_cuda_event_elapsed(cudaEvent_t from, cudaEvent_t to, uint64_t *ns,
                                         struct conv_err *err)
{
    float ms = 0;
    cudaError_t code = cudaEventElapsedTime(&ms, from, to);
    *ns = (uint64_t)((double)ms * 1e6);
    return code ? conv_cuda_device_report(err, code, "read the time between events") : CONV_OK;
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
