// SPDX-License-Identifier: MIT
#include "run/devices.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "engine/memory.h"
#include "run/scheduler.h"

// A stream with less device memory than this is not worth opening: the next image would not fit.
#define LEAST_BYTES ((size_t)1 << 20)

// A device that takes longer to open is given up: ten times the usual time.
#define AWAIT_NS 5000000000

// While waiting for a device: how soon a stop is noticed.
#define LOOK_NS 10000000

static struct conv_stream_thread *thread_of(const struct conv_scheduler *s, int device, int index)
{
    return &s->stream_threads[device * s->most_streams + index];
}

// Photographs decode to twice the bytes of their files, so they fill the staging memory first.
size_t conv_devices_group_bytes(const struct conv_pipeline_config *config)
{
    bool coded = config->decode_on != CONV_CODER_CPU && config->encode_on != CONV_CODER_CPU;
    return coded ? config->group_bytes / 2 * 5 : config->group_bytes;
}

// --- growth --------------------------------------------------------------------------------------

// One group may wait because its stream's thread has not woken up yet.
#define LEAST_WAITING 2

// A stream is added after this part of a round of groups that were all late: from 6 streams to 12
// in 20 groups, some 30 ms on an H200.
#define ROUND_PART 4

int conv_growth_most(int streams, int wanted, size_t stream_bytes, size_t limit)
{
    size_t room = stream_bytes ? limit / stream_bytes : 0;
    int most = (size_t)wanted < room ? wanted : (int)room;
    return most > streams ? most : streams;
}

bool conv_growth_is_due(struct conv_growth *growth, int waiting, int idle)
{
    growth->late = waiting >= LEAST_WAITING && idle == 0 ? growth->late + 1 : 0;
    if (growth->opening || growth->streams >= growth->most ||
        growth->late <= growth->streams / ROUND_PART)
        return false;
    growth->late = 0;
    growth->opening = true;
    return true;
}

void conv_growth_end(struct conv_growth *growth, bool opened)
{
    growth->opening = false;
    growth->streams += opened;
    if (!opened)
        growth->most = 0;
}

// --- opening and closing -------------------------------------------------------------------------

// Photographs coded on an H100, GB/s of samples in the steady state: 43.6 with 12 streams that run
// one group each, 49.0 with 8 that run up to 3, 49.1 with 12. More channels of the driver than the
// default of 8 (CUDA_DEVICE_MAX_CONNECTIONS) are slower.
#define MOST_STREAMS_TOGETHER 8

// The most streams if each runs several groups at once: at most `most`, at least `streams`.
static int most_streams_together(int most, int streams)
{
    int fewer = most < MOST_STREAMS_TOGETHER ? most : MOST_STREAMS_TOGETHER;
    return fewer > streams ? fewer : streams;
}

// With several devices reading is the limit, and the results of more groups at once take more
// pinned memory (two H200s, 40,000 photographs: 1.70 s instead of 1.58).
static int most_together(const struct conv_scheduler *s, int device)
{
    const struct conv_pipeline_config *config = s->config;
    bool codes = config->decode_on != CONV_CODER_CPU && config->encode_on != CONV_CODER_CPU;
    return config->ops->together && codes && config->device_count == 1
               ? config->ops->together(s->devices[device].backend)
               : 1;
}

// If a group needs more memory than streams begin with, the stream's buffers are replaced. Freeing
// device memory then waits until all streams are idle, which stalled each of them for up to 27 ms.
static enum conv_status open_stream(const struct conv_scheduler *s,
                                    struct conv_stream_thread *owner, struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_backend *backend = s->devices[owner->device].backend;
    size_t usual = conv_devices_group_bytes(config);
    size_t bytes = (size_t)most_together(s, owner->device) * usual;
    for (;;) {
        enum conv_status status = config->ops->stream_open(backend, &owner->stream, bytes, err);
        size_t less = bytes > usual                 ? usual
                      : bytes > config->group_bytes ? config->group_bytes
                      : bytes / 2 >= LEAST_BYTES    ? bytes / 2
                                                    : 0;
        if (status != CONV_ERR_MEMORY || less == 0)
            return status;
        bytes = less;
    }
}

static void move(struct conv_device_state *device, enum conv_device_phase phase)
{
    assert(phase > device->phase);
    device->phase = phase;
}

