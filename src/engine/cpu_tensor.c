// SPDX-License-Identifier: MIT
// Layers and filter banks on the CPU. The threads of a stream share the output rows of all images
// of a layer's batch. Images of a bank are computed one after the other, and each step's maps are
// pooled before the next step, so that only one step's maps are in memory.
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/features.h"
#include "engine/bank_context.h"
#include "engine/cpu.h"

#define ALIGN 64
#define TASK_PRODUCTS 20000 // the time that it takes to begin a task

// Host memory that grows, aligned to 64 bytes. Starts as {0}.
struct conv_tensor_memory {
    void *data;
    size_t size; // bytes
};

struct conv_tensor_stream {
    struct conv_workers *workers; // NULL: the calling thread does all
    int threads;
    struct conv_tensor_memory in, out; // staging
    struct conv_tensor_memory scratch; // of a layer: padded input, and scratch of all threads
    struct conv_tensor_memory padded, maps, filters; // of a bank
};

// --- streams -------------------------------------------------------------------------------------

// Makes it at least `size` bytes, which is not 0; the old contents are lost. `what` names the
// contents in messages. CONV_ERR_MEMORY: then there is no memory.
static enum conv_status reserve(struct conv_tensor_memory *memory, size_t size, const char *what,
                                struct conv_err *err)
{
    if (size <= memory->size)
        return CONV_OK;
    free(memory->data);
    size_t rounded = size > SIZE_MAX - ALIGN ? 0 : (size + ALIGN - 1) / ALIGN * ALIGN;
    memory->data = rounded ? aligned_alloc(ALIGN, rounded) : NULL;
    memory->size = memory->data ? rounded : 0;
    return memory->data
               ? CONV_OK
               : conv_err_memory(err, "no memory for %zu MiB of %s", (size >> 20) + 1, what);
}

static enum conv_status open_cpu(int, unsigned *offers, struct conv_err *)
{
    *offers = conv_cpu_features();
    return CONV_OK;
}

static enum conv_status open_stream(int, struct conv_workers *workers, int threads,
                                    struct conv_tensor_stream **stream, struct conv_err *err)
{
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return conv_err_memory(err, "no memory for a CPU stream");
    (*stream)->workers = workers;
    (*stream)->threads = threads;
    return CONV_OK;
}

static void close_stream(struct conv_tensor_stream *stream)
{
    free(stream->in.data);
    free(stream->out.data);
    free(stream->padded.data);
    free(stream->scratch.data);
    free(stream->maps.data);
    free(stream->filters.data);
    free(stream);
}

static enum conv_status take_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                     size_t out_bytes, void **h_in, void **h_out,
                                     struct conv_err *err)
{
    enum conv_status status = reserve(&stream->in, in_bytes ? in_bytes : 1, "tensors", err);
    if (!status)
        status = reserve(&stream->out, out_bytes ? out_bytes : 1, "tensors", err);
    *h_in = stream->in.data;
    *h_out = stream->out.data;
    return status;
}

// --- sharing -------------------------------------------------------------------------------------

// An estimate of a task's time, in multiply-adds. A weight comes from a cache that all threads
// share in the time of 20, while others are used.
static double task_cost(const struct conv_cpu_share *share, double rows)
{
    const struct conv_layer *layer = &share->plan->layer;
    int sets = share->plan->sets > 0 ? share->plan->sets : 1, parts = share->set_parts;
    double part = (double)((sets + parts - 1) / parts) / sets;
    double images = ceil(rows / share->batch.rows), channels = layer->channels;
    double outputs =
        fmax(rows * conv_layer_out_width(layer, share->plan->shape.width), 20 * images);
    double above = (conv_layer_reach_y(layer) - 1.0) / layer->stride_y * images;
    double read = channels * (layer->groups > 1 ? part : 1) * (rows + above);
    return (double)conv_layer_taps(layer) * layer->maps * part * outputs +
           read * share->plan->reading + TASK_PRODUCTS;
}

// Chooses the parts with the shortest time of all threads. Those that share a core with others are
// slower: with one task for each, all wait for them, some 1.3 times as long.
void conv_cpu_share_plan(struct conv_cpu_share *share, const struct conv_layer_plan *plan,
                         const struct conv_layer_batch *batch, int threads)
{
    int64_t rows = batch->images * batch->rows;
    double best = INFINITY;
    struct conv_cpu_share tried = {.plan = plan, .batch = *batch, .tasks = 1};
    tried.row_parts = tried.set_parts = 1;
    tried.distance = (plan->scratch + ALIGN - 1) / ALIGN * ALIGN + CONV_LAYER_SCRATCH_GAP;
    *share = tried;
    for (int most = threads; most > 1 && most <= 8 * threads; most *= 2) {
        int set_parts = plan->sets < 1 ? 1 : plan->sets < threads ? plan->sets : threads;
        for (tried.set_parts = 1; tried.set_parts <= set_parts; tried.set_parts++) {
            tried.row_parts = most / tried.set_parts < rows ? most / tried.set_parts : (int)rows;
            tried.tasks = tried.row_parts * tried.set_parts;
            double longest = task_cost(&tried, ceil((double)rows / tried.row_parts));
            double all = task_cost(&tried, (double)rows / tried.row_parts) * tried.tasks;
            double time = tried.tasks > threads ? all / threads + longest / 2 : 1.3 * longest;
            if (time < best) {
                best = time;
                *share = tried;
            }
        }
    }
}

