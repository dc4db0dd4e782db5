// SPDX-License-Identifier: MIT
// What workers do, one task at a time. The order of preference on an async backend: encode (which
// frees staging memory), place and decode an image that waits for memory, read a new one, after a
// walk when few are found. The image that is nearest to its end goes first, so that the pipeline
// cannot fill up. All tasks release the lock while they name, read, code, filter or write. A job
// that fails is finished.
#include "base/clock.h"
#include "run/devices.h"
#include "run/scheduler.h"
#include "run/stages.h"
#include "run/worker.h"

// Files that the system fetches ahead of those that are read.
#define AHEAD 16

// While a worker reads or writes a file of this size, others have time to wake up.
#define LARGE_BYTES 32768

// Small files that a device decodes and encodes: workers take several at a time. What they do to
// one takes a few microseconds, less than waking another worker or waiting for the lock. 40,000
// icons on an H100 and 16 cores, coded by the GPU: 3.7 s of processors with one file at a time,
// 1.2 s with 16, in 0.62 and 0.51 s, on another machine in 0.57 and 0.58. 2026-11-26.
#define MOST_SMALL 16
#define SMALL_BYTES ((size_t)1 << 16)

static bool is_small(const struct conv_scheduler *s, const struct conv_job *job) CONV_NEEDS(s->lock)
{
    const struct conv_pipeline_config *config = s->config;
    return config->encode_on == CONV_CODER_GPU && config->decode_on != CONV_CODER_CPU &&
           job->want > 0 && job->want <= SMALL_BYTES && job->decode_on != CONV_CODER_CPU &&
           !job->item.is_copy;
}

// A worker that takes a job from a list wakes another worker for the next. If jobs end before a
// thread has woken up, few threads are woken. If they take longer, each worker wakes two others: a
// group releases many jobs at once, and the last worker would start late if each woke only one.
static void wake_for(struct conv_scheduler *s, const struct conv_job_list *list) CONV_NEEDS(s->lock)
{
    if (!list->first)
        return;
    pthread_cond_signal(&s->wake.workers);
    if (list->first->next && list->first->record.bytes_in >= LARGE_BYTES)
        pthread_cond_signal(&s->wake.workers);
}

// --- source --------------------------------------------------------------------------------------

// Images that are fetched from the source at once: with one at a time, workers would wait for each
// other where images are small.
#define WALK_BATCH 8
#define LARGE_MEMBER (1 << 20) // bytes

static void note_found(struct conv_report_total *found, enum conv_source_step step,
                       const struct conv_item *item)
{
    if (step == CONV_SOURCE_END)
        atomic_store(&found->is_complete, true);
    else if (step != CONV_SOURCE_REPEATED && !(step == CONV_SOURCE_ITEM && item->is_copy) &&
             item->holds == 0)
        atomic_fetch_add(&found->images, 1);
}

// The next step of the source. An image or copy has a name that no earlier one has.
static enum conv_source_step next_named(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_item *item = &job->item;
    for (;;) {
        enum conv_sink_claim claim;
        item->is_copy = item->is_link = item->keeps_name = false;
        item->is_repeated = item->is_refused = item->is_numbered = item->is_result = false;
        item->archive = item->holds = 0;
        enum conv_source_step step = conv_source_next(s->source, item, &job->err);
        if (config->found)
            note_found(config->found, step, item);
        if (step != CONV_SOURCE_ITEM || !config->sink || !conv_item_target(item)[0])
            return step;
        bool npy = config->output_type == CONV_OUTPUT_F32;
        item->is_result =
            !item->is_copy &&
            (npy || (config->output_format &&
                     conv_formats_of_name(conv_item_target(item)) != config->output_format));
        if (item->is_result && conv_item_set_format(item, config->output_format, npy, &job->err))
            return CONV_SOURCE_BAD;
        if (conv_sink_claim(config->sink, item, &claim, &job->err))
            return CONV_SOURCE_BAD;
        if (claim != CONV_SINK_CLAIM_LATER)
            return claim == CONV_SINK_CLAIMED ? step : CONV_SOURCE_DONE;
        if (conv_source_hold(s->source, item, &job->err))
            return CONV_SOURCE_BAD;
    }
}

