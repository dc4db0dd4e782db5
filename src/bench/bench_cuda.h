// SPDX-License-Identifier: MIT
// Measurements on a CUDA device directly, without engine and run: kernels, copies and coders,
// each alone.
#pragma once

#include <stdbool.h>

#include "bench/bench_codec.h"
#include "bench/bench_layers.h"
#include "bench/bench_place.h"
#include "kernels/layer/layer.h"

// --- copies between pinned and device memory -----------------------------------------------------

enum conv_copy_way {
    CONV_COPY_IN,
    CONV_COPY_OUT,
    CONV_COPY_BOTH,     // in and out at once, independent of each other
    CONV_COPY_AND_BACK, // each in and then out again
};

struct conv_copy_test {
    enum conv_copy_way way;
    size_t bytes;    // of one copy
    int count;       // copies, each way
    int streams;     // that share the copies
    bool one_by_one; // wait for each copy before the next
    int repeats;     // of the whole test; the shortest counts, since this is a yardstick
};

// --- PNG coders ----------------------------------------------------------------------------------

#define CONV_CODING_MOST_KERNELS 16

// Image data decoded or encoded by the device alone, kernel by kernel.
struct conv_coding_test {
    const struct conv_bench_image *images; // with `stream` and `image`
    int image_count;
    bool decode;   // else encode
    int threads;   // that inflate an image together: 128, 256, 512; 0: the decoder's choice
    int in_flight; // images at once, cyclically, each with memory of its own
    int repeats;   // of the whole; medians count
    // Called once per image of an encoding test, in the calling thread; may be NULL.
    void (*take_chunks)(void *context, int image, const uint8_t *data, size_t size);
    void *context;

    // The result.
    struct {
        char name[32];
        double ms;
    } kernels[CONV_CODING_MOST_KERNELS]; // in the order of their launches
    int kernel_count;
    double ms;            // sum of the kernels
    int wrong;            // decoding: images, of image_count, with wrong pixels
    uint64_t chunk_bytes; // encoding: of all in flight
};

// --- the table -----------------------------------------------------------------------------------

struct conv_bench_cuda {
    const struct conv_bench_place_ops *place;
    // conv_cuda_layer_pad
    enum conv_status (*pad)(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                            const struct conv_layer_batch *batch, void *d_dst,
                            enum conv_element type);
    // *ns is the shortest time of the test's copies. CONV_ERR_MEMORY, CONV_ERR_DEVICE. Any thread.
    enum conv_status (*time_copies)(int ordinal, const struct conv_copy_test *test, uint64_t *ns,
                                    struct conv_err *err);
    // Sets the result in *test. CONV_ERR_MEMORY if the device has no room for the images,
    // CONV_ERR_DEVICE.
    enum conv_status (*time_coding)(int ordinal, struct conv_coding_test *test,
                                    struct conv_err *err);
    // A layer by the fastest plan that cuDNN's heuristics propose, in NCHW or NHWC, whichever is
    // faster: CONV_PRECISION_EXACT stands for float32. Runs once to warm up, then `runs` times with
    // cold caches: ns[0 ... runs - 1]. `result` has the first data->distinct images, *summary says
    // what was fastest. `result` NULL: in NCHW alone. CONV_ERR_UNSUPPORTED without cuDNN,
    // CONV_ERR_MEMORY, CONV_ERR_DEVICE.
    enum conv_status (*time_cudnn)(const struct conv_bench_layers_data *data, int ordinal,
                                   enum conv_precision precision, double *ns, int runs,
                                   float *result, char *summary, size_t size, struct conv_err *err);
};

// NULL in a build without CUDA.
const struct conv_bench_cuda *conv_bench_cuda(void);

// The entries of the table, in files of their own.
enum conv_status conv_bench_cuda_time_copies(int ordinal, const struct conv_copy_test *test,
                                             uint64_t *ns, struct conv_err *err);
enum conv_status conv_bench_cuda_time_coding(int ordinal, struct conv_coding_test *test,
                                             struct conv_err *err);
enum conv_status conv_bench_cuda_time_cudnn(const struct conv_bench_layers_data *data, int ordinal,
                                            enum conv_precision precision, double *ns, int runs,
                                            float *result, char *summary, size_t size,
                                            struct conv_err *err);
