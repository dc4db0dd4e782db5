// SPDX-License-Identifier: MIT
// CUDA's run time with our errors: devices by ordinal, memory that grows, events.
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

// --- devices: any thread may call any of these ---------------------------------------------------

// "CUDA failed to DOING: reason". CONV_ERR_MEMORY if the device is out of memory, else
// CONV_ERR_DEVICE. Clears the thread's last error, which the check after a later launch would find.
enum conv_status conv_cuda_device_report(struct conv_err *err, cudaError_t code, const char *doing);

// The same for a call that may have succeeded: then CONV_OK.
static inline enum conv_status conv_cuda_check(cudaError_t code, const char *doing,
                                               struct conv_err *err)
{
    return code ? conv_cuda_device_report(err, code, doing) : CONV_OK;
}

// False if there is no driver, so that opening a device fails at once. Takes microseconds and does
// not initialise CUDA, which takes 0.1 s and more.
bool conv_cuda_device_has_driver(void);

// CONV_OK if the machine has a device of that number, else CONV_ERR_DEVICE.
enum conv_status conv_cuda_device_check(int device, struct conv_err *err);

// `devices` and `read_memory` of struct conv_device_ops.
enum conv_status conv_cuda_device_list(struct conv_device_info *info, int room, int *count,
                                       struct conv_err *err);
enum conv_status conv_cuda_device_read_memory(struct conv_device_info *info, int device,
                                              struct conv_err *err);

// The compute capability (90 = 9.0) by which kernels are chosen: of the device, or of the newest
// kernels for it in this program (kernels/common/place.h).
enum conv_status conv_cuda_device_capability(int device, int *capability, struct conv_err *err);

// Makes the device the current one of the calling thread.
enum conv_status conv_cuda_device_use(int device, struct conv_err *err);

// --- memory --------------------------------------------------------------------------------------

// Device memory that grows. Starts as {0}. All calls with the device as the current one.
struct conv_cuda_memory {
    uint8_t *d_data;
    size_t bytes;
};

// Makes room for at least `bytes`; what was there before is lost if there was less. Allocating and
// freeing device memory stalls all of the device's streams, so up to `spare` more bytes are
// allocated for later needs if the device has them. `purpose` ends the message: "... of device
// memory PURPOSE". CONV_ERR_MEMORY or CONV_ERR_DEVICE, and then there is none.
enum conv_status conv_cuda_memory_reserve(struct conv_cuda_memory *memory, size_t bytes,
                                          size_t spare, const char *purpose, struct conv_err *err);
void conv_cuda_memory_free(struct conv_cuda_memory *memory); // {0} afterwards

// The same for host memory that kernels write to: pinned and mapped at the same address.
struct conv_cuda_mapped {
    uint8_t *h_data;
    size_t bytes;
};

// The content is lost if it grows. CONV_ERR_MEMORY or CONV_ERR_DEVICE, and then there is none.
enum conv_status conv_cuda_mapped_reserve(struct conv_cuda_mapped *memory, size_t bytes,
                                          const char *purpose, struct conv_err *err);
void conv_cuda_mapped_free(struct conv_cuda_mapped *memory); // {0} afterwards

// Pins plain memory for all devices, through one of them, so that copies run at the bus's speed and
// beside kernels. False if that fails. Memory that cannot be unpinned, as after a device was lost,
// must not be given back to the system: the driver would take other pages at its address for it.
// Any thread; both set the thread's current device.
bool conv_cuda_memory_pin(int device, void *memory, size_t bytes);
bool conv_cuda_memory_unpin(int device, void *memory);

// --- events --------------------------------------------------------------------------------------

// An event on the current device. With cudaEventBlockingSync a thread that waits for it sleeps and
// leaves its core to others; with cudaEventDisableTiming it serves the order of work only.
enum conv_status conv_cuda_event_create(cudaEvent_t *event, unsigned flags, struct conv_err *err);
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