// The same, with a place for its output.
static enum conv_source_step next_job(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_sink *sink = s->config->sink;
    enum conv_source_step step = next_named(s, job);
    job->item.number = s->next_number;
    s->next_number += step != CONV_SOURCE_END;
    // An item that cannot be read may have no name below the sink: the list itself, for example.
    bool has_place = step != CONV_SOURCE_END && sink && conv_item_target(&job->item)[0];
    if (has_place &&
        sink->ops->place(sink, &job->item, &job->output,
                         step == CONV_SOURCE_ITEM ? &job->err : NULL) &&
        step == CONV_SOURCE_ITEM)
        step = CONV_SOURCE_BAD;
    return step;
}

// True for a member that was read from a stream and whose size makes the next one worth a turn of
// its own: the others can begin with this one meanwhile, while it is in a cache.
static bool is_worth_a_turn(const struct conv_item *item)
{
    return conv_item_streamed(item) && conv_item_bytes(item) >= LARGE_MEMBER;
}

// Fills `jobs` and `steps` from the source, no further than it takes without waiting for a name or
// to a failure, which is reported at once. Returns how many; *over: the source has ended.
static int fill_batch(struct conv_scheduler *s, struct conv_job *jobs[],
                      enum conv_source_step steps[], int room, bool *over)
{
    int count = 0;
    *over = false;
    while (!*over && count < room &&
           (count == 0 ||
            !(steps[count - 1] == CONV_SOURCE_BAD || conv_source_may_wait(s->source) ||
              conv_source_is_full(s->source) || is_worth_a_turn(&jobs[count - 1]->item)))) {
        steps[count] = next_job(s, jobs[count]);
        *over = steps[count] == CONV_SOURCE_END;
        jobs[count]->record.number = *over ? 0 : ++s->numbered;
        count += !*over;
    }
    return count;
}

// Reports what came from the source instead of an image: a repeated name or an error.
static void finish_unusable(struct conv_scheduler *s, struct conv_job *job,
                            enum conv_source_step step) CONV_NEEDS(s->lock)
{
    enum conv_status status = job->err.status;
    const char *reason = conv_source_skip_reason(step, &job->item);
    if (reason) {
        job->record.outcome = CONV_OUTCOME_SKIPPED;
        job->record.reason = reason;
        job->record.notable = step == CONV_SOURCE_REPEATED;
        if (step != CONV_SOURCE_REPEATED)
            job->output.path[0] = '\0';
        status = CONV_OK;
    }
    conv_jobs_finish(s, job, status);
}

// Fetches the next images from the source, whose state is not CONV_SOURCE_BUSY.
static void fetch(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    struct conv_job *jobs[WALK_BATCH];
    enum conv_source_step steps[WALK_BATCH];
    bool over;
    int room = 0;
    while (room < WALK_BATCH && (jobs[room] = conv_jobs_new(s)))
        room++;
    if (room == 0) {
        conv_err_memory(&s->failure, "no memory for another image");
        conv_scheduler_stop(s);
        return;
    }
    s->source_state = CONV_SOURCE_BUSY;
    conv_lock_release(&s->lock);
    int count = fill_batch(s, jobs, steps, room, &over);
    conv_lock_acquire(&s->lock);
    s->source_state = over ? CONV_SOURCE_OVER : CONV_SOURCE_IDLE;
    for (int i = count; i < room; i++)
        conv_jobs_put_away(s, jobs[i]);
    for (int i = 0; i < count; i++) {
        if (s->config->layer && s->config->layer->collect)
            conv_jobs_join_line(s, jobs[i]);
        if (steps[i] == CONV_SOURCE_ITEM)
            conv_job_push(&s->jobs.found, jobs[i]);
        else
            s->jobs.live++;
    }
    pthread_cond_signal(&s->wake.workers);
    for (int i = 0; i < count; i++)
        if (steps[i] != CONV_SOURCE_ITEM)
            finish_unusable(s, jobs[i], steps[i]);
}

// --- choosing ------------------------------------------------------------------------------------

static bool may_begin(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    return s->jobs.found.first && s->jobs.live < (int)s->config->memory.live;
}

// True if enough files are being fetched that the first is to be read; members of archives are in
// memory, or mapped.
static bool is_ripe(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    const struct conv_job *first = s->jobs.announced.first;
    if (!first)
        return false;
    int more = is_small(s, first) ? MOST_SMALL - 1 : 0;
    return first->item.ops->view || s->jobs.announced.count > AHEAD + more || !may_begin(s);
}

