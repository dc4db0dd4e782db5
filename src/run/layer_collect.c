// SPDX-License-Identifier: MIT
#include "run/layer_collect.h"

#include <string.h>

#define WAIT_NS 100000000u

enum conv_status conv_layer_collect_open(struct conv_layer_collect *collect, struct conv_err *err)
{
    int errnum = conv_lock_init(&collect->lock);
    if (!errnum) {
        errnum = conv_lock_init_condition(&collect->changed);
        if (errnum)
            conv_lock_destroy(&collect->lock);
    }
    return errnum ? conv_err_errno(err, errnum, "cannot write %s", collect->path) : CONV_OK;
}

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
    CONV_NEEDS(collect->lock)
{
    struct conv_tensor_shape shape = stack(first, 0);
    collect->shape = *first;
    if (collect->no_save)
        return CONV_OK;
    enum conv_status status = conv_tensor_writer_open(
        &collect->writer, collect->path, collect->element, &shape, true, collect->stop, err);
    collect->has_writer = !status;
    collect->has_failed = status != CONV_OK;
    if (collect->has_writer && collect->watch)
        collect->watch(&collect->writer.sink);
    return status;
}

static enum conv_status place(struct conv_layer_collect *collect,
                              const struct conv_tensor_shape *shape, int64_t *index,
                              struct conv_err *err) CONV_NEEDS(collect->lock)
{
    char first[CONV_TENSOR_TEXT_SIZE], own[CONV_TENSOR_TEXT_SIZE];
    enum conv_status status = CONV_OK;
    if (collect->has_failed)
        return conv_err_set(err, CONV_ERR_CANCELLED, "the output has failed");
    if (collect->next_index == 0)
        status = begin(collect, shape, err);
    if (status)
        return status;
    if (!same_shape(&collect->shape, shape))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the result has shape %s, but %s is for results of one shape, %s; a "
                            "folder as output takes any",
                            conv_tensor_shape_text(own, shape), collect->path,
                            conv_tensor_shape_text(first, &collect->shape));
    *index = collect->next_index++;
    return CONV_OK;
}

bool conv_layer_collect_is_turn(struct conv_layer_collect *collect, int64_t turn)
{
    conv_lock_acquire(&collect->lock);
    bool is_turn = collect->next_turn == turn;
    conv_lock_release(&collect->lock);
    return is_turn;
}

enum conv_status conv_layer_collect_take(struct conv_layer_collect *collect, int64_t turn,
                                         const struct conv_tensor_shape *shape, int64_t *index,
                                         bool *is_fatal, struct conv_err *err)
{
    conv_lock_acquire(&collect->lock);
    while (collect->next_turn != turn)
        (void)conv_lock_wait(&collect->lock, &collect->changed, WAIT_NS);
    enum conv_status status = shape ? place(collect, shape, index, err) : CONV_OK;
    *is_fatal = shape && collect->has_failed;
    collect->next_turn++;
    pthread_cond_broadcast(&collect->changed);
    conv_lock_release(&collect->lock);
    return status;
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
    if (collect->has_writer) {
        struct conv_tensor_shape shape = stack(&collect->shape, collect->next_index);
        if (keep)
            status = conv_tensor_writer_set_shape(&collect->writer, collect->element, &shape, err);
        enum conv_status closed = conv_tensor_writer_close(&collect->writer, keep && !status,
                                                           collect->fsync, status ? NULL : err);
        status = status ? status : closed;
        if (collect->watch)
            collect->watch(NULL);
    }
    pthread_cond_destroy(&collect->changed);
    conv_lock_destroy(&collect->lock);
    return status;
}
