// SPDX-License-Identifier: MIT
// Layers and filter banks on the CPU. The threads of a stream share the output rows of all images
// of a layer's batch. Of a bank the calling thread computes one image after the other, and pools
// each step's maps before the next step, so that only one step's maps are in memory.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/features.h"
#include "engine/bank_context.h"
#include "engine/cpu.h"

#define ALIGN 64

// Host memory that grows, aligned to 64 bytes. Starts as {0}.
struct conv_tensor_memory {
    void *data;
    size_t size; // bytes
};

struct conv_tensor_stream {
    struct conv_workers *workers; // NULL: the calling thread does all
    int threads;
    struct conv_tensor_memory in, out; // staging
    struct conv_tensor_memory padded;
    struct conv_tensor_memory scratch;       // of a layer: of all threads, with gaps between them
    struct conv_tensor_memory maps, filters; // of a bank
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
    return memory->data ? CONV_OK
                        : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of %s",
                                       (size >> 20) + 1, what);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CPU stream");
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

// The work on a batch, in equal parts.
struct work {
    const struct conv_layer_prepared *prepared;
    struct conv_layer_batch batch;        // scratch: of part 0
    size_t image_bytes, scratch_distance; // of an image's outputs; from part to part
    float *padded;
    int64_t total;        // rows of all images, one after the other; or planes to be padded
    int parts, map_parts; // of these; of the maps, each of which has all parts of the rows
    atomic_int status;    // of the first part that fails
};

static int64_t first_of(const struct work *work, int part)
{
    return work->total * part / work->parts;
}

// Does all parts, each once; map_parts is at most the number of threads.
static void run_parts(struct conv_tensor_stream *stream, struct work *work, int64_t total,
                      int map_parts, conv_workers_fn run)
{
    work->total = total;
    work->map_parts = map_parts;
    work->parts = total < stream->threads / map_parts ? (int)total : stream->threads / map_parts;
    int tasks = work->parts * map_parts;
    if (tasks > 1)
        conv_workers_run(stream->workers, tasks, run, work, tasks);
    else
        run(work, 0, 0);
}

// Computes the rows of a part: whole images at once, and the rows of an image that it begins or
// ends in the middle of.
static void run_rows(void *context, int, int task)
{
    struct work *work = context;
    const struct conv_layer_plan *plan = &work->prepared->plan;
    int part = task / work->map_parts, map_part = task % work->map_parts;
    int64_t height = work->batch.rows, end = first_of(work, part + 1);
    enum conv_status status = CONV_OK;
    for (int64_t row = first_of(work, part); row < end && !status;) {
        struct conv_layer_batch batch = work->batch;
        int64_t image = row / height, first = row % height, left = end - row;
        bool is_whole = first == 0 && left >= height;
        batch.first_set = plan->sets * map_part / work->map_parts;
        batch.sets = plan->sets * (map_part + 1) / work->map_parts - batch.first_set;
        batch.images = is_whole ? left / height : 1;
        batch.first_row = (int)first;
        batch.rows = (int)(left < height - first ? left : height - first);
        batch.src = (const uint8_t *)batch.src + image * batch.src_image;
        batch.dst = (uint8_t *)batch.dst + (size_t)image * work->image_bytes;
        if (batch.scratch)
            batch.scratch = (uint8_t *)batch.scratch + (size_t)task * work->scratch_distance;
        status = plan->variant->run(plan, &batch);
        row += batch.images * batch.rows;
    }
    if (status)
        atomic_store(&work->status, (int)status);
}

// Pads single planes: an image of one channel each.
static void pad_planes(void *context, int, int part)
{
    struct work *work = context;
    const struct conv_layer_prepared *prepared = work->prepared;
    struct conv_layer layer = prepared->outer;
    struct conv_layer_batch batch = work->batch;
    size_t plane = (size_t)prepared->plan.shape.height * (size_t)prepared->plan.shape.width;
    int channels = layer.channels;
    layer.channels = 1;
    batch.images = 1;
    for (int64_t i = first_of(work, part); i < first_of(work, part + 1); i++) {
        batch.src = (const uint8_t *)work->batch.src + i / channels * batch.src_image +
                    i % channels * batch.src_plane;
        conv_layer_pad(&layer, &prepared->shape, &batch, work->padded + (size_t)i * plane);
    }
}