// A device that is being opened is expected to have room for all streams: groups may wait for it.
static void count_streams(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    int streams = 0, open = 0;
    for (int d = 0; d < s->config->device_count; d++) {
        const struct conv_device_state *device = &s->devices[d];
        if (device->phase == CONV_DEVICE_LOST)
            continue;
        bool is_ready = device->phase == CONV_DEVICE_READY;
        streams += is_ready ? device->growth.streams : s->config->streams;
        open += is_ready;
    }
    conv_decode_policy_note_streams(&s->policy, streams, open > 0, conv_clock_ns());
}

// Opens as many streams as there is room for; fails if there is room for none. The device is
// OPENING, and then READY or given up.
static enum conv_status open_streams(struct conv_scheduler *s, int d, struct conv_err *err)
    CONV_TAKES(s->lock)
{
    struct conv_device_state *device = &s->devices[d];
    enum conv_status status = CONV_OK;
    int streams = 0;
    while (!status && streams < s->config->streams) {
        status = open_stream(s, thread_of(s, d, streams), err);
        streams += !status;
    }
    if (streams == 0)
        return status;
    conv_lock_acquire(&s->lock);
    device->growth.streams = streams;
    int most = most_together(s, d) > 1 ? most_streams_together(s->most_streams, s->config->streams)
                                       : s->most_streams;
    device->growth.most = streams < s->config->streams ? streams : most;
    device->runs_apart |= streams < s->config->streams;
    if (device->phase != CONV_DEVICE_LOST) // given up meanwhile: conv_devices_await
        move(device, CONV_DEVICE_READY);
    count_streams(s);
    pthread_cond_broadcast(&s->wake.devices);
    conv_lock_release(&s->lock);
    return CONV_OK;
}

// Called by the thread that has opened a device.
static void notify(void *scheduler)
{
    struct conv_scheduler *s = scheduler;
    conv_lock_acquire(&s->lock);
    pthread_cond_broadcast(&s->wake.devices);
    conv_lock_release(&s->lock);
}

static void init_threads(struct conv_scheduler *s, int device)
{
    for (int i = 0; i < s->most_streams; i++) {
        struct conv_stream_thread *owner = thread_of(s, device, i);
        owner->scheduler = s;
        owner->device = device;
        owner->index = i;
        conv_lock_init(&owner->in_turn);
    }
}

// Opens the streams of a device that is open already, and marks the threads that it needs.
static enum conv_status open_device(struct conv_scheduler *s, int d, struct conv_err *err)
    CONV_TAKES(s->lock) CONV_TAKES(s->report_lock)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_device_state *device = &s->devices[d];
    int needed = config->streams; // a device that is being opened is expected to have room for all
    device->backend = config->backends[d];
    assert(device->backend || config->fallback_ops);
    if (device->backend) {
        move(device, CONV_DEVICE_OPENING);
        enum conv_status status = open_streams(s, d, err);
        if (status && !config->fallback_ops)
            return err->status = CONV_ERR_DEVICE;
        if (status)
            conv_devices_give_up(s, d, CONV_ERR_DEVICE, err);
        needed = device->growth.streams;
    } else {
        conv_async_open_set_notify(config->openings[d], notify, s);
    }
    for (int i = 0; i < needed; i++)
        thread_of(s, d, i)->is_needed = true;
    return CONV_OK;
}

enum conv_status conv_devices_open(struct conv_scheduler *s, struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    int devices = config->ops->async ? config->device_count : 0;
    enum conv_status status = CONV_OK;
    bool useful = devices == 0;
    for (int d = 0; d < devices; d++)
        init_threads(s, d);
    for (int d = 0; d < devices && !status; d++) {
        status = open_device(s, d, err);
        useful |= thread_of(s, d, 0)->is_needed;
    }
    for (int i = 0; i < config->streams && !useful; i++)
        thread_of(s, 0, i)->is_needed = true; // for the fallback's work
    conv_lock_acquire(&s->lock);
    count_streams(s);
    conv_lock_release(&s->lock);
    return status;
}

void conv_devices_forget(struct conv_scheduler *s)
{
    const struct conv_pipeline_config *config = s->config;
    int devices = config->ops->async ? config->device_count : 0;
    for (int d = 0; d < devices; d++)
        if (!config->backends[d])
            conv_async_open_set_notify(config->openings[d], NULL, NULL);
}

