// SPDX-License-Identifier: MIT
// What a stream thread does: it hands sealed groups to its device. A group that the device has no
// room for is halved; one that it fails to run goes to another device, or else to the fallback
// backend.
#include "run/devices.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/parallel.h"
#include "engine/memory.h"
#include "report/trace.h"
#include "run/scheduler.h"

// --- report and trace ----------------------------------------------------------------------------

// Images whose first plane is in the group, which is the slot's or a part of it: each image counts
// in one part.
static int count_images(const struct conv_slot *slot, const struct conv_group *group)
{
    size_t from = group == &slot->group ? 0 : (size_t)(group->h_in - slot->group.h_in);
    int count = 0;
    for (const struct conv_job *job = slot->jobs; job; job = job->next)
        count +=
            job->placed.out_offset[0] >= from && job->placed.out_offset[0] - from < group->front;
    return count;
}

// Reports when each engine of the stream worked on the group or part, and on those that ran with
// it. `fallback`: the name of the backend that did the work instead, which copies nothing; or NULL.
// The caller holds the stream.
static void note_work(const struct conv_stream_thread *thread, struct conv_stream_thread *owner,
                      const struct conv_group *group, const char *fallback)
{
    struct conv_scheduler *s = thread->scheduler;
    struct conv_report_work work = {
        .device = fallback ? s->config->device_count : owner->device,
        .engines_of = owner->device,
        .start = group->ns_start,
        .ns = {group->ns_copy_in, group->ns_kernel, group->ns_copy_out},
    };
    const struct conv_slot *slot = thread->slot;
    for (const struct conv_group *one = group; one; one = one->next, slot = slot->next) {
        work.images += count_images(slot, one);
        work.bytes += one->front;
    }
    struct conv_trace_item item = {
        .images = work.images,
        .bytes = work.bytes,
        .device = fallback,
    };
    uint64_t start = group->ns_start;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        if (!fallback || e == CONV_ENGINE_KERNEL)
            conv_trace_slice(owner->tracks[e], CONV_STAGE_COPY_IN + e, start, start + work.ns[e],
                             &item);
        start += work.ns[e];
    }
    conv_lock_acquire(&s->report_lock);
    conv_report_group(s->report, &work);
    conv_lock_release(&s->report_lock);
}

// --- one group -----------------------------------------------------------------------------------

static enum conv_status reserve_scratch(struct conv_stream_thread *thread, size_t size,
                                        struct conv_err *err)
{
    if (size <= thread->scratch_size)
        return CONV_OK;
    conv_staging_free(thread->scratch, thread->scratch_size);
    thread->scratch = NULL;
    thread->scratch_size = 0;
    enum conv_status status = conv_staging_alloc(&thread->scratch, size, err);
    if (!status)
        thread->scratch_size = size;
    return status;
}

// The fallback's result goes where the device's would have gone. It works in memory of its
// own: a device that failed may still write to the group's.
static enum conv_status run_on_fallback(struct conv_stream_thread *thread, struct conv_group *group,
                                        struct conv_err *err)
{
    const struct conv_pipeline_config *config = thread->scheduler->config;
    const struct conv_device_ops *ops = config->fallback_ops;
    enum conv_status status = CONV_OK;
    if (!thread->fallback)
        status = ops->stream_open(config->fallback, &thread->fallback, group->front, err);
    if (!status)
        status = reserve_scratch(thread, group->front, err);
    if (status)
        return status;
    struct conv_group aside = *group;
    aside.h_out = thread->scratch;
    conv_lock_acquire(&thread->in_turn); // the work is shown on this thread's track
    group->ns_start = conv_clock_ns();
    status = ops->stream_run(thread->fallback, &aside, err);
    if (!status)
        memcpy(group->h_out, aside.h_result, group->front);
    group->h_result = group->h_out;
    group->ns_kernel = conv_clock_ns() - group->ns_start;
    group->ns_copy_in = group->ns_copy_out = 0; // of a device that failed after that
    if (!status)
        note_work(thread, thread, group, ops->name);
    conv_lock_release(&thread->in_turn);
    return status;
}

