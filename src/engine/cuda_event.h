// SPDX-License-Identifier: MIT
// CUDA events: the time between two of them, and when one happened by the host's clock.
#ifndef CONV_ENGINE_CUDA_EVENT_H
#define CONV_ENGINE_CUDA_EVENT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/err.h"

// An event on the current device. A thread that waits for it sleeps and leaves its core to others.
enum conv_status conv_cuda_event_create(cudaEvent_t *event, struct conv_err *err);
void conv_cuda_event_destroy(cudaEvent_t *event); // NULL inside is fine; is NULL afterwards

// Enqueues the event on the stream. Errors here and below: CONV_ERR_DEVICE.
enum conv_status conv_cuda_event_record(cudaEvent_t event, cudaStream_t stream,
                                        struct conv_err *err);

// Nanoseconds from one event to a later one; both have happened.
enum conv_status conv_cuda_event_elapsed(cudaEvent_t from, cudaEvent_t to, uint64_t *ns,
                                         struct conv_err *err);

// Translates the device's time into that of conv_clock_ns. Belongs to one stream and its thread.
struct conv_cuda_clock {
    cudaEvent_t origin; // happened at origin_ns of the host's clock, or up to 0.1 ms later
    cudaEvent_t probe;  // for the next attempt to set the origin
    uint64_t origin_ns;
};

// Starts from {0}; after a failure close it, too.
enum conv_status conv_cuda_clock_open(struct conv_cuda_clock *clock, cudaStream_t stream,
                                      struct conv_err *err);
void conv_cuda_clock_close(struct conv_cuda_clock *clock);

// When an event happened, never later than it did. Waits for the stream now and then, to set the
// origin anew.
enum conv_status conv_cuda_clock_read(struct conv_cuda_clock *clock, cudaStream_t stream,
                                      cudaEvent_t event, uint64_t *ns, struct conv_err *err);

#endif
