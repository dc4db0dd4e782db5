// SPDX-License-Identifier: MIT
// The devices that do the work: one table of functions per kind of device (cpu.c, cuda.c; no_cuda.c
// in a build without CUDA). The run, the library and the benchmarks use them through these tables
// alone.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv.h"
#include "engine/group.h"
#include "engine/memory.h"
#include "filter/filter.h"
#include "image/format.h"
#include "kernels/stencil/stencil.h"

#define CONV_BACKEND_MOST_DEVICES 64 // per run

// The properties of a device of any kind. 0: unknown.
struct conv_device_info {
    char name[128];      // "NVIDIA H200"
    unsigned capability; // CUDA's compute capability: 90 = 9.0
    unsigned offers;     // what kernels of this program may require: conv_place_offers
    int multiprocessors;
    size_t memory, free; // bytes
};

// --- filters -------------------------------------------------------------------------------------

struct conv_backend_config {
    const struct conv_filter *filters; // the chain; read by `open` only
    int filter_count;                  // 1 to CONV_FILTER_MAX_CHAIN
    enum conv_border border;
    float border_value; // 8-bit units, or as float32 samples are
    // CONV_ALPHA_PREMULTIPLY: colours are multiplied by alpha before each filter and divided by it
    // after, except for filters of which conv_alpha_keeps is true: these leave alpha as it is and
    // take colours so. Which planes are filtered is decided by conv_group_place.
    enum conv_alpha_mode alpha;
    unsigned alpha_kept; // bit i: of filter i
    // The result of the last filter is float32; images then have a result_depth of 32.
    bool floats;
    // Images may have float32 samples (depth 32), whose results are float32 as well and are not
    // premultiplied.
    bool float_samples;
    const char *variant; // kernel to force; NULL: the best for each filter
    size_t launch_bytes; // of samples in a typical group; 0: unknown
    // Instead of `variant`: a kernel that need not be in the table. NULL: none.
    const struct conv_variant *kernel;
    int device; // ordinal among those of its kind
    // The device `device`, opened for images in its memory: filter_run is then possible. NULL:
    // groups and streams only. Closed after the backend.
    struct conv_device_context *context;
    // Non-zero once the run should end: decoding on a device then stops as if the device could not
    // decode. Must outlive the backend. May be NULL.
    atomic_int *stop;
};

// Groups that run together at most. With 4 an H100 was not faster than with 3 in the steady state,
// and slower before.
#define CONV_BACKEND_MOST_TOGETHER 3

struct conv_backend; // a device with a chain of filters; each kind has its own
struct conv_stream;  // a CUDA stream with its device memory, or the scratch of a worker

// --- images in the memory of a device ------------------------------------------------------------

// A device that is open for images in its memory, with a pool of memory and threads. It belongs to
// one thread at a time, which may change; threads of `workers` may take and give host memory.
struct conv_device_context {
    const struct conv_device_ops *ops;
    int ordinal;
    int threads; // of `workers`, at least 1
    struct conv_workers *workers;
    struct conv_memory_pools *pools;
    struct conv_device_own *own; // of the kind of device, which has its own; NULL on the CPU
};

// A file to be decoded by the device.
struct conv_device_decode {
    const struct conv_format *format;
    const uint8_t *data; // the whole file, in pageable host memory
    size_t size;
    struct conv_image_header header; // check_size has proven its sizes
    // The destination: device memory, any strides; upright. Channels and sample type may differ
    // from header.shape; they are converted as in conv_decode_options, but colour is not reduced to
    // gray.
    conv_image view;
    bool offered; // the device may decode it; its header is of a device_stream
    bool done;    // false at first; set if the view is complete. Else the host decodes the file.
};

// Memory of the caller for encoded files, requested for several at once (conv_encode_options).
struct conv_file_memory {
    void (*allocate)(void *user, int count, const int32_t *indices, const size_t *sizes,
                     void **memory);
    void *user;
    // The files for which memory is requested next, `count` of them; after the call their memory.
    int32_t *indices; // in the caller's list
    size_t *sizes;    // bytes
    void **memory;    // NULL: the caller has none
    int count;
};

// Adds a file to the list for which `call` requests memory; both in the thread of the caller's
// call. `memory` is valid until the next `add`, before which `count` is set to 0.
static inline void conv_file_memory_add(struct conv_file_memory *files, int index, size_t size)
{
    files->indices[files->count] = index;
    files->sizes[files->count] = size;
    files->memory[files->count++] = NULL;
}

