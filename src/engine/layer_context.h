// SPDX-License-Identifier: MIT
// A convolution layer on one device: chooses the kernel, makes its plan once per shape, packs and
// uploads the weights once. operation.h runs it on batches in host memory. After `open` any thread
// may use a context.
#pragma once

#include "base/lock.h"
#include "engine/engine.h"
#include "kernels/layer/layer.h"

// Only `layer` and the device are for others than layer_context.c.
struct conv_layer_context {
    struct conv_layer layer;
    const struct conv_device_ops *ops;
    int device;
    unsigned have;
    const char *variant;
    struct conv_lock lock;
    struct conv_layer_prepared *plans; // protected by `lock`, as what follows
    int plan_count;
    int timed; // shapes for which the library was timed
    uint64_t calls;
};

struct conv_layer_config {
    // Copied; its weights and bias outlive the context. Without weights, on a CUDA device, each
    // batch brings its own.
    const struct conv_layer *layer;
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

// How batches of a shape are run: by which kernel, with how many bytes of scratch. CONV_ERR_USAGE
// if no kernel, or not the forced one, can do the layer; otherwise as conv_operation_run. `gaps`:
// there are some between rows, planes or images.
struct conv_layer_way {
    const struct conv_layer_variant *variant;
    size_t scratch;
    size_t packed;  // bytes of the packed weights, a multiple of 256
    char note[200]; // why a library's kernel is not used for a layer that need not be exact; or ""
};
enum conv_status conv_layer_context_way(struct conv_layer_context *context,
                                        const struct conv_layer_shape *shape, bool gaps,
                                        struct conv_layer_way *way, struct conv_err *err);

// Bytes that one image takes in host memory: the input as the layer reads it, and the output.
// False if that is beyond what a size_t holds, or an output plane would be empty.
bool conv_layer_context_bytes(const struct conv_layer *layer, int height, int width, size_t *in,
                              size_t *out);

// For data that is on a CUDA device already: queues a batch of the shape's images, strides and
// alignment as in layer.h, into batch->stream. batch->scratch has the bytes that the shape's way
// says. The calling thread's current device is the context's.
enum conv_status conv_layer_context_enqueue(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_batch *batch,
                                            struct conv_err *err);

// As conv_operation_run.
enum conv_status conv_layer_context_run(struct conv_layer_context *context,
                                        struct conv_tensor_stream *stream,
                                        const struct conv_layer_shape *shape, int64_t images,
                                        const void *src, void *dst, struct conv_err *err);

// --- padding as texts ----------------------------------------------------------------------------

// Sets the padding of a layer, whose kernel, strides and dilations are set: "valid", "same" (each
// output of stride 1, as in PyTorch), "same_upper", "same_lower" (enum conv_layer_same), or the
// samples on each side: "N", "HEIGHTxWIDTH", each of these also as "BEFORE:AFTER". NULL is "valid".
// CONV_ERR_USAGE with CONV_HINT_PADDING. Any thread.
enum conv_status conv_layer_context_parse_padding(struct conv_layer *layer, const char *text,
                                                  struct conv_err *err);

// Sets the border that the pads are filled with: "replicate" and the other names of
// conv_filter_parse_border, or "constant:V" with any number V up to 1e30 in magnitude. NULL is
// "constant:0". CONV_ERR_USAGE, with CONV_HINT_BORDER_CONSTANT if V is not a number. Any thread.
enum conv_status conv_layer_context_parse_border(struct conv_layer *layer, const char *text,
                                                 struct conv_err *err);

// --- for the devices -----------------------------------------------------------------------------

// A plan and its data. Constant while it has users.
struct conv_layer_prepared {
    struct conv_layer_prepared *next;
    struct conv_layer_shape shape; // as asked for
    bool gaps;                     // likewise; false for layers in the exact order
    struct conv_layer outer;       // the layer as asked for
    struct conv_layer_plan plan;
    size_t pad_bytes;    // of scratch, for the input of a plan that pads; a multiple of 256
    size_t sum_bytes;    // of scratch, for the float32 results of a plan that rounds, likewise
    size_t scratch;      // both and the plan's own, or the library's
    size_t packed_bytes; // of batch->packed, for a layer without weights
    void *packed;        // host memory
    void *d_packed;      // the same on the device; NULL on the CPU
    struct conv_library_layer *library; // runs instead of the plan; NULL: none does
    char note[200];                     // why not; ""
    int users;         // that hold it; this and last_use are protected by the context's lock
    uint64_t last_use; // number of the call
};

// The batch of `images` images that lie in `src` and `dst` without gaps.
struct conv_layer_batch conv_layer_batch_of(const struct conv_layer *layer,
                                            const struct conv_layer_shape *shape, int64_t images,
                                            const void *src, void *dst);
