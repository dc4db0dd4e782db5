// SPDX-License-Identifier: MIT
// Layers on the CPU: the threads of a stream share the output rows of all images of a batch.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/features.h"
#include "engine/cpu_tensor.h"

#define ALIGN 64

// --- streams -------------------------------------------------------------------------------------

enum conv_status conv_cpu_tensor_reserve(struct conv_tensor_memory *memory, size_t size,
                                         const char *what, struct conv_err *err)
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

enum conv_status conv_cpu_tensor_open(int device, unsigned *offers, struct conv_err *err)
{
    (void)device;
    (void)err;
    *offers = conv_cpu_features();
    return CONV_OK;
}

enum conv_status conv_cpu_tensor_stream_open(int device, struct conv_workers *workers, int threads,
                                             struct conv_tensor_stream **stream,
                                             struct conv_err *err)
{
    (void)device;
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CPU stream");
    (*stream)->workers = workers;
    (*stream)->threads = threads;
    return CONV_OK;
}

void conv_cpu_tensor_stream_close(struct conv_tensor_stream *stream)
{
    free(stream->in.data);
    free(stream->out.data);
    free(stream->padded.data);
    free(stream->scratch.data);
    free(stream->maps.data);
    free(stream->filters.data);
    free(stream);
}

enum conv_status conv_cpu_tensor_stream_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                                size_t out_bytes, void **h_in, void **h_out,
                                                struct conv_err *err)
{
    enum conv_status status =
        conv_cpu_tensor_reserve(&stream->in, in_bytes ? in_bytes : 1, "tensors", err);
    if (!status)
        status = conv_cpu_tensor_reserve(&stream->out, out_bytes ? out_bytes : 1, "tensors", err);
    *h_in = stream->in.data;
    *h_out = stream->out.data;
    return status;
}

// --- sharing -------------------------------------------------------------------------------------

// The work on a batch, in equal parts.
struct work {
    const struct conv_layer_prepared *prepared;
    struct conv_layer_batch batch; // scratch: of part 0
    size_t scratch_distance;       // from one part's scratch to the next
    float *padded;
    int64_t total; // rows of all images, one after the other; or planes to be padded
    int parts;
    atomic_int status; // of the first part that fails
};

static int64_t first_of(const struct work *work, int part)
{
    return work->total * part / work->parts;
}

// Does all parts, each once.
static void run_parts(struct conv_tensor_stream *stream, struct work *work, int64_t total,
                      conv_workers_fn run)
{
    work->total = total;
    work->parts = total < stream->threads ? (int)total : stream->threads;
    if (work->parts > 1)
        conv_workers_run(stream->workers, work->parts, run, work, work->parts);
    else
        run(work, 0, 0);
}

// Bytes of the outputs of one image.
static size_t output_bytes(const struct conv_layer_prepared *prepared)
{
    const struct conv_layer *layer = &prepared->plan.layer;
    return (size_t)layer->maps * (size_t)conv_layer_out_height(layer, prepared->plan.shape.height) *
           (size_t)conv_layer_out_width(layer, prepared->plan.shape.width) *
           conv_element_size(layer->output);
}

// Computes the rows of a part: whole images at once, and the rows of an image that it begins or
// ends in the middle of.
static void run_rows(void *context, int worker, int part)
{
    (void)worker;
    struct work *work = context;
    const struct conv_layer_plan *plan = &work->prepared->plan;
    size_t image_bytes = output_bytes(work->prepared);
    int64_t height = work->batch.rows, end = first_of(work, part + 1);
    enum conv_status status = CONV_OK;
    for (int64_t row = first_of(work, part); row < end && !status;) {
        struct conv_layer_batch batch = work->batch;
        int64_t image = row / height, first = row % height, left = end - row;
        bool is_whole = first == 0 && left >= height;
        batch.images = is_whole ? left / height : 1;
        batch.first_row = (int)first;
        batch.rows = (int)(left < height - first ? left : height - first);
        batch.src = (const uint8_t *)batch.src + image * batch.src_image;
        batch.dst = (uint8_t *)batch.dst + (size_t)image * image_bytes;
        if (batch.scratch)
            batch.scratch = (uint8_t *)batch.scratch + (size_t)part * work->scratch_distance;
        status = plan->variant->run(plan, &batch);
        row += batch.images * batch.rows;
    }
    if (status)
        atomic_store(&work->status, (int)status);
}

// Pads single planes: an image of one channel each.
static void pad_planes(void *context, int worker, int part)
{
    (void)worker;
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

enum conv_status conv_cpu_layer_run(struct conv_tensor_stream *stream,
                                    const struct conv_layer_prepared *prepared, int64_t images,
                                    const void *src, void *dst, struct conv_err *err)
{
    struct work work = {
        .prepared = prepared,
        .batch = conv_layer_batch_of(&prepared->outer, &prepared->shape, images, src, dst),
    };
    int64_t rows = images * work.batch.rows;
    size_t parts = (size_t)(rows < stream->threads ? rows : stream->threads);
    size_t scratch = (prepared->plan.scratch + ALIGN - 1) / ALIGN * ALIGN;
    enum conv_status status = CONV_OK;
    work.scratch_distance = scratch + CONV_LAYER_SCRATCH_GAP;
    if (scratch > 0)
        status = conv_cpu_tensor_reserve(&stream->scratch, work.scratch_distance * parts, "a layer",
                                         err);
    if (!status && prepared->plan.pads)
        status = conv_cpu_tensor_reserve(&stream->padded, prepared->pad_bytes, "a layer", err);
    if (status)
        return status;
    if (prepared->plan.pads) {
        work.padded = stream->padded.data;
        run_parts(stream, &work, images * prepared->outer.channels, pad_planes);
        work.batch = conv_layer_batch_of(&prepared->plan.layer, &prepared->plan.shape, images,
                                         stream->padded.data, dst);
    }
    work.batch.scratch = scratch > 0 ? stream->scratch.data : NULL;
    run_parts(stream, &work, rows, run_rows);
    status = (enum conv_status)atomic_load(&work.status);
    return status ? conv_err_set(err, status, "the layer's kernel failed") : CONV_OK;
}

enum conv_status conv_cpu_layer_enqueue(const struct conv_layer_prepared *prepared,
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
