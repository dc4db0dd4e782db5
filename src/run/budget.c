// SPDX-License-Identifier: MIT
#include "run/budget.h"

#include <limits.h>
#include <stdint.h>

#include "run/pipeline.h"
#include "run/stages.h"

// --- what each use may take ----------------------------------------------------------------------

// On the CPU an image takes its staging memory and half as much again for the coders, so staging
// gets two thirds of the memory that is left. With a device up to 2.6 times the limit is used
// (docs/memory.md), so staging gets three eighths.
size_t conv_budget_staging(const struct conv_limits *limits, bool async)
{
    size_t half = limits->physical / 2, left = conv_limits_memory_left(limits);
    size_t part = async ? left / 8 * 3 : left / 3 * 2;
    return conv_limits_memory_is_limited(limits) && part < half ? part : half;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// What is left of the limit, or 0 without one. Buffers and stacks map more address space than they
// use.
static size_t run_limit(const struct conv_limits *limits)
{
    size_t left = conv_limits_memory_is_limited(limits) ? conv_limits_memory_left(limits) : 0;
    return limits->counts_address_space ? left - left / 4 : left;
}

// Where the run is limited: input files that are read while other images are in flight take an
// eighth, and another eighth is for stacks, the coders' tables and the buffers that workers and the
// pool keep: six for each worker, which together may take a tenth.
#define RUN_FILES 8
#define RUN_REST 8
#define RUN_KEEP 64
#define RUN_LIVE 32
#define RUN_HELPERS 32
#define RUN_ARCHIVES 16

// Input files get half of the staging memory: an image takes twice its samples there and its file
// seldom more than once, so files do not delay images for which staging has room. Coders and file
// buffers of all workers keep at most about half of it: each worker has four, for the file, the
// filtered rows of both directions, and the result. Members of archives that wait get a quarter on
// either side, and at most as much as hides the time that one slow image takes. A job takes some
// KiB, more than the staging memory of a tiny image, so jobs get an eighth, and at least what keeps
// workers and readahead busy.
#define STAGING_FILES 2
#define STAGING_KEEP 8
#define STAGING_LIVE 8
#define STAGING_ARCHIVES 4
#define MOST_ARCHIVES ((size_t)1 << 30)
#define LEAST_LIVE(jobs) (2 * (size_t)(jobs) + 64)

void conv_budget_divide(struct conv_division *memory, const struct conv_division_terms *terms)
{
    size_t staging = terms->staging, jobs = (size_t)terms->jobs, run = run_limit(terms->limits);
    bool limited = run > 0, shares = limited && !terms->async;
    size_t archives = smaller(staging / STAGING_ARCHIVES, MOST_ARCHIVES);
    if (limited)
        archives = smaller(archives, run / RUN_ARCHIVES);
    run -= limited ? archives * (size_t)terms->archives : 0;
    size_t keep = staging / STAGING_KEEP / jobs + 1, run_keep = run / RUN_KEEP / jobs + 1;
    size_t files = staging / STAGING_FILES, live = staging / STAGING_LIVE;
    live = (limited ? smaller(live, run / RUN_LIVE) : live) / sizeof(struct conv_job);
    *memory = (struct conv_division){
        .staging = staging,
        .files = shares ? smaller(files, run / RUN_FILES) : files,
        .archives = archives,
        .keep = limited ? smaller(keep, run_keep) : keep,
        .live = smaller(larger(live, LEAST_LIVE(jobs)), INT_MAX),
        .run = run,
        .helpers = run / RUN_HELPERS,
        .refuses_beyond = limited && !terms->is_asked,
        .total = shares ? run - run / RUN_REST : SIZE_MAX,
        .keep_staging = shares ? run_keep : SIZE_MAX,
    };
}

bool conv_budget_set(struct conv_pipeline_config *config, struct conv_source *source,
                     size_t staging, bool is_asked)
{
    struct conv_limits limits;
    struct conv_division_terms terms = {
        .limits = &limits,
        .staging = staging,
        .is_asked = is_asked,
        .async = config->ops->async,
        .jobs = config->jobs,
        .archives = config->sink && config->sink->ops->limit,
    };
    conv_limits_read(&limits);
    conv_budget_divide(&config->memory, &terms);
    conv_sink_limit(config->sink, config->memory.archives);
    if (conv_source_limit(source, config->memory.archives, staging)) {
        terms.archives++;
        conv_budget_divide(&config->memory, &terms);
    }
    if (config->layer)
        config->memory.total = staging / 2; // layer_stage.c
    config->codec.keep = config->memory.keep;
    return config->memory.run > 0 && limits.counts_address_space;
}

// --- what an image takes -------------------------------------------------------------------------

static size_t add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

void conv_budget_estimate(struct conv_need *need, const struct conv_pipeline_config *config,
                          const struct conv_job *job, size_t staging)
{
    size_t file = job->file->capacity;
    const struct conv_image *shape = &job->header.shape;
    // The staging buffer for the result takes no memory before the filter writes to it.
    struct conv_image_header header;
    conv_blend_file_header(job, &header);
    size_t decoding = add(staging, job->format->decode_bytes(&header, job->file->size));
    if (header.orientation > 1)
        decoding = add(decoding, conv_image_bytes(&header.shape));
    size_t encoding = add(staging, staging);
    if (config->output_type != CONV_OUTPUT_F32) // which is written from its place in staging
    {
        const struct conv_image output = conv_output_shape(config, job);
        encoding =
            add(encoding, job->output_format->encode_bytes(&config->codec, &output, &job->meta));
    }
    size_t filtering = add(staging, staging);
    if (config->ops->scratch_bytes)
        filtering = add(
            filtering, config->ops->scratch_bytes(config->backends[0], shape->width, shape->depth));
    size_t carried = job->meta.bytes.capacity;
    encoding = larger(encoding, filtering);
    need->work = add(larger(decoding, encoding), carried);
    need->peak = add(larger(add(decoding, file), encoding), carried);
}

// --- what is taken -------------------------------------------------------------------------------

#define LOOK_NS 1000000000 // as CONV_SCHEDULER_LOOK_NS

void conv_budget_open(struct conv_budget *budget, const struct conv_division *memory)
{
    *budget = (struct conv_budget){.limit = memory->files, .total = memory->total};
    conv_lock_init(&budget->lock);
    conv_lock_init_condition(&budget->freed);
}

void conv_budget_close(struct conv_budget *budget)
{
    pthread_cond_destroy(&budget->freed);
    conv_lock_destroy(&budget->lock);
}

static bool has_room(const struct conv_budget *budget, size_t more) CONV_NEEDS(budget->lock)
{
    size_t taken;
    return !__builtin_add_overflow(budget->used, budget->reserved, &taken) &&
           taken <= budget->total && more <= budget->total - taken;
}

static bool take(struct conv_budget *budget, struct conv_share *share, size_t bytes)
    CONV_NEEDS(budget->lock)
{
    if (bytes <= share->bytes)
        return true;
    size_t more = bytes - share->bytes;
    bool room = has_room(budget, more);
    bool fits = room && budget->used <= budget->limit && more <= budget->limit - budget->used;
    if (!fits && budget->beyond && budget->beyond != share)
        return false;
    if (!room && budget->reserved > 0)
        return false; // images in flight end by themselves, and then there is room
    if (!fits && budget->total != SIZE_MAX && share->bytes == 0 && budget->used > 0)
        return false; // a file in memory does not help the images in flight to end
    if (!fits)
        budget->beyond = share;
    budget->used += more;
    share->bytes = bytes;
    return true;
}

bool conv_budget_try(struct conv_budget *budget, struct conv_share *share, size_t bytes)
{
    if (!budget)
        return true;
    conv_lock_acquire(&budget->lock);
    bool taken = take(budget, share, bytes);
    conv_lock_release(&budget->lock);
    return taken;
}

void conv_budget_grow(struct conv_budget *budget, struct conv_share *share, size_t bytes)
{
    if (!budget)
        return;
    conv_lock_acquire(&budget->lock);
    while (!take(budget, share, bytes))
        conv_lock_wait(&budget->lock, &budget->freed, LOOK_NS);
    conv_lock_release(&budget->lock);
}

void conv_budget_release(struct conv_budget *budget, struct conv_share *share)
{
    if (!budget || share->bytes == 0)
        return;
    conv_lock_acquire(&budget->lock);
    budget->used -= share->bytes;
    share->bytes = 0;
    if (budget->beyond == share)
        budget->beyond = NULL;
    pthread_cond_broadcast(&budget->freed);
    conv_lock_release(&budget->lock);
}

bool conv_budget_reserve(struct conv_budget *budget, size_t bytes)
{
    conv_lock_acquire(&budget->lock);
    bool granted = budget->reserved == 0 || has_room(budget, bytes);
    if (granted)
        budget->reserved += bytes;
    conv_lock_release(&budget->lock);
    return granted;
}

void conv_budget_unreserve(struct conv_budget *budget, size_t bytes)
{
    conv_lock_acquire(&budget->lock);
    budget->reserved -= bytes;
    pthread_cond_broadcast(&budget->freed);
    conv_lock_release(&budget->lock);
}
