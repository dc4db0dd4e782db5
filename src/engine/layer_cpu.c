// SPDX-License-Identifier: MIT
// Layers on the CPU: the threads of a stream share the output rows of all images of a batch.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/features.h"
#include "engine/layer_device.h"
#include "engine/tensor_memory.h"

#define ALIGN 64

// The share of one thread.
struct part {
    pthread_t thread;
    bool has_thread;
    const struct conv_layer_prepared *prepared;
    struct conv_layer_batch batch;
    int64_t first_row, end_row;  // of all images, one after the other
    int64_t first_plane, planes; // to be padded
    float *padded;
    enum conv_status status;
};

struct cpu_stream {
    struct conv_layer_stream head;
    int threads;
    struct conv_tensor_memory in, out; // staging
    struct conv_tensor_memory padded;
    struct conv_tensor_memory scratch; // of all threads, one after another, with gaps
    struct part parts[];               // one per thread
};

static enum conv_status open_cpu(int device, unsigned *have, struct conv_err *err)
{
    (void)device;
    (void)err;
    *have = conv_cpu_features();
    return CONV_OK;
}

static void close_stream(struct conv_layer_stream *head)
{
    struct cpu_stream *stream = (struct cpu_stream *)head;
    free(stream->in.data);
    free(stream->out.data);
    free(stream->padded.data);
    free(stream->scratch.data);
    free(stream);
}

static enum conv_status open_stream(int device, int threads, struct conv_layer_stream **out,
                                    struct conv_err *err)
{
    (void)device;
    size_t parts = (size_t)threads * sizeof(struct part);
    struct cpu_stream *stream = calloc(1, sizeof *stream + parts);
    if (!stream)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CPU stream");
    stream->threads = threads;
    *out = &stream->head;
    return CONV_OK;
}

static enum conv_status reserve_staging(struct conv_layer_stream *head, size_t in_bytes,
                                        size_t out_bytes, void **h_in, void **h_out,
                                        struct conv_err *err)
{
    struct cpu_stream *stream = (struct cpu_stream *)head;
    return conv_tensor_memory_stage(&stream->in, in_bytes, &stream->out, out_bytes, "a layer", h_in,
                                    h_out, err);
}

// --- sharing -------------------------------------------------------------------------------------

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
static void *run_part(void *data)
{
    struct part *part = data;
    const struct conv_layer_plan *plan = &part->prepared->plan;
    size_t image_bytes = output_bytes(part->prepared);
    int64_t height = part->batch.rows;
    part->status = CONV_OK;
    for (int64_t row = part->first_row; row < part->end_row && !part->status;) {
        struct conv_layer_batch batch = part->batch;
        int64_t image = row / height, first = row % height, left = part->end_row - row;
        bool is_whole = first == 0 && left >= height;
        batch.images = is_whole ? left / height : 1;
        batch.first_row = (int)first;
        batch.rows = (int)(left < height - first ? left : height - first);
        batch.src = (const uint8_t *)batch.src + image * batch.src_image;
        batch.dst = (uint8_t *)batch.dst + (size_t)image * image_bytes;
        part->status = plan->variant->run(plan, &batch);
        row += batch.images * batch.rows;
    }
    return NULL;
}

// Pads single planes: an image of one channel each.
static void *pad_part(void *data)
{
    struct part *part = data;
    const struct conv_layer_prepared *prepared = part->prepared;
    struct conv_layer layer = prepared->outer;
    struct conv_layer_batch batch = part->batch;
    size_t plane = (size_t)prepared->plan.shape.height * (size_t)prepared->plan.shape.width;
    int channels = layer.channels;
    layer.channels = 1;
    batch.images = 1;
    for (int64_t i = part->first_plane; i < part->first_plane + part->planes; i++) {
        batch.src = (const uint8_t *)part->batch.src + i / channels * batch.src_image +
                    i % channels * batch.src_plane;
        conv_layer_pad(&layer, &prepared->shape, &batch, part->padded + (size_t)i * plane);
    }
    part->status = CONV_OK;
    return NULL;
}