// A walk that may wait for the next name does so only when all images found so far are read, and
// with a single worker, finished.
static bool may_fetch(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    if (s->source_state != CONV_SOURCE_IDLE || conv_source_is_full(s->source))
        return false;
    bool others_wait = s->jobs.announced.first || (s->config->jobs == 1 && s->jobs.live > 0);
    return !others_wait || !conv_source_may_wait(s->source);
}

// Each of the following functions does one task, or returns false if there is none of its kind.

static bool fetch_next(struct conv_scheduler *s, bool stopping) CONV_NEEDS(s->lock)
{
    if (s->jobs.found.count >= s->config->jobs || !may_fetch(s) || stopping)
        return false;
    fetch(s);
    return true;
}

// Begins a job that was found: finishes it if it is to be skipped, else has the system fetch its
// file and appends it to the announced ones.
static bool announce_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    if (!may_begin(s) || is_ripe(s))
        return false;
    struct conv_job *job = conv_job_pop(&s->jobs.found);
    wake_for(s, &s->jobs.found);
    s->jobs.live++;
    s->jobs.begun++;
    conv_lock_release(&s->lock);
    job->track = worker->track;
    enum conv_status status = conv_plan_job(s->config, job);
    bool goes_on = !status && job->record.outcome == CONV_OUTCOME_DONE;
    if (goes_on) {
        conv_stages_announce(s->config, job);
        status = conv_plan_check_output(s->config, job);
    }
    conv_lock_acquire(&s->lock);
    if (status || !goes_on) {
        conv_jobs_finish(s, job, status);
        return true;
    }
    conv_job_insert(&s->jobs.announced, job);
    return true;
}

// After a stop nothing new is begun.
static bool drop_waiting(struct conv_scheduler *s, bool stopping) CONV_NEEDS(s->lock)
{
    if (!stopping || !(s->jobs.found.first || s->jobs.announced.first || s->jobs.links.first))
        return false;
    while (s->jobs.found.first)
        conv_jobs_put_away(s, conv_job_pop(&s->jobs.found));
    while (s->jobs.announced.first)
        conv_jobs_drop(s, conv_job_pop(&s->jobs.announced));
    while (s->jobs.links.first)
        conv_jobs_drop(s, conv_job_pop(&s->jobs.links));
    return true;
}

// Copies an item that is not an image to the output.
static void copy(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock)
{
    conv_lock_release(&s->lock);
    job->track = worker->track;
    enum conv_status status = conv_stages_copy(s->config, worker->index, job);
    conv_lock_acquire(&s->lock);
    if (!status)
        job->record.outcome = CONV_OUTCOME_COPIED;
    conv_jobs_finish(s, job, status);
}

// A link waits outside the queue, so that others can be begun meanwhile.
static bool copy_link(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock)
{
    while (s->jobs.announced.first && s->jobs.announced.first->item.is_link)
        conv_job_insert(&s->jobs.links, conv_job_pop(&s->jobs.announced));
    struct conv_job *job = s->jobs.links.first;
    if (!job || stopping || !conv_sink_is_due(s->config->sink, &job->item))
        return false;
    conv_job_pop(&s->jobs.links);
    copy(s, worker, job);
    return true;
}

// --- decode --------------------------------------------------------------------------------------

// The job leaves the decoders of its group: for the stream with the group, for a worker to decode
// it after all (on_cpu), or because it failed.
static void end_decode(struct conv_scheduler *s, struct conv_job *job, enum conv_status status,
                       bool on_cpu) CONV_NEEDS(s->lock)
{
    struct conv_slot *slot = job->slot;
    if (!status && !slot->group.decoded)
        conv_groups_note_decoded(s, job);
    if (!status && !on_cpu) {
        conv_jobs_drop_file(s, job);
        job->next = slot->jobs;
        slot->jobs = job;
    } else {
        job->slot = NULL;
        slot->unfinished--;
    }
    if (on_cpu) {
        job->decode_on = CONV_CODER_CPU;
        conv_job_push(&s->jobs.parked, job);
        pthread_cond_signal(&s->wake.workers);
    }
    conv_groups_end_decode(s, slot);
    if (status)
        conv_jobs_finish(s, job, status);
}

