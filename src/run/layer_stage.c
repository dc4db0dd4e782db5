// SPDX-License-Identifier: MIT
#include "run/layer_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "run/stages.h"
#include "run/worker.h"

// What becomes of an image.
struct plan {
    bool of_bytes; // which of the operations takes it
    size_t in_bytes, result_bytes;
    struct conv_tensor_shape out; // (maps, height, width); pooled, (maps, kinds[, grid, grid])
};

// --- shapes --------------------------------------------------------------------------------------

static int colours(const struct conv_image *shape)
{
    return shape->channels - shape->alpha; // alpha is dropped
}

static const struct conv_operation *operation_of(const struct conv_layer_stage *stage,
                                                 const struct plan *plan)
{
    return plan->of_bytes ? &stage->of_bytes : &stage->of_floats;
}

static enum conv_status plan_bank(struct plan *plan, const struct conv_layer_stage *stage,
                                  const struct conv_image *shape, struct conv_err *err)
{
    const struct conv_bank_context *bank = operation_of(stage, plan)->bank;
    const struct conv_pooling *pool = &stage->pool;
    int64_t maps = bank->steps.maps;
    if (!conv_bank_context_bytes(bank, shape->height, shape->width, &plan->in_bytes,
                                 &plan->result_bytes))
        return conv_err_limit(err, "the image has too many pixels for %lld maps", (long long)maps);
    if (!pool->count)
        plan->out = (struct conv_tensor_shape){3, {maps, shape->height, shape->width}};
    else if (pool->grid == 1)
        plan->out = (struct conv_tensor_shape){2, {maps, pool->count}};
    else
        plan->out = (struct conv_tensor_shape){4, {maps, pool->count, pool->grid, pool->grid}};
    return CONV_OK;
}

static enum conv_status plan_layer(struct plan *plan, const struct conv_layer_stage *stage,
                                   const struct conv_image *shape, struct conv_err *err)
{
    const struct conv_layer *layer = &operation_of(stage, plan)->layer->layer;
    int channels = stage->gray ? 1 : colours(shape);
    if (channels != layer->channels)
        return conv_err_hint(
            err, channels == 3 && layer->channels == 1 ? CONV_HINT_GRAY : CONV_HINT_NONE, 0,
            conv_err_usage(err,
                           "the image has shape (%d, %d, %d); the weights, of shape (%d, %d, %d, "
                           "%d), expect %d channel%s",
                           channels, shape->height, shape->width, layer->maps, layer->channels,
                           layer->kernel_height, layer->kernel_width, layer->channels,
                           layer->channels == 1 ? "" : "s"));
    if (!conv_layer_context_bytes(layer, shape->height, shape->width, &plan->in_bytes,
                                  &plan->result_bytes))
        return conv_err_usage(
            err, "the image has %d x %d pixels, too few or too many for a kernel of %d x %d",
            shape->width, shape->height, conv_layer_reach_x(layer), conv_layer_reach_y(layer));
    plan->out = (struct conv_tensor_shape){
        3,
        {layer->maps, conv_layer_out_height(layer, shape->height),
         conv_layer_out_width(layer, shape->width)},
    };
    return CONV_OK;
}

static enum conv_status plan_image(struct plan *plan, const struct conv_layer_stage *stage,
                                   struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    // 8-bit samples go to the kernel as they are, except as parts of a luminance.
    plan->of_bytes = shape->depth == 8 && (!stage->gray || colours(shape) == 1);
    return operation_of(stage, plan)->bank ? plan_bank(plan, stage, shape, &job->err)
                                           : plan_layer(plan, stage, shape, &job->err);
}

enum conv_status conv_layer_stage_check(const struct conv_layer_stage *stage, struct conv_job *job)
{
    struct plan plan;
    if (job->header.shape.depth > 16)
        return conv_err_unsupported(&job->err, "float32 samples; images of 8 and 16 bits are read");
    return plan_image(&plan, stage, job);
}

// --- the layer's input ---------------------------------------------------------------------------

static void copy_bytes(uint8_t *dst, const struct conv_image *planes, int channels)
{
    size_t row = (size_t)planes->width;
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < planes->height; y++, dst += row)
            memcpy(dst, conv_image_row(planes, c, y), row);
}