// Runs all parts, the first one on this thread, and waits for them. This thread does the work of a
// thread that cannot be started.
static enum conv_status run_parts(struct cpu_stream *stream, int count, void *(*work)(void *))
{
    enum conv_status status = CONV_OK;
    struct part *parts = stream->parts;
    for (int i = 1; i < count; i++)
        parts[i].has_thread = pthread_create(&parts[i].thread, NULL, work, &parts[i]) == 0;
    work(&parts[0]);
    for (int i = 1; i < count; i++) {
        if (parts[i].has_thread)
            pthread_join(parts[i].thread, NULL);
        else
            work(&parts[i]);
    }
    for (int i = 0; i < count; i++)
        status = status ? status : parts[i].status;
    return status;
}

// Share i of `total` among `count`.
static int64_t share(int64_t total, int i, int count)
{
    return total * i / count;
}

static void pad_batch(struct cpu_stream *stream, const struct conv_layer_prepared *prepared,
                      const struct conv_layer_batch *batch)
{
    int64_t planes = batch->images * prepared->outer.channels;
    int count = planes < stream->threads ? (int)planes : stream->threads;
    for (int i = 0; i < count; i++) {
        struct part *part = &stream->parts[i];
        part->prepared = prepared;
        part->batch = *batch;
        part->padded = stream->padded.data;
        part->first_plane = share(planes, i, count);
        part->planes = share(planes, i + 1, count) - part->first_plane;
    }
    (void)run_parts(stream, count, pad_part);
}

static enum conv_status run_stream(struct conv_layer_stream *head,
                                   const struct conv_layer_prepared *prepared, int64_t images,
                                   const void *src, void *dst, struct conv_err *err)
{
    struct cpu_stream *stream = (struct cpu_stream *)head;
    struct conv_layer_batch batch =
        conv_layer_batch_of(&prepared->outer, &prepared->shape, images, src, dst);
    int64_t rows = images * batch.rows;
    int count = rows < stream->threads ? (int)rows : stream->threads;
    size_t scratch = (prepared->plan.scratch + ALIGN - 1) / ALIGN * ALIGN;
    size_t distance = scratch + CONV_LAYER_SCRATCH_GAP;
    enum conv_status status = CONV_OK;
    if (images <= 0)
        return CONV_OK;
    if (scratch > 0)
        status =
            conv_tensor_memory_reserve(&stream->scratch, distance * (size_t)count, "a layer", err);
    if (!status && prepared->plan.pads)
        status = conv_tensor_memory_reserve(&stream->padded, prepared->pad_bytes, "a layer", err);
    if (status)
        return status;
    if (prepared->plan.pads) {
        pad_batch(stream, prepared, &batch);
        batch = conv_layer_batch_of(&prepared->plan.layer, &prepared->plan.shape, images,
                                    stream->padded.data, dst);
    }
    for (int i = 0; i < count; i++) {
        struct part *part = &stream->parts[i];
        part->prepared = prepared;
        part->batch = batch;
        part->first_row = share(rows, i, count);
        part->end_row = share(rows, i + 1, count);
        part->batch.scratch =
            scratch > 0 ? (uint8_t *)stream->scratch.data + (size_t)i * distance : NULL;
    }
    status = run_parts(stream, count, run_part);
    return status ? conv_err_set(err, status, "the layer's kernel failed") : CONV_OK;
}

static enum conv_status enqueue(const struct conv_layer_prepared *prepared,
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

const struct conv_layer_device_ops conv_layer_device_cpu = {
    .name = "cpu",
    .place = CONV_ON_CPU,
    .open = open_cpu,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_staging = reserve_staging,
    .stream_run = run_stream,
    .enqueue = enqueue,
};
