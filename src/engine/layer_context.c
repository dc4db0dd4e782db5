// SPDX-License-Identifier: MIT
// The plans of a context: made at the first use of a shape, and kept for a number of shapes.
#include "engine/layer_context.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/suggest.h"
#include "engine/layer_device.h"

#define MOST_NAMES 128
// Plans that are kept. A folder of photographs has a few sizes; one of a thousand sizes makes a
// plan per image, which costs less than the image.
#define MOST_PLANS 64
#define PACKED_ALIGN 64
#define SCRATCH_ALIGN 256

struct conv_layer_context {
    struct conv_layer layer;
    const struct conv_layer_device_ops *ops;
    int device;
    unsigned have;
    const char *variant;
    struct conv_lock lock;
    struct conv_layer_prepared *plans; // protected by `lock`, as the next two
    int plan_count;
    uint64_t calls;
};

static const struct conv_layer_device_ops *const devices[] = {
    [CONV_ON_CPU] = &conv_layer_device_cpu,
    [CONV_ON_CUDA] = &conv_layer_device_cuda,
};

static size_t align(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

// --- the choice of a kernel ----------------------------------------------------------------------

static const char *device_word(enum conv_place place)
{
    return place == CONV_ON_CPU ? "CPU" : "GPU";
}

// CONV_ERR_USAGE if no kernel of that place has the name.
static enum conv_status check_name(const char *name, enum conv_place place, struct conv_err *err)
{
    const char *names[MOST_NAMES];
    char all[1024] = "";
    size_t count = 0;
    int variant_count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&variant_count);
    for (int i = 0; i < variant_count && count < MOST_NAMES; i++) {
        if (variants[i]->place != place)
            continue;
        if (strcmp(variants[i]->name, name) == 0)
            return CONV_OK;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", variants[i]->name);
        names[count++] = variants[i]->name;
    }
    const char *near = conv_suggest_nearest(name, names, sizeof names[0], count);
    return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                         conv_err_set(err, CONV_ERR_USAGE,
                                      "%s: no layer kernel of the %s%s%s%s (there are %s)", name,
                                      device_word(place), near ? "; did you mean '" : "",
                                      near ? near : "", near ? "'?" : "", all));
}

static enum conv_status no_variant(const struct conv_layer_context *context, struct conv_err *err)
{
    const char *device = device_word(context->ops->place);
    if (!context->variant)
        return conv_err_set(err, CONV_ERR_USAGE, "no %s kernel can do this layer", device);
    return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                         conv_err_set(err, CONV_ERR_USAGE,
                                      "%s: cannot do this layer at this precision on this %s",
                                      context->variant, device));
}

// --- plans ---------------------------------------------------------------------------------------

static void free_prepared(const struct conv_layer_context *context,
                          struct conv_layer_prepared *prepared)
{
    if (prepared->d_packed)
        context->ops->release(context->device, prepared);
    free(prepared->packed);
    free(prepared);
}

static enum conv_status fill_prepared(const struct conv_layer_context *context,
                                      struct conv_layer_prepared *prepared,
                                      const struct conv_layer_shape *shape, struct conv_err *err)
{
    const struct conv_layer *layer = &context->layer;
    struct conv_layer_plan *plan = &prepared->plan;
    if (!conv_layer_plan_best(plan, layer, shape, context->ops->place, context->have,
                              context->variant))
        return no_variant(context, err);
    prepared->shape = *shape;
    prepared->outer = *layer;
    if (plan->pads) {
        size_t images = shape->images > 0 ? (size_t)shape->images : 1;
        prepared->pad_bytes = align(images * (size_t)layer->channels * (size_t)plan->shape.height *
                                        (size_t)plan->shape.width * sizeof(float),
                                    SCRATCH_ALIGN);
    }
    size_t packed = plan->packed_bytes;
    if (packed > 0)
        prepared->packed = aligned_alloc(PACKED_ALIGN, align(packed, PACKED_ALIGN));
    if (packed > 0 && !prepared->packed)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the weights (%zu KiB)",
                            packed >> 10);
    conv_layer_plan_pack(plan, prepared->packed);
    prepared->scratch = prepared->pad_bytes + plan->scratch;
    return packed > 0 && context->ops->upload ? context->ops->upload(context->device, prepared, err)
                                              : CONV_OK;
}