// Samples, or the luminance of BT.601 in thousandths, divided once: the float32 that is nearest to
// the exact quotient. (The double between them changes nothing: no quotient of such integers is
// that near to the middle between two floats.)
static void convert(float *dst, const struct conv_image *planes,
                    const struct conv_layer_stage *stage)
{
    int channels = colours(planes);
    bool weighs = stage->gray && channels == 3;
    double divisor =
        planes->depth == 16 ? (stage->to_255 ? 257 : 65535) : (stage->to_255 ? 1 : 255);
    divisor *= weighs ? 1000 : 1;
    for (int c = 0; c < (weighs ? 1 : channels); c++)
        for (int y = 0; y < planes->height; y++)
            for (int x = 0; x < planes->width; x++) {
                unsigned value = conv_image_get(conv_image_row(planes, c, y), planes->depth, x);
                if (weighs)
                    value = 299 * value +
                            587 * conv_image_get(conv_image_row(planes, 1, y), planes->depth, x) +
                            114 * conv_image_get(conv_image_row(planes, 2, y), planes->depth, x);
                *dst++ = (float)(value / divisor);
            }
}

// --- all results in one file ---------------------------------------------------------------------

static bool same_shape(const struct conv_tensor_shape *a, const struct conv_tensor_shape *b)
{
    return a->axes == b->axes && memcmp(a->side, b->side, sizeof a->side[0] * (size_t)a->axes) == 0;
}

static struct conv_tensor_shape stack(const struct conv_tensor_shape *shape, int64_t images)
{
    struct conv_tensor_shape stacked = {shape->axes + 1, {images}};
    memcpy(stacked.side + 1, shape->side, sizeof shape->side[0] * (size_t)shape->axes);
    return stacked;
}

// The first result determines the shape of all results; the file is then opened.
static enum conv_status begin(struct conv_layer_collect *collect,
                              const struct conv_tensor_shape *first, struct conv_err *err)
{
    struct conv_tensor_shape shape = stack(first, 0);
    collect->shape = *first;
    if (collect->no_save)
        return CONV_OK;
    enum conv_status status = conv_tensor_writer_open(
        &collect->writer, collect->path, collect->element, &shape, true, collect->stop, err);
    collect->has_writer = !status;
    collect->has_failed = status != CONV_OK;
    if (collect->has_writer)
        collect->watch(&collect->writer.sink);
    return status;
}

// Gives a result the next place: one thread at a time, in order. The first result opens the file.
// CONV_ERR_USAGE if the shape is not that of the first result. With collect->has_failed the file
// cannot be created, and no result can be written.
static enum conv_status collect_place(struct conv_layer_collect *collect,
                                      const struct conv_tensor_shape *shape, int64_t *index,
                                      struct conv_err *err)
{
    char first[CONV_TENSOR_TEXT_SIZE], own[CONV_TENSOR_TEXT_SIZE];
    enum conv_status status = CONV_OK;
    if (collect->has_failed)
        return conv_err_set(err, CONV_ERR_CANCELLED, "the output has failed");
    if (collect->count == 0)
        status = begin(collect, shape, err);
    if (status)
        return status;
    if (!same_shape(&collect->shape, shape))
        return conv_err_usage(err,
                              "the result has shape %s, but %s is for results of one shape, %s; a "
                              "folder as output takes any",
                              conv_tensor_shape_text(own, shape), collect->path,
                              conv_tensor_shape_text(first, &collect->shape));
    *index = collect->count++;
    return CONV_OK;
}

enum conv_status conv_layer_collect_close(struct conv_layer_collect *collect, bool keep,
                                          struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (!collect->has_writer)
        return CONV_OK;
    struct conv_tensor_shape shape = stack(&collect->shape, collect->count);
    if (keep)
        status = conv_tensor_writer_set_shape(&collect->writer, collect->element, &shape, err);
    enum conv_status closed = conv_tensor_writer_close(&collect->writer, keep && !status,
                                                       collect->fsync, status ? NULL : err);
    collect->watch(NULL);
    return status ? status : closed;
}

// --- decode, compute, write ----------------------------------------------------------------------

static enum conv_status reserve_planes(struct conv_layer_worker *own, size_t size,
                                       struct conv_err *err)
{
    if (size <= own->planes_size)
        return CONV_OK;
    free(own->planes);
    own->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, size);
    own->planes_size = own->planes ? size : 0;
    return own->planes ? CONV_OK
                       : conv_err_memory(err, "no memory for an image of %zu MiB", size >> 20);
}

