// SPDX-License-Identifier: MIT
// Contexts: a device, its pools of memory, and threads; copies and the order of work on streams.
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// Errors in the words of conv.h: which member of the options a text is about, or would help.
struct words {
    const char *before, *after;
};

// Hints that only the program's options can cause have no words.
static const struct words words_of[CONV_HINT_COUNT] = {
    [CONV_HINT_BIAS] = {"bias: ", ""},
    [CONV_HINT_BORDER_CONSTANT] = {"border constant:V ", ""},
    [CONV_HINT_DIVISOR] = {"divisor: ", ""},
    [CONV_HINT_DIVISOR_SUM] = {"divisor \"sum\": ", ""},
    [CONV_HINT_KERNEL] = {"kernel: ", ""},
    [CONV_HINT_KERNEL_AT] = {"kernel, ", ""},
    [CONV_HINT_PADDING] = {"padding ", ""},
    [CONV_HINT_SIZE] = {"side: ", ""},
    [CONV_HINT_SIZE_OF_CUSTOM] = {"side is for built-in filters; ", ""},
    [CONV_HINT_SUBFOLDERS] = {"with `recursive`: ", ""},
    [CONV_HINT_VARIANT] = {"variant ", ""},
    [CONV_HINT_DEFINE_KERNEL] = {"", ": `kernel` defines it"},
    [CONV_HINT_FEWER_WORKERS] = {"", "; use fewer `threads` in the context"},
    [CONV_HINT_FLOATS] = {"", " (`floats`)"},
    [CONV_HINT_MAX_PIXELS] = {"", " (`max_pixels` of the context)"},
    [CONV_HINT_OTHER_FOLDER] = {"", "; name another output folder"},
};

char *conv_api_explain(char *text, size_t size, const struct conv_err *err)
{
    const struct words *words = &words_of[err->hint];
    snprintf(text, size, "%s%s%s", words->before ? words->before : "", err->text,
             words->after ? words->after : "");
    return text;
}

enum conv_status conv_api_begin(conv_context *context)
{
    if (!context)
        return CONV_ERR_USAGE;
    if (context->lost)
        return conv_err_set(&context->err, CONV_ERR_DEVICE,
                            "the device of this context was lost: destroy the context");
    struct conv_device_context *device = context->device;
    enum conv_status status = device->ops->enter(device, &context->previous, &context->err);
    context->entered = !status;
    return status;
}

enum conv_status conv_api_end(conv_context *context, enum conv_status status)
{
    if (!context)
        return status;
    struct conv_err *err = &context->err;
    if (context->entered)
        context->device->ops->leave(context->device, context->previous);
    context->entered = false;
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
        return conv_err_usage(err, "options of %zu bytes: `size` is not set to sizeof the struct",
                              size);
    // A newer program's fields must be unset, since this library cannot honour them.
    if (size > 4096)
        return conv_err_usage(
            err, "options of %zu bytes: `size` is larger than any version's struct", size);
    const unsigned char *bytes = options;
    for (size_t i = reserved_at; i < size; i++)
        if (bytes[i])
            return conv_err_unsupported(err, "the options have a field that conv " CONV_VERSION
                                             " lacks");
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
        int found = 0, left = room > *count ? room - *count : 0;
        left = left < CONV_BACKEND_MOST_DEVICES ? left : CONV_BACKEND_MOST_DEVICES;
        if (ops->devices(info, left, &found, NULL))
            continue;
        for (int k = 0; k < found && k < left; k++)
            describe_device(&devices[*count + k], ops, k, &info[k]);
        *count += found;
    }
    return CONV_OK;
}

// Opens the device that the options name; without a name, the first that there is.
static enum conv_status open_device(conv_context *context, const conv_context_options *options,
                                    int threads, struct conv_err *err)
{
    const char *text =
        options->device && strcmp(options->device, "auto") != 0 ? options->device : NULL;
    int ordinal = 0;
    const struct conv_device_ops *ops =
        text ? conv_engine_parse(conv_engine_devices, text, strlen(text), &ordinal) : NULL;
    if (text && !ops)
        return conv_err_usage(err, "unknown device '%.64s' (there are auto, cpu, cuda, cuda:N)",
                              text);
    for (int i = CONV_ENGINE_DEVICES - 1; i > 0 && !text; i--)
        if (conv_engine_devices[i]->has_driver() &&
            !conv_device_context_open(&context->device, conv_engine_devices[i], 0, threads,
                                      options->pool_bytes, err))
            return CONV_OK;
    return conv_device_context_open(&context->device, text ? ops : conv_engine_devices[0], ordinal,
                                    threads, options->pool_bytes, err);
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
        return conv_err_usage(err, "%d threads; there must be 1 to %d, or 0 for one per core",
                              own.threads, MOST_THREADS);
    int threads = own.threads;
    if (!threads) {
        struct conv_limits limits;
        conv_limits_read(&limits);
        threads = limits.cores < MOST_THREADS ? limits.cores : MOST_THREADS;
    }
    context->max_pixels = own.max_pixels ? own.max_pixels : MAX_PIXELS;
    status = open_device(context, &own, threads, err);
    if (!status)
        name_device(context->name, sizeof context->name, context->device->ops,
                    context->device->ordinal);
    return status;
}

conv_status conv_context_create(conv_context **out, const conv_context_options *options,
                                char *message)
{
    struct conv_err err = {0};
    if (!out)
        return CONV_ERR_USAGE;
    *out = NULL;
    conv_context *context = calloc(1, sizeof *context);
    enum conv_status status =
        context ? fill_context(context, options, &err) : conv_err_memory(&err, "out of memory");
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
    conv_api_coders_close(context);
    conv_device_context_close(context->device);
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

// --- memory of the caller, and streams -----------------------------------------------------------

static bool is_memory(conv_memory memory)
{
    return memory == CONV_HOST || memory == CONV_DEVICE;
}

conv_status conv_allocate(conv_context *context, conv_memory memory, size_t bytes, void **data)
{
    enum conv_status status = conv_api_begin(context);
    if (!status && (!data || !is_memory(memory)))
        status = conv_err_usage(&context->err, "%s",
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
    enum conv_status status = conv_api_begin(context);
    struct conv_err *err = status ? NULL : &context->err;
    if (!status && (!is_memory(result_memory) || !is_memory(source_memory)))
        status = conv_err_usage(err, "a memory argument is not a kind of memory");
    if (!status && bytes > 0 && (!result || !source))
        status = conv_err_usage(err, "`%s` is NULL", result ? "source" : "result");
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
    enum conv_status status = conv_api_begin(context);
    if (!status && !conv_api_is_cpu(context))
        status = context->device->ops->stream_wait(context->device, stream, &context->err);
    return conv_api_end(context, status);
}

conv_status conv_context_wait(conv_context *context)
{
    enum conv_status status = conv_api_begin(context);
    if (!status && !conv_api_is_cpu(context))
        status = context->device->ops->synchronise(context->device, &context->err);
    return conv_api_end(context, status);
}

conv_status conv_stream_order(conv_context *context, void *earlier, void *later)
{
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