static inline void conv_file_memory_call(struct conv_file_memory *files)
{
    if (files->count > 0)
        files->allocate(files->user, files->count, files->indices, files->sizes, files->memory);
}

// An image to be encoded by the device.
struct conv_device_encode {
    const struct conv_format *format; // the same for all images of a call
    const struct conv_codec_config *config;
    conv_image view; // device memory, any strides, CONV_SAMPLE_U8 or CONV_SAMPLE_U16
    bool offered;    // the device may encode it
    // Set together with `done`: a whole file, in the memory that `files` gave or else in memory
    // from the host pool, which the caller gives back. Where `done` stays false the host encodes
    // the image.
    uint8_t *data;
    size_t size;
    bool done;
};

// --- layers and filter banks ---------------------------------------------------------------------

struct conv_tensor_stream; // each kind of device has its own
struct conv_layer_prepared;
struct conv_library_layer;
struct conv_layer_batch;
struct conv_bank_context;

// What operation.h needs of a kind of device. `device` counts among those. CONV_ERR_MEMORY,
// CONV_ERR_DEVICE.
struct conv_tensor_ops {
    // What the device offers to kernels (conv_place_offers).
    enum conv_status (*open)(int device, unsigned *offers, struct conv_err *err);
    // Copies bytes to new memory of the device; *d_data is to be released unless it is NULL, also
    // after a failure. NULL on the CPU.
    enum conv_status (*upload)(int device, const void *data, size_t bytes, void **d_data,
                               struct conv_err *err);
    void (*release)(int device, void *d_data);
    enum conv_status (*stream_open)(int device, struct conv_workers *workers, int threads,
                                    struct conv_tensor_stream **stream, struct conv_err *err);
    void (*stream_close)(struct conv_tensor_stream *stream);
    enum conv_status (*stream_staging)(struct conv_tensor_stream *stream, size_t in_bytes,
                                       size_t out_bytes, void **h_in, void **h_out,
                                       struct conv_err *err);
    // Return when dst is complete. At least one image.
    enum conv_status (*layer_run)(struct conv_tensor_stream *stream,
                                  const struct conv_layer_prepared *prepared, int64_t images,
                                  const void *src, void *dst, struct conv_err *err);
    enum conv_status (*bank_run)(struct conv_tensor_stream *stream,
                                 const struct conv_bank_context *bank, int height, int width,
                                 int64_t images, const void *src, float *dst, struct conv_err *err);
    // A library that may compute layers which need not be exact (kernels/layer/cuda/cuda_cudnn.h);
    // NULL on the CPU, as the two functions.
    const struct conv_layer_variant *library;
    // Sets prepared->library. CONV_ERR_UNSUPPORTED if the library cannot compute the layer or,
    // unless `forced`, is not faster than the plan.
    enum conv_status (*library_open)(int device, struct conv_layer_prepared *prepared, bool forced,
                                     struct conv_err *err);
    void (*library_close)(int device, struct conv_library_layer *library);
    // Pads if necessary, then runs the plan on all rows of the batch, with batch->scratch, in
    // batch->stream. NULL on the CPU.
    enum conv_status (*layer_enqueue)(const struct conv_layer_prepared *prepared,
                                      const struct conv_layer_batch *batch, struct conv_err *err);
};

// --- the table -----------------------------------------------------------------------------------

// After `open` a backend does not change, except for what it caches: any thread may call any
// function with it, at the same time as others, and gets the same answers. (filter_run keeps memory
// from call to call, so its calls follow each other.) A stream belongs to one thread at a time. All
// streams are closed before the backend.
struct conv_device_ops {
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
    // initialises nothing. NULL on the CPU.
    bool (*has_driver)(void);
    // Fills at most `room` entries, except `free`, and sets *count to what the machine has, at
    // least
    // 1. Opens no device. CONV_ERR_DEVICE with the reason (no driver, no GPU, not in this build),
    // and *count is 0.
    enum conv_status (*devices)(struct conv_device_info *info, int room, int *count,
                                struct conv_err *err);
    // Sets info->memory, as an open device has it, and info->free. NULL on the CPU.
    enum conv_status (*read_memory)(struct conv_device_info *info, int device,
                                    struct conv_err *err);

