// SPDX-License-Identifier: MIT
// Runs a layer or a filter bank over a tensor of any number of images: workers with a stream each
// read a chunk of images, run the operation and write the result, so that reading, computing (or
// copying to a device) and writing overlap. Memory does not depend on the number of images.
#ifndef CONV_ENGINE_LAYER_FLOW_H
#define CONV_ENGINE_LAYER_FLOW_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine/operation.h"

// What a worker does with a chunk, in this order.
enum conv_layer_flow_step { CONV_LAYER_FLOW_READ, CONV_LAYER_FLOW_RUN, CONV_LAYER_FLOW_WRITE };

struct conv_layer_flow {
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
    void (*timed)(void *user, int worker, enum conv_layer_flow_step step, uint64_t start,
                  uint64_t end, int64_t images);
    const atomic_int *stop; // ends the run soon after conv_cancel_is_asked; may be NULL
};

// The resources that a flow will use.
struct conv_layer_flow_use {
    int64_t chunk;  // images
    int workers;    // each with a stream
    int threads;    // of each stream
    size_t in, out; // bytes per image
};

// CONV_ERR_LIMIT, with CONV_HINT_MEM_LIMIT, if not even one image fits; CONV_ERR_USAGE if the
// output planes would be empty.
enum conv_status conv_layer_flow_plan(struct conv_layer_flow_use *use,
                                      const struct conv_layer_flow *flow, struct conv_err *err);

// Errors as conv_layer_flow_plan, conv_operation_stream_run and the flow's functions;
// CONV_ERR_CANCELLED. After a failure some images may have been written.
enum conv_status conv_layer_flow_run(const struct conv_layer_flow *flow, struct conv_err *err);

#endif
