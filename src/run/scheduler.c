// SPDX-License-Identifier: MIT
#include "run/scheduler.h"

#include "base/clock.h"
#include "run/streams.h"

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
    return errnum ? errnum : conv_ledger_open(&s->ledger, &s->config->memory);
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
    conv_ledger_close(&s->ledger);
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
