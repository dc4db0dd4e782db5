// SPDX-License-Identifier: MIT
#include "api/api_batch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/api_codecs.h"

enum conv_status conv_api_batch_prepare(conv_context *context, int count, size_t size,
                                        void **memory)
{
    struct conv_err *err = &context->err;
    enum conv_status status = CONV_OK;
    *memory = NULL;
    if (!context->codecs)
        status = conv_api_codecs_open(&context->codecs, context->device->threads, err);
    if (!status && count > 0)
        status =
            conv_memory_take(context->device->pools, CONV_HOST, (size_t)count * size, memory, err);
    if (*memory)
        memset(*memory, 0, (size_t)count * size);
    return status;
}

enum conv_status conv_api_batch_start(struct conv_api_batch *batch, conv_context *context,
                                      conv_item *items, int count)
{
    *batch = (struct conv_api_batch){
        .context = context, .items = items, .count = count, .first_failed = INT_MAX};
    for (int i = 0; items && i < count; i++) {
        items[i].status = CONV_OK;
        items[i].message[0] = 0;
    }
    if (conv_lock_init(&batch->lock))
        return conv_err_set(&context->err, CONV_ERR_MEMORY, "no memory for a lock");
    return CONV_OK;
}

enum conv_status conv_api_batch_refuse(conv_context *context, conv_item *items, int count,
                                       enum conv_status status)
{
    for (int i = 0; items && i < count; i++) {
        items[i].status = status;
        conv_api_explain(items[i].message, sizeof items[i].message, &context->err);
    }
    return conv_api_end(context, status);
}

void conv_api_batch_fail(struct conv_api_batch *batch, int index, enum conv_status status,
                         const struct conv_err *err)
{
    conv_lock_acquire(&batch->lock);
    if (batch->items) {
        batch->items[index].status = status;
        conv_api_explain(batch->items[index].message, sizeof batch->items[index].message, err);
    }
    batch->device_lost |= status == CONV_ERR_DEVICE;
    if (index < batch->first_failed) {
        batch->first_failed = index;
        batch->status = status;
        batch->context->err = *err;
        if (batch->count > 1)
            snprintf(batch->context->err.text, sizeof batch->context->err.text, "item %d: %.4096s",
                     index, err->text);
    }
    conv_lock_release(&batch->lock);
}

enum conv_status conv_api_batch_end(struct conv_api_batch *batch)
{
    conv_lock_destroy(&batch->lock);
    batch->context->lost |= batch->device_lost;
    return conv_api_end(batch->context, batch->status);
}
