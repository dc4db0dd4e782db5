// SPDX-License-Identifier: MIT
// A convolution layer or a filter bank on one device, by one set of functions: images in, maps or
// features out. After it was opened any thread may use an operation; a stream belongs to one thread
// at a time. Streams are closed before their operation.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "engine/bank_context.h"
#include "engine/layer_context.h"

// One of the two is set, and owned.
struct conv_operation {
    struct conv_layer_context *layer;
    struct conv_bank_context *bank; // an image is one plane
};

void conv_operation_close(struct conv_operation *operation); // {0} is fine, and left

// The kind of the device, and its ordinal among these; the type of the results.
const struct conv_device_ops *conv_operation_device(const struct conv_operation *operation,
                                                    int *ordinal);
enum conv_element conv_operation_output(const struct conv_operation *operation);

// "cpu", "cuda:0"
void conv_operation_describe(const struct conv_operation *operation, char *text, size_t size);

// Bytes of one image's input and output in host memory. False if that is beyond what a size_t
// holds, or an output plane would be empty.
bool conv_operation_bytes(const struct conv_operation *operation, int height, int width, size_t *in,
                          size_t *out);

// A stream. On the CPU up to `threads` (at least 1) of `workers`, which outlive it, share the rows
// of a layer's batch; NULL: the calling thread does all. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_operation_stream_open(const struct conv_operation *operation,
                                            struct conv_workers *workers, int threads,
                                            struct conv_tensor_stream **stream,
                                            struct conv_err *err);
void conv_operation_stream_close(const struct conv_operation *operation,
                                 struct conv_tensor_stream *stream); // NULL is fine

// Memory of the stream for one batch, pinned for a CUDA device: at least in_bytes and out_bytes, of
// any content. They are valid until the next call or the stream's end. CONV_ERR_MEMORY,
// CONV_ERR_DEVICE.
enum conv_status conv_operation_stream_staging(const struct conv_operation *operation,
                                               struct conv_tensor_stream *stream, size_t in_bytes,
                                               size_t out_bytes, void **h_in, void **h_out,
                                               struct conv_err *err);

// Computes `images` images from host memory to host memory, both without gaps; a layer at most
// shape->images: src has [images][channels][height][width] elements of layer->input, dst gets
// [images][maps][out height][out width] of layer->output and begins at a multiple of 16 bytes. Best
// from the stream's own staging memory: copies to a CUDA device are then direct. Returns when dst
// is complete. CONV_ERR_USAGE as conv_layer_context_way, or if a pooled plane is smaller than
// its grid; CONV_ERR_MEMORY: fewer images may succeed; CONV_ERR_DEVICE: the device is lost.
enum conv_status conv_operation_run(const struct conv_operation *operation,
                                    struct conv_tensor_stream *stream,
                                    const struct conv_layer_shape *shape, int64_t images,
                                    const void *src, void *dst, struct conv_err *err);

// --- a whole tensor ------------------------------------------------------------------------------

// An operation over any number of images: workers with a stream each read a chunk of images, run
// the operation and write the result, so that reading, computing (or copying to a device) and
// writing overlap. Memory does not depend on the number of images.

// What a worker does with a chunk, in this order.
enum conv_operation_flow_step {
    CONV_OPERATION_FLOW_READ,
    CONV_OPERATION_FLOW_RUN,
    CONV_OPERATION_FLOW_WRITE
};

struct conv_operation_flow {
    struct conv_operation operation; // of the caller
    int64_t images;
    int height, width;
    int jobs;         // threads, at least 1
    size_t mem_limit; // bytes of the inputs and outputs in flight; 0: none
    // Reads images first to first + count - 1 into dst; writes them from src. `user` is the first
    // argument. Called by several threads at a time, unless ordered: then in the order of the
    // images, by one thread at a time (not the same).
    enum conv_status (*read)(void *user, int64_t first, int64_t count, void *dst,
                             struct conv_err *err);
    enum conv_status (*write)(void *user, int64_t first, int64_t count, const void *src,
                              struct conv_err *err);
    bool ordered_read, ordered_write;
    void *user;
    // Called after a chunk was written; one thread at a time. May be NULL.
    void (*progress)(void *user, int64_t images);
    // Called after a step of worker 0, 1, ... with `images` images, which took from `start` to
    // `end` (conv_clock_ns); several threads at a time. May be NULL.
    void (*timed)(void *user, int worker, enum conv_operation_flow_step step, uint64_t start,
                  uint64_t end, int64_t images);
    const atomic_int *stop; // ends the run soon after conv_cancel_is_asked; may be NULL
};

// The resources that a flow will use.
struct conv_operation_flow_use {
    int64_t chunk;  // images
    int workers;    // each with a stream
    int threads;    // of each stream
    size_t in, out; // bytes per image
};

// CONV_ERR_LIMIT, with CONV_HINT_MEM_LIMIT, if not even one image fits; CONV_ERR_USAGE if the
// output planes would be empty.
enum conv_status conv_operation_flow_plan(struct conv_operation_flow_use *use,
                                          const struct conv_operation_flow *flow,
                                          struct conv_err *err);

// Errors as conv_operation_flow_plan, conv_operation_run and the flow's functions;
// CONV_ERR_CANCELLED. After a failure some images may have been written.
enum conv_status conv_operation_flow_run(const struct conv_operation_flow *flow,
                                         struct conv_err *err);
