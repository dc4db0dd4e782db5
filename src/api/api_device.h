// SPDX-License-Identifier: MIT
// The functions of each kind of device for the library, as one table (api_cpu.c, cuda_api*.c;
// no_cuda_api.c in a build without CUDA). Everything else in src/api/ is the same for all devices:
// arguments are checked, PNG files are probed, and images are laid out before these functions are
// called.
#ifndef CONV_API_API_DEVICE_H
#define CONV_API_API_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api_memory.h"
#include "api/api_workers.h"
#include "api/file_memory.h"
#include "base/err.h"
#include "conv.h"
#include "engine/backend.h"
#include "png/png.h"

// The context's services for its device. They live as long as the device, but memory is taken only
// after `open`.
struct conv_api_host {
    struct conv_api_pools *pools;
    struct conv_api_workers *workers;
    int threads;
};

struct conv_api_device; // an open device; each kind has its own
struct conv_api_filter; // a chain of filters on it; each kind has its own

// A PNG file to be decoded by the device.
struct conv_api_decode {
    const uint8_t *data; // the whole file, in pageable host memory
    size_t size;
    struct conv_image_header header; // of a device_stream; check_size has proven its sizes
    // The destination: device memory, any strides. Channels and sample type may differ from
    // header.shape; they are converted as in conv_decode_options, but colour is not reduced to
    // gray.
    conv_image view;
    bool done; // false at first; set if the view is complete. Else the host decodes the file.
};

// An image to be encoded by the device.
struct conv_api_encode {
    conv_image view; // device memory, any strides, CONV_SAMPLE_U8 or CONV_SAMPLE_U16
    int index;       // for `files`
    // Set together with `done`: a whole PNG file, in the memory that `files` gave or else in memory
    // from the host pool, which the caller gives back. Where `done` stays false the host encodes
    // the image.
    uint8_t *data;
    size_t size;
    bool done;
};

// A stream is a cudaStream_t of the device, NULL for the default stream. `device` belongs to one
// thread at a time, which may change: each function makes the device current. Errors:
// CONV_ERR_MEMORY; CONV_ERR_DEVICE, after which only release, filter_close, event_destroy and close
// are called.
struct conv_api_device_ops {
    const struct conv_backend_ops *backend; // its name and place; opens filters

    // Fills at most `room` entries of what the machine has and sets *count to their number. Creates
    // no CUDA context. CONV_ERR_DEVICE with the reason (no driver, no GPU, not in this build), and
    // *count is 0.
    enum conv_status (*list)(struct conv_device_description *devices, int room, int *count,
                             struct conv_err *err);

    // `ordinal` counts among the devices of this kind. *device is set on success only.
    enum conv_status (*open)(struct conv_api_device **device, int ordinal,
                             const struct conv_api_host *host, struct conv_err *err);
    void (*close)(struct conv_api_device *device); // gives back what it took from pools
    // Returns when all work queued on the device is done.
    enum conv_status (*synchronise)(struct conv_api_device *device, struct conv_err *err);
    // For calls of functions that change the thread's current device (layers, the pipeline):
    // `enter` makes this device current and sets *previous, `leave` restores *previous. `leave` is
    // called only after a successful `enter`.
    enum conv_status (*enter)(struct conv_api_device *device, int *previous, struct conv_err *err);
    void (*leave)(struct conv_api_device *device, int previous);

    // The pools' source: blocks that begin at multiples of 256 bytes. Host memory is pinned where
    // that makes copies faster. CONV_DEVICE is the same as CONV_HOST on the CPU.
    enum conv_status (*allocate)(struct conv_api_device *device, conv_memory memory, size_t bytes,
                                 void **data, struct conv_err *err);
    void (*release)(struct conv_api_device *device, conv_memory memory, void *data, size_t bytes);

    // The rest is NULL on the CPU, except filter_*.

    // Events: points in a stream. `record` makes *event, if it is NULL, and notes the point that
    // `stream` has reached; `wait` makes `stream` wait for it without stopping the caller.
    enum conv_status (*event_record)(struct conv_api_device *device, void **event, void *stream,
                                     struct conv_err *err);
    enum conv_status (*event_wait)(struct conv_api_device *device, void *event, void *stream,
                                   struct conv_err *err);
    void (*event_destroy)(struct conv_api_device *device, void *event); // NULL is fine

    // Waits for all work queued on `stream`.
    enum conv_status (*stream_wait)(struct conv_api_device *device, void *stream,
                                    struct conv_err *err);
    // Copies bytes as conv_copy does: at least one side is in device memory.
    enum conv_status (*copy_bytes)(struct conv_api_device *device, void *result,
                                   conv_memory result_memory, const void *source,
                                   conv_memory source_memory, size_t bytes, void *stream,
                                   struct conv_err *err);

    // Copies results[i] from sources[i]: views of one shape, number of channels and sample type
    // (F32 too), any strides, at least one of them in device memory. Ordered after the work queued
    // on `stream`. Complete on return, except copies within device memory, which are queued. Host
    // memory is pageable or pinned.
    enum conv_status (*copy)(struct conv_api_device *device, const conv_image *results,
                             const conv_image *sources, int count, void *stream,
                             struct conv_err *err);

    // Decodes what it can; on return the views with `done` are complete. CONV_OK even if some are
    // not done. Writes to views are ordered after the work queued on `stream`.
    enum conv_status (*decode)(struct conv_api_device *device, struct conv_api_decode *items,
                               int count, void *stream, struct conv_err *err);
    // Encodes what it can; on return the files of items with `done` are complete. Reads are ordered
    // after the work queued on `stream`. `files` is NULL, or has room for `count` files and is
    // asked in the thread of the call. On failure nothing is left in `data`.
    enum conv_status (*encode)(struct conv_api_device *device, struct conv_api_encode *items,
                               int count, struct conv_api_file_memory *files, void *stream,
                               struct conv_err *err);

    // Filters. config->device is the ordinal. CONV_ERR_USAGE: the forced kernel cannot run the
    // chain. *filter is set on success only.
    enum conv_status (*filter_open)(struct conv_api_device *device, struct conv_api_filter **filter,
                                    const struct conv_backend_config *config, struct conv_err *err);
    void (*filter_close)(struct conv_api_filter *filter); // NULL is fine
    // The kernel of filter `index` of the chain at `depth` bits, 8 or 16.
    const char *(*filter_kernel)(const struct conv_api_filter *filter, int index, int depth);
    // Filters count images (at least 1), all in device memory, any strides; shapes and sample types
    // as of conv_filter_run. Nothing overlaps, except on the CPU, where results[i] may be the view
    // sources[i]. With has_alpha the last channel is alpha, which is copied, filtered, or
    // multiplied before and divided after filtering (alpha.h), depending on config->alpha. Queues
    // the work on `stream` and does not wait for it.
    enum conv_status (*filter_run)(struct conv_api_filter *filter, const conv_image *results,
                                   const conv_image *sources, int count, void *stream,
                                   struct conv_err *err);
};

extern const struct conv_api_device_ops conv_api_device_cpu, conv_api_device_cuda;

#endif
