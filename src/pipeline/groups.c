// SPDX-License-Identifier: MIT
// How a picture gets into a group, and out of it again.
#include "pipeline/scheduler.h"

static bool place(const struct conv_scheduler *s, struct conv_slot *slot, struct conv_job *job)
{
    return conv_group_place(&slot->group, &job->header.shape, s->filter_alpha, s->table_bytes,
                            &job->in, job->out_offset);
}

bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, enum conv_status *status)
{
    size_t need = conv_group_need(&job->header.shape, s->filter_alpha, s->table_bytes);
    size_t carried = conv_jobs_carries(job);
    struct conv_slot *slot = s->open;
    if (slot) {
        size_t used = slot->group.front + slot->group.back;
        bool full = used > 0 && used + need > s->config->group_bytes;
        if (!full && conv_pool_may_carry(&s->pool, slot, carried) && place(s, slot, job)) {
            conv_pool_carry(&s->pool, slot, carried);
        } else {
            conv_groups_seal(s, slot);
            slot = NULL;
        }
    }
    if (!slot) {
        *status = conv_pool_acquire(&s->pool, need, carried, &slot, &job->err);
        if (!slot)
            return false;
        s->open = slot;
        place(s, slot, job);
    }
    job->slot = slot;
    slot->decoding++;
    slot->unfinished++;
    return true;
}

void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot)
{
    slot->sealed = true;
    if (s->open == slot)
        s->open = NULL;
    if (slot->decoding > 0)
        return; // the last decoder will come here again
    if (!slot->jobs) {
        conv_pool_release(&s->pool, slot);
        pthread_cond_signal(&s->changed);
        return;
    }
    slot->next = NULL;
    *s->ready_end = slot;
    s->ready_end = &slot->next;
    pthread_cond_signal(&s->lane_work);
}

void conv_groups_leave(struct conv_scheduler *s, struct conv_job *job)
{
    struct conv_slot *slot = job->slot;
    job->slot = NULL;
    if (--slot->unfinished == 0 && slot->sealed && slot->decoding == 0) {
        conv_pool_release(&s->pool, slot);
        pthread_cond_signal(&s->changed);
    }
}