void conv_devices_close(struct conv_scheduler *s)
{
    const struct conv_pipeline_config *config = s->config;
    int devices = config->ops->async ? config->device_count : 0;
    for (int i = 0; i < devices * s->most_streams; i++) {
        struct conv_stream_thread *owner = &s->stream_threads[i];
        if (!owner->scheduler)
            continue;
        config->ops->stream_close(owner->stream);
        if (config->fallback_ops)
            config->fallback_ops->stream_close(owner->fallback);
        conv_staging_free(owner->scratch, owner->scratch_size);
        conv_lock_destroy(&owner->in_turn);
    }
}

// --- while a run lasts ---------------------------------------------------------------------------

// The first group of each stream loads the kernels that it needs, which takes some 20 ms; meanwhile
// the memory of the groups that are ready can be pinned.
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

// True if the device is open, or has failed to, and no thread opens its streams yet.
static bool is_opened(const struct conv_scheduler *s, int d) CONV_NEEDS(s->lock)
{
    return s->devices[d].phase == CONV_DEVICE_PENDING &&
           conv_async_open_is_over(s->config->openings[d]);
}

// The first thread that sees a device open opens its streams.
static void take_over(struct conv_scheduler *s, int d) CONV_NEEDS(s->lock)
    CONV_TAKES(s->report_lock)
{
    struct conv_device_state *device = &s->devices[d];
    struct conv_err err = {0};
    move(device, CONV_DEVICE_OPENING);
    conv_lock_release(&s->lock);
    enum conv_status status =
        conv_async_open_result(s->config->openings[d], &device->backend, &err);
    if (!status)
        status = open_streams(s, d, &err);
    if (status)
        conv_devices_give_up(s, d, CONV_ERR_DEVICE, &err);
    else
        pin_ahead(s, device->backend);
    conv_lock_acquire(&s->lock);
}

// True once a device has streams, or no device will get any. A device that is open by now gets its
// streams.
static bool are_settled(struct conv_scheduler *s) CONV_NEEDS(s->lock) CONV_TAKES(s->report_lock)
{
    bool coming = false;
    for (int d = 0; d < s->config->device_count; d++) {
        if (is_opened(s, d))
            take_over(s, d);
        enum conv_device_phase phase = s->devices[d].phase;
        if (phase == CONV_DEVICE_READY)
            return true;
        coming |= phase != CONV_DEVICE_LOST;
    }
    return !coming;
}

static void give_up_pending(struct conv_scheduler *s) CONV_TAKES(s->lock) CONV_TAKES(s->report_lock)
{
    struct conv_err err;
    conv_err_set(&err, CONV_ERR_DEVICE, "the GPU did not start within %d s",
                 (int)(AWAIT_NS / 1000000000));
    for (int d = 0; d < s->config->device_count; d++) {
        conv_lock_acquire(&s->lock);
        enum conv_device_phase phase = s->devices[d].phase;
        conv_lock_release(&s->lock);
        if (phase == CONV_DEVICE_PENDING || phase == CONV_DEVICE_OPENING)
            conv_devices_give_up(s, d, CONV_ERR_DEVICE, &err);
    }
}

void conv_devices_await(struct conv_scheduler *s)
{
    bool in_time = true;
    conv_lock_acquire(&s->lock);
    while (!are_settled(s) && !conv_scheduler_is_stopping(s) && in_time) {
        // A signal handler cannot signal a condition, so the wait is short.
        conv_scheduler_wait(s, &s->wake.devices, LOOK_NS);
        in_time = conv_clock_ns() - s->policy.start <= AWAIT_NS;
    }
    conv_lock_release(&s->lock);
    if (!in_time)
        give_up_pending(s);
}

void conv_devices_grow(struct conv_scheduler *s, int device)
{
    struct conv_growth *growth = &s->devices[device].growth;
    if (s->devices[device].phase != CONV_DEVICE_READY || s->source_state == CONV_SOURCE_OVER ||
        s->streams_end ||
        !conv_growth_is_due(growth, s->groups.ready_count, s->groups.idle_threads))
        return;
    struct conv_stream_thread *thread = thread_of(s, device, growth->streams);
    thread->is_added = true;
    thread->started = pthread_create(&thread->thread, NULL, conv_stream_thread_main, thread) == 0;
    if (!thread->started)
        conv_growth_end(growth, false);
}

