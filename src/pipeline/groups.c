// SPDX-License-Identifier: MIT
// How a picture gets into a group, and out of it again.
#include "pipeline/scheduler.h"

// --- who codes a picture -------------------------------------------------------------------------

// What the job's group is to be like, and what the picture adds to it.
static int choose_form(const struct conv_scheduler *s, const struct conv_job *job,
                       struct conv_group_coding *coding)
{
    const struct conv_pipeline_config *config = s->config;
    const struct conv_image *shape = &job->header.shape;
    int form = 0;
    *coding = (struct conv_group_coding){0};
    // What is read but once cannot be given back to the CPU.
    if (config->decode_on == CONV_CODER_GPU && !job->on_cpu && S_ISREG(job->info.st_mode) &&
        conv_png_is_plain(&job->header) && config->ops->takes_stream(shape, job->file->size)) {
        form |= CONV_FORM_DECODED;
        coding->stream_bytes = job->file->size;
    }
    if (config->encode_on == CONV_CODER_GPU)
        coding->chunks_bytes = config->ops->chunks_bytes(shape);
    return coding->chunks_bytes ? form | CONV_FORM_ENCODED : form;
}

// --- into a group --------------------------------------------------------------------------------

static bool place(struct conv_scheduler *s, struct conv_slot *slot, struct conv_job *job,
                  const struct conv_group_coding *coding)
{
    const struct conv_image *shape = &job->header.shape;
    struct conv_group *group = &slot->group;
    if (!group->decoded && !group->encoded)
        return conv_group_place(group, shape, s->filter_alpha, s->table_bytes, &job->in,
                                job->out_offset);
    return conv_group_place_coded(group, shape, s->filter_alpha, s->table_bytes, coding, &job->in,
                                  job->out_offset, &job->picture);
}

// No group is to wait for pictures whose place others hold.
static void seal_all(struct conv_scheduler *s)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->open[form])
            conv_groups_seal(s, s->open[form]);
}

bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, enum conv_status *status)
{
    struct conv_group_coding coding;
    int form = choose_form(s, job, &coding);
    size_t need =
        conv_group_need_coded(&job->header.shape, s->filter_alpha, s->table_bytes, &coding);
    if (form && need > s->pool.limit / 2) { // what the device needs more is too much
        form = 0;
        need = conv_group_need(&job->header.shape, s->filter_alpha, s->table_bytes);
    }
    size_t carried = conv_jobs_carries(job);
    struct conv_slot *slot = s->open[form];
    if (slot) {
        size_t used = slot->group.front + slot->group.back;
        bool full = used > 0 && used + need > s->config->group_bytes;
        if (!full && conv_pool_may_carry(&s->pool, slot, carried) && place(s, slot, job, &coding)) {
            conv_pool_carry(&s->pool, slot, carried);
        } else {
            conv_groups_seal(s, slot);
            slot = NULL;
        }
    }
    if (!slot) {
        *status = conv_pool_acquire(&s->pool, need, carried, &slot, &job->err);
        if (!slot) {
            seal_all(s);
            return false;
        }
        s->open[form] = slot;
        slot->group.decoded = form & CONV_FORM_DECODED;
        slot->group.encoded = form & CONV_FORM_ENCODED;
        place(s, slot, job, &coding);
    }
    job->slot = slot;
    slot->decoding++;
    slot->unfinished++;
    return true;
}

struct conv_slot *conv_groups_find_idle(const struct conv_scheduler *s)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->open[form] && s->open[form]->decoding == 0)
            return s->open[form];
    return NULL;
}

bool conv_groups_is_open(const struct conv_scheduler *s, const struct conv_slot *slot)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->open[form] == slot)
            return true;
    return false;
}

// --- and out of it -------------------------------------------------------------------------------

void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot)
{
    slot->sealed = true;
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->open[form] == slot)
            s->open[form] = NULL;
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
