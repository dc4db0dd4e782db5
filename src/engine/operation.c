// SPDX-License-Identifier: MIT
#include "engine/operation.h"

void conv_operation_close(struct conv_operation *operation)
{
    conv_layer_context_close(operation->layer);
    conv_bank_context_close(operation->bank);
    *operation = (struct conv_operation){0};
}

enum conv_place conv_operation_place(const struct conv_operation *operation)
{
    return operation->bank ? conv_bank_context_place(operation->bank)
                           : conv_layer_context_place(operation->layer);
}

enum conv_element conv_operation_output(const struct conv_operation *operation)
{
    return operation->bank ? CONV_ELEMENT_F32 : conv_layer_context_layer(operation->layer)->output;
}

void conv_operation_describe(const struct conv_operation *operation, char *text, size_t size)
{
    if (operation->bank)
        conv_bank_context_describe(operation->bank, text, size);
    else
        conv_layer_context_describe(operation->layer, text, size);
}

bool conv_operation_bytes(const struct conv_operation *operation, int height, int width, size_t *in,
                          size_t *out)
{
    return operation->bank ? conv_bank_context_bytes(operation->bank, height, width, in, out)
                           : conv_layer_context_bytes(conv_layer_context_layer(operation->layer),
                                                      height, width, in, out);
}

size_t conv_operation_work(const struct conv_operation *operation, int height, int width)
{
    return operation->bank ? conv_bank_context_work(operation->bank, height, width) : 0;
}

enum conv_status conv_operation_stream_open(const struct conv_operation *operation, int threads,
                                            struct conv_operation_stream *stream,
                                            struct conv_err *err)
{
    return operation->bank ? conv_bank_stream_open(operation->bank, &stream->bank, err)
                           : conv_layer_stream_open(operation->layer, threads, &stream->layer, err);
}

void conv_operation_stream_close(struct conv_operation_stream *stream)
{
    conv_layer_stream_close(stream->layer);
    conv_bank_stream_close(stream->bank);
    *stream = (struct conv_operation_stream){0};
}

enum conv_status conv_operation_stream_staging(struct conv_operation_stream *stream,
                                               size_t in_bytes, size_t out_bytes, void **h_in,
                                               void **h_out, struct conv_err *err)
{
    return stream->bank
               ? conv_bank_stream_staging(stream->bank, in_bytes, out_bytes, h_in, h_out, err)
               : conv_layer_stream_staging(stream->layer, in_bytes, out_bytes, h_in, h_out, err);
}

enum conv_status conv_operation_stream_run(struct conv_operation_stream *stream,
                                           const struct conv_layer_shape *shape, int64_t images,
                                           const void *src, void *dst, struct conv_err *err)
{
    return stream->bank ? conv_bank_stream_run(stream->bank, shape->height, shape->width, images,
                                               src, (float *)dst, err)
                        : conv_layer_stream_run(stream->layer, shape, images, src, dst, err);
}
