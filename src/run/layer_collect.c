// SPDX-License-Identifier: MIT
#include "run/layer_collect.h"

#include <string.h>

static bool same_shape(const struct conv_tensor_shape *a, const struct conv_tensor_shape *b)
{
    return a->axes == b->axes && memcmp(a->side, b->side, sizeof a->side[0] * (size_t)a->axes) == 0;
}

static struct conv_tensor_shape stack(const struct conv_tensor_shape *shape, int64_t images)
{
    struct conv_tensor_shape stacked = {shape->axes + 1, {images}};
    memcpy(stacked.side + 1, shape->side, sizeof shape->side[0] * (size_t)shape->axes);
    return stacked;
}

// The first result determines the shape of all results; the file is then opened.
static enum conv_status begin(struct conv_layer_collect *collect,
                              const struct conv_tensor_shape *first, struct conv_err *err)
{
    struct conv_tensor_shape shape = stack(first, 0);
    collect->shape = *first;
    if (collect->no_save)
        return CONV_OK;
    enum conv_status status = conv_tensor_writer_open(
        &collect->writer, collect->path, collect->element, &shape, true, collect->stop, err);
    collect->has_writer = !status;
    collect->has_failed = status != CONV_OK;
    if (collect->has_writer)
        collect->watch(&collect->writer.sink);
    return status;
}

enum conv_status conv_layer_collect_place(struct conv_layer_collect *collect,
                                          const struct conv_tensor_shape *shape, int64_t *index,
                                          struct conv_err *err)
{
    char first[CONV_TENSOR_TEXT_SIZE], own[CONV_TENSOR_TEXT_SIZE];
    enum conv_status status = CONV_OK;
    if (collect->has_failed)
        return conv_err_set(err, CONV_ERR_CANCELLED, "the output has failed");
    if (collect->count == 0)
        status = begin(collect, shape, err);
    if (status)
        return status;
    if (!same_shape(&collect->shape, shape))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the result has shape %s, but %s is for results of one shape, %s; a "
                            "folder as output takes any",
                            conv_tensor_shape_text(own, shape), collect->path,
                            conv_tensor_shape_text(first, &collect->shape));
    *index = collect->count++;
    return CONV_OK;
}

enum conv_status conv_layer_collect_write(struct conv_layer_collect *collect, int64_t index,
                                          const void *result, size_t size, struct conv_err *err)
{
    return conv_tensor_writer_write(&collect->writer, (uint64_t)index * size, result, size, err);
}

enum conv_status conv_layer_collect_close(struct conv_layer_collect *collect, bool keep,
                                          struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (!collect->has_writer)
        return CONV_OK;
    struct conv_tensor_shape shape = stack(&collect->shape, collect->count);
    if (keep)
        status = conv_tensor_writer_set_shape(&collect->writer, collect->element, &shape, err);
    enum conv_status closed = conv_tensor_writer_close(&collect->writer, keep && !status,
                                                       collect->fsync, status ? NULL : err);
    collect->watch(NULL);
    return status ? status : closed;
}