// Async backend: decodes jobs that have been read and have their places in groups.
static void decode(struct conv_scheduler *s, struct conv_worker *worker,
                   struct conv_job *const jobs[], int count) CONV_NEEDS(s->lock)
{
    enum conv_status status[MOST_SMALL] = {CONV_OK};
    bool on_cpu[MOST_SMALL] = {false};
    if (count == 0)
        return;
    conv_worker_take(worker, jobs[0], true);
    conv_lock_release(&s->lock);
    for (int i = 0; i < count; i++) {
        if (jobs[i]->slot->group.decoded)
            on_cpu[i] = !conv_stages_pass_on(jobs[i]);
        else
            status[i] = conv_stages_decode(s->config, worker->codecs, jobs[i]);
    }
    conv_lock_acquire(&s->lock);
    for (int i = 0; i < count; i++)
        end_decode(s, jobs[i], status[i], on_cpu[i]);
}

// Waits until there may be room in a group for a parked image. A worker that waits for a device to
// decode counts as idle: the decode policy spends that time.
static void wait_for_room(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    uint64_t start = conv_clock_ns();
    conv_scheduler_wait(s, &s->wake.workers, conv_decode_policy_wait_limit_ns(&s->policy));
    conv_decode_policy_note_idle(&s->policy, conv_clock_ns() - start);
}

static bool place_parked(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock)
{
    // Taken out first: while this worker decodes, others must not see it.
    struct conv_job *job = conv_job_pop(&s->jobs.parked);
    enum conv_status status = CONV_OK;
    if (!job)
        return false;
    if (stopping) {
        conv_jobs_drop(s, job); // read, but not begun
    } else if (conv_groups_place(s, job, false, &status)) {
        pthread_cond_signal(&s->wake.workers); // there may be room for another, or for new ones
        decode(s, worker, &job, 1);
    } else if (status) {
        pthread_cond_signal(&s->wake.workers);
        conv_jobs_finish(s, job, status);
    } else {
        conv_job_put_back(&s->jobs.parked, job);
        wait_for_room(s);
    }
    return true;
}

// Gives the image its place in a group, or parks it if it gets none yet. `device_only`: also if a
// worker is to decode it, which would make others wait.
static bool place(struct conv_scheduler *s, struct conv_job *job, bool device_only)
    CONV_NEEDS(s->lock)
{
    enum conv_status status = CONV_OK;
    if (conv_groups_place(s, job, device_only, &status))
        return true;
    if (status) {
        conv_jobs_finish(s, job, status);
        return false;
    }
    conv_job_push(&s->jobs.parked, job);
    if (device_only)
        pthread_cond_signal(&s->wake.workers);
    return false;
}

// --- read ----------------------------------------------------------------------------------------

// Takes the first announced job, or several small ones, if their turn has come: an output may have
// to wait until others are written, a buffer until others are released. Returns how many.
static int take_announced(struct conv_scheduler *s, struct conv_job *jobs[MOST_SMALL])
    CONV_NEEDS(s->lock)
{
    int count = 0;
    struct conv_job *job;
    while (count < MOST_SMALL && (job = s->jobs.announced.first) &&
           (count == 0 || (is_small(s, jobs[0]) && is_small(s, job))) &&
           conv_sink_may_begin(s->config->sink, &job->item) &&
           conv_budget_try(job->budget, &job->share, job->want)) {
        conv_job_pop(&s->jobs.announced);
        if (!job->item.is_copy)
            (void)conv_jobs_take_file(s, job);
        jobs[count++] = job;
    }
    if (count > 0)
        wake_for(s, &s->jobs.announced);
    return count;
}

// Reads the file of a job into the buffer that it has got, if there was memory.
static enum conv_status read_file(struct conv_scheduler *s, struct conv_worker *worker,
                                  struct conv_job *job) CONV_TAKES(s->lock)
{
    job->track = worker->track;
    if (!job->file)
        return conv_err_memory(&job->err, "no memory for the file");
    if (!s->config->fallback_ops && conv_devices_are_lost(s, &job->err))
        return job->err.status;
    return conv_stages_read(s->config, job);
}

// Reads until a file has grown beyond its share: growing another one might wait for memory that
// these jobs have. Returns how many were read.
static int read_files(struct conv_scheduler *s, struct conv_worker *worker,
                      struct conv_job *const jobs[], enum conv_status status[], int count)
    CONV_TAKES(s->lock)
{
    int read = 0;
    bool grown = false;
    while (read < count && !grown) {
        status[read] = read_file(s, worker, jobs[read]);
        grown = jobs[read]->share.bytes > jobs[read]->want;
        read++;
    }
    return read;
}

