// SPDX-License-Identifier: MIT
// A convolution layer on one device: chooses the kernel, makes its plan once per shape, packs and
// uploads the weights once, and runs batches in host or device memory.
//
// A context is opened once; its streams do the work. After `open` any thread may use a context; a
// stream belongs to one thread at a time. Streams are closed before their context.
#ifndef CONV_ENGINE_LAYER_CONTEXT_H
#define CONV_ENGINE_LAYER_CONTEXT_H

#include "base/err.h"
#include "kernels/layer/layer.h"

struct conv_layer_context;
struct conv_layer_stream;

struct conv_layer_config {
    const struct conv_layer *layer; // copied; its weights and bias outlive the context
    enum conv_place place;
    int device;          // ordinal among those of the place
    const char *variant; // kernel to force; NULL: the best for each shape
};

// CONV_ERR_DEVICE with the reason if there is no such device; CONV_ERR_USAGE, with
// CONV_HINT_VARIANT, if the forced kernel is unknown or of another place; CONV_ERR_MEMORY.
// *context is set on success only.
enum conv_status conv_layer_context_open(struct conv_layer_context **context,
                                         const struct conv_layer_config *config,
                                         struct conv_err *err);
void conv_layer_context_close(struct conv_layer_context *context); // NULL is fine

// The layer, which belongs to the context, and the place of the device.
const struct conv_layer *conv_layer_context_layer(const struct conv_layer_context *context);
enum conv_place conv_layer_context_place(const struct conv_layer_context *context);

// "cpu", "cuda:0"
void conv_layer_context_describe(const struct conv_layer_context *context, char *text, size_t size);

// The kernel that runs batches of that shape, in *variant. CONV_ERR_USAGE if no kernel, or not the
// forced one, can do the layer; otherwise as conv_layer_stream_run.
enum conv_status conv_layer_context_variant(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_variant **variant,
                                            struct conv_err *err);

// Bytes that one image takes in host memory: the input as the layer reads it, and the output.
// False if that is beyond what a size_t holds, or an output plane would be empty.
bool conv_layer_context_bytes(const struct conv_layer *layer, int height, int width, size_t *in,
                              size_t *out);

// A stream of `threads` (at least 1), which share the rows of a batch; a CUDA stream needs no more
// than one. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_layer_stream_open(struct conv_layer_context *context, int threads,
                                        struct conv_layer_stream **stream, struct conv_err *err);
void conv_layer_stream_close(struct conv_layer_stream *stream); // NULL is fine

// Memory of the stream for one batch, pinned for a CUDA device: at least in_bytes and out_bytes, of
// any content. They are valid until the next call or the stream's end. CONV_ERR_MEMORY,
// CONV_ERR_DEVICE.
enum conv_status conv_layer_stream_staging(struct conv_layer_stream *stream, size_t in_bytes,
                                           size_t out_bytes, void **h_in, void **h_out,
                                           struct conv_err *err);

// Computes `images` images, at most shape->images, from host memory to host memory: src has
// [images][channels][height][width] elements of layer->input, dst gets
// [images][maps][out height][out width] of layer->output, both without gaps; dst begins at a
// multiple of 16 bytes. Best from the stream's own staging memory: copies to a CUDA device are then
// direct. Returns when dst is complete. CONV_ERR_USAGE as conv_layer_context_variant;
// CONV_ERR_MEMORY: a smaller batch may succeed; CONV_ERR_DEVICE: the device is lost.
enum conv_status conv_layer_stream_run(struct conv_layer_stream *stream,
                                       const struct conv_layer_shape *shape, int64_t images,
                                       const void *src, void *dst, struct conv_err *err);

// For data that is on the device already (on the CPU: in memory): queues a batch, strides and
// alignment as in layer.h, into batch->stream. batch->scratch has conv_layer_context_scratch bytes.
// On CUDA the calling thread's current device is the context's.
enum conv_status conv_layer_context_scratch(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape, size_t *bytes,
                                            struct conv_err *err);
enum conv_status conv_layer_context_enqueue(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_batch *batch,
                                            struct conv_err *err);

#endif