// Whole images at once, and the rows of an image that the part begins or ends in the middle of.
void conv_cpu_share_run(void *context, int worker, int task)
{
    struct conv_cpu_share *share = context;
    const struct conv_layer_plan *plan = share->plan;
    const struct conv_layer *layer = &plan->layer;
    int parts = share->set_parts, part = task % parts;
    int64_t height = share->batch.rows, rows = share->batch.images * height;
    int64_t row = rows * (task / parts) / share->row_parts;
    int64_t end = rows * (task / parts + 1) / share->row_parts;
    size_t image_bytes = (size_t)layer->maps * (size_t)height * conv_element_size(layer->output) *
                         (size_t)conv_layer_out_width(layer, plan->shape.width);
    enum conv_status status = CONV_OK;
    while (row < end && !status) {
        struct conv_layer_batch batch = share->batch;
        int64_t image = row / height, first = row % height, left = end - row;
        bool is_whole = first == 0 && left >= height;
        batch.first_set = plan->sets * part / parts;
        batch.sets = plan->sets * (part + 1) / parts - batch.first_set;
        batch.images = is_whole ? left / height : 1;
        batch.first_row = (int)first;
        batch.rows = (int)(left < height - first ? left : height - first);
        batch.src = (const uint8_t *)batch.src + image * batch.src_image;
        batch.dst = (uint8_t *)batch.dst + (size_t)image * image_bytes;
        batch.scratch = (uint8_t *)batch.scratch + (size_t)worker * share->distance;
        status = plan->variant->run(plan, &batch);
        row += batch.images * batch.rows;
    }
    if (status)
        atomic_store(&share->status, (int)status);
}

struct padding {
    const struct conv_layer_prepared *prepared;
    struct conv_layer_batch batch;
    float *padded;
};

// Pads a channel of all images, as images of one channel.
static void pad_channel(void *context, int, int channel)
{
    const struct padding *padding = context;
    const struct conv_layer_shape *shape = &padding->prepared->plan.shape;
    struct conv_layer layer = padding->prepared->outer;
    struct conv_layer_batch batch = padding->batch;
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    batch.images = layer.channels = 1;
    for (int64_t i = 0; i < padding->batch.images; i++) {
        int64_t at = i * padding->prepared->outer.channels + channel;
        batch.src = (const uint8_t *)padding->batch.src + at * batch.src_plane; // without gaps
        conv_layer_pad(&layer, &padding->prepared->shape, &batch,
                       padding->padded + (size_t)at * plane);
    }
}

static enum conv_status run_layer(struct conv_tensor_stream *stream,
                                  const struct conv_layer_prepared *prepared, int64_t images,
                                  const void *src, void *dst, struct conv_err *err)
{
    const struct conv_layer_plan *plan = &prepared->plan;
    struct conv_layer_batch batch =
        conv_layer_batch_of(&prepared->outer, &prepared->shape, images, src, dst);
    struct conv_cpu_share share;
    conv_cpu_share_plan(&share, plan, &batch, stream->threads);
    int threads = share.tasks < stream->threads ? share.tasks : stream->threads;
    size_t bytes = prepared->pad_bytes + share.distance * (size_t)threads;
    enum conv_status status = reserve(&stream->scratch, bytes, "a layer", err);
    if (status)
        return status;
    if (plan->pads) {
        struct padding padding = {prepared, batch, stream->scratch.data};
        conv_workers_run(stream->workers, stream->threads, pad_channel, &padding,
                         prepared->outer.channels);
        share.batch = conv_layer_batch_of(&plan->layer, &plan->shape, images, padding.padded, dst);
    }
    share.batch.scratch = (uint8_t *)stream->scratch.data + prepared->pad_bytes;
    conv_workers_run(stream->workers, threads, conv_cpu_share_run, &share, share.tasks);
    status = (enum conv_status)atomic_load(&share.status);
    return status ? conv_err_set(err, status, "the layer's kernel failed") : CONV_OK;
}

// --- filter banks --------------------------------------------------------------------------------

