// SPDX-License-Identifier: MIT
#include "run/job.h"

#include <assert.h>
#include <stddef.h>

#define TO(state) (1u << CONV_JOB_##state)

bool conv_job_may_move(enum conv_job_state from, enum conv_job_state to)
{
    static const unsigned next[] = {
        [CONV_JOB_FREE] = TO(FOUND),
        [CONV_JOB_FOUND] = TO(ANNOUNCED),
        [CONV_JOB_ANNOUNCED] = TO(READING),
        [CONV_JOB_READING] = TO(DECODING) | TO(PARKED) | TO(WHOLE),
        [CONV_JOB_PARKED] = TO(DECODING),
        [CONV_JOB_DECODING] = TO(DECODED) | TO(PARKED),
        [CONV_JOB_DECODED] = TO(FILTERED) | TO(UNDECODED),
        [CONV_JOB_UNDECODED] = TO(READING),
        [CONV_JOB_FILTERED] = TO(ENCODING),
        [CONV_JOB_ENCODING] = 0,
        [CONV_JOB_WHOLE] = 0,
    };
    return to == CONV_JOB_FREE ? from != CONV_JOB_FREE : next[from] >> to & 1;
}

void conv_job_move(struct conv_job *job, enum conv_job_state state)
{
    assert(conv_job_may_move(job->state, state));
    job->state = state;
}

// --- lists of jobs -------------------------------------------------------------------------------

void conv_job_init_list(struct conv_job_list *list)
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
