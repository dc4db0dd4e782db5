// SPDX-License-Identifier: MIT
#include "bench/bench_reference.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/features.h"
#include "image/image.h"

#define BANDS_PER_CORE 4

// A band of a plane: rows first ... end - 1, computed from those and `reach` more on either side as
// a plane of its own. Its artificial borders spoil only rows within reach, which are not used;
// where its border is that of the plane, all rows are right.
struct work {
    const struct conv_bench_workload *workload;
    const struct conv_bench_chain *chain;
    const struct conv_variant *reference;
    uint8_t *result;
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

static enum conv_status make_band(struct conv_bench_launch *launch, const struct work *work,
                                  const struct conv_bench_plane *plane, int first,
                                  struct conv_err *err)
{
    int height = plane->height, end = first + work->band < height ? first + work->band : height;
    int top = first > work->reach ? first - work->reach : 0;
    int bottom = end + work->reach < height ? end + work->reach : height;
    size_t stride = conv_image_stride(plane->width, work->workload->depth);
    size_t bytes = stride * (size_t)(bottom - top);
    struct conv_bench_plane band = {.width = plane->width, .height = bottom - top};
    uint64_t ns;
    enum conv_status status = conv_bench_launch_place(
        launch, &band, 1, work->workload->source + plane->offset + stride * (size_t)top, bytes,
        err);
    if (!status)
        status = conv_bench_launch_run(launch, &ns, err);
    if (status)
        return status;
    return conv_bench_launch_read(launch, stride * (size_t)(first - top),
                                  work->result + plane->offset + stride * (size_t)first,
                                  stride * (size_t)(end - first), err);
}

// Bands are numbered through all planes.
static const struct conv_bench_plane *find_band(const struct work *work, int number, int *first)
{
    for (int p = 0; p < work->workload->plane_count; p++) {
        const struct conv_bench_plane *plane = &work->workload->planes[p];
        int bands = (plane->height - 1) / work->band + 1;
        if (number < bands) {
            *first = number * work->band;
            return plane;
        }
        number -= bands;
    }
    return NULL;
}

static void *work_main(void *data)
{
    struct worker *worker = data;
    struct work *work = worker->work;
    struct conv_bench_launch launch = {0};
    const struct conv_bench_plane *plane;
    int first;
    worker->status = conv_bench_launch_open(&launch, work->reference, work->chain, 0,
                                            conv_cpu_features(), &worker->err);
    while (!worker->status && !work->failed &&
           (plane = find_band(work, atomic_fetch_add(&work->next, 1), &first)))
        worker->status = make_band(&launch, work, plane, first, &worker->err);
    if (worker->status)
        work->failed = 1;
    conv_bench_launch_close(&launch);
    return NULL;
}

// A border that wraps around takes rows from the plane's other end, so there are no bands then.
static void plan(struct work *work, int cores)
{
    const struct conv_bench_workload *workload = work->workload;
    int64_t rows = 0, tallest = 1;
    for (int i = 0; i < work->chain->count; i++)
        work->reach += work->chain->filters[i].height / 2;
    for (int p = 0; p < workload->plane_count; p++) {
        rows += workload->planes[p].height;
        tallest = workload->planes[p].height > tallest ? workload->planes[p].height : tallest;
    }
    int64_t band = rows / ((int64_t)cores * BANDS_PER_CORE) + work->reach + 1;
    work->band = (int)(work->chain->border == CONV_BORDER_WRAP || band > tallest ? tallest : band);
}

enum conv_status conv_bench_reference(const struct conv_bench_workload *workload,
                                      const struct conv_bench_chain *chain,
                                      const struct conv_variant *reference, int cores,
                                      uint8_t *result, struct conv_err *err)
{
    int started = 0;
    struct work work = {
        .workload = workload, .chain = chain, .reference = reference, .result = result};
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