// The stream that fits the image, opened at its first use, and its staging memory.
static enum conv_status prepare_stream(struct conv_layer_worker *own,
                                       const struct conv_layer_stage *stage,
                                       const struct plan *plan, void **h_in, void **result,
                                       struct conv_err *err)
{
    struct conv_tensor_stream **stream = &own->streams[plan->of_bytes];
    const struct conv_operation *operation = operation_of(stage, plan);
    enum conv_status status = CONV_OK;
    if (!*stream)
        status = conv_operation_stream_open(operation, NULL, 1, stream, err);
    return status ? status
                  : conv_operation_stream_staging(operation, *stream, plan->in_bytes,
                                                  plan->result_bytes, h_in, result, err);
}

static enum conv_status decode(const struct conv_layer_stage *stage, struct conv_worker *worker,
                               struct conv_job *job, const struct plan *plan, void *h_in)
{
    struct conv_image planes;
    conv_image_lay_out(&planes, &job->header.shape, worker->layer.planes);
    conv_phase_begin(job->phase);
    enum conv_status status =
        job->format->decode(conv_codecs_of(worker->codecs, job->format), job->file->bytes,
                            job->file->size, &job->header, &planes, NULL, &job->err);
    conv_phase_end(job->phase);
    conv_codecs_trim(worker->codecs);
    if (!status && plan->of_bytes)
        copy_bytes(h_in, &planes, colours(&planes));
    else if (!status)
        convert(h_in, &planes, stage);
    return status;
}

static enum conv_status compute(const struct conv_pipeline_config *config,
                                struct conv_worker *worker, struct conv_job *job,
                                const struct plan *plan, void **result)
{
    const struct conv_image *image = &job->header.shape;
    struct conv_layer_shape shape = {1, image->height, image->width};
    void *h_in;
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    enum conv_status status = reserve_planes(&worker->layer, conv_image_bytes(image), &job->err);
    if (!status)
        status = prepare_stream(&worker->layer, config->layer, plan, &h_in, result, &job->err);
    if (!status)
        status = decode(config->layer, worker, job, plan, h_in);
    conv_stages_end(job, CONV_STAGE_DECODE, start);
    if (!status && conv_cancel_is_asked(config->stop))
        status = conv_err_cancelled(&job->err);
    if (status)
        return status;
    start = conv_trace_begin(CONV_STAGE_KERNEL);
    status =
        conv_operation_run(operation_of(config->layer, plan), worker->layer.streams[plan->of_bytes],
                           &shape, 1, h_in, *result, &job->err);
    conv_stages_end(job, CONV_STAGE_KERNEL, start);
    return status;
}

static enum conv_status write_file(const struct conv_pipeline_config *config, int worker,
                                   struct conv_job *job, const struct plan *plan,
                                   const void *result)
{
    if (config->no_save)
        return CONV_OK;
    uint8_t header[CONV_NPY_OWN_HEADER];
    enum conv_element element = conv_operation_output(&config->layer->of_bytes);
    size_t size = conv_npy_write(header, element, &plan->out, 0);
    const struct conv_encoded file = {
        .part = {{header, size}, {result, plan->result_bytes}},
        .size = size + plan->result_bytes,
    };
    return conv_stages_write(config, worker, job, &file);
}

// Ends the run for the job's error, unless it has failed already. The job is then not reported:
// it is not the cause.
static enum conv_status fail_run(struct conv_scheduler *s, const struct conv_job *job)
    CONV_TAKES(s->lock)
{
    conv_lock_acquire(&s->lock);
    if (!s->failure.status && job->err.status != CONV_ERR_CANCELLED)
        s->failure = job->err;
    conv_scheduler_stop(s);
    conv_lock_release(&s->lock);
    return CONV_ERR_CANCELLED;
}

// Waits until the jobs before this one have their places, and gives the result the next one.
static enum conv_status take_place(struct conv_scheduler *s, struct conv_job *job,
                                   const struct plan *plan, int64_t *index) CONV_TAKES(s->lock)
{
    struct conv_layer_collect *collect = s->config->layer->collect;
    conv_lock_acquire(&s->lock);
    while (s->jobs.in_line.first != job)
        conv_scheduler_wait(s, &s->wake.memory, CONV_SCHEDULER_LOOK_NS);
    conv_lock_release(&s->lock); // it stays the first
    enum conv_status status = collect_place(collect, &plan->out, index, &job->err);
    bool is_fatal = collect->has_failed;
    conv_lock_acquire(&s->lock);
    conv_jobs_leave_line(s, job);
    conv_lock_release(&s->lock);
    return is_fatal ? fail_run(s, job) : status;
}

