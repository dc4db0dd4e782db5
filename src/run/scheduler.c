// SPDX-License-Identifier: MIT
#include "run/scheduler.h"

#include <limits.h>

#include "base/clock.h"
#include "run/streams.h"

// Input files get this part of the limit for staging memory: an image takes twice its samples in
// staging and its file seldom more than once, so files do not delay images for which staging has
// room.
#define FILES_SHARE 2

// Where the memory of the whole run is limited, an eighth is for files that are read while other
// images are in flight. Another eighth is for stacks, the coders' tables and the buffers that
// workers and pool keep (conv_pipeline_keep).
static int init_budget(struct conv_scheduler *s)
{
    const struct conv_pipeline_config *config = s->config;
    size_t files = config->mem_limit / FILES_SHARE, total = SIZE_MAX;
    if (config->memory > 0 && !config->ops->async) {
        total = config->memory - config->memory / 8;
        files = files < config->memory / 8 ? files : config->memory / 8;
    }
    return conv_budget_init(&s->files, files, total);
}

// A job takes some KiB, more than the staging memory of a tiny image: jobs get an eighth of the
// limit, and at least what keeps workers and readahead busy.
static int most_live(const struct conv_pipeline_config *config)
{
    size_t bytes = config->mem_limit / 8;
    if (config->memory > 0 && config->memory / 32 < bytes)
        bytes = config->memory / 32;
    size_t most = bytes / sizeof(struct conv_job);
    size_t least = 2 * (size_t)config->jobs + 64;
    return (int)(most < least ? least : most < INT_MAX ? most : INT_MAX);
}

static int init_locks(struct conv_scheduler *s)
{
    int errnum = conv_lock_init(&s->lock);
    if (!errnum)
        errnum = conv_lock_init(&s->report_lock);
    if (!errnum)
        errnum = conv_lock_init_condition(&s->wake.workers);
    if (!errnum)
        errnum = conv_lock_init_condition(&s->wake.memory);
    if (!errnum)
        errnum = conv_lock_init_condition(&s->wake.streams);
    if (!errnum)
        errnum = conv_lock_init_condition(&s->wake.devices);
    if (!errnum)
        errnum = conv_lock_init_condition(&s->wake.ended);
    return errnum ? errnum : init_budget(s);
}

enum conv_status conv_scheduler_init(struct conv_scheduler *s,
                                     const struct conv_pipeline_config *config,
                                     struct conv_source *source, struct conv_report *report,
                                     struct conv_err *err)
{
    bool coded = config->decode_on != CONV_CODER_CPU || config->encode_on != CONV_CODER_CPU;
    *s = (struct conv_scheduler){
        .config = config,
        .source = source,
        .report = report,
        .table_bytes = config->ops->table_bytes(config->filter_count, coded),
        .filter_alpha = config->alpha != CONV_ALPHA_KEEP,
        .most_live = most_live(config),
    };
    s->groups.ready_end = &s->groups.ready;
    conv_jobs_init(&s->jobs);
    conv_decode_policy_init(&s->policy, config->jobs, conv_clock_ns());
    s->policy.stream_bytes = conv_streams_device_bytes(config);
    s->policy.device_required = config->encode_on == CONV_CODER_GPU;
    int errnum = init_locks(s); // on Linux, where none of them takes memory, it never fails
    return errnum ? conv_err_errno(err, errnum, "cannot make locks") : CONV_OK;
}

void conv_scheduler_destroy(struct conv_scheduler *s)
{
    conv_budget_destroy(&s->files);
    conv_lock_destroy(&s->report_lock);
    conv_lock_destroy(&s->lock);
    pthread_cond_destroy(&s->wake.workers);
    pthread_cond_destroy(&s->wake.memory);
    pthread_cond_destroy(&s->wake.streams);
    pthread_cond_destroy(&s->wake.devices);
    pthread_cond_destroy(&s->wake.ended);
}

bool conv_scheduler_is_stopping(const struct conv_scheduler *s)
{
    return atomic_load(s->config->stop) != 0;
}

void conv_scheduler_stop(const struct conv_scheduler *s)
{
    int expected = 0;
    atomic_compare_exchange_strong(s->config->stop, &expected, -1);
}

bool conv_scheduler_wait(struct conv_scheduler *s, pthread_cond_t *condition, uint64_t ns)
{
    uint64_t most = CONV_SCHEDULER_LOOK_NS;
    return conv_lock_wait(&s->lock, condition, ns < most ? ns : most);
}
