// SPDX-License-Identifier: MIT
// Memory of the caller, plain copies, and the order of work on CUDA streams.
#include <string.h>

#include "api/api_context.h"

static bool is_memory(conv_memory memory)
{
    return memory == CONV_HOST || memory == CONV_DEVICE;
}

conv_status conv_allocate(conv_context *context, conv_memory memory, size_t bytes, void **data)
{
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status && (!data || !is_memory(memory)))
        status = conv_err_set(&context->err, CONV_ERR_USAGE, "%s",
                              data ? "`memory` is not a kind of memory" : "`data` is NULL");
    if (data)
        *data = NULL;
    if (!status)
        status = conv_memory_take(context->device->pools, memory, bytes, data, &context->err);
    return conv_api_end(context, status);
}

void conv_free(conv_context *context, conv_memory memory, void *data)
{
    if (context && is_memory(memory))
        conv_memory_give(context->device->pools, memory, data);
}

conv_status conv_copy(conv_context *context, void *result, conv_memory result_memory,
                      const void *source, conv_memory source_memory, size_t bytes, void *stream)
{
    if (!context)
        return CONV_ERR_USAGE;
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    if (!status && (!is_memory(result_memory) || !is_memory(source_memory)))
        status = conv_err_set(err, CONV_ERR_USAGE, "a memory argument is not a kind of memory");
    if (!status && bytes > 0 && (!result || !source))
        status = conv_err_set(err, CONV_ERR_USAGE, "`%s` is NULL", result ? "source" : "result");
    if (status || bytes == 0)
        return conv_api_end(context, status);
    if (conv_api_is_cpu(context) || (result_memory == CONV_HOST && source_memory == CONV_HOST)) {
        if (!conv_api_is_cpu(context)) // the copy comes after what the stream holds
            status = context->device->ops->stream_wait(context->device, stream, err);
        if (!status)
            memcpy(result, source, bytes);
    } else {
        status = context->device->ops->copy_bytes(context->device, result, result_memory, source,
                                                  source_memory, bytes, stream, err);
    }
    return conv_api_end(context, status);
}

conv_status conv_stream_wait(conv_context *context, void *stream)
{
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status && !conv_api_is_cpu(context))
        status = context->device->ops->stream_wait(context->device, stream, &context->err);
    return conv_api_end(context, status);
}

conv_status conv_context_wait(conv_context *context)
{
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status && !conv_api_is_cpu(context))
        status = context->device->ops->synchronise(context->device, &context->err);
    return conv_api_end(context, status);
}

conv_status conv_stream_order(conv_context *context, void *earlier, void *later)
{
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status && !conv_api_is_cpu(context) && earlier != later) {
        const struct conv_device_ops *ops = context->device->ops;
        void *event = NULL;
        status = ops->event_record(context->device, &event, earlier, &context->err);
        if (!status)
            status = ops->event_wait(context->device, event, later, &context->err);
        ops->event_destroy(context->device, event);
    }
    return conv_api_end(context, status);
}
