// SPDX-License-Identifier: MIT
// cuDNN 9, loaded at run time: neither its header nor the library is needed to build. A plan is one
// of the kernels that its graph interface proposes for a layer.
#pragma once

#include "kernels/layer/layer.h"

// Loads the library, once per process: from CONV_CUDNN (a file or folder) if that is set, else
// where the system looks, from CUDNN_PATH, and from NVIDIA's Python package beside this program or
// library. CONV_ERR_UNSUPPORTED with what is missing, which later calls return, too. Any thread.
enum conv_status conv_cudnn_load(struct conv_err *err);

// A layer as cuDNN computes it.
struct conv_cudnn_problem {
    const struct conv_layer *layer; // its pads are given and hold zeros
    struct conv_layer_shape shape;  // the images of every run
    enum conv_element type;         // F32, F16 or BF16: of input, weights and result; sums are F32
    bool tf32;                      // F32: operands may be rounded to TF32
    bool channels_last;             // the axes of all three are in the order N, H, W, C
};

struct conv_cudnn_plan; // constant: any number of threads may run it at the same time

// The arguments of a run, in device memory, without gaps, at multiples of 16 bytes.
struct conv_cudnn_memory {
    const void *src, *weights;
    void *dst;
    void *workspace; // conv_cudnn_workspace bytes
};

// Times a plan: *ns. A plan that cannot be run is not chosen.
typedef enum conv_status (*conv_cudnn_time_fn)(void *context, const struct conv_cudnn_plan *plan,
                                               double *ns);

// The fastest of the plans that are deterministic in their precision: neither Winograd's nor
// Fourier transforms, whose errors depend on other outputs, nor sums of less than float32. At most
// `most_workspace` bytes each. *plan is replaced if one is faster than *best (0: any is), and *best
// with it. *tried, which may be NULL, is raised by the plans that ran. CONV_ERR_UNSUPPORTED if
// there is none that could be run; CONV_ERR_DEVICE. The device is the current one.
enum conv_status conv_cudnn_find(struct conv_cudnn_plan **plan, double *best, int *tried,
                                 const struct conv_cudnn_problem *problem, size_t most_workspace,
                                 conv_cudnn_time_fn time, void *context, struct conv_err *err);
void conv_cudnn_plan_free(struct conv_cudnn_plan *plan); // NULL is fine

size_t conv_cudnn_workspace(const struct conv_cudnn_plan *plan);

// Queues the plan into a stream of its device, which is the current one. Waits for nothing.
// CONV_ERR_DEVICE.
enum conv_status conv_cudnn_run(const struct conv_cudnn_plan *plan,
                                const struct conv_cudnn_memory *memory, void *stream,
                                struct conv_err *err);

// --- layers: cuda_cudnn_layer.c ------------------------------------------------------------------

// A table row in name: the functions below take the place of its own.
extern const struct conv_layer_variant conv_cudnn_variant;

struct conv_library_layer;

// What takes part in the choice for a shape whose images are known.
struct conv_cudnn_choice {
    const struct conv_layer *layer; // its pads are given; copied, its weights outlive this
    struct conv_layer_shape shape;
    bool gaps;              // in the input
    size_t in, out;         // bytes of an image
    size_t scratch, packed; // bytes that our kernel needs
    const char *own;        // its name, or NULL: there is none
    enum conv_status (*run_own)(void *context, const struct conv_layer_batch *batch);
    void *context;
    bool forced; // cuDNN is taken also if it is slower
};

// Times cuDNN's plans and our kernel on the current device, after the work that is queued there,
// for some 0.01 to 3 s and with memory for a batch. CONV_ERR_UNSUPPORTED with the reason if cuDNN
// cannot be used or is not faster; CONV_ERR_MEMORY, CONV_ERR_DEVICE. *cudnn is set on success.
enum conv_status conv_cudnn_layer_open(struct conv_library_layer **cudnn,
                                       const struct conv_cudnn_choice *choice,
                                       struct conv_err *err);
void conv_cudnn_layer_close(struct conv_library_layer *cudnn); // with its device as the current one

// Bytes of batch->scratch, and of batch->packed for a layer without weights; multiples of 256.
void conv_cudnn_layer_sizes(const struct conv_library_layer *cudnn, size_t *scratch,
                            size_t *packed);

// Queues the layer for all images of the shape. Any thread.
enum conv_status conv_cudnn_layer_run(const struct conv_library_layer *cudnn,
                                      const struct conv_layer_batch *batch, struct conv_err *err);