// Gives a group that the device both decodes and encodes its staging memory.
struct staging_of_group {
    struct conv_group_memory memory; // the first member
    struct conv_scheduler *scheduler;
    struct conv_slot *slot;
    struct conv_backend *backend; // that pins it
    bool in_released;
};

static void release_in(struct conv_group_memory *memory)
{
    struct staging_of_group *staging = (struct staging_of_group *)memory;
    struct conv_scheduler *s = staging->scheduler;
    staging->in_released = true;
    conv_lock_acquire(&s->lock);
    conv_pool_release_in(&s->pool, staging->slot);
    pthread_cond_signal(&s->wake.workers);
    conv_lock_release(&s->lock);
}

static enum conv_status acquire_out(struct conv_group_memory *memory, size_t bytes,
                                    struct conv_err *err)
{
    struct staging_of_group *staging = (struct staging_of_group *)memory;
    struct conv_scheduler *s = staging->scheduler;
    conv_lock_acquire(&s->lock);
    enum conv_status status = conv_pool_acquire_out(&s->pool, staging->slot, bytes, err);
    pthread_cond_signal(&s->wake.workers); // what was reserved beyond that is free
    conv_lock_release(&s->lock);
    if (!status)
        conv_pool_pin(&s->pool, staging->slot, staging->backend);
    return status;
}

// The parts of the times of groups that ran together, by their bytes.
static void share_group_times(struct conv_group *first)
{
    size_t bytes = 0;
    const struct conv_group all = *first;
    for (const struct conv_group *group = first; group; group = group->next)
        bytes += group->front;
    for (struct conv_group *group = first; group && bytes; group = group->next) {
        double share = (double)group->front / (double)bytes;
        group->ns_start = all.ns_start;
        group->ns_copy_in = (uint64_t)((double)all.ns_copy_in * share);
        group->ns_kernel = (uint64_t)((double)all.ns_kernel * share);
        group->ns_copy_out = (uint64_t)((double)all.ns_copy_out * share);
    }
}

// *in_released: the input of a group is gone from staging memory, so no other device can take over.
static enum conv_status run_on_stream(const struct conv_stream_thread *thread,
                                      struct conv_stream_thread *owner, struct conv_group *group,
                                      bool *in_released, struct conv_err *err)
{
    struct conv_scheduler *s = thread->scheduler;
    struct staging_of_group staging[CONV_BACKEND_MOST_TOGETHER];
    struct conv_slot *slot = thread->slot;
    int count = 0;
    for (struct conv_group *one = group; one; one = one->next, slot = slot->next) {
        staging[count] = (struct staging_of_group){
            .memory = {release_in, acquire_out},
            .scheduler = s,
            .slot = slot,
            .backend = s->devices[owner->device].backend,
        };
        conv_pool_pin(&s->pool, slot, staging[count].backend);
        one->memory = conv_group_is_device_coded(one) ? &staging[count].memory : NULL;
        count++;
    }
    enum conv_status status = s->config->ops->stream_run(owner->stream, group, err);
    if (!status)
        note_work(thread, owner, group, NULL);
    if (!status && group->next)
        share_group_times(group);
    *in_released = false;
    for (int i = 0; i < count; i++)
        *in_released |= staging[i].in_released;
    return status;
}

// The outcome of a group that was run without a failure.
enum result {
    FILTERED,  // its results are in h_result
    UNDECODED, // the device could not decode: its images are read again, for workers to decode
};

static enum conv_status run_group(struct conv_stream_thread *thread, struct conv_group *group,
                                  enum result *result, struct conv_err *err);

// The parts may be run by different backends; their results are to be contiguous.
static enum conv_status run_part(struct conv_stream_thread *thread, struct conv_group *part,
                                 enum result *result, struct conv_err *err)
{
    enum conv_status status = run_group(thread, part, result, err);
    if (!status && part->h_result != part->h_out)
        memcpy(part->h_out, part->h_result, part->front);
    return status;
}

