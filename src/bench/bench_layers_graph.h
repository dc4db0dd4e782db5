// SPDX-License-Identifier: MIT
// A layer in cuDNN: bench_layers_cudnn.c has its data, bench_layers_graph.c the graph of cuDNN's
// descriptors and its plans.
#ifndef CONV_BENCH_BENCH_LAYERS_GRAPH_H
#define CONV_BENCH_BENCH_LAYERS_GRAPH_H

#include "bench/bench_cuda_timer.h"
#include "bench/bench_cudnn.h"
#include "bench/bench_layers.h"

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
