// SPDX-License-Identifier: MIT
// A layer in cuDNN. Its functions are looked up at run time: only its header is needed to build.
// bench_layers_cudnn.c has the data, bench_cudnn.c the graph of cuDNN's descriptors and its plans.
#ifndef CONV_BENCH_BENCH_CUDNN_H
#define CONV_BENCH_BENCH_CUDNN_H

#include <cudnn.h>
#include <cudnn_backend.h>

#include "bench/bench_cuda_timer.h"
#include "bench/bench_layers.h"

// The functions that are called, by their names without "cudnn".
#define CONV_BENCH_CUDNN_FUNCTIONS(X)                                                              \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

struct conv_bench_cudnn { // starts as {0}
    void *library;
#define CONV_BENCH_CUDNN_POINTER(name) __typeof__(cudnn##name) *name;
    CONV_BENCH_CUDNN_FUNCTIONS(CONV_BENCH_CUDNN_POINTER)
#undef CONV_BENCH_CUDNN_POINTER
};

// CONV_ERR_UNSUPPORTED if the library is not installed or lacks a function.
enum conv_status conv_bench_cudnn_open(struct conv_bench_cudnn *cudnn, struct conv_err *err);
void conv_bench_cudnn_close(struct conv_bench_cudnn *cudnn); // never opened is fine

// CONV_OK, or CONV_ERR_UNSUPPORTED with cuDNN's reason.
enum conv_status conv_bench_cudnn_report(const struct conv_bench_cudnn *cudnn, cudnnStatus_t code,
                                         struct conv_err *err);

#define CONV_BENCH_GRAPH_PARTS 9

struct conv_bench_layers_cudnn {
    const struct conv_bench_layers_data *data;
    struct conv_bench_timer timer;
    struct conv_bench_cudnn api;
    cudnnHandle_t handle;
    cudnnDataType_t type;
    size_t element; // bytes
    bool tf32;      // float32 operands may be rounded to TF32
    uint8_t *d_src, *d_dst;
    void *d_weights, *d_work;
    size_t work_bytes;
    cudnnBackendDescriptor_t parts[CONV_BENCH_GRAPH_PARTS];
    int tried;         // plans of this order of axes
    int64_t workspace; // bytes of the fastest
};

// Describes the layer as a graph of one operation on the memory of *cudnn. The caller must destroy
// `parts`, also after a failure. CONV_ERR_UNSUPPORTED.
enum conv_status conv_bench_layers_graph_open(struct conv_bench_layers_cudnn *cudnn,
                                              cudnnTensorFormat_t format, struct conv_err *err);
void conv_bench_layers_graph_close(struct conv_bench_layers_cudnn *cudnn);

// Chooses the fastest of the plans that cuDNN proposes, by running them. CONV_ERR_UNSUPPORTED if
// none works.
enum conv_status conv_bench_layers_graph_choose(struct conv_bench_layers_cudnn *cudnn,
                                                struct conv_err *err);

// Runs the chosen plan and sets *ns to the nanoseconds that it took.
enum conv_status conv_bench_layers_graph_time(const struct conv_bench_layers_cudnn *cudnn,
                                              double *ns, struct conv_err *err);

#endif
