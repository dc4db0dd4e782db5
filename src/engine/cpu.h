// SPDX-License-Identifier: MIT
// What the files of the CPU share: cpu.c (its row of engine.h), cpu_filter.c and cpu_tensor.c.
#pragma once

#include <stdatomic.h>

#include "engine/chain.h"
#include "engine/engine.h"
#include "kernels/layer/layer.h"

struct conv_backend {
    struct conv_device_context *device; // NULL: groups only
    enum conv_alpha_mode alpha;
    unsigned alpha_kept; // as in the configuration
    bool floats;
    bool wraps; // the last rows reach the first ones
    int reach;  // rows above and below that the chain reads for a row
    int grid;   // rows: where a large Gaussian has the same coarse samples in a part of an image
    int op_count;
    struct conv_chain_op chain[];
};

// Rows of engine.h.
enum conv_status conv_cpu_stream_open(struct conv_backend *backend, struct conv_stream **stream,
                                      size_t bytes, struct conv_err *err);
void conv_cpu_stream_close(struct conv_stream *stream);
enum conv_status conv_cpu_stream_run(struct conv_stream *stream, struct conv_group *group,
                                     struct conv_err *err);
enum conv_status conv_cpu_filter_run(struct conv_backend *filter, const conv_image *results,
                                     const conv_image *sources, int count, void *stream,
                                     struct conv_err *err);
extern const struct conv_tensor_ops conv_cpu_tensors;

// How threads share the output rows and the maps of a layer's batch.
struct conv_cpu_share {
    const struct conv_layer_plan *plan;
    struct conv_layer_batch batch; // whole; scratch: of worker 0
    size_t distance;               // bytes from one worker's scratch to the next one's
    int row_parts;                 // of the rows of all images, one after the other
    int set_parts;                 // of the plan's sets, each of which has all parts of the rows
    int tasks;                     // both
    atomic_int status;             // of the last one that has failed
};

void conv_cpu_share_plan(struct conv_cpu_share *share, const struct conv_layer_plan *plan,
                         const struct conv_layer_batch *batch, int threads);
void conv_cpu_share_run(void *share, int worker, int task); // a conv_workers_fn
