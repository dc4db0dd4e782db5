// SPDX-License-Identifier: MIT
#include "pipeline/devices.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "device/staging.h"
#include "pipeline/groups.h"

// Less device memory than this for a stream is no use: the next image would not fit.
#define LEAST_BYTES ((size_t)1 << 20)

// A device that takes longer to wake up is not waited for: ten times what is usual.
#define AWAIT_NS 5000000000

static struct conv_stream_thread *thread_of(const struct conv_scheduler *s, int device, int index)
{
    return &s->stream_threads[device * s->config->streams + index];
}

// --- opening and closing -------------------------------------------------------------------------

static enum conv_status open_stream(const struct conv_scheduler *s,
                                    struct conv_stream_thread *owner, struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_backend *backend = s->devices[owner->device].backend;
    size_t bytes = config->group_bytes;
    enum conv_status status = config->ops->stream_open(backend, &owner->stream, bytes, err);
    while (status == CONV_ERR_MEMORY && bytes / 2 >= LEAST_BYTES) {
        bytes /= 2;
        status = config->ops->stream_open(backend, &owner->stream, bytes, err);
    }
    return status;
}

// A device that is being opened is expected to have room for all streams: groups may wait for it.
static void tell_streams(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    int streams = 0, there = 0;
    for (int d = 0; d < s->config->device_count; d++) {
        const struct conv_device_state *state = &s->devices[d];
        if (state->lost.status)
            continue;
        streams += state->streams ? state->streams : s->config->streams;
        there += state->streams;
    }
    conv_decode_policy_note_streams(&s->policy, streams, there > 0, conv_clock_ns());
}

// As many as there is room for; a failure if that is none. Others see them at once.
static enum conv_status open_streams(struct conv_scheduler *s, int device, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int streams = 0;
    while (!status && streams < s->config->streams) {
        status = open_stream(s, thread_of(s, device, streams), err);
        streams += !status;
    }
    conv_lock_acquire(&s->lock);
    s->devices[device].streams = streams;
    tell_streams(s);
    conv_lock_release(&s->lock);
    return streams > 0 ? CONV_OK : status;
}

static void init_threads(struct conv_scheduler *s, int device)
{
    for (int i = 0; i < s->config->streams; i++) {
        struct conv_stream_thread *owner = thread_of(s, device, i);
        owner->scheduler = s;
        owner->device = device;
        owner->index = i;
        pthread_mutex_init(&owner->in_turn, NULL); // never fails on Linux
    }
}

enum conv_status conv_devices_open(struct conv_scheduler *s, struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    int devices = config->ops->async ? config->device_count : 0, useful = 0;
    for (int d = 0; d < devices; d++)
        init_threads(s, d);
    for (int d = 0; d < devices; d++) {
        struct conv_device_state *state = &s->devices[d];
        state->backend = config->backends[d];
        state->welcomed = state->backend != NULL;
        assert(state->backend || config->spare_ops);
        enum conv_status status = state->backend ? open_streams(s, d, err) : CONV_OK;
        if (status && !config->spare_ops)
            return err->status = CONV_ERR_DEVICE;
        if (status)
            conv_devices_give_up(s, d, CONV_ERR_DEVICE, err);
        // A device on its way is expected to have room for all.
        int wanted = state->backend ? state->streams : config->streams;
        for (int i = 0; i < wanted; i++)
            thread_of(s, d, i)->is_needed = true;
        useful += wanted;
    }
    for (int i = 0; i < config->streams && devices > 0 && useful == 0; i++)
        thread_of(s, 0, i)->is_needed = true; // for the spare backend's work
    conv_lock_acquire(&s->lock);
    tell_streams(s);
    conv_lock_release(&s->lock);
    return CONV_OK;
}

void conv_devices_close(struct conv_scheduler *s)
{
    const struct conv_pipeline_config *config = s->config;
    int streams = config->ops->async ? config->device_count * config->streams : 0;
    for (int i = 0; i < streams; i++) {
        struct conv_stream_thread *owner = &s->stream_threads[i];
        if (!owner->scheduler)
            continue;
        config->ops->stream_close(owner->stream);
        if (config->spare_ops)
            config->spare_ops->stream_close(owner->spare);
        conv_staging_free(owner->scratch, owner->scratch_size);
        pthread_mutex_destroy(&owner->in_turn);
    }
}

// --- who does the work ---------------------------------------------------------------------------

// The first group of each stream loads the kernels that it needs, which takes some 20 ms: time to
// pin the memory of those that have come together meanwhile.
static void pin_ahead(struct conv_scheduler *s, struct conv_backend *backend) CONV_TAKES(s->lock)
{
    struct conv_slot *slot;
    conv_lock_acquire(&s->lock);
    for (int left = s->pool.count; left > 0 && (slot = conv_groups_take_ready(s)); left--) {
        conv_lock_release(&s->lock);
        conv_pool_pin(&s->pool, slot, backend);
        conv_lock_acquire(&s->lock);
        conv_groups_put_ready(s, slot);
    }
    conv_lock_release(&s->lock);
}

// A device that was still on its way gets its streams from the thread that first sees it there.
static void welcome(struct conv_scheduler *s, int device)
{
    struct conv_device_state *state = &s->devices[device];
    struct conv_err err = {0};
    enum conv_status status =
        conv_async_open_result(s->config->openings[device], &state->backend, &err);
    if (!status)
        status = open_streams(s, device, &err);
    if (status)
        conv_devices_give_up(s, device, CONV_ERR_DEVICE, &err);
    else
        pin_ahead(s, state->backend);
}

