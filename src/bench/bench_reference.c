// SPDX-License-Identifier: MIT
#include "bench/bench_reference.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "bench/kernel_run.h"

#define BANDS_A_CORE 4

// A band of an image: rows first ... end - 1, made from those and `reach` more on either side,
// which are an image of their own. What its borders spoil is within reach of them, and is not
// taken; where its border is the image's, it is right.
struct work {
    const struct conv_bench_reference *truth;
    int reach; // rows
    int band;  // rows
    atomic_int next, failed;
};

struct worker {
    struct work *work;
    pthread_t thread;
    enum conv_status status;
    struct conv_err err;
};

// The planes of an image follow those of the image before.
static const struct conv_group_plane *planes_of(const struct conv_bench_reference *truth, int image)
{
    const struct conv_group_plane *planes = truth->planes;
    for (int i = 0; i < image; i++)
        planes += truth->shapes[i].channels;
    return planes;
}

static void copy_rows(uint8_t *to, const uint8_t *from, size_t stride, int rows)
{
    memcpy(to, from, stride * (size_t)rows);
}

static enum conv_status make_band(struct conv_kernel_run *contender, const struct work *work,
                                  int image, int first, struct conv_err *err)
{
    const struct conv_bench_reference *truth = work->truth;
    const struct conv_group_plane *planes = planes_of(truth, image);
    struct conv_image shape = truth->shapes[image];
    int height = shape.height, end = first + work->band < height ? first + work->band : height;
    int top = first > work->reach ? first - work->reach : 0;
    int bottom = end + work->reach < height ? end + work->reach : height;
    shape.height = bottom - top;
    enum conv_status status = conv_kernel_run_place(contender, &shape, 1, false, NULL, err);
    if (status)
        return status;
    struct conv_group *group = &contender->group;
    size_t stride = conv_image_stride(shape.width, shape.depth);
    for (int p = 0; p < shape.channels; p++)
        copy_rows(group->h_in + contender->planes[p].offset,
                  truth->source + planes[p].offset + stride * (size_t)top, stride, shape.height);
    status = contender->ops->stream_run(contender->stream, group, err);
    for (int p = 0; p < shape.channels && !status; p++)
        copy_rows(truth->result + planes[p].offset + stride * (size_t)first,
                  group->h_result + contender->planes[p].offset + stride * (size_t)(first - top),
                  stride, end - first);
    return status;
}

// Bands are numbered through all images.
static bool find_band(const struct work *work, int number, int *image, int *first)
{
    for (int i = 0; i < work->truth->images; i++) {
        int bands = (work->truth->shapes[i].height - 1) / work->band + 1;
        if (number < bands) {
            *image = i;
            *first = number * work->band;
            return true;
        }
        number -= bands;
    }
    return false;
}

static void *work_main(void *data)
{
    struct worker *worker = data;
    struct work *work = worker->work;
    const struct conv_bench_reference *truth = work->truth;
    struct conv_kernel_run contender = {0};
    int image, first;
    worker->status = conv_kernel_run_open(&contender, truth->reference, truth->options,
                                          truth->filters, truth->filter_count, &worker->err);
    while (!worker->status && !work->failed &&
           find_band(work, atomic_fetch_add(&work->next, 1), &image, &first))
        worker->status = make_band(&contender, work, image, first, &worker->err);
    if (worker->status)
        work->failed = 1;
    conv_kernel_run_close(&contender);
    return NULL;
}

// A border that wraps around takes rows from the image's other end: no bands then.
static void plan(struct work *work, int cores)
{
    const struct conv_bench_reference *truth = work->truth;
    int64_t rows = 0, tallest = 1;
    for (int i = 0; i < truth->filter_count; i++)
        work->reach += truth->filters[i].height / 2;
    for (int i = 0; i < truth->images; i++) {
        rows += truth->shapes[i].height;
        tallest = truth->shapes[i].height > tallest ? truth->shapes[i].height : tallest;
    }
    int64_t band = rows / ((int64_t)cores * BANDS_A_CORE) + work->reach + 1;
    work->band =
        (int)(truth->options->border == CONV_BORDER_WRAP || band > tallest ? tallest : band);
}

enum conv_status conv_bench_reference(const struct conv_bench_reference *truth,
                                      struct conv_err *err)
{
    int cores = conv_cpu_count(), started = 0;
    struct work work = {.truth = truth};
    plan(&work, cores);
    struct worker *workers = calloc((size_t)cores, sizeof *workers);
    if (!workers)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d threads", cores);
    for (; started < cores; started++) {
        workers[started].work = &work;
        if (pthread_create(&workers[started].thread, NULL, work_main, &workers[started]) != 0)
            break;
    }
    enum conv_status status = CONV_OK;
    if (!started)
        status = conv_err_set(err, CONV_ERR_MEMORY, "no thread could be started");
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].status && !status) {
            status = workers[i].status;
            *err = workers[i].err;
        }
    }
    free(workers);
    return status;
}
