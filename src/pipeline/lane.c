// SPDX-License-Identifier: MIT
// The lanes of an async backend: a thread each, that hands sealed groups to the device. What the
// device has no room for goes to it in smaller groups; what it fails to do, the spare backend does.
#include <stdio.h>
#include <string.h>

#include "backend/staging.h"
#include "base/clock.h"
#include "pipeline/scheduler.h"
#include "report/ranges.h"

// Less device memory than this for a lane is no use: the next picture would not fit.
#define LEAST_BYTES ((size_t)1 << 20)

// --- opening -------------------------------------------------------------------------------------

static enum conv_status open_lane(struct conv_scheduler *s, struct conv_lane_thread *lane,
                                  struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    lane->scheduler = s;
    size_t bytes = config->group_bytes;
    enum conv_status status = config->ops->lane_open(config->backend, &lane->lane, bytes, err);
    while (status == CONV_ERR_MEMORY && bytes / 2 >= LEAST_BYTES) {
        bytes /= 2;
        status = config->ops->lane_open(config->backend, &lane->lane, bytes, err);
    }
    return status;
}

static void warn(struct conv_scheduler *s, const struct conv_err *err, const char *so)
{
    char text[sizeof err->text + 64];
    snprintf(text, sizeof text, "%s; %s", err->text, so);
    pthread_mutex_lock(&s->report_lock);
    conv_report_warn(s->report, text);
    pthread_mutex_unlock(&s->report_lock);
}

enum conv_status conv_lane_open_all(struct conv_scheduler *s, struct conv_lane_thread *lanes,
                                    int *count, struct conv_err *err)
{
    for (int i = 0; i < *count; i++) {
        enum conv_status status = open_lane(s, &lanes[i], err);
        if (!status)
            continue;
        if (i > 0) {
            *count = i;
            return CONV_OK;
        }
        if (!s->config->spare_ops)
            return err->status = CONV_ERR_DEVICE;
        s->lost = *err;
        warn(s, err, "filtering on the CPU");
        for (int rest = 1; rest < *count; rest++)
            lanes[rest].scheduler = s;
        return CONV_OK;
    }
    return CONV_OK;
}

void conv_lane_close(struct conv_lane_thread *lane)
{
    const struct conv_pipeline_config *config = lane->scheduler ? lane->scheduler->config : NULL;
    if (!config)
        return;
    config->ops->lane_close(lane->lane);
    if (!config->spare_ops)
        return;
    config->spare_ops->lane_close(lane->spare);
    conv_staging_free(lane->scratch, lane->scratch_size);
}

// --- what is told of the work --------------------------------------------------------------------

// Pictures that begin in the group, which is the slot's or a part of it: over all parts each counts
// once.
static int count_pictures(const struct conv_slot *slot, const struct conv_group *group)
{
    size_t from = (size_t)(group->h_in - slot->group.h_in);
    int count = 0;
    for (const struct conv_job *job = slot->jobs; job; job = job->next)
        count += job->out_offset[0] >= from && job->out_offset[0] - from < group->front;
    return count;
}

// Tells when each engine had the group, or the part: its slices are one way there and back, so a
// group in parts has as many. `spare` is the backend that did it instead, which copies nothing.
static void note_work(struct conv_lane_thread *lane, const struct conv_group *group,
                      const char *spare)
{
    struct conv_scheduler *s = lane->scheduler;
    const uint64_t took[] = {group->ns_copy_in, group->ns_kernel, group->ns_copy_out};
    struct conv_trace_item item = {
        .pictures = count_pictures(lane->slot, group),
        .bytes = group->front,
        .device = spare,
    };
    uint64_t start = group->ns_start;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        if (!spare || e == CONV_ENGINE_KERNEL)
            conv_trace_slice(lane->rows[e], CONV_STAGE_COPY_IN + e, start, start + took[e], &item);
        start += took[e];
    }
    pthread_mutex_lock(&s->report_lock);
    conv_report_group(s->report, group->ns_start, took[0], took[1], took[2]);
    pthread_mutex_unlock(&s->report_lock);
}

