// SPDX-License-Identifier: MIT
// The results of many images in one .npy file of shape (images, maps, height, width), in the order
// in which the images were taken, without gaps for those that failed.
#ifndef CONV_RUN_LAYER_COLLECT_H
#define CONV_RUN_LAYER_COLLECT_H

#include <pthread.h>

#include "base/lock.h"
#include "io/files/tensor_file.h"

// Any thread may call any function except open and close. Zero-initialised before `open`.
struct conv_layer_collect {
    const char *path;
    enum conv_element element;
    bool no_save, fsync;
    const atomic_int *stop;
    void (*watch)(struct conv_sink *sink); // see layer_images.h

    struct conv_lock lock; // of all below
    pthread_cond_t changed;
    int64_t next_turn;  // the image whose turn it is
    int64_t next_index; // among the results
    bool has_writer, has_failed;
    struct conv_tensor_writer writer;
    struct conv_tensor_shape shape; // of the first result
};

// CONV_ERR_IO if there is no memory for locks. The caller has set the members above `lock`.
enum conv_status conv_layer_collect_open(struct conv_layer_collect *collect, struct conv_err *err);

// True if the images before that one have their places.
bool conv_layer_collect_is_turn(struct conv_layer_collect *collect, int64_t turn);

// Waits until it is the image's turn, and gives its result a place; `shape` NULL: there is no
// result. To be called once for each image from 0 on. CONV_ERR_USAGE if the shape is not that of
// the first result. *is_fatal: the file cannot be created, or a former call has failed in that way
// (CONV_ERR_CANCELLED).
enum conv_status conv_layer_collect_take(struct conv_layer_collect *collect, int64_t turn,
                                         const struct conv_tensor_shape *shape, int64_t *index,
                                         bool *is_fatal, struct conv_err *err);

// Writes a result to its place. CONV_ERR_IO.
enum conv_status conv_layer_collect_write(struct conv_layer_collect *collect, int64_t index,
                                          const void *result, size_t size, struct conv_err *err);

// Gives the file its final shape and its name, or with keep == false removes it. CONV_ERR_IO.
enum conv_status conv_layer_collect_close(struct conv_layer_collect *collect, bool keep,
                                          struct conv_err *err);

#endif