    // CONV_ERR_DEVICE with the reason if the device cannot be used; CONV_ERR_MEMORY if it or the
    // host has no memory left; CONV_ERR_USAGE if the forced kernel is unknown or cannot run the
    // chain here. *backend is set on success only, and nothing is left open on failure.
    enum conv_status (*open)(struct conv_backend **backend,
                             const struct conv_backend_config *config, struct conv_err *err);
    void (*close)(struct conv_backend *backend); // NULL is fine

    // The name of the kernel that runs filter `index` of the chain at `depth` bits.
    const char *(*variant)(const struct conv_backend *backend, int index, int depth);
    // Bytes of a group's tables per filtered plane (for conv_group_place) with a chain of
    // filter_count filters; with `codes` those for decoding and encoding included.
    size_t (*table_bytes)(int filter_count, bool codes);

    // Bytes of host memory that filtering an image of that width takes besides its staging memory.
    // NULL on an async backend.
    size_t (*scratch_bytes)(const struct conv_backend *backend, int width, int depth);
    // Rows above and below a row that the chain reads for it; -1: the last rows reach the first
    // ones. In a part of an image, rows that are so far from where it was cut have the results of
    // the whole image, if the part begins at a multiple of *grid. NULL on an async backend.
    int (*reach)(const struct conv_backend *backend, int *grid);

    // NULL on a backend without coders. takes_stream: true if that coder can decode an image with
    // such a header from a stream (conv_format_device) of at most `most_bytes`. encoded_bytes: of
    // h_out that such an image's encoded data takes at most, tables included, or hardly ever more;
    // 0: it cannot encode it.
    bool (*takes_stream)(enum conv_device_coder coder, const struct conv_image_header *header,
                         size_t most_bytes);
    size_t (*encoded_bytes)(const struct conv_image *shape,
                            const struct conv_device_encoding *encoding);

    // Pins staging memory (memory.h) for all devices of this kind, so that copies run at the
    // bus's speed and beside kernels. False if that fails: copies then work, but are slower. Memory
    // that cannot be unpinned, as after the loss of a device, must not be returned to the system:
    // the driver would take other pages at its address for it. NULL on a backend that copies
    // nothing.
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

    // --- images in the memory of a device ---
    // A stream is a cudaStream_t of the device, NULL for the default stream. All but context_open
    // and release are called between `enter` and `leave`, and so is `close` of a backend with a
    // context. Errors: CONV_ERR_MEMORY; CONV_ERR_DEVICE, after which only release, event_destroy,
    // close and context_close are called.

    // Opens device `ordinal` and sets `own`, which is NULL, to a block of malloc; close frees what
    // it holds, also after a failure. NULL on the CPU.
    enum conv_status (*context_open)(struct conv_device_context *device, struct conv_err *err);
    void (*context_close)(struct conv_device_context *device);
    // Returns when all work queued on the device is done. NULL on the CPU.
    enum conv_status (*synchronise)(struct conv_device_context *device, struct conv_err *err);
    // `enter` makes this device the thread's current one and sets *previous, `leave` restores
    // *previous; it is called only after a successful `enter`. They may be nested.
    enum conv_status (*enter)(struct conv_device_context *device, int *previous,
                              struct conv_err *err);
    void (*leave)(struct conv_device_context *device, int previous);

    // The rest is NULL on the CPU, except filter_run.

    // The pool's source of device memory: blocks that begin at multiples of 256 bytes.
    enum conv_status (*allocate)(struct conv_device_context *device, size_t bytes, void **data,
                                 struct conv_err *err);
    void (*release)(struct conv_device_context *device, void *data);

    // Events: points in a stream. `record` makes *event, if it is NULL, and notes the point that
    // `stream` has reached; `wait` makes `stream` wait for it without stopping the caller.
    enum conv_status (*event_record)(struct conv_device_context *device, void **event, void *stream,
                                     struct conv_err *err);
    enum conv_status (*event_wait)(struct conv_device_context *device, void *event, void *stream,
                                   struct conv_err *err);
    void (*event_destroy)(struct conv_device_context *device, void *event); // NULL is fine

    // Waits for all work queued on `stream`.
    enum conv_status (*stream_wait)(struct conv_device_context *device, void *stream,
                                    struct conv_err *err);
    // Copies bytes as conv_copy does: at least one side is in device memory.
    enum conv_status (*copy_bytes)(struct conv_device_context *device, void *result,
                                   conv_memory result_memory, const void *source,
                                   conv_memory source_memory, size_t bytes, void *stream,
                                   struct conv_err *err);