// --- one group -----------------------------------------------------------------------------------

// The spare backend's result goes where the device's would have gone. It works in memory that the
// device, whatever it still does, knows nothing of.
static enum conv_status run_on_spare(struct conv_lane_thread *lane, struct conv_group *group,
                                     struct conv_err *err)
{
    const struct conv_pipeline_config *config = lane->scheduler->config;
    const struct conv_backend_ops *ops = config->spare_ops;
    enum conv_status status = CONV_OK;
    if (!lane->spare)
        status = ops->lane_open(config->spare, &lane->spare, group->front, err);
    if (!status && lane->scratch_size < group->front) {
        conv_staging_free(lane->scratch, lane->scratch_size);
        lane->scratch = NULL;
        lane->scratch_size = 0;
        status = conv_staging_alloc(&lane->scratch, group->front, err);
        if (!status)
            lane->scratch_size = group->front;
    }
    if (status)
        return status;
    struct conv_group aside = *group;
    aside.h_out = lane->scratch;
    group->ns_start = conv_clock_ns();
    status = ops->lane_run(lane->spare, &aside, err);
    if (!status)
        memcpy(group->h_out, aside.h_result, group->front);
    group->h_result = group->h_out;
    group->ns_kernel = conv_clock_ns() - group->ns_start;
    group->ns_copy_in = group->ns_copy_out = 0; // of a device that failed after that
    if (!status)
        note_work(lane, group, ops->name);
    return status;
}

// Says once that the device is lost, or has no room. True if the spare backend is to do the work.
static bool give_up(struct conv_scheduler *s, enum conv_status status, const struct conv_err *err)
{
    bool spare = s->config->spare_ops != NULL;
    pthread_mutex_lock(&s->lock);
    bool crowded = status == CONV_ERR_MEMORY;
    bool news = crowded ? !s->crowded : !s->lost.status;
    if (crowded)
        s->crowded = true;
    else if (news)
        s->lost = *err;
    pthread_mutex_unlock(&s->lock);
    if (spare && news)
        warn(s, err,
             crowded ? "what has no room there is filtered on the CPU" : "going on on the CPU");
    return spare;
}

bool conv_lane_is_lost(struct conv_scheduler *s, struct conv_err *err)
{
    pthread_mutex_lock(&s->lock);
    bool lost = s->lost.status != CONV_OK;
    if (lost)
        *err = s->lost;
    pthread_mutex_unlock(&s->lock);
    return lost;
}

static enum conv_status run_group(struct conv_lane_thread *lane, struct conv_group *group,
                                  struct conv_err *err);

// Whoever ran the parts, their results are to lie in one row.
static enum conv_status run_part(struct conv_lane_thread *lane, struct conv_group *part,
                                 struct conv_err *err)
{
    enum conv_status status = run_group(lane, part, err);
    if (!status && part->h_result != part->h_out)
        memcpy(part->h_out, part->h_result, part->front);
    return status;
}

static enum conv_status run_parts(struct conv_lane_thread *lane, struct conv_group *group,
                                  struct conv_group *head, struct conv_group *tail,
                                  struct conv_err *err)
{
    enum conv_status status = run_part(lane, tail, err);
    if (!status)
        status = run_part(lane, head, err);
    group->h_result = group->h_out;
    group->ns_start = tail->ns_start;
    group->ns_copy_in = head->ns_copy_in + tail->ns_copy_in;
    group->ns_kernel = head->ns_kernel + tail->ns_kernel;
    group->ns_copy_out = head->ns_copy_out + tail->ns_copy_out;
    return status;
}

// The group goes on without being coded by the device. False: its pictures have to be read again,
// for the CPU to decode them.
static bool uncode(struct conv_slot *slot, struct conv_group *group)
{
    slot->again = group->decoded;
    group->encoded = false;
    group->picture_count = 0;
    return !slot->again;
}