// Drops the plan that was used least recently of those without users.
static void drop_oldest(struct conv_layer_context *context)
{
    struct conv_layer_prepared **oldest = NULL;
    for (struct conv_layer_prepared **at = &context->plans; *at; at = &(*at)->next)
        if ((*at)->users == 0 && (!oldest || (*at)->last_use < (*oldest)->last_use))
            oldest = at;
    if (!oldest)
        return;
    struct conv_layer_prepared *dropped = *oldest;
    *oldest = dropped->next;
    context->plan_count--;
    free_prepared(context, dropped);
}

// Takes the plan for a shape, and makes it if there is none. The lock is held meanwhile, since
// threads that start together usually need the same plan.
static enum conv_status take_plan(struct conv_layer_context *context,
                                  const struct conv_layer_shape *shape,
                                  struct conv_layer_prepared **out, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    conv_lock_acquire(&context->lock);
    struct conv_layer_prepared *prepared = context->plans;
    while (prepared &&
           (prepared->shape.height != shape->height || prepared->shape.width != shape->width ||
            prepared->shape.images != shape->images))
        prepared = prepared->next;
    if (!prepared) {
        if (context->plan_count >= MOST_PLANS)
            drop_oldest(context);
        prepared = calloc(1, sizeof *prepared);
        status = prepared ? fill_prepared(context, prepared, shape, err)
                          : conv_err_set(err, CONV_ERR_MEMORY, "no memory for a plan");
        if (!status) {
            prepared->next = context->plans;
            context->plans = prepared;
            context->plan_count++;
        } else if (prepared) {
            free_prepared(context, prepared);
        }
    }
    if (!status) {
        prepared->users++;
        prepared->last_use = ++context->calls;
        *out = prepared;
    }
    conv_lock_release(&context->lock);
    return status;
}

static void give_plan(struct conv_layer_context *context, struct conv_layer_prepared *prepared)
{
    conv_lock_acquire(&context->lock);
    prepared->users--;
    conv_lock_release(&context->lock);
}

// --- the context ---------------------------------------------------------------------------------

enum conv_status conv_layer_context_open(struct conv_layer_context **out,
                                         const struct conv_layer_config *config,
                                         struct conv_err *err)
{
    const struct conv_layer_device_ops *ops = devices[config->place];
    unsigned have = 0;
    enum conv_status status = ops->open(config->device, &have, err);
    if (!status && config->variant)
        status = check_name(config->variant, config->place, err);
    if (status)
        return status;
    struct conv_layer_context *context = calloc(1, sizeof *context);
    int errnum = context ? conv_lock_init(&context->lock) : ENOMEM;
    if (errnum) {
        free(context);
        return conv_err_errno(err, errnum, "cannot make a layer");
    }
    context->layer = *config->layer;
    context->ops = ops;
    context->device = config->device;
    context->have = have;
    context->variant = config->variant;
    *out = context;
    return CONV_OK;
}

void conv_layer_context_close(struct conv_layer_context *context)
{
    if (!context)
        return;
    while (context->plans) {
        struct conv_layer_prepared *prepared = context->plans;
        context->plans = prepared->next;
        free_prepared(context, prepared);
    }
    conv_lock_destroy(&context->lock);
    free(context);
}

const struct conv_layer *conv_layer_context_layer(const struct conv_layer_context *context)
{
    return &context->layer;
}

enum conv_place conv_layer_context_place(const struct conv_layer_context *context)
{
    return context->ops->place;
}

