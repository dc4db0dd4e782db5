// SPDX-License-Identifier: MIT
// The functions of each kind of device for layers (layer_cpu.c, cuda_layer.c). Private to the files
// of layer_context.h.
#ifndef CONV_ENGINE_LAYER_DEVICE_H
#define CONV_ENGINE_LAYER_DEVICE_H

#include "engine/layer_context.h"

// A plan and its data. Constant while it has users.
struct conv_layer_prepared {
    struct conv_layer_prepared *next;
    struct conv_layer_shape shape; // as asked for
    struct conv_layer outer;       // the layer as asked for
    struct conv_layer_plan plan;
    size_t pad_bytes;  // of scratch, for the input of a plan that pads; a multiple of 256
    size_t scratch;    // pad_bytes and the plan's own
    void *packed;      // host memory
    void *d_packed;    // CUDA
    int users;         // that hold it; this and last_use are protected by the context's lock
    uint64_t last_use; // number of the call
};

// The head of every stream.
struct conv_layer_stream {
    struct conv_layer_context *context;
    const struct conv_layer_device_ops *ops;
};

struct conv_layer_device_ops {
    const char *name; // as in struct conv_device_ops
    enum conv_place place;

    // What the device offers (conv_place_offers). CONV_ERR_DEVICE.
    enum conv_status (*open)(int device, unsigned *have, struct conv_err *err);

    // Copies plan.packed to the device and sets d_packed; undoes it. NULL: nothing to do.
    enum conv_status (*upload)(int device, struct conv_layer_prepared *prepared,
                               struct conv_err *err);
    void (*release)(int device, struct conv_layer_prepared *prepared);

    // As in layer_context.h.
    enum conv_status (*stream_open)(int device, int threads, struct conv_layer_stream **stream,
                                    struct conv_err *err);
    void (*stream_close)(struct conv_layer_stream *stream);
    enum conv_status (*stream_staging)(struct conv_layer_stream *stream, size_t in_bytes,
                                       size_t out_bytes, void **h_in, void **h_out,
                                       struct conv_err *err);
    enum conv_status (*stream_run)(struct conv_layer_stream *stream,
                                   const struct conv_layer_prepared *prepared, int64_t images,
                                   const void *src, void *dst, struct conv_err *err);

    // Pads if necessary, then runs the plan on all rows of the batch, with batch->scratch.
    enum conv_status (*enqueue)(const struct conv_layer_prepared *prepared,
                                const struct conv_layer_batch *batch, struct conv_err *err);
};

extern const struct conv_layer_device_ops conv_layer_device_cpu, conv_layer_device_cuda;

// The batch of `images` images that lie in `src` and `dst` without gaps.
struct conv_layer_batch conv_layer_batch_of(const struct conv_layer *layer,
                                            const struct conv_layer_shape *shape, int64_t images,
                                            const void *src, void *dst);

#endif