// How many streams the device has to offer.
static int count_streams(struct conv_scheduler *s, int device, struct conv_err *err)
{
    struct conv_device_state *state = &s->devices[device];
    conv_lock_acquire(&s->lock);
    bool here = !state->welcomed && conv_async_open_is_over(s->config->openings[device]);
    if (here) {
        state->welcomed = true;
        conv_lock_release(&s->lock);
        welcome(s, device);
        conv_lock_acquire(&s->lock);
    }
    int streams = state->lost.status ? 0 : state->streams;
    err->status = CONV_OK;
    if (state->lost.status)
        *err = state->lost;
    conv_lock_release(&s->lock);
    return streams;
}

// True while neither the device nor the news of its loss is there: it is being opened, or somebody
// opens its streams.
static bool is_on_its_way(struct conv_scheduler *s, int device)
{
    const struct conv_device_state *state = &s->devices[device];
    conv_lock_acquire(&s->lock);
    bool pending = state->streams == 0 && !state->lost.status &&
                   (state->welcomed || !conv_async_open_is_over(s->config->openings[device]));
    conv_lock_release(&s->lock);
    return pending;
}

// True if a device has streams, or none will come. A device that has been opened meanwhile gets its
// streams here; while another thread does that, it is still on its way.
static bool is_settled(struct conv_scheduler *s)
{
    bool coming = false, here = false;
    struct conv_err err;
    for (int d = 0; d < s->config->device_count && !here; d++) {
        coming |= is_on_its_way(s, d);
        here = count_streams(s, d, &err) > 0;
    }
    return here || !coming;
}

void conv_devices_await(struct conv_scheduler *s)
{
    const struct timespec look = {.tv_nsec = 1000000};
    struct conv_err err;
    while (!is_settled(s) && !conv_scheduler_is_stopping(s)) {
        if (conv_clock_ns() - s->policy.start > AWAIT_NS) {
            conv_err_set(&err, CONV_ERR_DEVICE, "the GPU has not woken up in %d s",
                         (int)(AWAIT_NS / 1000000000));
            for (int d = 0; d < s->config->device_count; d++)
                if (is_on_its_way(s, d))
                    conv_devices_give_up(s, d, CONV_ERR_DEVICE, &err);
            return;
        }
        (void)nanosleep(&look, NULL);
    }
}

struct conv_stream_thread *conv_devices_take_stream(const struct conv_stream_thread *thread,
                                                    int device, struct conv_err *err)
{
    struct conv_scheduler *s = thread->scheduler;
    int streams = count_streams(s, device, err);
    if (streams == 0)
        return NULL;
    for (int i = 0; i < streams; i++) {
        struct conv_stream_thread *owner = thread_of(s, device, (thread->index + i) % streams);
        if (pthread_mutex_trylock(&owner->in_turn) == 0)
            return owner;
    }
    struct conv_stream_thread *owner = thread_of(s, device, thread->index % streams);
    pthread_mutex_lock(&owner->in_turn);
    return owner;
}

void conv_devices_put_stream(struct conv_stream_thread *owner)
{
    pthread_mutex_unlock(&owner->in_turn);
}

// With the report's lock.
static void warn(struct conv_scheduler *s, int device, const struct conv_err *err, const char *so)
{
    char text[sizeof err->text + 96];
    bool several = s->config->device_count > 1;
    snprintf(text, sizeof text, "%s%s%s; %s", several ? s->config->device_names[device] : "",
             several ? ": " : "", err->text, so);
    conv_report_warn(s->report, text);
}

void conv_devices_give_up(struct conv_scheduler *s, int device, enum conv_status status,
                          const struct conv_err *err)
{
    struct conv_device_state *state = &s->devices[device];
    bool crowded = status == CONV_ERR_MEMORY, others = false;
    conv_lock_acquire(&s->report_lock); // several may be lost at once: told in order
    conv_lock_acquire(&s->lock);
    bool news = crowded ? !state->oom_reported : !state->lost.status;
    if (crowded)
        state->oom_reported = true;
    else if (news)
        state->lost = *err;
    tell_streams(s);
    for (int d = 0; d < s->config->device_count; d++)
        others |= d != device && !s->devices[d].lost.status;
    conv_lock_release(&s->lock);
    if (news && others)
        warn(s, device, err, crowded ? "what has no room there goes to others" : "others go on");
    else if (news && s->config->spare_ops) // without one, it is in the name of each that fails
        warn(s, device, err,
             crowded ? "what has no room there is filtered on the CPU" : "going on on the CPU");
    conv_lock_release(&s->report_lock);
}

void conv_devices_note_coder_oom(struct conv_scheduler *s, int device, const struct conv_err *err)
{
    conv_lock_acquire(&s->report_lock);
    conv_lock_acquire(&s->lock);
    bool news = !s->devices[device].coder_oom_reported;
    s->devices[device].coder_oom_reported = true;
    conv_lock_release(&s->lock);
    if (news)
        warn(s, device, err, "what has no room there is coded on the CPU");
    conv_lock_release(&s->report_lock);
}

bool conv_devices_are_lost(struct conv_scheduler *s, struct conv_err *err)
{
    conv_lock_acquire(&s->lock);
    bool lost = s->config->ops->async;
    for (int d = 0; d < s->config->device_count && lost; d++) {
        lost = s->devices[d].lost.status != CONV_OK;
        if (lost)
            *err = s->devices[d].lost;
    }
    conv_lock_release(&s->lock);
    return lost;
}
