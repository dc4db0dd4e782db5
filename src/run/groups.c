// SPDX-License-Identifier: MIT
#include "run/devices.h"
#include "run/scheduler.h"

#include "base/clock.h"
#include "run/stages.h"

// --- where an image is coded ---------------------------------------------------------------------

// The form of the group that an image needs, and what the image adds to it.
struct plan {
    int form;
    struct conv_group_coding coding;
    struct conv_pool_need need;
};

// Most bytes of the stream that a device decodes.
static size_t stream_bytes(const struct conv_job *job)
{
    const struct conv_format_device *device = job->format->device;
    size_t size = job->file->size;
    return device->stream_bytes ? device->stream_bytes(&job->header, size) : size;
}

static bool may_decode(const struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_image_header header;
    conv_blend_file_header(job, &header);
    // An input that can be read only once could not be read again for the CPU.
    return config->decode_on != CONV_CODER_CPU && job->decode_on != CONV_CODER_CPU &&
           conv_input_is_file(&job->input) && job->header.device_stream && job->format->device &&
           config->ops->takes_stream &&
           config->ops->takes_stream(job->format->device->coder, &header, stream_bytes(job));
}

// Computes what an image needs in a group of that form. False if it is more than the pool can ever
// have.
static bool try_form(const struct conv_scheduler *s, const struct conv_job *job, int form,
                     struct plan *plan) CONV_NEEDS(s->lock)
{
    const struct conv_image *shape = &job->header.shape;
    *plan = (struct plan){.form = form};
    if (form & CONV_FORM_DECODED) {
        plan->coding.stream_bytes = stream_bytes(job);
        plan->coding.decoder = job->format->device->coder;
    }
    if (form & CONV_FORM_ENCODED) {
        plan->coding.encoded_bytes = s->config->ops->encoded_bytes(shape, &job->encoding);
        plan->coding.encoding = &job->encoding;
    }
    plan->need = (struct conv_pool_need){
        .room = conv_group_need_coded(shape, s->filter_alpha, s->table_bytes, &plan->coding),
        .metadata = conv_jobs_metadata_bytes(job),
        .device_coded = form == (CONV_FORM_DECODED | CONV_FORM_ENCODED),
    };
    return !conv_pool_is_too_much(&s->pool, &plan->need);
}

// False if the device has no encoder for the output, or another one than is asked for, or the CPU
// has to change the type of the results.
static bool may_encode(const struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock)
{
    const struct conv_pipeline_config *config = s->config;
    const struct conv_image *shape = &job->header.shape;
    return config->encode_on != CONV_CODER_CPU && config->output_type != CONV_OUTPUT_F32 &&
           !conv_blend_needs_original(&config->blend) && !conv_blend_replaces_luma(job) &&
           !job->meta.source && !config->blend.linear && job->output_format->device &&
           (job->output_format->device->same_bytes || !config->reproducible) &&
           conv_output_depth(config, job) == shape->depth && config->ops->encoded_bytes &&
           config->ops->encoded_bytes(shape, &job->encoding) > 0;
}

// The encoder determines the file's bytes, so the choice depends on the image and the limit alone,
// not on which device happens to decode the image.
static struct plan make_plan(const struct conv_scheduler *s, const struct conv_job *job,
                             bool decode) CONV_NEEDS(s->lock)
{
    struct plan plan;
    bool encode = may_encode(s, job) && try_form(s, job, CONV_FORM_ENCODED, &plan);
    int form = encode ? CONV_FORM_ENCODED : 0;
    if (!decode || !try_form(s, job, form | CONV_FORM_DECODED, &plan))
        (void)try_form(s, job, form, &plan);
    return plan;
}

// An estimate of the images that are still to be decoded, this one included.
#define AGAIN_PART 4
static uint64_t count_left(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    uint64_t known = 1 + (uint64_t)(s->jobs.announced.count + s->jobs.found.count);
    uint64_t gone = s->jobs.begun - (uint64_t)s->jobs.announced.count - 1;
    uint64_t all = s->config->expected_images;
    uint64_t expected = all > gone ? all - gone : 0;
    // While its source has not ended, few of the images that are left are known, so the run is
    // expected to last for another 1/AGAIN_PART of its time so far.
    uint64_t again = s->source_state == CONV_SOURCE_OVER ? 0 : gone / AGAIN_PART;
    expected = expected > again ? expected : again;
    return known > expected ? known : expected;
}

// What the time to decode a stream on a device depends on, as bytes of a file of which it decodes
// one after the other: all but flat images have fewer samples than this many per byte.
#define SAMPLES_PER_BYTE 8
static size_t length_of(const struct conv_job *job)
{
    size_t samples = conv_image_bytes(&job->header.shape) / SAMPLES_PER_BYTE;
    size_t bytes = samples > job->file->size ? samples : job->file->size;
    return bytes / (size_t)job->format->device->parts;
}

