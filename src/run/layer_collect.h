// SPDX-License-Identifier: MIT
// The results of many images in one .npy file of shape (images, maps, height, width), in the order
// in which the source has the images, without gaps for those that failed.
#ifndef CONV_RUN_LAYER_COLLECT_H
#define CONV_RUN_LAYER_COLLECT_H

#include "io/files/tensor_file.h"

// The caller sets the members above `count`, and writer.force. The rest is zero.
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

// Gives a result the next place: one thread at a time, in order. The first result opens the file.
// CONV_ERR_USAGE if the shape is not that of the first result. With collect->has_failed the file
// cannot be created, and no result can be written.
enum conv_status conv_layer_collect_place(struct conv_layer_collect *collect,
                                          const struct conv_tensor_shape *shape, int64_t *index,
                                          struct conv_err *err);

// Writes a result to its place; any thread. CONV_ERR_IO.
enum conv_status conv_layer_collect_write(struct conv_layer_collect *collect, int64_t index,
                                          const void *result, size_t size, struct conv_err *err);

// Gives the file its final shape and its name, or with keep == false removes it. CONV_ERR_IO.
enum conv_status conv_layer_collect_close(struct conv_layer_collect *collect, bool keep,
                                          struct conv_err *err);

#endif
