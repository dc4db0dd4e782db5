// SPDX-License-Identifier: MIT
#include "run/scheduler.h"

#include <stddef.h>
#include <stdlib.h>

#include "run/stages.h"

// --- lists of jobs -------------------------------------------------------------------------------

static void init_list(struct conv_job_list *list)
{
    list->first = NULL;
    list->end = &list->first;
    list->count = 0;
}

void conv_job_push(struct conv_job_list *list, struct conv_job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
    list->count++;
}

void conv_job_put_back(struct conv_job_list *list, struct conv_job *job)
{
    job->next = list->first;
    if (!list->first)
        list->end = &job->next;
    list->first = job;
    list->count++;
}

// The job whose `next` is the list's end.
static const struct conv_job *last_of(const struct conv_job_list *list)
{
    return (const void *)((const char *)list->end - offsetof(struct conv_job, next));
}

// Jobs come nearly in order, most at the end, where the others need not be fetched from the caches
// of the processors that used them last.
void conv_job_insert(struct conv_job_list *list, struct conv_job *job)
{
    struct conv_job **place = &list->first;
    if (list->first && last_of(list)->item.number < job->item.number)
        place = list->end;
    while (*place && (*place)->item.number < job->item.number)
        place = &(*place)->next;
    job->next = *place;
    *place = job;
    if (!job->next)
        list->end = &job->next;
    list->count++;
}

static struct conv_job *merge(struct conv_job *a, struct conv_job *b)
{
    struct conv_job *first = NULL, **end = &first;
    while (a && b) {
        struct conv_job **from = a->item.number <= b->item.number ? &a : &b;
        *end = *from;
        end = &(*from)->next;
        *from = *end;
    }
    *end = a ? a : b;
    return first;
}

void conv_job_join(struct conv_job_list *list, struct conv_job *first, bool by_number)
{
    for (const struct conv_job *job = first; job; job = job->next)
        list->count++;
    if (by_number)
        list->first = merge(list->first, first);
    else
        *list->end = first;
    while (*list->end)
        list->end = &(*list->end)->next;
}

// Runs of 1, 2, 4, ... jobs wait in `runs` until there are two of a length.
struct conv_job *conv_job_sort(struct conv_job *first)
{
    struct conv_job *runs[32] = {NULL}, *all = NULL;
    while (first) {
        struct conv_job *run = first;
        first = run->next;
        run->next = NULL;
        int i = 0;
        for (; i < 31 && runs[i]; i++) {
            run = merge(runs[i], run);
            runs[i] = NULL;
        }
        runs[i] = merge(runs[i], run);
    }
    for (int i = 0; i < 32; i++)
        all = merge(runs[i], all);
    return all;
}

struct conv_job *conv_job_pop(struct conv_job_list *list)
{
    struct conv_job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first)
            list->end = &list->first;
        list->count--;
    }
    return job;
}

// --- jobs of a run -------------------------------------------------------------------------------

void conv_jobs_init(struct conv_jobs *jobs)
{
    init_list(&jobs->found);
    init_list(&jobs->announced);
    init_list(&jobs->parked);
    init_list(&jobs->links);
    init_list(&jobs->to_encode);
}

void conv_jobs_join_line(struct conv_scheduler *s, struct conv_job *job)
{
    struct conv_job *last = s->jobs.in_line.last;
    *(last ? &last->after : &s->jobs.in_line.first) = job;
    job->before = last;
    job->after = NULL;
    s->jobs.in_line.last = job;
}

void conv_jobs_leave_line(struct conv_scheduler *s, struct conv_job *job)
{
    if (!job->before && s->jobs.in_line.first != job)
        return;
    *(job->before ? &job->before->after : &s->jobs.in_line.first) = job->after;
    *(job->after ? &job->after->before : &s->jobs.in_line.last) = job->before;
    job->before = job->after = NULL;
    pthread_cond_broadcast(&s->wake.memory); // the first one waits for nothing else
}

struct conv_job *conv_jobs_new(struct conv_scheduler *s)
{
    if (!s->jobs.free)
        s->jobs.free = calloc(1, sizeof *s->jobs.free);
    if (!s->jobs.free)
        return NULL;
    struct conv_job *job = s->jobs.free;
    s->jobs.free = job->next;
    job->err.text[0] = '\0';
    job->record = (struct conv_record){.outcome = CONV_OUTCOME_DONE};
    job->is_written = false;
    job->header = (struct conv_image_header){0};
    job->slot = NULL;
    job->budget = s->config->layer ? NULL : &s->budget; // layer_stage.c
    job->share = (struct conv_share){0};
    job->want = 0;
    job->file = NULL;
    job->input = (struct conv_input){0};
    job->format = job->output_format = NULL;
    job->output.path[0] = '\0';
    job->decode_on = CONV_CODER_AUTO;
    return job;
}

