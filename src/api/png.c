// SPDX-License-Identifier: MIT
// What decoding and encoding PNG files share.
#include "api/api.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A worker keeps buffers of at most this size each between calls, so that one large image does not
// occupy memory for the rest of the context's life.
#define KEEP ((size_t)64 << 20)

struct conv_api_coder {
    struct conv_codec *codec;
    int level;
};

void conv_api_coders_close(conv_context *context)
{
    for (int i = 0; context->coders && i < context->device->threads; i++)
        conv_png_format.close(context->coders[i].codec);
    free(context->coders);
}

enum conv_status conv_api_coder_get(conv_context *context, int worker, int level,
                                    struct conv_codec **codec, struct conv_err *err)
{
    struct conv_api_coder *own = &context->coders[worker];
    if (own->codec && own->level != level) {
        conv_png_format.close(own->codec);
        own->codec = NULL;
    }
    if (!own->codec) {
        struct conv_codec_config config = {.level = level, .keep = KEEP};
        enum conv_status status = conv_png_format.open(&own->codec, &config, err);
        if (status)
            return status;
        own->level = level;
    }
    *codec = own->codec;
    return CONV_OK;
}

// --- batches -------------------------------------------------------------------------------------

bool conv_api_batch_open(struct conv_api_batch *batch, conv_context *context, conv_item *items,
                         int count, size_t size, enum conv_status *status)
{
    struct conv_memory_pools *pools = context->device->pools;
    struct conv_err *err = &context->err;
    *batch = (struct conv_api_batch){
        .context = context, .items = items, .count = count, .first_failed = INT_MAX};
    if (!*status && !context->coders) {
        context->coders = calloc((size_t)context->device->threads, sizeof *context->coders);
        if (!context->coders)
            *status = conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    }
    if (!*status && count > 0)
        *status = conv_memory_take(pools, CONV_HOST, (size_t)count * size, &batch->memory, err);
    if (!*status && conv_lock_init(&batch->lock))
        *status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for a lock");
    for (int i = 0; items && i < count; i++) {
        items[i].status = *status;
        items[i].message[0] = 0;
        if (*status)
            conv_api_explain(items[i].message, sizeof items[i].message, err);
    }
    if (!*status) {
        if (count > 0)
            memset(batch->memory, 0, (size_t)count * size);
        return true;
    }
    conv_memory_give(pools, CONV_HOST, batch->memory);
    *status = conv_api_end(context, *status);
    return false;
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
    conv_memory_give(batch->context->device->pools, CONV_HOST, batch->memory);
    batch->context->lost |= batch->device_lost;
    return conv_api_end(batch->context, batch->status);
}

// --- headers -------------------------------------------------------------------------------------

conv_status conv_probe_png(const void *data, size_t size, conv_png_info *info, char *message)
{
    struct conv_image_header header;
    struct conv_err err;
    enum conv_status status =
        data && info ? conv_png_format.probe(data, size, &header, &err)
                     : conv_err_set(&err, CONV_ERR_USAGE, "%s is NULL", data ? "`info`" : "`data`");
    if (status) {
        if (message)
            conv_api_explain(message, CONV_MESSAGE_SIZE, &err);
        return status;
    }
    *info = (conv_png_info){
        .width = header.shape.width,
        .height = header.shape.height,
        .channels = header.shape.channels,
        .sample = header.shape.depth == 16 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8,
        .has_alpha = header.shape.alpha,
        .bit_depth = header.png.bit_depth,
        .color_type = header.png.color_type,
        .interlaced = header.png.interlaced,
        .animated = conv_png_format.is_animated(data, size),
    };
    return CONV_OK;
}
