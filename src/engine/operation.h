// SPDX-License-Identifier: MIT
// A convolution layer or a filter bank, by one set of functions: images in, maps or features out.
#ifndef CONV_ENGINE_OPERATION_H
#define CONV_ENGINE_OPERATION_H

#include "engine/bank_context.h"
#include "engine/layer_context.h"

// One of the two is set, and owned. Threads as in the headers of both.
struct conv_operation {
    struct conv_layer_context *layer;
    struct conv_bank_context *bank; // an image is one plane
};

// The stream of the one that is set. {0}: not open.
struct conv_operation_stream {
    struct conv_layer_stream *layer;
    struct conv_bank_stream *bank;
};

void conv_operation_close(struct conv_operation *operation); // {0} is fine, and left

// The place of the device, and the type of the results.
enum conv_place conv_operation_place(const struct conv_operation *operation);
enum conv_element conv_operation_output(const struct conv_operation *operation);

// "cpu", "cuda:0"
void conv_operation_describe(const struct conv_operation *operation, char *text, size_t size);

// Bytes of one image's input and output in host memory. False if that is beyond what a size_t
// holds, or an output plane would be empty.
bool conv_operation_bytes(const struct conv_operation *operation, int height, int width, size_t *in,
                          size_t *out);

// Bytes that one image takes on a device besides its input, for banks; 0 for layers.
size_t conv_operation_work(const struct conv_operation *operation, int height, int width);

// As the functions of the same name in layer_context.h and bank_context.h. `threads`: a bank's
// stream has one.
enum conv_status conv_operation_stream_open(const struct conv_operation *operation, int threads,
                                            struct conv_operation_stream *stream,
                                            struct conv_err *err);
void conv_operation_stream_close(struct conv_operation_stream *stream); // {0} is fine, and left
enum conv_status conv_operation_stream_staging(struct conv_operation_stream *stream,
                                               size_t in_bytes, size_t out_bytes, void **h_in,
                                               void **h_out, struct conv_err *err);
enum conv_status conv_operation_stream_run(struct conv_operation_stream *stream,
                                           const struct conv_layer_shape *shape, int64_t images,
                                           const void *src, void *dst, struct conv_err *err);

#endif