bool conv_jobs_take_file(struct conv_scheduler *s, struct conv_job *job)
{
    if (!s->jobs.free_files)
        s->jobs.free_files = calloc(1, sizeof *s->jobs.free_files);
    if (!s->jobs.free_files)
        return false;
    job->file = s->jobs.free_files;
    s->jobs.free_files = job->file->next;
    job->file->size = 0;
    return true;
}

// A metadata buffer up to this size counts as part of the job and stays with it. Larger ones are
// rare, and many free jobs with such a buffer would add up.
#define CHUNKS_KEPT 4096

size_t conv_jobs_metadata_bytes(const struct conv_job *job)
{
    return job->meta.bytes.capacity > CHUNKS_KEPT ? job->meta.bytes.capacity : 0;
}

void conv_jobs_drop_file(struct conv_scheduler *s, struct conv_job *job)
{
    size_t keep = s->config->codec.keep;
    if (job->file) {
        conv_file_unmap(job->file, &job->item, &job->input);
        if (keep > 0 && job->file->capacity > keep) { // as the coders' buffers
            free(job->file->data);
            *job->file = (struct conv_file){0};
        }
        job->file->next = s->jobs.free_files;
        s->jobs.free_files = job->file;
        job->file = NULL;
    }
    bool had_some = job->share.bytes > 0;
    conv_budget_release(job->budget, &job->share);
    if (had_some && s->jobs.announced.first)
        pthread_cond_signal(&s->wake.workers); // its file may wait for that memory
    if (had_some)
        pthread_cond_broadcast(&s->wake.memory); // so may images in flight
}

void conv_jobs_read_again(struct conv_scheduler *s, struct conv_job *job)
{
    job->decode_on = CONV_CODER_CPU;
    conv_job_insert(&s->jobs.announced, job);
    pthread_cond_signal(&s->wake.workers);
}

void conv_jobs_put_away(struct conv_scheduler *s, struct conv_job *job)
{
    conv_jobs_leave_line(s, job);
    conv_item_release(&job->item);
    job->next = s->jobs.free;
    s->jobs.free = job;
}

void conv_jobs_drop(struct conv_scheduler *s, struct conv_job *job)
{
    conv_jobs_drop_file(s, job);
    if (job->input.is_announced) // and not read
        job->item.ops->close(&job->input);
    if (conv_jobs_metadata_bytes(job) > 0)
        conv_metadata_free(&job->meta);
    conv_jobs_put_away(s, job);
    if (--s->jobs.live == 0)
        pthread_cond_broadcast(&s->wake.workers); // this may end all workers
    else if (s->jobs.live == (int)s->config->memory.live - 1)
        pthread_cond_signal(&s->wake.workers);
}

// True if outputs are parts of archives, which may still fail.
static bool is_held(const struct conv_scheduler *s)
{
    const struct conv_sink *sink = s->config->sink;
    return sink && sink->ops->is_written && !s->config->no_save && !s->config->dry_run;
}

static void report_job(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->report_lock)
{
    const struct conv_sink *sink = s->config->sink;
    struct conv_record *record = &job->record;
    record->input = job->item.name;
    record->output = job->output.path[0] ? job->output.path : NULL;
    record->title = job->item.ops->title;
    record->are_files = job->item.ops->is_file && sink && sink->ops->makes_files;
    record->archive = is_held(s) ? 1 + job->item.archive : 0;
    record->err = job->record.outcome == CONV_OUTCOME_FAILED ? &job->err : NULL;
    record->width = job->header.shape.width;
    record->height = job->header.shape.height;
    record->channels = job->header.shape.channels;
    record->depth = job->header.shape.depth;
    conv_report_file(s->report, record);
    int held = is_held(s) ? conv_report_held(s->report) : 0;
    if (held && sink->ops->is_written(sink, held - 1))
        conv_report_settle(s->report, held, CONV_REPORT_KEPT, NULL);
}