// While streams are being added, each takes one group: what several take, above all pinned memory
// for their results, would delay the first ones.
int conv_devices_together(const struct conv_scheduler *s, int device, int *later)
{
    const struct conv_device_state *state = &s->devices[device];
    bool able = state->phase == CONV_DEVICE_READY && !state->runs_apart;
    *later = able ? most_together(s, device) : 1;
    return state->growth.streams >= state->growth.most ? *later : 1;
}

void conv_devices_run_apart(struct conv_scheduler *s, int device)
{
    conv_lock_acquire(&s->lock);
    s->devices[device].runs_apart = true;
    conv_lock_release(&s->lock);
}

bool conv_devices_open_stream(struct conv_stream_thread *thread)
{
    struct conv_scheduler *s = thread->scheduler;
    struct conv_device_state *device = &s->devices[thread->device];
    const struct conv_device_ops *ops = s->config->ops;
    struct conv_err err;
    bool opened = (!ops->has_room || ops->has_room(device->backend)) &&
                  open_stream(s, thread, &err) == CONV_OK;
    if (opened)
        conv_stream_thread_add_tracks(thread);
    conv_lock_acquire(&s->lock);
    conv_growth_end(&device->growth, opened);
    device->runs_apart |= !opened; // several groups at once would take even more memory
    if (opened)
        (void)conv_pool_add_slots(&s->pool, s->slots_per_stream);
    count_streams(s);
    pthread_cond_signal(&s->wake.workers); // there may be room for another group
    int streams = device->growth.streams;
    conv_lock_release(&s->lock);
    conv_lock_acquire(&s->report_lock);
    conv_report_streams(s->report, streams);
    conv_lock_release(&s->report_lock);
    return opened;
}

CONV_UNCHECKED struct conv_stream_thread *
conv_devices_take_stream(const struct conv_stream_thread *thread, int device, struct conv_err *err)
{
    struct conv_scheduler *s = thread->scheduler;
    conv_lock_acquire(&s->lock);
    if (is_opened(s, device))
        take_over(s, device);
    const struct conv_device_state *state = &s->devices[device];
    int streams = state->phase == CONV_DEVICE_READY ? state->growth.streams : 0;
    *err = state->lost;
    conv_lock_release(&s->lock);
    if (streams == 0)
        return NULL;
    for (int i = 0; i < streams; i++) {
        struct conv_stream_thread *owner = thread_of(s, device, (thread->index + i) % streams);
        if (conv_lock_try(&owner->in_turn))
            return owner;
    }
    struct conv_stream_thread *owner = thread_of(s, device, thread->index % streams);
    conv_lock_acquire(&owner->in_turn);
    return owner;
}

CONV_UNCHECKED void conv_devices_put_stream(struct conv_stream_thread *owner)
{
    conv_lock_release(&owner->in_turn);
}

static void warn(struct conv_scheduler *s, int device, const struct conv_err *err, const char *so)
    CONV_NEEDS(s->report_lock)
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
    bool oom = status == CONV_ERR_MEMORY, others = false;
    conv_lock_acquire(&s->report_lock); // so that devices lost together are reported in order
    conv_lock_acquire(&s->lock);
    bool news = oom ? !state->oom_reported : state->phase != CONV_DEVICE_LOST;
    if (oom) {
        state->oom_reported = true;
    } else if (news) {
        state->lost = *err;
        move(state, CONV_DEVICE_LOST);
        pthread_cond_broadcast(&s->wake.devices);
    }
    count_streams(s);
    for (int d = 0; d < s->config->device_count; d++)
        others |= d != device && s->devices[d].phase != CONV_DEVICE_LOST;
    conv_lock_release(&s->lock);
    if (news && others)
        warn(s, device, err,
             oom ? "images without room there go to other GPUs" : "continuing on the others");
    else if (news && s->config->fallback_ops) // else each failed image has the reason
        warn(s, device, err,
             oom ? "images without room there are filtered on the CPU" : "continuing on the CPU");
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
        warn(s, device, err, "images without room there are decoded and encoded on the CPU");
    conv_lock_release(&s->report_lock);
}

bool conv_devices_are_lost(struct conv_scheduler *s, struct conv_err *err)
{
    if (!s->config->ops->async)
        return false;
    bool lost = true;
    conv_lock_acquire(&s->lock);
    for (int d = 0; d < s->config->device_count && lost; d++) {
        lost = s->devices[d].phase == CONV_DEVICE_LOST;
        if (lost)
            *err = s->devices[d].lost;
    }
    conv_lock_release(&s->lock);
    return lost;
}
