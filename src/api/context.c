// SPDX-License-Identifier: MIT
// Contexts: a device, its pools of memory, and threads.
#include "api/api_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_codecs.h"
#include "base/limits.h"

#define MAX_PIXELS ((uint64_t)1 << 28)
#define MOST_THREADS 1024

const char *conv_version(void)
{
    return CONV_VERSION;
}

const char *conv_status_name(conv_status status)
{
    static const char *const names[] = {
        [CONV_OK] = "ok",
        [CONV_ERR_USAGE] = "usage",
        [CONV_ERR_IO] = "io",
        [CONV_ERR_FORMAT] = "format",
        [CONV_ERR_UNSUPPORTED] = "unsupported",
        [CONV_ERR_LIMIT] = "limit",
        [CONV_ERR_MEMORY] = "memory",
        [CONV_ERR_DEVICE] = "device",
        [CONV_ERR_CANCELLED] = "cancelled",
    };
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

// --- reporting -----------------------------------------------------------------------------------

enum conv_status conv_api_begin(conv_context *context)
{
    if (context->lost)
        return conv_err_set(&context->err, CONV_ERR_DEVICE,
                            "the device of this context was lost: destroy the context");
    return CONV_OK;
}

enum conv_status conv_api_end(conv_context *context, enum conv_status status)
{
    struct conv_err *err = &context->err;
    context->lost |= status == CONV_ERR_DEVICE;
    if (status && err->hint) {
        struct conv_err plain = *err;
        conv_api_explain(err->text, sizeof err->text, &plain);
        err->hint = CONV_HINT_NONE;
    }
    if (status) // as conv.h promises; texts with long paths are cut
        err->text[CONV_MESSAGE_SIZE - 1] = 0;
    return status;
}

enum conv_status conv_api_read_options(void *own, size_t own_size, const void *options,
                                       size_t least, size_t reserved_at, struct conv_err *err)
{
    size_t size;
    if (!options)
        return CONV_OK;
    memcpy(&size, options, sizeof size);
    if (size < least)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "options of %zu bytes: `size` is not set to sizeof the struct", size);
    // A newer program's fields must be unset, since this library cannot honour them.
    if (size > 4096)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "options of %zu bytes: `size` is larger than any version's struct",
                            size);
    const unsigned char *bytes = options;
    for (size_t i = reserved_at; i < size; i++)
        if (bytes[i])
            return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                                "the options have a field that conv " CONV_VERSION " lacks");
    memcpy(own, options, size < own_size ? size : own_size);
    return CONV_OK;
}

// --- devices -------------------------------------------------------------------------------------

static void name_device(char *name, size_t size, const struct conv_device_ops *ops, int ordinal)
{
    if (ops->place == CONV_ON_CPU)
        snprintf(name, size, "%s", ops->name);
    else
        snprintf(name, size, "%.8s:%d", ops->name, ordinal % 100000);
}

static void describe_device(conv_device_description *device, const struct conv_device_ops *ops,
                            int ordinal, const struct conv_device_info *info)
{
    *device = (conv_device_description){.memory = info->memory};
    name_device(device->device, sizeof device->device, ops, ordinal);
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, info->name);
}

conv_status conv_devices(conv_device_description *devices, int room, int *count)
{
    if (!count || room < 0 || (room > 0 && !devices))
        return CONV_ERR_USAGE;
    *count = 0;
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++) {
        const struct conv_device_ops *ops = conv_engine_devices[i];
        struct conv_device_info info[CONV_BACKEND_MOST_DEVICES];
        struct conv_err err;
        int found = 0, left = room > *count ? room - *count : 0;
        left = left < CONV_BACKEND_MOST_DEVICES ? left : CONV_BACKEND_MOST_DEVICES;
        if (ops->devices(info, left, &found, &err))
            continue;
        for (int k = 0; k < found && k < left; k++)
            describe_device(&devices[*count + k], ops, k, &info[k]);
        *count += found;
    }
    return CONV_OK;
}

// "cpu", "cuda", "cuda:1". NULL if there is no such device.
static const struct conv_device_ops *parse_device(const char *text, int *ordinal)
{
    *ordinal = 0;
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++) {
        const struct conv_device_ops *backend = conv_engine_devices[i];
        size_t length = strlen(backend->name);
        if (strncmp(text, backend->name, length) != 0)
            continue;
        if (!text[length])
            return conv_engine_devices[i];
        int used = 0;
        if (backend->place != CONV_ON_CPU && strlen(text) < 12 &&
            strspn(text + length + 1, "0123456789") == strlen(text + length + 1) &&
            sscanf(text + length, ":%5d%n", ordinal, &used) == 1 && !text[length + (size_t)used])
            return conv_engine_devices[i];
    }
    return NULL;
}

