// SPDX-License-Identifier: MIT
// The parts of filter banks that do not depend on the device.
#include "engine/bank_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bank_steps.h"

struct conv_bank_context {
    struct conv_bank_config config; // without the bank
    struct conv_bank_steps steps;
    const struct conv_bank_device_ops *ops;
    bool uploaded;
};

static const struct conv_bank_device_ops *const devices[] = {
    [CONV_ON_CPU] = &conv_bank_device_cpu,
    [CONV_ON_CUDA] = &conv_bank_device_cuda,
};

// --- pooling -------------------------------------------------------------------------------------

static const char *const kind_names[CONV_POOL_KINDS] = {
    [CONV_POOL_MEAN] = "mean",
    [CONV_POOL_STD] = "std",
    [CONV_POOL_MAX] = "max",
    [CONV_POOL_ENERGY] = "energy",
};

static bool add_kind(struct conv_pooling *pooling, const char *text, size_t length)
{
    for (int kind = 0; kind < CONV_POOL_KINDS; kind++) {
        if (strlen(kind_names[kind]) != length || memcmp(kind_names[kind], text, length) != 0)
            continue;
        for (int i = 0; i < pooling->count; i++) {
            if ((int)pooling->kinds[i] == kind)
                return false;
        }
        pooling->kinds[pooling->count++] = (enum conv_pool_kind)kind;
        return true;
    }
    return false;
}

enum conv_status conv_pooling_parse(struct conv_pooling *pooling, const char *text,
                                    struct conv_err *err)
{
    const char *at = text;
    bool good = true;
    *pooling = (struct conv_pooling){.grid = 1};
    while (good) {
        size_t length = strcspn(at, ",:");
        good = add_kind(pooling, at, length);
        at += length;
        if (*at != ',')
            break;
        at++;
    }
    if (good && *at == ':') {
        char *end;
        long grid = strtol(at + 1, &end, 10);
        good = at[1] >= '1' && at[1] <= '9' && !*end && grid <= CONV_POOL_MAX_GRID;
        pooling->grid = (int)grid;
    }
    if (good)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "unknown pooling '%s': write mean, std, max and energy, each at most "
                        "once, and a grid of 1 to %d cells per side, for example mean,std:4",
                        text, CONV_POOL_MAX_GRID);
}

// --- contexts ------------------------------------------------------------------------------------

enum conv_status conv_bank_context_open(struct conv_bank_context **out,
                                        const struct conv_bank_config *config, struct conv_err *err)
{
    struct conv_bank_context *context = calloc(1, sizeof *context);
    if (!context)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a filter bank");
    context->config = *config;
    context->config.bank = NULL;
    context->ops = devices[config->place];
    enum conv_status status = conv_bank_steps_make(&context->steps, config, err);
    if (!status) {
        status = context->ops->upload(config->device, &context->steps, err);
        context->uploaded = true;
    }
    if (status)
        conv_bank_context_close(context);
    else
        *out = context;
    return status;
}

void conv_bank_context_close(struct conv_bank_context *context)
{
    if (!context)
        return;
    if (context->uploaded)
        context->ops->release(context->config.device, &context->steps);
    conv_bank_steps_free(&context->steps);
    free(context);
}

int conv_bank_context_maps(const struct conv_bank_context *context)
{
    return context->steps.maps;
}

enum conv_place conv_bank_context_place(const struct conv_bank_context *context)
{
    return context->config.place;
}

void conv_bank_context_describe(const struct conv_bank_context *context, char *text, size_t size)
{
    if (context->ops->place == CONV_ON_CPU)
        snprintf(text, size, "cpu");
    else
        snprintf(text, size, "cuda:%d", context->config.device);
}

bool conv_bank_context_bytes(const struct conv_bank_context *context, int height, int width,
                             size_t *in, size_t *out)
{
    const struct conv_pooling *pool = &context->config.pool;
    size_t plane, per_map = (size_t)(pool->count * pool->grid * pool->grid);
    if (height <= 0 || width <= 0 ||
        __builtin_mul_overflow((size_t)height, (size_t)width, &plane) ||
        __builtin_mul_overflow(plane, conv_element_size(context->config.input), in))
        return false;
    if (!pool->count)
        per_map = plane;
    return !__builtin_mul_overflow(per_map, (size_t)context->steps.maps * sizeof(float), out);
}

size_t conv_bank_context_work(const struct conv_bank_context *context, int height, int width)
{
    const struct conv_bank_steps *steps = &context->steps;
    size_t maps = (size_t)(context->config.pool.count ? steps->most_maps : steps->maps);
    size_t rows = (size_t)height + 2 * (size_t)steps->half_height;
    size_t columns = (size_t)width + 2 * (size_t)steps->half_width;
    return rows * columns * sizeof(float) * (1 + maps + (size_t)steps->most_filters);
}

double conv_bank_cost(const struct conv_bank *bank)
{
    double cost = 0;
    for (int i = 0; i < bank->filter_count; i++) {
        const struct conv_bank_filter *filter = &bank->filters[i];
        cost += filter->terms ? (double)filter->terms * (filter->height + filter->width)
                              : (double)filter->height * filter->width;
    }
    return cost;
}

// --- streams -------------------------------------------------------------------------------------

enum conv_status conv_bank_stream_open(struct conv_bank_context *context,
                                       struct conv_bank_stream **stream, struct conv_err *err)
{
    enum conv_status status = context->ops->stream_open(context->config.device, stream, err);
    if (!status)
        **stream = (struct conv_bank_stream){context, context->ops};
    return status;
}

void conv_bank_stream_close(struct conv_bank_stream *stream)
{
    if (stream)
        stream->ops->stream_close(stream);
}

enum conv_status conv_bank_stream_staging(struct conv_bank_stream *stream, size_t in_bytes,
                                          size_t out_bytes, void **h_in, void **h_out,
                                          struct conv_err *err)
{
    return stream->ops->stream_staging(stream, in_bytes, out_bytes, h_in, h_out, err);
}

enum conv_status conv_bank_stream_run(struct conv_bank_stream *stream, int height, int width,
                                      int64_t images, const void *src, float *dst,
                                      struct conv_err *err)
{
    const struct conv_bank_context *context = stream->context;
    int grid = context->config.pool.count ? context->config.pool.grid : 1;
    if (height < grid || width < grid)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the image of %dx%d pixels is smaller than the grid of %dx%d cells",
                            width, height, grid, grid);
    return stream->ops->stream_run(stream, &context->steps, &context->config, height, width, images,
                                   src, dst, err);
}
