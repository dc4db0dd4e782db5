// SPDX-License-Identifier: MIT
// The devices that filter images: one table of functions per kind of device (cpu.c, cuda.c).
// backends.h lists them.
#ifndef CONV_ENGINE_BACKEND_H
#define CONV_ENGINE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/device_info.h"
#include "engine/group.h"
#include "filter/filter.h"
#include "kernels/stencil/stencil.h"

#define CONV_BACKEND_MOST_DEVICES 64 // per run

struct conv_backend_config {
    const struct conv_filter *filters; // the chain; read by `open` only
    int filter_count;                  // 1 to CONV_FILTER_MAX_CHAIN
    enum conv_border border;
    float border_value; // 8-bit units, or as float32 samples are
    // CONV_ALPHA_PREMULTIPLY: colours are multiplied by alpha on entry and on exit; between two
    // filters they are divided and multiplied again. Which planes are filtered is decided by
    // conv_group_place.
    enum conv_alpha_mode alpha;
    // The result of the last filter is float32; images then have a result_depth of 32.
    bool floats;
    // Images may have float32 samples (depth 32), whose results are float32 as well. Only the
    // backend's chain can be used with them; groups and streams have 8 and 16 bits.
    bool float_samples;
    const char *variant; // kernel to force; NULL: the best for each filter
    size_t launch_bytes; // of samples in a typical group; 0: unknown
    // Instead of `variant`: a kernel that need not be in the table. NULL: none.
    const struct conv_variant *kernel;
    int device; // ordinal among those of the backend
    // Non-zero once the run should end: decoding on a device then stops as if the device could not
    // decode. Must outlive the backend. May be NULL.
    atomic_int *stop;
};

// Groups that run together at most. With 4 an H100 was not faster than with 3 in the steady state,
// and slower before.
#define CONV_BACKEND_MOST_TOGETHER 3

struct conv_backend; // a device with a chain of filters; each kind has its own
struct conv_stream;  // a CUDA stream with its device memory, or the scratch of a worker

// After `open` a backend does not change, except for what it caches: any thread may call any
// function with it, at the same time as others, and gets the same answers. A stream belongs to one
// thread at a time. All streams are closed before the backend.
struct conv_backend_ops {
    const char *name;      // "cpu", "cuda": how users and the names of kernels call it
    const char *title;     // in sentences: "the CPU", "CUDA"
    enum conv_place place; // whose kernels it runs
    bool built;            // false: not in this build; then `open` fails and the rest is NULL

    // True if stream_run sleeps while a device works: the pipeline then gives each stream a thread
    // and packs images into groups. False: workers call it with one image at a time.
    bool async;

    // True if ending the process frees streams, device memory and pinned memory faster than the
    // functions below do. A program that ends after its run then does not free them.
    bool freed_at_exit;

    // Sets environment variables for the driver, unless the user has set them, in a process that
    // runs the pipeline. `first_only`: it will use device 0 alone, so that the driver need not set
    // up others. Called before anything else, while there is one thread. May be NULL.
    void (*set_up_process)(bool first_only);
    // False if there is no driver, so that opening a device fails at once. Takes microseconds and
    // initialises nothing.
    bool (*has_driver)(void);
    // Fills at most `room` entries and sets *count to what the machine has, at least 1.
    // CONV_ERR_DEVICE with the reason (no driver, no GPU, not in this build), and *count is 0.
    enum conv_status (*devices)(struct conv_device_info *info, int room, int *count,
                                struct conv_err *err);

    // CONV_ERR_DEVICE with the reason if the device cannot be used; CONV_ERR_MEMORY if it or the
    // host has no memory left; CONV_ERR_USAGE if the forced kernel is unknown or cannot run the
    // chain here. *backend is set on success only, and nothing is left open on failure.
    enum conv_status (*open)(struct conv_backend **backend,
                             const struct conv_backend_config *config, struct conv_err *err);
    void (*close)(struct conv_backend *backend); // NULL is fine

    // "cpu", "cuda:0"
    void (*describe)(const struct conv_backend *backend, char *text, size_t size);
    // The name of the kernel that runs filter `index` of the chain at `depth` bits.
    const char *(*variant)(const struct conv_backend *backend, int index, int depth);
    // Bytes of a group's tables per filtered plane (for conv_group_place) with a chain of
    // filter_count filters; with `codes` those for decoding and encoding included.
    size_t (*table_bytes)(int filter_count, bool codes);

    // Bytes of host memory that filtering an image of that width takes besides its staging memory.
    // NULL on an async backend.
    size_t (*scratch_bytes)(const struct conv_backend *backend, int width, int depth);

    // NULL on a backend without coders. takes_stream: true if it can decode an image of that shape
    // from a zlib stream of at most `most_bytes`, for which the size of the file may be passed.
    // chunks_bytes: bound of the bytes in h_out of such an image's chunks, tables included; 0: it
    // cannot encode it.
    bool (*takes_stream)(const struct conv_image *shape, size_t most_bytes);
    size_t (*chunks_bytes)(const struct conv_image *shape);

    // Pins staging memory (staging.h) for all devices of this kind, so that copies run at the bus's
    // speed and beside kernels. False if that fails: copies then work, but are slower. Memory that
    // cannot be unpinned, as after the loss of a device, must not be returned to the system: the
    // driver would take other pages at its address for it. NULL on a backend that copies nothing.
    bool (*host_pin)(struct conv_backend *backend, void *memory, size_t size);
    bool (*host_unpin)(struct conv_backend *backend, void *memory);

    // A stream with device memory for groups of `bytes`; it grows if a group needs more. Errors as
    // of `open`, except CONV_ERR_USAGE.
    enum conv_status (*stream_open)(struct conv_backend *backend, struct conv_stream **stream,
                                    size_t bytes, struct conv_err *err);
    void (*stream_close)(struct conv_stream *stream); // NULL is fine
    // True if the device has memory for more streams than a run begins with, and some is left for
    // other processes. NULL: always true.
    bool (*has_room)(struct conv_backend *backend);
    // How many device-coded groups, linked by `next`, stream_run can take at once; at most
    // CONV_BACKEND_MOST_TOGETHER. Their kernels are launched together. NULL: one. The caller takes
    // fewer once a device had no room for several.
    int (*together)(const struct conv_backend *backend);
    // Runs the whole chain on the group, and on those linked to it: upload, kernels, download.
    // Returns when the result is at group->h_result. CONV_ERR_MEMORY: no room for this group; a
    // smaller one may succeed. CONV_ERR_DEVICE: the device is lost. An async backend leaves h_in as
    // it was, even on failure, so that another device can do the work, unless group->memory has
    // released it. Of groups that run together the first gets the times.
    enum conv_status (*stream_run)(struct conv_stream *stream, struct conv_group *group,
                                   struct conv_err *err);
};

extern const struct conv_backend_ops conv_backend_cpu, conv_backend_cuda;

#endif