static enum conv_status run_layer(struct conv_tensor_stream *stream,
                                  const struct conv_layer_prepared *prepared, int64_t images,
                                  const void *src, void *dst, struct conv_err *err)
{
    struct work work = {
        .prepared = prepared,
        .batch = conv_layer_batch_of(&prepared->outer, &prepared->shape, images, src, dst),
    };
    const struct conv_layer_plan *plan = &prepared->plan;
    int64_t rows = images * work.batch.rows;
    bool few = 2 * rows <= stream->threads && plan->sets > 1; // then the maps are shared, too
    int map_parts = !few ? 1 : plan->sets < stream->threads ? plan->sets : stream->threads;
    size_t parts = (size_t)(few || rows > stream->threads ? stream->threads : rows), in;
    (void)conv_layer_context_bytes(&plan->layer, plan->shape.height, plan->shape.width, &in,
                                   &work.image_bytes);
    size_t scratch = (plan->scratch + ALIGN - 1) / ALIGN * ALIGN;
    enum conv_status status = CONV_OK;
    work.scratch_distance = scratch + CONV_LAYER_SCRATCH_GAP;
    if (scratch > 0)
        status = reserve(&stream->scratch, work.scratch_distance * parts, "a layer", err);
    if (!status && plan->pads)
        status = reserve(&stream->padded, prepared->pad_bytes, "a layer", err);
    if (status)
        return status;
    if (plan->pads) {
        work.padded = stream->padded.data;
        run_parts(stream, &work, images * prepared->outer.channels, 1, pad_planes);
        work.batch =
            conv_layer_batch_of(&plan->layer, &plan->shape, images, stream->padded.data, dst);
    }
    work.batch.scratch = scratch > 0 ? stream->scratch.data : NULL;
    run_parts(stream, &work, rows, map_parts, run_rows);
    status = (enum conv_status)atomic_load(&work.status);
    return status ? conv_err_set(err, status, "the layer's kernel failed") : CONV_OK;
}

static enum conv_status enqueue_layer(const struct conv_layer_prepared *prepared,
                                      const struct conv_layer_batch *batch, struct conv_err *err)
{
    const struct conv_layer_plan *plan = &prepared->plan;
    struct conv_layer_batch own = *batch;
    if (prepared->plan.pads) {
        conv_layer_pad(&prepared->outer, &prepared->shape, batch, batch->scratch);
        own = conv_layer_batch_of(&prepared->plan.layer, &prepared->plan.shape, batch->images,
                                  batch->scratch, batch->dst);
        own.scratch = (uint8_t *)batch->scratch + prepared->pad_bytes;
    }
    own.first_row = 0;
    own.rows = conv_layer_out_height(&prepared->plan.layer, prepared->plan.shape.height);
    enum conv_status status = plan->variant->run(plan, &own);
    return status ? conv_err_set(err, status, "the layer's kernel failed") : CONV_OK;
}

// --- filter banks --------------------------------------------------------------------------------