// Goes on with jobs that have been read, one of them or several small ones.
static void begin(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *jobs[],
                  const enum conv_status status[], int count) CONV_NEEDS(s->lock)
{
    int placed = 0;
    for (int i = 0; i < count; i++) {
        if (status[i])
            conv_jobs_finish(s, jobs[i], status[i]);
        else if (s->config->layer)
            conv_layer_stage_run(s, worker, jobs[i]);
        else if (!s->config->ops->async)
            conv_tasks_run(s, worker, jobs[i]);
        else if (place(s, jobs[i], count > 1))
            jobs[placed++] = jobs[i];
    }
    decode(s, worker, jobs, placed);
}

static bool read_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    struct conv_job *jobs[MOST_SMALL];
    enum conv_status status[MOST_SMALL];
    int count = is_ripe(s) ? take_announced(s, jobs) : 0;
    if (count == 0)
        return false;
    if (jobs[0]->item.is_copy) {
        copy(s, worker, jobs[0]);
        return true;
    }
    int begun = s->jobs.live - s->jobs.announced.count, to_encode = s->jobs.to_encode.count;
    conv_worker_take(worker, jobs[0], false);
    jobs[0]->parallel = count == 1 ? &worker->parallel : NULL;
    conv_lock_release(&s->lock);
    conv_trace_queues(worker->track, begun, to_encode);
    int read = read_files(s, worker, jobs, status, count);
    jobs[0]->parallel = NULL;
    conv_lock_acquire(&s->lock);
    for (int i = read; i < count; i++) {
        conv_jobs_drop_file(s, jobs[i]);
        conv_job_insert(&s->jobs.announced, jobs[i]);
    }
    begin(s, worker, jobs, status, read);
    return true;
}

// --- encode --------------------------------------------------------------------------------------

static bool is_small_result(const struct conv_job *job)
{
    const struct conv_group *group = &job->slot->group;
    return group->encoded && group->images[job->image].encoded_bytes <= SMALL_BYTES;
}

// Takes the first filtered job, or several small ones that a device has encoded unless the sink has
// an order, in which jobs may have to wait for each other. Returns how many.
static int take_filtered(struct conv_scheduler *s, struct conv_job *jobs[MOST_SMALL])
    CONV_NEEDS(s->lock)
{
    int count = 0, most = conv_sink_has_order(s->config->sink) ? 1 : MOST_SMALL;
    struct conv_job *job;
    while (count < most && (job = s->jobs.to_encode.first) &&
           (count == 0 || (is_small_result(jobs[0]) && is_small_result(job)))) {
        conv_job_pop(&s->jobs.to_encode);
        jobs[count++] = job;
    }
    if (count > 0)
        wake_for(s, &s->jobs.to_encode);
    return count;
}

// Async backend: encodes and writes filtered jobs, and finishes them.
static bool encode_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    struct conv_job *jobs[MOST_SMALL];
    enum conv_status status[MOST_SMALL];
    int count = take_filtered(s, jobs), done = 0;
    if (count == 0)
        return false;
    conv_worker_take(worker, jobs[0], false);
    conv_lock_release(&s->lock);
    for (int i = 0; i < count; i++) {
        jobs[i]->track = worker->track;
        jobs[i]->phase = &worker->phase;
        status[i] = conv_stages_encode(s->config, worker->codecs, worker->index, jobs[i]);
    }
    conv_lock_acquire(&s->lock);
    for (int i = 0; i < count; i++) {
        conv_groups_leave(s, jobs[i]);
        if (status[i] || jobs[i]->item.is_numbered)
            conv_jobs_finish(s, jobs[i], status[i]);
        else
            jobs[done++] = jobs[i];
    }
    if (done > 0)
        conv_jobs_finish_done(s, jobs, done);
    return true;
}

// -------------------------------------------------------------------------------------------------

bool conv_tasks_do(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
{
    return encode_next(s, worker) || place_parked(s, worker, stopping) ||
           copy_link(s, worker, stopping) || fetch_next(s, stopping) || drop_waiting(s, stopping) ||
           read_next(s, worker) || announce_next(s, worker);
}
