// SPDX-License-Identifier: MIT
// A layer or a filter bank instead of filters: a worker decodes an image, makes its planes the
// layer's input, computes, and writes the result to a .npy file or to its place in one
// (layer_collect.h).
#ifndef CONV_RUN_LAYER_STAGE_H
#define CONV_RUN_LAYER_STAGE_H

#include "engine/operation.h"
#include "run/layer_collect.h"
#include "run/scheduler.h"

struct conv_worker;

// Of struct conv_pipeline_config. Nothing but *collect changes during the run.
struct conv_layer_stage {
    // The layer or the bank, for both kinds of input.
    struct conv_operation of_bytes;     // 8-bit samples, divided by the kernel
    struct conv_operation of_floats;    // everything else
    struct conv_pooling pool;           // of a bank
    bool gray;                          // an image becomes its luminance, as one channel
    bool to_255;                        // samples become 0 to 255 instead of 0 to 1
    struct conv_layer_collect *collect; // NULL: a file per image
};

// What a worker reuses from image to image.
struct conv_layer_worker {
    uint8_t *planes;
    size_t planes_size;
    struct conv_tensor_stream *streams[2]; // of of_floats and of_bytes
};

// Checks that the image whose header job->header is fits the layer. CONV_ERR_USAGE, CONV_ERR_LIMIT.
enum conv_status conv_layer_stage_check(const struct conv_layer_stage *stage, struct conv_job *job);

// Does the rest for a job that has been read, and finishes it. Waits for memory and, with
// `collect`, until the jobs before it have their places. Releases the lock meanwhile.
void conv_layer_stage_run(struct conv_scheduler *s, struct conv_worker *worker,
                          struct conv_job *job) CONV_NEEDS(s->lock);

void conv_layer_worker_close(struct conv_layer_worker *worker,
                             const struct conv_layer_stage *stage); // {0} is fine, and left

#endif