// Called WITHOUT the lock.
static enum conv_status run_group(struct conv_lane_thread *lane, struct conv_group *group,
                                  struct conv_err *err)
{
    struct conv_scheduler *s = lane->scheduler;
    struct conv_group head, tail;
    enum conv_status status;
    if (conv_lane_is_lost(s, err)) {
        status = err->status;
        if (s->config->spare_ops && !uncode(lane->slot, group))
            return CONV_OK;
        return s->config->spare_ops ? run_on_spare(lane, group, err) : status;
    }
    conv_pool_pin(&s->pool, lane->slot, s->config->backend);
    status = s->config->ops->lane_run(lane->lane, group, err);
    if (status == CONV_ERR_MEMORY && (group->decoded || group->encoded))
        return uncode(lane->slot, group) ? run_group(lane, group, err) : CONV_OK;
    if (status == CONV_ERR_MEMORY && conv_group_split(group, &head, &tail))
        return run_parts(lane, group, &head, &tail, err);
    if (!status)
        note_work(lane, group, NULL);
    if (!status || !give_up(s, status, err))
        return status;
    return uncode(lane->slot, group) ? run_on_spare(lane, group, err) : CONV_OK;
}

// Shares the group's times out to a picture by its bytes.
static void share_times(struct conv_job *job, const struct conv_group *group)
{
    size_t bytes = 0;
    for (int c = 0; c < job->in.channels; c++)
        if (job->out_offset[c] != SIZE_MAX)
            bytes += conv_image_plane_bytes(job->in.width, job->in.height, job->in.depth);
    double share = group->front ? (double)bytes / (double)group->front : 0;
    job->ns[CONV_STAGE_COPY_IN] = (uint64_t)((double)group->ns_copy_in * share);
    job->ns[CONV_STAGE_KERNEL] = (uint64_t)((double)group->ns_kernel * share);
    job->ns[CONV_STAGE_COPY_OUT] = (uint64_t)((double)group->ns_copy_out * share);
}

// The device could not decode it, or is lost: it is read again, for the CPU. With the lock.
static void start_again(struct conv_scheduler *s, struct conv_job *job)
{
    conv_groups_leave(s, job);
    job->on_cpu = true;
    conv_jobs_push(&s->announced, job);
    pthread_cond_signal(&s->changed);
}

static bool is_to_start_again(const struct conv_slot *slot, const struct conv_job *job)
{
    return slot->again || (slot->group.decoded && slot->group.pictures[job->picture].failed);
}

// Called and returns with the lock: pictures of a group that the lane has run (or could not run).
static void after_lane(struct conv_scheduler *s, struct conv_slot *slot, enum conv_status status,
                       const struct conv_err *err)
{
    struct conv_job *next;
    for (struct conv_job *job = slot->jobs; job; job = next) {
        next = job->next;
        share_times(job, &slot->group);
        if (!status && is_to_start_again(slot, job)) {
            start_again(s, job);
        } else if (!status) {
            conv_jobs_push(&s->to_encode, job);
        } else {
            job->err = *err;
            conv_groups_leave(s, job);
            pthread_mutex_unlock(&s->lock);
            conv_jobs_finish(s, job, status);
        }
    }
    pthread_cond_signal(&s->changed);
}

// --- the thread ----------------------------------------------------------------------------------

void *conv_lane_main(void *argument)
{
    struct conv_lane_thread *lane = argument;
    struct conv_scheduler *s = lane->scheduler;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct conv_slot *slot = s->ready;
        if (slot) {
            s->ready = slot->next;
            if (!s->ready)
                s->ready_end = &s->ready;
            pthread_mutex_unlock(&s->lock);
            struct conv_err err = {0};
            lane->slot = slot;
            conv_ranges_push("group");
            enum conv_status status = run_group(lane, &slot->group, &err);
            conv_ranges_pop();
            pthread_mutex_lock(&s->lock);
            after_lane(s, slot, status, &err);
        } else if (s->lanes_end) {
            break;
        } else {
            pthread_cond_wait(&s->lane_work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