// Copies the bytes of a member that could not be filtered into its archive, under its own name; by
// any thread. False if that fails.
static bool copy_failed(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_sink *sink = s->config->sink;
    struct conv_err reason = job->err;
    if (!job->item.keeps_name)
        return false;
    conv_item_keep_name(&job->item);
    if (sink->ops->place(sink, &job->item, &job->output, NULL) ||
        conv_stages_copy(s->config, CONV_SINK_NO_WORKER, job)) {
        job->err = reason;
        return false;
    }
    job->record.bytes_out = 0;
    conv_text_add(job->err.text, sizeof job->err.text, "; ", "copied as it is");
    return true;
}

// A job without an output leaves its place in the sink.
static void leave_output(struct conv_scheduler *s, struct conv_job *job)
{
    bool has_failed = job->record.outcome == CONV_OUTCOME_FAILED;
    if (!job->is_written && !(has_failed && copy_failed(s, job)) &&
        conv_sink_drop(s->config->sink, &job->item) && has_failed)
        conv_text_add(job->err.text, sizeof job->err.text, "; ",
                      "an earlier link to it is in the output");
}

// Reports the jobs and ends them.
static void end(struct conv_scheduler *s, struct conv_job *const jobs[], int count)
    CONV_NEEDS(s->lock) CONV_TAKES(s->report_lock)
{
    conv_lock_release(&s->lock);
    for (int i = 0; i < count; i++)
        leave_output(s, jobs[i]);
    conv_lock_acquire(&s->report_lock);
    for (int i = 0; i < count; i++)
        report_job(s, jobs[i]);
    conv_lock_release(&s->report_lock);
    conv_lock_acquire(&s->lock);
    for (int i = 0; i < count; i++)
        conv_jobs_drop(s, jobs[i]);
    if (s->jobs.links.first) // the next one may be due now
        pthread_cond_signal(&s->wake.workers);
}

// Its source hands the image out again when it is complete.
static void read_later(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock)
{
    job->item.is_again = true;
    conv_lock_release(&s->lock);
    (void)conv_sink_drop(s->config->sink, &job->item);
    conv_lock_acquire(&s->report_lock);
    conv_report_pass(s->report, job->record.number);
    conv_lock_release(&s->report_lock);
    conv_lock_acquire(&s->lock);
    conv_jobs_drop(s, job);
}

void conv_jobs_finish(struct conv_scheduler *s, struct conv_job *job, enum conv_status status)
{
    if (conv_sink_has_failed(s->config->sink))
        conv_scheduler_stop(s);
    if (status == CONV_ERR_CANCELLED) { // as if it had never begun
        conv_jobs_drop(s, job);
        return;
    }
    if (!status && job->item.is_numbered && job->record.outcome != CONV_OUTCOME_SKIPPED)
        status = conv_err_usage(&job->err, "another member has the same output; this one is %s",
                                conv_item_target(&job->item));
    bool was_read = job->record.bytes_out > 0; // and encoded: it is the output that failed
    bool gone;
    if (status && !was_read && job->item.ops->is_replaced &&
        job->item.ops->is_replaced(&job->item, &job->input, &gone)) {
        if (!gone) {
            read_later(s, job);
            return;
        }
        job->record.outcome = CONV_OUTCOME_SKIPPED;
        job->record.reason = "was removed while it was read";
    } else if (status) {
        job->record.outcome = CONV_OUTCOME_FAILED;
        job->record.reason = job->err.text;
        if (status == CONV_ERR_MEMORY && job->err.hint == CONV_HINT_NONE && s->config->jobs > 1 &&
            !s->config->ops->async)
            conv_err_hint(&job->err, CONV_HINT_FEWER_WORKERS, 0, status);
        if (s->config->fail_fast)
            conv_scheduler_stop(s);
    }
    end(s, &job, 1);
}

void conv_jobs_finish_done(struct conv_scheduler *s, struct conv_job *const jobs[], int count)
{
    if (conv_sink_has_failed(s->config->sink))
        conv_scheduler_stop(s);
    end(s, jobs, count);
}

void conv_jobs_free(struct conv_jobs *jobs)
{
    for (struct conv_job *job = jobs->free, *next; job; job = next) {
        next = job->next;
        conv_metadata_free(&job->meta);
        free(job);
    }
    for (struct conv_file *file = jobs->free_files, *next; file; file = next) {
        next = file->next;
        free(file->data);
        free(file);
    }
}
