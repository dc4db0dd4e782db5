// SPDX-License-Identifier: MIT
// Filters on the CPU. The context's threads take bands of rows. A band is read together with the
// rows above and below that its filters need, so that its results are those of the whole image.
#include <limits.h>

#include "base/lock.h"
#include "engine/cpu_filter.h"
#include "engine/view.h"

// --- bands ---------------------------------------------------------------------------------------

// Bands of images that pass through planes of the context: with their copies they stay in the
// second-level cache, and the rows that two bands both read are few.
#define BAND_BYTES ((size_t)512 << 10)
#define LEAST_BAND_ROWS 32
#define BAND_REACHES 16 // rows of a band for each row that its filters reach
// Bands of images whose planes are filtered in place: enough to keep all threads busy to the end.
#define BANDS_PER_THREAD 4

struct run {
    struct conv_backend *filter;
    const conv_image *sources, *results;
    int count, threads;
    struct conv_lock lock;
    enum conv_status status; // the first failure
    struct conv_err *err;
    int first_task[];
};

// Rows of a band of image i.
static int choose_rows(const struct run *run, int i)
{
    const struct conv_backend *filter = run->filter;
    const conv_image *source = &run->sources[i];
    size_t row = (size_t)(source->width * conv_sample_bytes(source->sample) * source->channels);
    int64_t least = LEAST_BAND_ROWS, rows;
    if (filter->wraps || conv_view_is(source, &run->results[i]))
        return source->height;
    if ((int64_t)filter->reach * BAND_REACHES > least)
        least = (int64_t)filter->reach * BAND_REACHES;
    if (conv_cpu_band_is_direct(filter, source, &run->results[i]))
        rows = run->threads > 1 ? (int64_t)source->height * run->count /
                                      ((int64_t)run->threads * BANDS_PER_THREAD)
                                : source->height;
    else
        rows = (int64_t)(BAND_BYTES / row);
    rows = rows > least ? rows : least;
    return rows < source->height ? (int)rows : source->height;
}

static struct conv_cpu_band find_band(const struct conv_backend *filter, int height, int rows,
                                      int index)
{
    struct conv_cpu_band band = {.first = index * rows};
    band.last = height - band.first > rows ? band.first + rows : height;
    band.top = band.first > filter->reach ? band.first - filter->reach : 0;
    band.bottom = height - band.last > filter->reach ? band.last + filter->reach : height;
    return band;
}

static void run_task(void *context, int worker, int task)
{
    struct run *run = context;
    struct conv_err err;
    int i = 0;
    (void)worker;
    for (int low = 0, high = run->count;
         low < high;) { // the last image whose first task is <= task
        int middle = low + (high - low) / 2;
        if (run->first_task[middle] <= task)
            i = middle, low = middle + 1;
        else
            high = middle;
    }
    const conv_image *source = &run->sources[i];
    struct conv_cpu_band band =
        find_band(run->filter, source->height, choose_rows(run, i), task - run->first_task[i]);
    enum conv_status status = conv_cpu_band_run(run->filter, &band, &run->results[i], source, &err);
    if (!status)
        return;
    conv_lock_acquire(&run->lock);
    if (!run->status) {
        run->status = status;
        *run->err = err;
    }
    conv_lock_release(&run->lock);
}

enum conv_status conv_cpu_views_run(struct conv_backend *filter, const conv_image *results,
                                    const conv_image *sources, int count, void *stream,
                                    struct conv_err *err)
{
    (void)stream;
    struct run *run;
    void *memory;
    uint64_t samples = 0;
    int64_t tasks = 0;
    for (int i = 0; i < count; i++)
        samples += (uint64_t)sources[i].width * (uint64_t)sources[i].height *
                   (uint64_t)sources[i].channels;
    enum conv_status status =
        conv_memory_take(filter->host->pools, CONV_HOST,
                         sizeof *run + (size_t)count * sizeof run->first_task[0], &memory, err);
    if (status)
        return status;
    run = memory;
    *run = (struct run){.filter = filter, .sources = sources, .results = results, .err = err};
    run->count = count;
    run->threads = conv_workers_for(filter->host->threads, samples);
    for (int i = 0; i < count; i++) {
        int rows = choose_rows(run, i);
        run->first_task[i] = (int)tasks;
        tasks += (sources[i].height + (int64_t)rows - 1) / rows;
        if (tasks > INT_MAX) {
            conv_memory_give(filter->host->pools, CONV_HOST, memory);
            return conv_err_set(err, CONV_ERR_LIMIT, "too many images for one call");
        }
    }
    if (conv_lock_init(&run->lock)) {
        status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for a lock");
    } else {
        conv_workers_run(filter->host->workers, run->threads, run_task, run, (int)tasks);
        conv_lock_destroy(&run->lock);
        status = run->status;
    }
    conv_memory_give(filter->host->pools, CONV_HOST, memory);
    return status;
}
