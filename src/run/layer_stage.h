// SPDX-License-Identifier: MIT
// A layer or a filter bank instead of filters: a worker decodes an image, makes its planes the
// layer's input, computes, and writes the result to a .npy file or to its place in one.
#pragma once

#include "engine/operation.h"
#include "io/files/tensor_file.h"
#include "run/scheduler.h"

struct conv_worker;

// The results of many images in one .npy file of shape (images, maps, height, width), in the order
// in which the source has the images, without gaps for those that failed. The caller sets the
// members above `count`, and writer.force. The rest is zero.
struct conv_layer_collect {
    const char *path;
    enum conv_element element;
    bool no_save, fsync;
    const atomic_int *stop;
    // Receives the writer, so that a signal can remove its temporary file; NULL at the end.
    void (*watch)(struct conv_sink *sink);

    int64_t count; // of results that have their places
    bool has_writer, has_failed;
    struct conv_tensor_writer writer;
    struct conv_tensor_shape shape; // of the first result
};

// Gives the file its final shape and its name, or with keep == false removes it. CONV_ERR_IO.
enum conv_status conv_layer_collect_close(struct conv_layer_collect *collect, bool keep,
                                          struct conv_err *err);

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
