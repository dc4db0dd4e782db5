// SPDX-License-Identifier: MIT
// The start and the end of a run: locks, staging memory, lanes, threads.
#include "pipeline/pipeline.h"

#include <limits.h>
#include <stdlib.h>

#include "pipeline/output.h"
#include "pipeline/scheduler.h"

static enum conv_status init_locks(struct conv_scheduler *s, struct conv_err *err)
{
    pthread_condattr_t attributes;
    int errnum = pthread_condattr_init(&attributes);
    if (!errnum)
        errnum = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!errnum)
        errnum = pthread_cond_init(&s->changed, &attributes);
    if (!errnum)
        errnum = pthread_cond_init(&s->room, NULL);
    if (!errnum)
        errnum = pthread_cond_init(&s->lane_work, NULL);
    if (!errnum)
        errnum = pthread_mutex_init(&s->lock, NULL);
    if (!errnum)
        errnum = pthread_mutex_init(&s->report_lock, NULL);
    pthread_condattr_destroy(&attributes);
    return errnum ? conv_err_errno(err, errnum, "cannot make locks") : CONV_OK;
}

// Slots: for the lanes, as many again to fill, and some to drain. A worker of a backend that is not
// async holds one.
static int slot_count(const struct conv_pipeline_config *config)
{
    return config->ops->async ? 2 * config->streams + 2 : config->jobs;
}

// What is known of a picture takes some KiB, more than the staging memory of a tiny one: an eighth
// of the limit for that, and at least what keeps workers and readahead busy.
static int most_live(const struct conv_pipeline_config *config)
{
    size_t most = config->mem_limit / 8 / sizeof(struct conv_job);
    size_t least = 2 * (size_t)config->jobs + 64;
    return (int)(most < least ? least : most < INT_MAX ? most : INT_MAX);
}

static enum conv_status start_threads(struct conv_scheduler *s, struct conv_worker *workers,
                                      struct conv_lane_thread *lanes, int *lane_count,
                                      struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    enum conv_status status = conv_lane_open_all(s, lanes, lane_count, err);
    for (int i = 0; i < *lane_count && !status; i++) {
        static const char *const engines[] = {"copy in", "kernel", "copy out"};
        for (int e = 0; e < CONV_ENGINE_COUNT; e++)
            lanes[i].rows[e] = conv_trace_add_row(config->trace, "stream", i, engines[e]);
    }
    for (int i = 0; i < config->jobs && !status; i++) {
        workers[i].scheduler = s;
        workers[i].index = i;
        workers[i].row = conv_trace_add_row(config->trace, "worker", i, "");
        status = conv_png_codec_open(&workers[i].codec, &config->png, err);
        if (!status && !config->ops->async)
            status = config->ops->lane_open(config->backend, &workers[i].lane, 0, err);
    }
    // Fewer threads than wanted are fine, none of a kind is not.
    for (int i = 0; i < *lane_count && !status; i++) {
        int errnum = pthread_create(&lanes[i].thread, NULL, conv_lane_main, &lanes[i]);
        lanes[i].started = errnum == 0;
        if (errnum && i == 0)
            status = conv_err_errno(err, errnum, "cannot start a thread");
    }
    for (int i = 0; i < config->jobs && !status; i++) {
        int errnum = pthread_create(&workers[i].thread, NULL, conv_worker_main, &workers[i]);
        workers[i].started = errnum == 0;
        if (errnum && i == 0)
            status = conv_err_errno(err, errnum, "cannot start a thread");
    }
    return status;
}

static void stop_threads(struct conv_scheduler *s, struct conv_worker *workers,
                         struct conv_lane_thread *lanes, int lane_count)
{
    const struct conv_backend_ops *ops = s->config->ops;
    for (int i = 0; i < s->config->jobs; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->lanes_end = true;
    pthread_cond_broadcast(&s->lane_work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < lane_count; i++) {
        if (lanes[i].started)
            pthread_join(lanes[i].thread, NULL);
        conv_lane_close(&lanes[i]);
    }
    for (int i = 0; i < s->config->jobs; i++) {
        ops->lane_close(workers[i].lane);
        conv_png_codec_close(workers[i].codec);
    }
}

enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_walk *walk, struct conv_report *report,
                                   struct conv_err *err)
{
    struct conv_scheduler s = {
        .config = config,
        .walk = walk,
        .report = report,
        .table_bytes = config->ops->table_bytes(config->backend),
        .filter_alpha = config->alpha != CONV_ALPHA_KEEP,
        .most = most_live(config),
    };
    s.ready_end = &s.ready;
    conv_jobs_init(&s.found);
    conv_jobs_init(&s.announced);
    conv_jobs_init(&s.parked);
    conv_jobs_init(&s.to_encode);
    enum conv_status status = init_locks(&s, err);
    if (status)
        return status;

    struct conv_output_config output = {
        .workers = config->jobs,
        .preserve = config->preserve,
        .in_place = config->in_place,
        .journal = config->journal,
        .fsync = config->fsync,
    };
    int lane_count = config->ops->async ? config->streams : 0;
    struct conv_worker *workers = calloc((size_t)config->jobs, sizeof *workers);
    struct conv_lane_thread *lanes = calloc((size_t)lane_count + 1, sizeof *lanes);
    if (!workers || !lanes)
        status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d workers", config->jobs);
    if (!status)
        status = conv_output_open(&output, err);
    if (!status)
        status = conv_pool_open(&s.pool, config, slot_count(config), err);
    if (!status) {
        status = start_threads(&s, workers, lanes, &lane_count, err);
        stop_threads(&s, workers, lanes, lane_count);
        if (!status && s.failure.status)
            status = conv_err_set(err, s.failure.status, "%s", s.failure.text);
    }
    conv_pool_close(&s.pool);
    conv_output_close();
    conv_jobs_free_spares(&s);
    free(workers);
    free(lanes);
    pthread_mutex_destroy(&s.report_lock);
    pthread_mutex_destroy(&s.lock);
    pthread_cond_destroy(&s.lane_work);
    pthread_cond_destroy(&s.room);
    pthread_cond_destroy(&s.changed);
    return status;
}