    // Copies results[i] from sources[i]: views of one shape, number of channels and sample type
    // (F32 too), any strides, at least one of them in device memory. Ordered after the work queued
    // on `stream`. Complete on return, except copies within device memory, which are queued. Host
    // memory is pageable or pinned.
    enum conv_status (*copy)(struct conv_device_context *device, const conv_image *results,
                             const conv_image *sources, int count, void *stream,
                             struct conv_err *err);

    // Decodes what it can of the offered files; on return the views with `done` are complete.
    // CONV_OK even if some are not done; after a failure `done` means nothing. Writes to views are
    // ordered after the work queued on `stream`.
    enum conv_status (*decode)(struct conv_device_context *device, struct conv_device_decode *items,
                               int count, void *stream, struct conv_err *err);
    // Encodes what it can of the offered images; on return the files of items with `done` are
    // complete. Reads are ordered after the work queued on `stream`. `files` is NULL, or has room
    // for `count` files and is asked in the thread of the call. On failure nothing is left in
    // `data`.
    enum conv_status (*encode)(struct conv_device_context *device, struct conv_device_encode *items,
                               int count, struct conv_file_memory *files, void *stream,
                               struct conv_err *err);

    // Filters count images (at least 1), all in device memory, any strides; shapes and sample types
    // as of conv_filter_run. Nothing overlaps, except on the CPU, where results[i] may be the view
    // sources[i]. With has_alpha the last channel is alpha, which is copied, filtered, or
    // multiplied before and divided after filtering (alpha.h), depending on config->alpha. Queues
    // the work on `stream` and does not wait for it.
    enum conv_status (*filter_run)(struct conv_backend *backend, const conv_image *results,
                                   const conv_image *sources, int count, void *stream,
                                   struct conv_err *err);

    const struct conv_tensor_ops *tensors; // only `open`, which fails, if the backend is not built
};

extern const struct conv_device_ops conv_device_cpu, conv_device_cuda;

// --- the devices ---------------------------------------------------------------------------------

#define CONV_ENGINE_DEVICES 2 // one for each enum conv_place

// Indexed by place. The entry of a backend that is not in the build fails to open and says
// so; its `built` is false.
extern const struct conv_device_ops *const conv_engine_devices[CONV_ENGINE_DEVICES];

static inline const char *conv_place_word(enum conv_place place)
{
    return place == CONV_ON_CPU ? "CPU" : "GPU";
}

// The device that the first `size` characters of `text` name: "cpu", "cuda", "cuda:3" (*ordinal is
// 3, else 0). NULL: none.
const struct conv_device_ops *conv_engine_parse(const struct conv_device_ops *const *backends,
                                                const char *text, size_t size, int *ordinal);

// Opens a device with at most `threads` threads (at least 1), which are started when they are first
// needed, and a pool that keeps at most `keep` freed bytes of each kind of memory (0: any number).
// *device is set on success only. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_device_context_open(struct conv_device_context **device,
                                          const struct conv_device_ops *ops, int ordinal,
                                          int threads, size_t keep, struct conv_err *err);
void conv_device_context_close(struct conv_device_context *device); // NULL is fine

// Opens a backend on a separate thread: a GPU takes 0.3 s to start, in which a CPU filters a
// thousand images.
struct conv_async_open;

// Copies what it needs of *config. If no thread can be started, opens before it returns.
// CONV_ERR_MEMORY if nothing could be begun.
enum conv_status conv_async_open_start(struct conv_async_open **async,
                                       const struct conv_device_ops *ops,
                                       const struct conv_backend_config *config,
                                       struct conv_err *err);

// Sets a function that is called once when the opening is over: by its thread, or by this call if
// it is over already. NULL removes it; on return no call is in progress. Any thread, one at a time.
void conv_async_open_set_notify(struct conv_async_open *async, void (*notify)(void *context),
                                void *context);

// Any thread; never waits.
bool conv_async_open_is_over(const struct conv_async_open *async);

// Waits until it is over. *backend belongs to `async`; on failure it is NULL. Any thread.
enum conv_status conv_async_open_result(struct conv_async_open *async,
                                        struct conv_backend **backend, struct conv_err *err);

// Closes the backend. False if the opening is not over: it continues on its thread, and the process
// must end by _exit(), since the exit handlers of a driver cannot be relied on while that driver is
// being opened. NULL is fine.
bool conv_async_open_close(struct conv_async_open *async);