static enum conv_status open_device(conv_context *context, const struct conv_device_ops *ops,
                                    int ordinal, struct conv_err *err)
{
    struct conv_device_host host = {context->pools, context->workers, context->threads};
    enum conv_status status = ops->context_open(&context->device, ordinal, &host, err);
    if (status)
        return status;
    context->ops = ops;
    context->ordinal = ordinal;
    name_device(context->name, sizeof context->name, ops, ordinal);
    conv_memory_set_device(context->pools, ops, context->device);
    return CONV_OK;
}

static enum conv_status choose_device(conv_context *context, const char *text, struct conv_err *err)
{
    if (text && strcmp(text, "auto") != 0) {
        int ordinal;
        const struct conv_device_ops *ops = parse_device(text, &ordinal);
        if (!ops)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "unknown device '%.64s' (there are auto, cpu, cuda, cuda:N)", text);
        return open_device(context, ops, ordinal, err);
    }
    for (int i = CONV_ENGINE_DEVICES - 1; i > 0; i--)
        if (conv_engine_devices[i]->has_driver() &&
            !open_device(context, conv_engine_devices[i], 0, err))
            return CONV_OK;
    return open_device(context, conv_engine_devices[0], 0, err);
}

// --- contexts ------------------------------------------------------------------------------------

static enum conv_status fill_context(conv_context *context, const conv_context_options *options,
                                     struct conv_err *err)
{
    conv_context_options own = CONV_CONTEXT_OPTIONS_INIT;
    enum conv_status status = CONV_API_READ_OPTIONS(&own, options, err);
    if (status)
        return status;
    if (own.threads < 0 || own.threads > MOST_THREADS)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%d threads; there must be 1 to %d, or 0 for one per core", own.threads,
                            MOST_THREADS);
    context->threads = own.threads;
    if (!own.threads) {
        struct conv_limits limits;
        conv_limits_read(&limits);
        context->threads = limits.cores < MOST_THREADS ? limits.cores : MOST_THREADS;
    }
    context->max_pixels = own.max_pixels ? own.max_pixels : MAX_PIXELS;
    status = conv_workers_open(&context->workers, context->threads, err);
    if (!status)
        status = conv_memory_open(&context->pools, own.pool_bytes, err);
    return status ? status : choose_device(context, own.device, err);
}

conv_status conv_context_create(conv_context **out, const conv_context_options *options,
                                char *message)
{
    struct conv_err err = {0};
    if (!out)
        return CONV_ERR_USAGE;
    *out = NULL;
    conv_context *context = calloc(1, sizeof *context);
    enum conv_status status = context ? fill_context(context, options, &err)
                                      : conv_err_set(&err, CONV_ERR_MEMORY, "out of memory");
    if (!status) {
        *out = context;
        return CONV_OK;
    }
    conv_context_destroy(context);
    if (message)
        conv_api_explain(message, CONV_MESSAGE_SIZE, &err);
    return status;
}

void conv_context_destroy(conv_context *context)
{
    if (!context)
        return;
    conv_workers_close(context->workers);
    conv_api_codecs_close(context->codecs);
    if (context->ops) {
        struct conv_err err;
        (void)context->ops->synchronise(context->device, &err); // a lost device has nothing to do
        conv_memory_empty(context->pools);
        context->ops->context_close(context->device);
    }
    conv_memory_close(context->pools);
    free(context);
}

const char *conv_context_message(const conv_context *context)
{
    return context ? context->err.text : "";
}

const char *conv_context_device(const conv_context *context)
{
    return context ? context->name : "";
}

// --- memory --------------------------------------------------------------------------------------

conv_status conv_allocate(conv_context *context, conv_memory memory, size_t bytes, void **data)
{
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status && (!data || (memory != CONV_HOST && memory != CONV_DEVICE)))
        status = conv_err_set(&context->err, CONV_ERR_USAGE, "%s",
                              data ? "`memory` is not a kind of memory" : "`data` is NULL");
    if (data)
        *data = NULL;
    if (!status)
        status = conv_memory_take(context->pools, memory, bytes, data, &context->err);
    return conv_api_end(context, status);
}

void conv_free(conv_context *context, conv_memory memory, void *data)
{
    if (context && (memory == CONV_HOST || memory == CONV_DEVICE))
        conv_memory_give(context->pools, memory, data);
}