static double work_of(const struct conv_job *job)
{
    return conv_decode_policy_work(conv_image_bytes(&job->header.shape), job->file->size);
}

// True if a device is to decode a stream of `bytes`.
static bool is_worthwhile(const struct conv_scheduler *s, size_t bytes) CONV_NEEDS(s->lock)
{
    return s->config->decode_on == CONV_CODER_GPU ||
           conv_decode_policy_is_worthwhile(&s->policy, bytes, count_left(s), conv_clock_ns());
}

static bool is_for_device(const struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock)
{
    return s->config->decode_on == CONV_CODER_GPU ||
           (conv_decode_policy_is_device_faster(&s->policy, conv_image_bytes(&job->header.shape),
                                                job->format->device->parts, work_of(job)) &&
            is_worthwhile(s, length_of(job)));
}

static bool may_begin_decoding(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    return s->config->decode_on == CONV_CODER_GPU || conv_decode_policy_may_begin(&s->policy);
}

void conv_groups_note_decoded(struct conv_scheduler *s, const struct conv_job *job)
{
    conv_decode_policy_note_worker(&s->policy, work_of(job), job->record.ns[CONV_STAGE_DECODE]);
}

void conv_groups_note_run(struct conv_scheduler *s, struct conv_slot *slot, bool decoded)
{
    int images = 0;
    if (!slot->group.decoded)
        return;
    if (!decoded) {
        conv_decode_policy_note_failure(&s->policy);
    } else {
        for (const struct conv_job *job = slot->jobs; job; job = job->next)
            images += !slot->group.images[job->image].failed;
        conv_decode_policy_note_device(&s->policy, images, slot->sealed_at, slot->longest,
                                       conv_clock_ns());
    }
    s->policy.in_flight--;
}

// --- into a group --------------------------------------------------------------------------------

static bool place(struct conv_scheduler *s, struct conv_slot *slot, struct conv_job *job,
                  const struct conv_group_coding *coding) CONV_NEEDS(s->lock)
{
    const struct conv_image *shape = &job->header.shape;
    struct conv_group *group = &slot->group;
    if (!group->decoded && !group->encoded)
        return conv_group_place(group, shape, s->filter_alpha, s->table_bytes, &job->placed);
    return conv_group_place_coded(group, shape, s->filter_alpha, s->table_bytes, coding,
                                  &job->placed, &job->image);
}

// Seals the open groups whose form has these bits.
static void seal(struct conv_scheduler *s, int bits) CONV_NEEDS(s->lock)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->groups.open[form] && (form & bits) == bits)
            conv_groups_seal(s, s->groups.open[form]);
}

// Places the image in the open group of its form. NULL if there is none or it is full: then it is
// sealed.
static struct conv_slot *place_in_open(struct conv_scheduler *s, struct conv_job *job,
                                       const struct plan *plan) CONV_NEEDS(s->lock)
{
    struct conv_slot *slot = s->groups.open[plan->form];
    size_t metadata = plan->need.metadata;
    if (!slot)
        return NULL;
    // All staged bytes count, whether planes or streams.
    const struct conv_group *group = &slot->group;
    size_t used = plan->need.device_coded ? group->streams : group->front + group->back;
    bool full = used > 0 && used + plan->need.room.in > s->config->group_bytes;
    // Flat images decode to many times the bytes of their files.
    full |=
        plan->need.device_coded && used > 0 &&
        group->front + group->back + plan->need.room.planes > conv_devices_group_bytes(s->config);
    if (!full && conv_pool_has_room_for_metadata(&s->pool, metadata) &&
        place(s, slot, job, &plan->coding)) {
        conv_pool_add_metadata(&s->pool, slot, metadata);
        return slot;
    }
    conv_groups_seal(s, slot);
    return NULL;
}

static struct conv_slot *place_in_new(struct conv_scheduler *s, struct conv_job *job,
                                      const struct plan *plan, enum conv_status *status)
    CONV_NEEDS(s->lock)
{
    struct conv_slot *slot;
    *status = conv_pool_acquire(&s->pool, &plan->need, &slot, &job->err);
    if (!slot) {
        seal(s, 0); // all: no group is to wait for images that have to wait for memory
        return NULL;
    }
    s->groups.open[plan->form] = slot;
    slot->group.decoded = plan->form & CONV_FORM_DECODED;
    slot->group.encoded = plan->form & CONV_FORM_ENCODED;
    if (slot->group.decoded)
        s->policy.in_flight++;
    place(s, slot, job, &plan->coding);
    return slot;
}

bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, bool device_only,
                       enum conv_status *status)
{
    bool able = may_decode(s, job);
    if (able)
        conv_decode_policy_offer(&s->policy, work_of(job));
    bool decode = able && is_for_device(s, job);
    struct plan plan = make_plan(s, job, decode);
    if (device_only && !(plan.form & CONV_FORM_DECODED))
        return false;
    if (able && !decode && !is_worthwhile(s, 0))
        seal(s, CONV_FORM_DECODED); // no more images will be added
    struct conv_slot *slot = place_in_open(s, job, &plan);
    if (!slot && decode && !may_begin_decoding(s)) {
        if (device_only || !conv_decode_policy_may_decode_on_cpu(&s->policy))
            return false;
        plan = make_plan(s, job, false);
        slot = place_in_open(s, job, &plan);
    }
    if (!slot)
        slot = place_in_new(s, job, &plan, status);
    if (!slot)
        return false;
    if (slot->group.decoded && slot->longest < length_of(job))
        slot->longest = length_of(job);
    job->slot = slot;
    slot->touched_at = conv_clock_ns();
    slot->decoding++;
    slot->unfinished++;
    return true;
}

struct conv_slot *conv_groups_find_idle(const struct conv_scheduler *s)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->groups.open[form] && s->groups.open[form]->decoding == 0)
            return s->groups.open[form];
    return NULL;
}

// --- out of a group ------------------------------------------------------------------------------

// A sealed group that no worker decodes into goes to the streams, if any image is left in it.
static void dispatch(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock)
{
    if (slot->decoding > 0)
        return; // the last decoder calls this function again
    if (slot->jobs) {
        slot->sealed_at = conv_clock_ns();
        conv_groups_put_ready(s, slot);
        return;
    }
    if (slot->group.decoded)
        s->policy.in_flight--;
    if (slot->unfinished == 0)
        conv_pool_release(&s->pool, slot);
    else // a worker that was left behind still writes into it
        conv_slot_move(slot, CONV_SLOT_DRAINING);
    pthread_cond_signal(&s->wake.workers);
}

void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot)
{
    conv_slot_move(slot, CONV_SLOT_SEALED);
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->groups.open[form] == slot)
            s->groups.open[form] = NULL;
    dispatch(s, slot);
}

void conv_groups_end_decode(struct conv_scheduler *s, struct conv_slot *slot)
{
    slot->touched_at = conv_clock_ns();
    slot->decoding--;
    if (slot->state == CONV_SLOT_SEALED)
        dispatch(s, slot);
    else if (slot->decoding == 0 && !s->groups.has_sealer)
        pthread_cond_signal(&s->wake.workers); // an idle worker may become the sealer
}

void conv_groups_put_ready(struct conv_scheduler *s, struct conv_slot *slot)
{
    conv_slot_move(slot, CONV_SLOT_READY);
    slot->next = NULL;
    *s->groups.ready_end = slot;
    s->groups.ready_end = &slot->next;
    s->groups.ready_count++;
    pthread_cond_signal(&s->wake.streams);
}

struct conv_slot *conv_groups_take_ready(struct conv_scheduler *s)
{
    struct conv_slot *slot = s->groups.ready;
    if (slot) {
        conv_slot_move(slot, CONV_SLOT_RUNNING);
        s->groups.ready = slot->next;
        s->groups.ready_count--;
        if (!s->groups.ready)
            s->groups.ready_end = &s->groups.ready;
    }
    return slot;
}

// Groups beyond the first one neither count as in flight nor use up slots: for the workers, which
// prepare groups, a stream has one group.
int conv_groups_take_together(struct conv_scheduler *s, struct conv_slot *slots[], int most)
{
    int count = 1;
    if (!conv_group_is_device_coded(&slots[0]->group))
        return count;
    while (count < most && s->groups.idle_threads == 0 && s->groups.ready &&
           conv_group_is_device_coded(&s->groups.ready->group) &&
           conv_pool_add_slots(&s->pool, 1) == 1) {
        slots[count] = conv_groups_take_ready(s);
        slots[count - 1]->next = slots[count];
        slots[count - 1]->group.next = &slots[count]->group;
        count++;
    }
    s->policy.in_flight -= count - 1;
    if (count > 1)
        pthread_cond_signal(&s->wake.workers); // there is room for other groups
    return count;
}

void conv_groups_end_together(struct conv_scheduler *s, int count)
{
    conv_pool_take_back_slots(&s->pool, count - 1);
    s->policy.in_flight += count - 1;
}

bool conv_groups_are_over(const struct conv_scheduler *s)
{
    for (int form = 0; form < CONV_FORM_COUNT; form++)
        if (s->groups.open[form])
            return false;
    return s->source_state == CONV_SOURCE_OVER && !s->jobs.found.first &&
           !s->jobs.announced.first && !s->jobs.parked.first;
}

void conv_groups_leave(struct conv_scheduler *s, struct conv_job *job)
{
    struct conv_slot *slot = job->slot;
    job->slot = NULL;
    if (--slot->unfinished == 0) {
        conv_pool_release(&s->pool, slot);
        pthread_cond_signal(&s->wake.workers);
        if (conv_groups_are_over(s))
            pthread_cond_signal(&s->wake.streams);
    }
}