static enum conv_status pad_image(struct conv_tensor_stream *stream,
                                  const struct conv_bank_context *bank,
                                  const struct conv_layer_shape *shape, const void *src,
                                  struct conv_err *err)
{
    const struct conv_bank_steps *steps = &bank->steps;
    struct conv_layer padding;
    if (!steps->has_separable)
        return CONV_OK;
    conv_bank_context_padding(&padding, steps, &bank->config);
    size_t rows = (size_t)shape->height + 2 * (size_t)steps->half_height;
    size_t columns = (size_t)shape->width + 2 * (size_t)steps->half_width;
    enum conv_status status = reserve(&stream->padded, rows * columns * sizeof(float), "maps", err);
    struct conv_layer_batch batch = conv_layer_batch_of(&padding, shape, 1, src, NULL);
    if (!status)
        conv_layer_pad(&padding, shape, &batch, stream->padded.data);
    return status;
}

static enum conv_status run_separable(struct conv_tensor_stream *stream,
                                      const struct conv_bank_steps *steps,
                                      const struct conv_separable *filters,
                                      const struct conv_layer_shape *shape, float *dst,
                                      struct conv_err *err)
{
    struct conv_separable_batch batch = conv_bank_context_batch(
        steps, filters, shape->height, shape->width, 1, stream->padded.data);
    enum conv_status status =
        reserve(&stream->scratch, conv_separable_scratch(filters, shape->width) * sizeof(float),
                "maps", err);
    if (status)
        return status;
    batch.dst = dst;
    batch.dst_map = (int64_t)shape->height * shape->width;
    batch.scratch = stream->scratch.data;
    conv_separable_run(filters, &batch);
    return CONV_OK;
}

static enum conv_status run_dense(struct conv_tensor_stream *stream,
                                  const struct conv_bank_step *step,
                                  const struct conv_layer_shape *shape, const void *src, float *dst,
                                  struct conv_err *err)
{
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    bool largest = step->kind == CONV_BANK_STEP_LARGEST;
    size_t bytes = largest ? plane * (size_t)step->layer.maps * sizeof(float) : 0;
    enum conv_status status = reserve(&stream->filters, bytes, "maps", err);
    if (!status)
        status = conv_layer_context_run(step->dense, stream, shape, 1, src,
                                        largest ? stream->filters.data : dst, err);
    if (!status && largest)
        conv_combine_max(dst, stream->filters.data, step->layer.maps, (int64_t)plane);
    return status;
}

static void pool_maps(float *features, const struct conv_pooling *pool, const float *maps,
                      int count, const struct conv_layer_shape *shape)
{
    struct conv_pool_sums cells[CONV_POOL_MAX_GRID * CONV_POOL_MAX_GRID];
    for (int m = 0; m < count; m++) {
        const float *map = maps + (int64_t)m * shape->height * shape->width;
        conv_pool_sum(cells, pool->grid, map, shape->height, shape->width);
        conv_bank_context_features(features, pool, cells, shape->height, shape->width);
        features += pool->count * pool->grid * pool->grid;
    }
}

static enum conv_status run_image(struct conv_tensor_stream *stream,
                                  const struct conv_bank_context *bank,
                                  const struct conv_layer_shape *shape, const void *src, float *dst,
                                  struct conv_err *err)
{
    const struct conv_bank_steps *steps = &bank->steps;
    const struct conv_pooling *pool = &bank->config.pool;
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    size_t per_map = pool->count ? (size_t)(pool->count * pool->grid * pool->grid) : plane;
    enum conv_status status = pad_image(stream, bank, shape, src, err);
    if (!status && pool->count)
        status =
            reserve(&stream->maps, plane * (size_t)steps->most_maps * sizeof(float), "maps", err);
    for (int i = 0; i < steps->count && !status; i++) {
        const struct conv_bank_step *step = &steps->steps[i];
        float *out = dst + (size_t)step->first_map * per_map;
        float *maps = pool->count ? stream->maps.data : out;
        status = step->kind == CONV_BANK_STEP_SEPARABLE
                     ? run_separable(stream, steps, &step->device, shape, maps, err)
                     : run_dense(stream, step, shape, src, maps, err);
        if (!status && pool->count)
            pool_maps(out, pool, maps, step->map_count, shape);
    }
    return status;
}

static enum conv_status run_bank(struct conv_tensor_stream *stream,
                                 const struct conv_bank_context *bank, int height, int width,
                                 int64_t images, const void *src, float *dst, struct conv_err *err)
{
    struct conv_layer_shape shape = {.images = 1, .height = height, .width = width};
    enum conv_status status = CONV_OK;
    size_t in, out;
    if (!conv_bank_context_bytes(bank, height, width, &in, &out))
        return conv_err_memory(err, "the maps are too large");
    for (int64_t i = 0; i < images && !status; i++)
        status = run_image(stream, bank, &shape, (const uint8_t *)src + (size_t)i * in,
                           dst + (size_t)i * (out / sizeof *dst), err);
    return status;
}

const struct conv_tensor_ops conv_cpu_tensors = {
    .open = open_cpu,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_staging = take_staging,
    .layer_run = run_layer,
    .bank_run = run_bank,
};
