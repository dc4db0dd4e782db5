// SPDX-License-Identifier: MIT
// The lanes of an async backend: a thread each, that hands sealed groups to the device.
#include "pipeline/scheduler.h"
#include "report/ranges.h"

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

// Called and returns with the lock: pictures of a group that the lane has run (or could not run).
static void after_lane(struct conv_scheduler *s, struct conv_slot *slot, enum conv_status status,
                       const struct conv_err *err)
{
    struct conv_job *next;
    for (struct conv_job *job = slot->jobs; job; job = next) {
        next = job->next;
        share_times(job, &slot->group);
        if (!status) {
            conv_jobs_push(&s->to_encode, job);
        } else {
            job->err = *err;
            conv_groups_leave(s, job);
            pthread_mutex_unlock(&s->lock);
            conv_jobs_finish(s, job, status);
        }
    }
    pthread_cond_broadcast(&s->changed);
}

// Tells when each engine of the device had the group. Without the lock.
static void note_group(struct conv_lane_thread *lane, const struct conv_slot *slot)
{
    struct conv_scheduler *s = lane->scheduler;
    const struct conv_group *group = &slot->group;
    const uint64_t took[] = {group->ns_copy_in, group->ns_kernel, group->ns_copy_out};
    struct conv_trace_item item = {.bytes = group->front};
    for (const struct conv_job *job = slot->jobs; job; job = job->next)
        item.pictures++;
    uint64_t start = group->ns_start;
    if (start == 0) // nothing of it needed the device
        return;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        conv_trace_slice(lane->rows[e], CONV_STAGE_COPY_IN + e, start, start + took[e], &item);
        start += took[e];
    }
    pthread_mutex_lock(&s->report_lock);
    conv_report_group(s->report, group->ns_start, took[0], took[1], took[2]);
    pthread_mutex_unlock(&s->report_lock);
}

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
            conv_ranges_push("group");
            enum conv_status status = s->config->ops->lane_run(lane->lane, &slot->group, &err);
            conv_ranges_pop();
            if (!status)
                note_group(lane, slot);
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
