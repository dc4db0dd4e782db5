// SPDX-License-Identifier: MIT
// What decoding and encoding share: the codecs of a context's threads, and batches whose items fail
// one by one.
#include "api/api.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files/formats.h"

// A worker keeps buffers of at most this size each between calls, so that one large image does not
// occupy memory for the rest of the context's life.
#define KEEP ((size_t)64 << 20)

enum conv_status conv_api_find_format(const struct conv_format **format, const char *extension,
                                      struct conv_err *err)
{
    *format = conv_formats_of_extension(extension);
    return *format ? CONV_OK
                   : conv_err_unsupported(err, "this libconv was built without libjpeg-turbo");
}

void conv_api_coders_close(conv_context *context)
{
    int count = context->device ? context->device->threads * conv_format_count : 0;
    for (int i = 0; context->coders && i < count; i++)
        conv_codec_close(context->coders[i]);
    free(context->coders);
}

static bool is_same(const struct conv_codec_config *a, const struct conv_codec_config *b)
{
    return a->level == b->level && a->quality == b->quality && a->sampling_h == b->sampling_h &&
           a->sampling_v == b->sampling_v && a->progressive == b->progressive &&
           a->optimize == b->optimize;
}

enum conv_status conv_api_coder_get(conv_context *context, int worker,
                                    const struct conv_format *format,
                                    const struct conv_codec_config *config,
                                    struct conv_codec **codec, struct conv_err *err)
{
    struct conv_codec_config own = config ? *config : (struct conv_codec_config){.level = -1};
    struct conv_codec **kept = &context->coders[worker * conv_format_count];
    enum conv_status status = CONV_OK;
    for (int i = 0; conv_formats[i] != format; i++)
        kept++;
    own.keep = KEEP;
    if (*kept && config && !is_same(&(*kept)->config, config)) {
        conv_codec_close(*kept);
        *kept = NULL;
    }
    if (!*kept)
        status = conv_codec_open(kept, format, &own, err);
    *codec = *kept;
    return status;
}

// --- batches -------------------------------------------------------------------------------------

bool conv_api_batch_open(struct conv_api_batch *batch, conv_context *context,
                         const conv_bytes *files, const conv_image *images, conv_item *items,
                         int count, size_t size, enum conv_status *status)
{
    struct conv_memory_pools *pools = context->device->pools;
    struct conv_err *err = &context->err;
    *batch = (struct conv_api_batch){
        .context = context, .items = items, .count = count, .first_failed = INT_MAX};
    if (!*status && count < 0)
        *status = conv_err_usage(err, "`count` is %d; it must not be negative", count);
    if (!*status && count > 0 && (!files || !images))
        *status = conv_err_usage(err, "`%s` is NULL", files ? "images" : "files");
    if (!*status && !context->coders) {
        context->coders =
            calloc((size_t)(context->device->threads * conv_format_count), sizeof *context->coders);
        if (!context->coders)
            *status = conv_err_memory(err, "out of memory");
    }
    if (!*status && count > 0)
        *status = conv_memory_take(pools, CONV_HOST, (size_t)count * size, &batch->memory, err);
    conv_lock_init(&batch->lock);
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
