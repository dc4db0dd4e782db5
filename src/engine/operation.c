// SPDX-License-Identifier: MIT
#include "engine/operation.h"

#include <stdio.h>

void conv_operation_close(struct conv_operation *operation)
{
    conv_layer_context_close(operation->layer);
    conv_bank_context_close(operation->bank);
    *operation = (struct conv_operation){0};
}

const struct conv_device_ops *conv_operation_device(const struct conv_operation *operation,
                                                    int *ordinal)
{
    const struct conv_bank_context *bank = operation->bank;
    *ordinal = bank ? bank->config.device : operation->layer->device;
    return bank ? bank->ops : operation->layer->ops;
}

enum conv_element conv_operation_output(const struct conv_operation *operation)
{
    return operation->bank ? CONV_ELEMENT_F32 : operation->layer->layer.output;
}

void conv_operation_describe(const struct conv_operation *operation, char *text, size_t size)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    if (ops->place == CONV_ON_CPU)
        snprintf(text, size, "%s", ops->name);
    else
        snprintf(text, size, "%s:%d", ops->name, ordinal);
}

bool conv_operation_bytes(const struct conv_operation *operation, int height, int width, size_t *in,
                          size_t *out)
{
    return operation->bank
               ? conv_bank_context_bytes(operation->bank, height, width, in, out)
               : conv_layer_context_bytes(&operation->layer->layer, height, width, in, out);
}

size_t conv_operation_work(const struct conv_operation *operation, int height, int width)
{
    return operation->bank ? conv_bank_context_work(operation->bank, height, width) : 0;
}

enum conv_status conv_operation_stream_open(const struct conv_operation *operation,
                                            struct conv_workers *workers, int threads,
                                            struct conv_tensor_stream **stream,
                                            struct conv_err *err)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    return ops->tensors->stream_open(ordinal, workers, workers ? threads : 1, stream, err);
}

void conv_operation_stream_close(const struct conv_operation *operation,
                                 struct conv_tensor_stream *stream)
{
    int ordinal;
    if (stream)
        conv_operation_device(operation, &ordinal)->tensors->stream_close(stream);
}

enum conv_status conv_operation_stream_staging(const struct conv_operation *operation,
                                               struct conv_tensor_stream *stream, size_t in_bytes,
                                               size_t out_bytes, void **h_in, void **h_out,
                                               struct conv_err *err)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    return ops->tensors->stream_staging(stream, in_bytes, out_bytes, h_in, h_out, err);
}

enum conv_status conv_operation_run(const struct conv_operation *operation,
                                    struct conv_tensor_stream *stream,
                                    const struct conv_layer_shape *shape, int64_t images,
                                    const void *src, void *dst, struct conv_err *err)
{
    if (images <= 0)
        return CONV_OK;
    return operation->bank
               ? conv_bank_context_run(operation->bank, stream, shape, images, src, dst, err)
               : conv_layer_context_run(operation->layer, stream, shape, images, src, dst, err);
}
