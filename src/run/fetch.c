// SPDX-License-Identifier: MIT
// Buffers grow with the file; their memory comes from the budget for files.
#include "run/fetch.h"

#include "run/phase.h"
#include "run/stages.h"

void conv_fetch_announce(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct stat *info = &job->input.info;
    if (!job->item.ops->announce)
        return;
    job->item.ops->announce(&job->item, &job->input);
    // A file larger than allowed will not be read.
    if (S_ISREG(info->st_mode) && (uint64_t)info->st_size <= config->mem_limit)
        job->want = conv_file_read_capacity((size_t)info->st_size);
}

struct fetch {
    struct conv_job *job;
    uint64_t *start;
};

static void grow(void *context, size_t capacity)
{
    struct conv_job *job = ((struct fetch *)context)->job;
    if (conv_budget_try(job->budget, &job->share, capacity))
        return;
    conv_input_keep(&job->input); // the jobs that it waits for may need a descriptor
    conv_budget_grow(job->budget, &job->share, capacity);
}

// The slice of the stage ends before a wait and a new one begins after it.
static void pause_slice(void *context)
{
    struct fetch *fetch = context;
    conv_stages_end(fetch->job, CONV_STAGE_READ, *fetch->start);
}

static void resume_slice(void *context)
{
    *((struct fetch *)context)->start = conv_trace_begin(CONV_STAGE_READ);
}

// The worker computes while others help it: helpers.h.
static void run_in_phase(struct conv_parallel *parallel, int threads, void (*work)(void *context),
                         void *context)
{
    struct conv_job *job = parallel->owner;
    (void)threads; // reading takes no memory, so there are no fewer for this reason
    conv_phase_begin(job->phase);
    conv_parallel_run(job->parallel, 0, work, context);
    conv_phase_end(job->phase);
}

enum conv_status conv_fetch_read(const struct conv_pipeline_config *config, struct conv_job *job,
                                 uint64_t *start)
{
    struct fetch fetch = {.job = job, .start = start};
    struct conv_parallel parallel = {
        .most = conv_parallel_most(job->parallel, 0), .run = run_in_phase, .owner = job};
    struct conv_file_read how = {
        .limit = config->mem_limit,
        .stop = config->stop,
        .parallel = &parallel,
        .grow = grow,
        .pause = pause_slice,
        .resume = resume_slice,
        .context = &fetch,
    };
    return conv_file_read(&how, &job->item, &job->input, job->file, &job->format, &job->err);
}