void conv_layer_context_describe(const struct conv_layer_context *context, char *text, size_t size)
{
    if (context->ops->place == CONV_ON_CPU)
        snprintf(text, size, "%s", context->ops->name);
    else
        snprintf(text, size, "%s:%d", context->ops->name, context->device);
}

enum conv_status conv_layer_context_variant(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_variant **variant,
                                            struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(context, shape, &prepared, err);
    if (status)
        return status;
    *variant = prepared->plan.variant;
    give_plan(context, prepared);
    return CONV_OK;
}

bool conv_layer_context_bytes(const struct conv_layer *layer, int height, int width, size_t *in,
                              size_t *out)
{
    int64_t tall = (int64_t)height + layer->pad_top + layer->pad_bottom;
    int64_t wide = (int64_t)width + layer->pad_left + layer->pad_right;
    if (tall > INT_MAX || wide > INT_MAX)
        return false;
    int rows = conv_layer_out_height(layer, height), columns = conv_layer_out_width(layer, width);
    // The padded input in float32, which lies between the two, has to fit as well.
    size_t padded, plane = (size_t)tall * (size_t)wide;
    return rows > 0 && columns > 0 &&
           !__builtin_mul_overflow(plane, sizeof(float) * (size_t)layer->channels, &padded) &&
           !__builtin_mul_overflow((size_t)rows * (size_t)columns,
                                   conv_element_size(layer->output) * (size_t)layer->maps, out) &&
           !__builtin_mul_overflow((size_t)height * (size_t)width,
                                   conv_element_size(layer->input) * (size_t)layer->channels, in);
}

// --- batches -------------------------------------------------------------------------------------

struct conv_layer_batch conv_layer_batch_of(const struct conv_layer *layer,
                                            const struct conv_layer_shape *shape, int64_t images,
                                            const void *src, void *dst)
{
    int64_t row = shape->width * (int64_t)conv_element_size(layer->input);
    return (struct conv_layer_batch){
        .images = images,
        .src = src,
        .src_row = row,
        .src_plane = row * shape->height,
        .src_image = row * shape->height * layer->channels,
        .dst = dst,
        .rows = conv_layer_out_height(layer, shape->height),
    };
}

enum conv_status conv_layer_stream_open(struct conv_layer_context *context, int threads,
                                        struct conv_layer_stream **stream, struct conv_err *err)
{
    struct conv_layer_stream *opened;
    enum conv_status status = context->ops->stream_open(context->device, threads, &opened, err);
    if (status)
        return status;
    opened->context = context;
    opened->ops = context->ops;
    *stream = opened;
    return CONV_OK;
}

void conv_layer_stream_close(struct conv_layer_stream *stream)
{
    if (stream)
        stream->ops->stream_close(stream);
}

enum conv_status conv_layer_stream_staging(struct conv_layer_stream *stream, size_t in_bytes,
                                           size_t out_bytes, void **h_in, void **h_out,
                                           struct conv_err *err)
{
    return stream->ops->stream_staging(stream, in_bytes, out_bytes, h_in, h_out, err);
}

enum conv_status conv_layer_stream_run(struct conv_layer_stream *stream,
                                       const struct conv_layer_shape *shape, int64_t images,
                                       const void *src, void *dst, struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(stream->context, shape, &prepared, err);
    if (status)
        return status;
    status = stream->ops->stream_run(stream, prepared, images, src, dst, err);
    give_plan(stream->context, prepared);
    return status;
}

enum conv_status conv_layer_context_scratch(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape, size_t *bytes,
                                            struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(context, shape, &prepared, err);
    if (status)
        return status;
    *bytes = prepared->scratch;
    give_plan(context, prepared);
    return CONV_OK;
}

enum conv_status conv_layer_context_enqueue(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_batch *batch,
                                            struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(context, shape, &prepared, err);
    if (status)
        return status;
    status = context->ops->enqueue(prepared, batch, err);
    give_plan(context, prepared);
    return status;
}
