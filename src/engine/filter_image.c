// SPDX-License-Identifier: MIT
// A filter context is a backend, a stream and one group in staging memory.
#include "engine/filter_image.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/memory.h"
#include "kernels/stencil/alpha.h"

struct conv_filter_context {
    const struct conv_device_ops *ops;
    struct conv_backend *backend;
    bool owns_backend;
    struct conv_stream *stream;
    enum conv_alpha_mode alpha;
    size_t table_bytes; // per filtered plane
    struct conv_parallel *parallel;
    // The group that was placed last, in memory of the context or of the caller.
    struct conv_group *group;
    struct conv_placed *placed;
    int count;
    // The context's own memory.
    struct conv_group own_group;
    struct conv_placed *own_placed;
    int capacity; // images
};

static void free_staging(struct conv_group *group)
{
    conv_staging_free(group->h_in, group->capacity);
    conv_staging_free(group->h_out, group->capacity);
    group->h_in = group->h_out = NULL;
    group->capacity = group->in_capacity = 0;
}

void conv_filter_context_close(struct conv_filter_context *context)
{
    if (!context)
        return;
    context->ops->stream_close(context->stream);
    if (context->owns_backend)
        context->ops->close(context->backend);
    free_staging(&context->own_group);
    free(context->own_group.planes);
    free(context->own_placed);
    free(context);
}

enum conv_status conv_filter_context_open_on(struct conv_filter_context **out,
                                             const struct conv_device_ops *ops,
                                             struct conv_backend *backend, int filter_count,
                                             enum conv_alpha_mode alpha, struct conv_err *err)
{
    struct conv_filter_context *context = calloc(1, sizeof *context);
    if (!context)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a filter context");
    context->ops = ops;
    context->backend = backend;
    context->alpha = alpha;
    context->table_bytes = ops->table_bytes(filter_count, false);
    enum conv_status status = ops->stream_open(backend, &context->stream, 0, err);
    if (status)
        conv_filter_context_close(context);
    else
        *out = context;
    return status;
}

enum conv_status conv_filter_context_open(struct conv_filter_context **out,
                                          const struct conv_device_ops *ops,
                                          const struct conv_backend_config *config,
                                          struct conv_err *err)
{
    struct conv_backend *backend = NULL;
    enum conv_status status = ops->open(&backend, config, err);
    if (status)
        return status;
    status =
        conv_filter_context_open_on(out, ops, backend, config->filter_count, config->alpha, err);
    if (status)
        ops->close(backend);
    else
        (*out)->owns_backend = true;
    return status;
}

void conv_filter_context_share(struct conv_filter_context *context, struct conv_parallel *parallel)
{
    context->parallel = parallel;
}

const char *conv_filter_context_variant(const struct conv_filter_context *context, int index,
                                        int depth)
{
    return context->ops->variant(context->backend, index, depth);
}

// --- staging -------------------------------------------------------------------------------------

static enum conv_status reserve_staging(struct conv_group *group, size_t bytes,
                                        struct conv_err *err)
{
    void *h_in = NULL, *h_out = NULL;
    if (bytes <= group->capacity)
        return CONV_OK;
    free_staging(group);
    enum conv_status status = conv_staging_alloc(&h_in, bytes, err);
    if (!status && (status = conv_staging_alloc(&h_out, bytes, err)))
        conv_staging_free(h_in, bytes);
    if (status)
        return status;
    group->h_in = h_in;
    group->h_out = h_out;
    group->capacity = group->in_capacity = bytes;
    return CONV_OK;
}

static enum conv_status reserve_lists(struct conv_filter_context *context, int images,
                                      struct conv_err *err)
{
    struct conv_group *group = &context->own_group;
    if (images <= context->capacity)
        return CONV_OK;
    int planes = images * CONV_IMAGE_MAX_CHANNELS;
    free(context->own_placed);
    free(group->planes);
    context->own_placed = calloc((size_t)images, sizeof *context->own_placed);
    group->planes = calloc((size_t)planes, sizeof *group->planes);
    bool done = context->own_placed && group->planes;
    context->capacity = done ? images : 0;
    group->plane_capacity = done ? planes : 0;
    return done ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d images", images);
}

enum conv_status conv_filter_context_place(struct conv_filter_context *context,
                                           const struct conv_image *shapes, int count,
                                           struct conv_image *images, struct conv_err *err)
{
    bool filter_alpha = context->alpha != CONV_ALPHA_KEEP;
    struct conv_group *group = &context->own_group;
    size_t bytes = 0;
    context->count = 0;
    for (int i = 0; i < count; i++)
        bytes += conv_group_need(&shapes[i], filter_alpha, context->table_bytes);
    enum conv_status status = reserve_lists(context, count, err);
    if (!status)
        status = reserve_staging(group, bytes, err);
    if (status)
        return status;
    conv_group_reset(group);
    context->group = group;
    context->placed = context->own_placed;
    for (; context->count < count; context->count++) {
        struct conv_placed *placed = &context->placed[context->count];
        conv_group_place(group, &shapes[context->count], filter_alpha, context->table_bytes,
                         placed);
        images[context->count] = placed->in;
    }
    return CONV_OK;
}

void conv_filter_context_place_in(struct conv_filter_context *context, struct conv_group *group,
                                  const struct conv_image *shape, struct conv_placed *placed)
{
    context->group = group;
    context->placed = placed;
    context->count = 1;
    bool fits = conv_group_place(group, shape, context->alpha != CONV_ALPHA_KEEP,
                                 context->table_bytes, placed);
    assert(fits);
    (void)fits;
}

// --- filtering -----------------------------------------------------------------------------------

enum conv_status conv_filter_context_run(struct conv_filter_context *context, struct conv_err *err)
{
    bool premultiplied = context->alpha == CONV_ALPHA_PREMULTIPLY;
    for (int i = 0; i < context->count && premultiplied; i++)
        conv_alpha_multiply(&context->placed[i].in);
    context->group->parallel = context->parallel;
    enum conv_status status = context->ops->stream_run(context->stream, context->group, err);
    for (int i = 0; i < context->count && premultiplied && !status; i++) {
        struct conv_image result;
        conv_filter_context_result(context, i, &result);
        conv_alpha_divide(&result);
    }
    return status;
}

void conv_filter_context_result(const struct conv_filter_context *context, int index,
                                struct conv_image *image)
{
    conv_group_result(context->group, &context->placed[index], image);
}

enum conv_status conv_filter_image(struct conv_filter_context *context,
                                   const struct conv_image *dst, const struct conv_image *src,
                                   struct conv_err *err)
{
    struct conv_image staged, result;
    enum conv_status status = conv_filter_context_place(context, src, 1, &staged, err);
    if (status)
        return status;
    conv_image_copy(&staged, src);
    status = conv_filter_context_run(context, err);
    if (status)
        return status;
    conv_filter_context_result(context, 0, &result);
    conv_image_copy(dst, &result);
    return CONV_OK;
}