static enum conv_status run_parts(struct conv_stream_thread *thread, struct conv_group *group,
                                  struct conv_group *head, struct conv_group *tail,
                                  enum result *result, struct conv_err *err)
{
    enum conv_status status = run_part(thread, tail, result, err);
    if (!status)
        status = run_part(thread, head, result, err);
    group->h_result = group->h_out;
    group->ns_start = tail->ns_start;
    group->ns_copy_in = head->ns_copy_in + tail->ns_copy_in;
    group->ns_kernel = head->ns_kernel + tail->ns_kernel;
    group->ns_copy_out = head->ns_copy_out + tail->ns_copy_out;
    return status;
}

// From here on no device codes the groups. UNDECODED if one was to decode them.
static enum result uncode(struct conv_group *first)
{
    for (struct conv_group *group = first; group; group = group->next) {
        group->encoded = false;
        group->image_count = 0;
    }
    return first->decoded ? UNDECODED : FILTERED;
}

// One attempt, by the device and, for parts, by the devices that take over from it. False if
// another device has to try; *status is the reason.
static bool run_on_device(struct conv_stream_thread *thread, int device, struct conv_group *group,
                          enum result *result, enum conv_status *status, struct conv_err *err)
{
    struct conv_scheduler *s = thread->scheduler;
    const struct conv_pipeline_config *config = s->config;
    struct conv_group head, tail;
    bool in_released;
    struct conv_stream_thread *owner = conv_devices_take_stream(thread, device, err);
    if (!owner) {
        *status = err->status;
        return false;
    }
    *status = run_on_stream(thread, owner, group, &in_released, err);
    conv_devices_put_stream(owner);
    if (!*status)
        return true;
    if (*status == CONV_ERR_MEMORY && group->next) {
        conv_devices_run_apart(s, device);
        *result = UNDECODED; // read again: nothing has to be kept for that
        *status = CONV_OK;
        return true;
    }
    if (*status == CONV_ERR_MEMORY && (group->decoded || group->encoded)) {
        conv_devices_note_coder_oom(s, device, err);
        *result = uncode(group);
        *status = *result == UNDECODED ? CONV_OK : run_group(thread, group, result, err);
        return true;
    }
    if (*status == CONV_ERR_MEMORY && conv_group_split(group, &head, &tail)) {
        *status = run_parts(thread, group, &head, &tail, result, err);
        return true;
    }
    conv_devices_give_up(s, device, *status, err);
    if (!in_released || (config->device_count == 1 && !config->fallback_ops))
        return false;
    *result = uncode(group); // UNDECODED, so that others can do the work
    *status = CONV_OK;
    return true;
}

// Runs the group on the thread's own device; if that fails, on another one; if all fail, on the
// fallback. *result is FILTERED on entry.
static enum conv_status run_group(struct conv_stream_thread *thread, struct conv_group *group,
                                  enum result *result, struct conv_err *err)
{
    const struct conv_pipeline_config *config = thread->scheduler->config;
    enum conv_status status = CONV_OK;
    // The encoder determines the file's bytes, so it must not depend on how fast a device opens.
    if (group->encoded)
        conv_devices_await(thread->scheduler);
    for (int i = 0; i < config->device_count; i++)
        if (run_on_device(thread, (thread->device + i) % config->device_count, group, result,
                          &status, err))
            return status;
    if (!config->fallback_ops)
        return status;
    *result = uncode(group);
    return *result == UNDECODED ? CONV_OK : run_on_fallback(thread, group, err);
}

// The image's part of the group's times, by its bytes.
static void share_times(struct conv_job *job, const struct conv_group *group)
{
    const struct conv_image *in = &job->placed.in;
    size_t bytes = 0;
    for (int c = 0; c < in->channels; c++)
        if (job->placed.out_offset[c] != SIZE_MAX)
            bytes += conv_image_plane_bytes(in->width, in->height, in->depth);
    double share = group->front ? (double)bytes / (double)group->front : 0;
    job->record.ns[CONV_STAGE_COPY_IN] = (uint64_t)((double)group->ns_copy_in * share);
    job->record.ns[CONV_STAGE_KERNEL] = (uint64_t)((double)group->ns_kernel * share);
    job->record.ns[CONV_STAGE_COPY_OUT] = (uint64_t)((double)group->ns_copy_out * share);
}