static enum conv_status write_place(struct conv_scheduler *s, struct conv_job *job,
                                    const struct plan *plan, const void *result)
{
    struct conv_layer_collect *collect = s->config->layer->collect;
    int64_t index = 0;
    enum conv_status status = take_place(s, job, plan, &index);
    if (status || s->config->no_save)
        return status;
    uint64_t start = conv_trace_begin(CONV_STAGE_WRITE);
    conv_text_add(job->output.path, sizeof job->output.path, "", "[%lld]", (long long)index);
    job->record.bytes_out = plan->result_bytes;
    status = conv_tensor_writer_write(&collect->writer, (uint64_t)index * plan->result_bytes,
                                      result, plan->result_bytes, &job->err);
    conv_stages_end(job, CONV_STAGE_WRITE, start);
    return status ? fail_run(s, job) : CONV_OK; // a hole in the file
}

static enum conv_status run_stages(struct conv_scheduler *s, struct conv_worker *worker,
                                   struct conv_job *job, const struct plan *plan)
    CONV_TAKES(s->lock)
{
    void *result;
    enum conv_status status = compute(s->config, worker, job, plan, &result);
    if (status == CONV_ERR_DEVICE)
        return fail_run(s, job);
    if (status)
        return status;
    return s->config->layer->collect ? write_place(s, job, plan, result)
                                     : write_file(s->config, worker->index, job, plan, result);
}

// --- memory --------------------------------------------------------------------------------------

// Waits until the budget has that much for an image larger than a worker's share. *reserved: what
// the image then has.
static enum conv_status reserve(struct conv_scheduler *s, struct conv_worker *worker,
                                struct conv_job *job, size_t bytes, size_t *reserved)
    CONV_NEEDS(s->lock)
{
    size_t most = s->config->memory.staging / 2;
    *reserved = 0;
    if (bytes > most)
        return conv_err_hint(
            &job->err, CONV_HINT_MEM_LIMIT, 2 * (uint64_t)bytes,
            conv_err_limit(&job->err,
                           "the image and its result take %zu MiB, half of the limit is %zu",
                           (bytes >> 20) + 1, most >> 20));
    // Later images may hold the memory until this one has its place among the results: it does not
    // wait for them.
    while (s->jobs.in_line.first != job) {
        if (conv_budget_reserve(&s->budget, bytes)) {
            *reserved = bytes;
            break;
        }
        if (!conv_worker_help(s, worker, job))
            conv_scheduler_wait(s, &s->wake.memory, CONV_SCHEDULER_LOOK_NS);
        if (conv_cancel_is_asked(s->config->stop))
            return conv_err_cancelled(&job->err);
    }
    return CONV_OK;
}

void conv_layer_stage_run(struct conv_scheduler *s, struct conv_worker *worker,
                          struct conv_job *job)
{
    struct plan plan;
    size_t reserved = 0;
    enum conv_status status = plan_image(&plan, s->config->layer, job);
    size_t bytes =
        conv_image_bytes(&job->header.shape) + plan.in_bytes + plan.result_bytes + job->file->size;
    // Half of the limit is divided among the workers, which keep their share. The other half is for
    // larger images, files included, whose memory is freed at once (conv_budget_set).
    bool is_large = bytes > s->config->memory.staging / 2 / (size_t)s->config->jobs;
    if (!status && is_large)
        status = reserve(s, worker, job, bytes, &reserved);
    if (!status) {
        conv_worker_take(worker, job, false);
        conv_lock_release(&s->lock);
        status = run_stages(s, worker, job, &plan);
        if (is_large)
            conv_layer_worker_close(&worker->layer, s->config->layer);
        conv_lock_acquire(&s->lock);
    }
    if (reserved > 0) {
        conv_budget_unreserve(&s->budget, reserved);
        pthread_cond_broadcast(&s->wake.memory);
    }
    conv_jobs_finish(s, job, status);
}

void conv_layer_worker_close(struct conv_layer_worker *worker, const struct conv_layer_stage *stage)
{
    free(worker->planes);
    for (int i = 0; i < 2; i++)
        if (worker->streams[i])
            conv_operation_stream_close(i ? &stage->of_bytes : &stage->of_floats,
                                        worker->streams[i]);
    *worker = (struct conv_layer_worker){0};
}