static enum conv_status pad_image(struct conv_tensor_stream *stream,
                                  const struct conv_bank_steps *steps,
                                  const struct conv_bank_config *config,
                                  const struct conv_layer_shape *shape,
                                  const struct conv_layer_batch *batch, struct conv_err *err)
{
    struct conv_layer padding;
    if (!steps->has_separable)
        return CONV_OK;
    conv_bank_context_padding(&padding, steps, config);
    size_t rows = (size_t)shape->height + 2 * (size_t)steps->half_height;
    size_t columns = (size_t)shape->width + 2 * (size_t)steps->half_width;
    enum conv_status status = reserve(&stream->padded, rows * columns * sizeof(float), "maps", err);
    if (!status)
        conv_layer_pad(&padding, shape, batch, stream->padded.data);
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
                                  const struct conv_layer_shape *shape,
                                  const struct conv_layer_batch *image, float *dst,
                                  struct conv_err *err)
{
    struct conv_layer_batch batch = *image;
    struct conv_layer_way way;
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    bool combined = step->kind == CONV_BANK_STEP_COMBINED;
    enum conv_status status = conv_layer_context_way(step->dense, shape, false, &way, err);
    if (!status)
        status = reserve(&stream->scratch, way.scratch, "maps", err);
    if (!status && combined)
        status = reserve(&stream->filters, plane * (size_t)step->layer.maps * sizeof(float), "maps",
                         err);
    if (status)
        return status;
    batch.dst = combined ? stream->filters.data : dst;
    batch.scratch = stream->scratch.data;
    status = conv_layer_context_enqueue(step->dense, shape, &batch, err);
    if (!status && combined && step->combine == CONV_BANK_MAX)
        conv_combine_max(dst, stream->filters.data, step->layer.maps, (int64_t)plane);
    else if (!status && combined)
        conv_combine_magnitude(dst, stream->filters.data, (int64_t)plane);
    return status;
}

static void pool_maps(float *features, const struct conv_pooling *pool, const float *maps,
                      int count, const struct conv_layer_shape *shape)
{
    struct conv_pool_sums cells[CONV_POOL_MAX_GRID * CONV_POOL_MAX_GRID];
    for (int m = 0; m < count; m++) {
        const float *map = maps + (int64_t)m * shape->height * shape->width;
        conv_pool_start(cells, pool->grid);
        conv_pool_add(cells, pool->grid, map, shape->height, shape->width, 0, shape->height);
        conv_bank_context_features(features, pool, cells, shape->height, shape->width);
        features += pool->count * pool->grid * pool->grid;
    }
}

static enum conv_status
run_image(struct conv_tensor_stream *stream, const struct conv_bank_steps *steps,
          const struct conv_bank_config *config, const struct conv_layer_shape *shape,
          const struct conv_layer_batch *batch, float *dst, struct conv_err *err)
{
    const struct conv_pooling *pool = &config->pool;
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    size_t per_map = pool->count ? (size_t)(pool->count * pool->grid * pool->grid) : plane;
    enum conv_status status = pad_image(stream, steps, config, shape, batch, err);
    if (!status && pool->count)
        status =
            reserve(&stream->maps, plane * (size_t)steps->most_maps * sizeof(float), "maps", err);
    for (int i = 0; i < steps->count && !status; i++) {
        const struct conv_bank_step *step = &steps->steps[i];
        float *out = dst + (size_t)step->first_map * per_map;
        float *maps = pool->count ? stream->maps.data : out;
        status = step->kind == CONV_BANK_STEP_SEPARABLE
                     ? run_separable(stream, steps, &step->device, shape, maps, err)
                     : run_dense(stream, step, shape, batch, maps, err);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "the maps are too large");
    int64_t row = (int64_t)conv_element_size(bank->config.input) * width;
    for (int64_t i = 0; i < images && !status; i++) {
        struct conv_layer_batch batch = {
            .images = 1,
            .src = (const uint8_t *)src + (size_t)i * in,
            .src_row = row,
            .src_plane = row * height,
            .src_image = row * height,
            .rows = height,
        };
        status = run_image(stream, &bank->steps, &bank->config, &shape, &batch,
                           dst + (size_t)i * (out / sizeof *dst), err);
    }
    return status;
}

const struct conv_tensor_ops conv_cpu_tensors = {
    .open = open_cpu,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_staging = take_staging,
    .layer_run = run_layer,
    .bank_run = run_bank,
    .layer_enqueue = enqueue_layer,
};