// Passes on, or ends, the images of a group that was run or could not be run.
static void end_run(struct conv_scheduler *s, struct conv_slot *slot, enum result result,
                    enum conv_status status, const struct conv_err *err) CONV_NEEDS(s->lock)
{
    struct conv_job *next, *filtered = NULL, **end = &filtered;
    conv_slot_move(slot, CONV_SLOT_DRAINING);
    conv_groups_note_run(s, slot, !status && result == FILTERED);
    slot->group.next = NULL;
    slot->jobs = conv_job_sort(slot->jobs); // sinks without an order take them as they come
    for (struct conv_job *job = slot->jobs; job; job = next) {
        next = job->next;
        share_times(job, &slot->group);
        if (status) {
            job->err = *err;
            conv_groups_leave(s, job);
            conv_jobs_finish(s, job, status);
        } else if (result == UNDECODED ||
                   (slot->group.decoded && slot->group.images[job->image].failed)) {
            conv_groups_leave(s, job);
            conv_jobs_read_again(s, job);
        } else {
            job->next = NULL;
            *end = job;
            end = &job->next;
        }
    }
    // A sink with an order gets them in order, so that fewer images wait for their turn.
    conv_job_join(&s->jobs.to_encode, filtered, conv_sink_has_order(s->config->sink));
    pthread_cond_signal(&s->wake.workers);
}

// --- the thread ----------------------------------------------------------------------------------

static void run_slot(struct conv_scheduler *s, struct conv_stream_thread *thread,
                     struct conv_slot *slot) CONV_NEEDS(s->lock)
{
    struct conv_slot *slots[CONV_BACKEND_MOST_TOGETHER] = {slot};
    struct conv_err err = {0};
    enum conv_status status;
    enum result result = FILTERED;
    int most = conv_devices_together(s, thread->device, &slot->group.together);
    int count = conv_groups_take_together(s, slots, most);
    conv_devices_grow(s, thread->device);
    conv_lock_release(&s->lock);
    thread->slot = slot;
    conv_ranges_push("group");
    if (conv_cancel_is_asked(s->config->stop))
        status = conv_err_cancelled(&err);
    else
        status = run_group(thread, &slot->group, &result, &err);
    conv_ranges_pop();
    conv_lock_acquire(&s->lock);
    conv_groups_end_together(s, count);
    for (int i = 0; i < count; i++)
        end_run(s, slots[i], result, status, &err);
}

void conv_stream_thread_add_tracks(struct conv_stream_thread *thread)
{
    static const char *const engines[CONV_ENGINE_COUNT] = {"copy in", "kernel", "copy out"};
    const struct conv_pipeline_config *config = thread->scheduler->config;
    char name[32] = "stream";
    if (config->device_count > 1)
        snprintf(name, sizeof name, "%s stream", config->device_names[thread->device]);
    for (int e = 0; e < CONV_ENGINE_COUNT; e++)
        thread->tracks[e] = conv_trace_add_track(config->trace, name, thread->index, engines[e]);
}

void *conv_stream_thread_main(void *argument)
{
    struct conv_stream_thread *thread = argument;
    struct conv_scheduler *s = thread->scheduler;
    struct conv_pool_buffer buffer;
    conv_thread_set_low_latency();
    if (thread->is_added && !conv_devices_open_stream(thread))
        return NULL;
    conv_lock_acquire(&s->lock);
    for (;;) {
        struct conv_slot *slot = conv_groups_take_ready(s);
        if (slot) {
            run_slot(s, thread, slot);
        } else if (s->streams_end) {
            break;
        } else if (!s->config->leaves_memory && conv_groups_are_over(s) &&
                   conv_pool_detach(&s->pool, &buffer)) {
            // While workers write the last images: freeing takes milliseconds.
            conv_lock_release(&s->lock);
            conv_pool_free_buffer(&s->pool, &buffer);
            conv_lock_acquire(&s->lock);
        } else {
            s->groups.idle_threads++;
            conv_scheduler_wait(s, &s->wake.streams, CONV_SCHEDULER_LOOK_NS);
            s->groups.idle_threads--;
        }
    }
    conv_lock_release(&s->lock);
    return NULL;
}
