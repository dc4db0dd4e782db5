// SPDX-License-Identifier: MIT
// Layers and filter banks on a CUDA device. A stream uploads a batch, pads it if the kernel does
// not, computes and downloads the result: a bank step by step, with maps or sums of cells as its
// result. Several streams overlap this.
#include <stdlib.h>

#include "engine/bank_context.h"
#include "engine/cuda_internal.h"
#include "kernels/layer/cuda/cuda_cudnn.h"
#include "kernels/layer/cuda/cuda_layers.h"

// Kernels read up to the next multiple of 16 bytes after the last plane (layer.h).
#define SLACK 16

struct conv_tensor_stream {
    int device;
    cudaStream_t cuda;
    cudaEvent_t done;
    struct conv_cuda_mapped in, out; // staging
    struct conv_cuda_memory d_in, d_scratch;
    struct conv_cuda_memory d_out; // of a layer
    // Of a bank:
    struct conv_cuda_memory d_padded, d_maps, d_filters, d_cells, d_row_sums;
    struct conv_cuda_mapped cells;
};

// --- the device ----------------------------------------------------------------------------------

static enum conv_status open_cuda(int device, unsigned *offers, struct conv_err *err)
{
    int capability;
    enum conv_status status = conv_cuda_device_check(device, err);
    if (status)
        return status;
    status = conv_cuda_device_capability(device, &capability, err);
    *offers = (unsigned)capability;
    return status ? status : conv_cuda_device_use(device, err);
}

static enum conv_status upload(int device, const void *data, size_t bytes, void **d_data,
                               struct conv_err *err)
{
    *d_data = NULL;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (status)
        return status;
    cudaError_t code = cudaMalloc(d_data, bytes);
    if (code) {
        *d_data = NULL;
        return conv_cuda_device_report(err, code, "allocate memory for the weights");
    }
    code = cudaMemcpy(*d_data, data, bytes, cudaMemcpyHostToDevice);
    return conv_cuda_check(code, "copy the weights to the device", err);
}

static void release(int device, void *d_data)
{
    if (cudaSetDevice(device) == cudaSuccess)
        (void)cudaFree(d_data); // nothing can be done about a failure
}

// --- streams -------------------------------------------------------------------------------------

static void close_stream(struct conv_tensor_stream *stream)
{
    struct conv_cuda_memory *const d_memory[] = {
        &stream->d_in,   &stream->d_scratch, &stream->d_out,   &stream->d_padded,
        &stream->d_maps, &stream->d_filters, &stream->d_cells, &stream->d_row_sums,
    };
    if (cudaSetDevice(stream->device) == cudaSuccess) {
        for (size_t i = 0; i < sizeof d_memory / sizeof d_memory[0]; i++)
            conv_cuda_memory_free(d_memory[i]);
        conv_cuda_mapped_free(&stream->cells);
        conv_cuda_mapped_free(&stream->in);
        conv_cuda_mapped_free(&stream->out);
        conv_cuda_event_destroy(&stream->done);
        if (stream->cuda)
            (void)cudaStreamDestroy(stream->cuda);
    }
    free(stream);
}

static enum conv_status open_stream(int device, struct conv_workers *, int,
                                    struct conv_tensor_stream **out, struct conv_err *err)
{
    struct conv_tensor_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_memory(err, "no memory for a CUDA stream");
    stream->device = device;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (!status) {
        cudaError_t code = cudaStreamCreateWithFlags(&stream->cuda, cudaStreamNonBlocking);
        if (code)
            status = conv_cuda_device_report(err, code, "make a stream");
    }
    if (!status)
        status = conv_cuda_event_create(&stream->done, cudaEventBlockingSync, err);
    if (status)
        close_stream(stream);
    else
        *out = stream;
    return status;
}

static enum conv_status take_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                     size_t out_bytes, void **h_in, void **h_out,
                                     struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = conv_cuda_mapped_reserve(&stream->in, in_bytes ? in_bytes : 1, "for tensors", err);
    if (!status)
        status =
            conv_cuda_mapped_reserve(&stream->out, out_bytes ? out_bytes : 1, "for tensors", err);
    *h_in = stream->in.h_data;
    *h_out = stream->out.h_data;
    return status;
}

// Waits until the stream has done all enqueued work. `what` names the work in messages.
static enum conv_status wait_stream(struct conv_tensor_stream *stream, const char *what,
                                    struct conv_err *err)
{
    // A thread that waits for the event sleeps; one that waits for the stream would spin.
    enum conv_status status = conv_cuda_event_record(stream->done, stream->cuda, err);
    if (status)
        return status;
    return conv_cuda_check(cudaEventSynchronize(stream->done), what, err);
}

// --- layers --------------------------------------------------------------------------------------

static enum conv_status enqueue_layer(const struct conv_layer_prepared *prepared,
                                      const struct conv_layer_batch *batch, struct conv_err *err)
{
    if (prepared->library)
        return conv_cudnn_layer_run(prepared->library, batch, err);
    const struct conv_layer *layer = &prepared->outer;
    struct conv_layer_plan late = prepared->plan;
    const struct conv_layer_plan *plan = &prepared->plan;
    struct conv_layer_batch own = *batch;
    enum conv_status status = CONV_OK;
    if (!layer->weights) { // d_packed says where they belong
        status = conv_cuda_layer_gather(
            batch->packed, late.d_packed, late.packed_bytes / 4, batch->weights,
            conv_layer_taps(layer) * (size_t)layer->maps, batch->bias, batch->stream);
        late.d_packed = batch->packed;
        plan = &late;
    }
    if (!status && prepared->plan.pads) {
        status = conv_cuda_layer_pad(&prepared->outer, &prepared->shape, batch, batch->scratch,
                                     CONV_ELEMENT_F32);
        own = conv_layer_batch_of(&prepared->plan.layer, &prepared->plan.shape, batch->images,
                                  batch->scratch, batch->dst);
        own.stream = batch->stream;
    }
    void *sums = (uint8_t *)batch->scratch + prepared->pad_bytes;
    own.scratch = (uint8_t *)sums + prepared->sum_bytes;
    if (plan->rounds)
        own.dst = sums;
    own.first_row = 0;
    own.rows = conv_layer_out_height(&prepared->plan.layer, prepared->plan.shape.height);
    if (!status)
        status = plan->variant->run(plan, &own);
    if (!status && plan->rounds) {
        const struct conv_layer_finish rounding = {
            .planes = batch->images * layer->maps,
            .plane = (int64_t)own.rows *
                     conv_layer_out_width(&prepared->plan.layer, prepared->plan.shape.width),
            .maps = layer->maps,
            .from = CONV_ELEMENT_F32,
            .to = layer->output,
        };
        status = conv_cuda_layer_finish(&rounding, sums, batch->dst, batch->stream);
    }
    return status ? conv_cuda_device_report(err, cudaGetLastError(), "start the layer's kernel")
                  : CONV_OK;
}

static enum conv_status run_own(void *context, const struct conv_layer_batch *batch)
{
    return enqueue_layer(context, batch, NULL);
}

static enum conv_status open_library(int device, struct conv_layer_prepared *prepared, bool forced,
                                     struct conv_err *err)
{
    const struct conv_layer_variant *variant = prepared->plan.variant;
    struct conv_cudnn_choice choice = {
        .layer = &prepared->outer,
        .shape = prepared->shape,
        .gaps = prepared->gaps,
        .scratch = prepared->scratch,
        .packed = prepared->packed_bytes,
        .own = variant ? variant->name : NULL,
        .run_own = run_own,
        .context = prepared,
        .forced = forced,
    };
    if (!conv_layer_context_bytes(&prepared->outer, prepared->shape.height, prepared->shape.width,
                                  &choice.in, &choice.out))
        choice.out = SIZE_MAX; // which is refused
    enum conv_status status = conv_cuda_device_use(device, err);
    if (!status)
        status = conv_cudnn_layer_open(&prepared->library, &choice, err);
    if (status)
        return status;
    conv_cudnn_layer_sizes(prepared->library, &prepared->scratch, &prepared->packed_bytes);
    (void)cudaFree(prepared->d_packed); // the plan does not run
    prepared->d_packed = NULL;
    return CONV_OK;
}

static void close_library(int device, struct conv_library_layer *library)
{
    if (cudaSetDevice(device) == cudaSuccess)
        conv_cudnn_layer_close(library);
}

static enum conv_status reserve_device(struct conv_tensor_stream *stream,
                                       const struct conv_layer_prepared *prepared, size_t in,
                                       size_t out, struct conv_err *err)
{
    enum conv_status status =
        conv_cuda_memory_reserve(&stream->d_in, in + SLACK, 0, "for tensors", err);
    if (!status)
        status = conv_cuda_memory_reserve(&stream->d_out, out, 0, "for tensors", err);
    if (!status && prepared->scratch > 0)
        status = conv_cuda_memory_reserve(&stream->d_scratch, prepared->scratch + SLACK, 0,
                                          "for tensors", err);
    return status;
}

static enum conv_status run_layer(struct conv_tensor_stream *stream,
                                  const struct conv_layer_prepared *prepared, int64_t images,
                                  const void *src, void *dst, struct conv_err *err)
{
    size_t in, out, all_in, all_out;
    // A library computes all images of the shape, also for the last few of a tensor.
    int64_t all = prepared->library ? prepared->shape.images : images;
    if (!conv_layer_context_bytes(&prepared->outer, prepared->shape.height, prepared->shape.width,
                                  &in, &out) ||
        __builtin_mul_overflow(in, (size_t)all, &all_in) ||
        __builtin_mul_overflow(out, (size_t)all, &all_out))
        return conv_err_memory(err, "the batch is too large");
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = reserve_device(stream, prepared, all_in, all_out, err);
    if (status)
        return status;
    in *= (size_t)images;
    out *= (size_t)images;
    cudaError_t code =
        cudaMemcpyAsync(stream->d_in.d_data, src, in, cudaMemcpyHostToDevice, stream->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor to the device");
    struct conv_layer_batch batch = conv_layer_batch_of(&prepared->outer, &prepared->shape, all,
                                                        stream->d_in.d_data, stream->d_out.d_data);
    batch.scratch = stream->d_scratch.d_data;
    batch.stream = stream->cuda;
    status = enqueue_layer(prepared, &batch, err);
    if (status)
        return status;
    code = cudaMemcpyAsync(dst, stream->d_out.d_data, out, cudaMemcpyDeviceToHost, stream->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor from the device");
    return wait_stream(stream, "run the layer", err);
}

// --- filter banks --------------------------------------------------------------------------------

// The state that the functions below share.
struct run {
    struct conv_tensor_stream *stream;
    const struct conv_bank_steps *steps;
    const struct conv_bank_config *config;
    struct conv_layer_shape shape;  // images: of this run
    struct conv_layer_batch planes; // on the device
    size_t plane;                   // samples
    struct conv_err *err;
};

static enum conv_status reserve(struct conv_cuda_memory *memory, size_t bytes, struct conv_err *err)
{
    return conv_cuda_memory_reserve(memory, bytes, 0, "for a filter bank", err);
}

static enum conv_status pad(struct run *run)
{
    const struct conv_bank_steps *steps = run->steps;
    struct conv_layer padding;
    if (!steps->has_separable)
        return CONV_OK;
    conv_bank_context_padding(&padding, steps, run->config);
    size_t rows = (size_t)run->shape.height + 2 * (size_t)steps->half_height;
    size_t columns = (size_t)run->shape.width + 2 * (size_t)steps->half_width;
    size_t bytes = (size_t)run->shape.images * rows * columns * sizeof(float);
    enum conv_status status = reserve(&run->stream->d_padded, bytes, run->err);
    if (status)
        return status;
    status = conv_cuda_layer_pad(&padding, &run->shape, &run->planes, run->stream->d_padded.d_data,
                                 CONV_ELEMENT_F32);
    return status ? conv_cuda_device_report(run->err, cudaGetLastError(), "pad planes") : CONV_OK;
}

static enum conv_status run_separable(struct run *run, const struct conv_bank_step *step,
                                      float *dst, int64_t dst_image)
{
    struct conv_tensor_stream *stream = run->stream;
    const struct conv_separable *filters = &step->device;
    struct conv_separable_batch batch =
        conv_bank_context_batch(run->steps, filters, run->shape.height, run->shape.width,
                                run->shape.images, (const float *)stream->d_padded.d_data);
    size_t floats = conv_cuda_separable_scratch(filters, run->shape.height, run->shape.width,
                                                run->shape.images);
    enum conv_status status = reserve(&stream->d_scratch, floats * sizeof(float), run->err);
    if (status)
        return status;
    batch.dst = dst;
    batch.dst_map = (int64_t)run->plane;
    batch.dst_image = dst_image;
    batch.scratch = (float *)stream->d_scratch.d_data;
    batch.stream = stream->cuda;
    status = conv_cuda_separable_run(filters, &batch);
    return status ? conv_cuda_device_report(run->err, cudaGetLastError(), "start filters")
                  : CONV_OK;
}

// Images one after the other: a dense filter of 49x49 keeps the device busy with one.
static enum conv_status run_dense(struct run *run, const struct conv_bank_step *step, float *dst,
                                  int64_t dst_image)
{
    struct conv_tensor_stream *stream = run->stream;
    struct conv_layer_shape shape = run->shape;
    bool largest = step->kind == CONV_BANK_STEP_LARGEST;
    int maps = step->layer.maps;
    struct conv_layer_way way;
    shape.images = 1;
    enum conv_status status = conv_layer_context_way(step->dense, &shape, false, &way, run->err);
    if (!status)
        status = reserve(&stream->d_scratch, way.scratch + SLACK, run->err);
    if (!status && largest)
        status = reserve(&stream->d_filters, run->plane * (size_t)maps * sizeof(float), run->err);
    for (int64_t i = 0; i < run->shape.images && !status; i++) {
        struct conv_layer_batch batch = run->planes;
        float *own = dst + i * dst_image;
        batch.images = 1;
        batch.src = (const uint8_t *)batch.src + i * batch.src_image;
        batch.dst = largest ? stream->d_filters.d_data : (void *)own;
        batch.scratch = stream->d_scratch.d_data;
        status = conv_layer_context_enqueue(step->dense, &shape, &batch, run->err);
        if (status || !largest)
            continue;
        const float *filters = (const float *)stream->d_filters.d_data;
        if (conv_cuda_combine_max(own, filters, maps, (int64_t)run->plane, stream->cuda))
            status = conv_cuda_device_report(run->err, cudaGetLastError(), "combine maps");
    }
    return status;
}

static enum conv_status run_step(struct run *run, const struct conv_bank_step *step, float *dst,
                                 int64_t dst_image)
{
    return step->kind == CONV_BANK_STEP_SEPARABLE ? run_separable(run, step, dst, dst_image)
                                                  : run_dense(run, step, dst, dst_image);
}

// Copies to the host and waits. A thread that waits for the event sleeps; one that waits for the
// stream would spin.
static enum conv_status finish(struct run *run, void *dst, const void *d_src, size_t bytes)
{
    struct conv_tensor_stream *stream = run->stream;
    cudaError_t code = cudaMemcpyAsync(dst, d_src, bytes, cudaMemcpyDeviceToHost, stream->cuda);
    if (code)
        return conv_cuda_device_report(run->err, code, "copy maps from the device");
    return wait_stream(stream, "compute a filter bank", run->err);
}

static enum conv_status run_maps(struct run *run, float *dst)
{
    const struct conv_bank_steps *steps = run->steps;
    int64_t image = (int64_t)run->plane * steps->maps;
    size_t bytes = (size_t)image * (size_t)run->shape.images * sizeof(float);
    enum conv_status status = reserve(&run->stream->d_maps, bytes, run->err);
    float *d_maps = (float *)run->stream->d_maps.d_data;
    for (int i = 0; i < steps->count && !status; i++)
        status = run_step(run, &steps->steps[i],
                          d_maps + steps->steps[i].first_map * (int64_t)run->plane, image);
    return status ? status : finish(run, dst, d_maps, bytes);
}

// Cells lie as [step][images][maps of the step][grid][grid].
static void make_features(struct run *run, float *dst)
{
    const struct conv_pooling *pool = &run->config->pool;
    const struct conv_pool_sums *cells = (const struct conv_pool_sums *)run->stream->cells.h_data;
    size_t per_map = (size_t)(pool->count * pool->grid * pool->grid);
    for (int i = 0; i < run->steps->count; i++) {
        const struct conv_bank_step *step = &run->steps->steps[i];
        for (int64_t image = 0; image < run->shape.images; image++) {
            size_t first = (size_t)image * (size_t)run->steps->maps + (size_t)step->first_map;
            for (int m = 0; m < step->map_count; m++) {
                conv_bank_context_features(dst + (first + (size_t)m) * per_map, pool, cells,
                                           run->shape.height, run->shape.width);
                cells += pool->grid * pool->grid;
            }
        }
    }
}

static enum conv_status run_pooled(struct run *run, float *dst)
{
    struct conv_tensor_stream *stream = run->stream;
    const struct conv_bank_steps *steps = run->steps;
    int grid = run->config->pool.grid;
    size_t images = (size_t)run->shape.images, most = images * (size_t)steps->most_maps;
    size_t cell = sizeof(struct conv_pool_sums), squares = (size_t)(grid * grid);
    size_t cells = images * (size_t)steps->maps * squares * cell;
    enum conv_status status = reserve(&stream->d_maps, most * run->plane * sizeof(float), run->err);
    if (!status)
        status = reserve(&stream->d_cells, cells, run->err);
    if (!status)
        status = reserve(&stream->d_row_sums,
                         most * (size_t)run->shape.height * (size_t)grid * cell, run->err);
    if (!status)
        status = conv_cuda_mapped_reserve(&stream->cells, cells, "for features", run->err);
    if (status)
        return status;
    struct conv_pool_sums *d_cells = (struct conv_pool_sums *)stream->d_cells.d_data;
    float *d_maps = (float *)stream->d_maps.d_data;
    for (int i = 0; i < steps->count && !status; i++) {
        const struct conv_bank_step *step = &steps->steps[i];
        int64_t planes = run->shape.images * step->map_count;
        status = run_step(run, step, d_maps, step->map_count * (int64_t)run->plane);
        if (!status &&
            conv_cuda_pool(d_cells, grid, d_maps, planes, run->shape.height, run->shape.width,
                           (struct conv_pool_sums *)stream->d_row_sums.d_data, stream->cuda))
            status = conv_cuda_device_report(run->err, cudaGetLastError(), "pool maps");
        d_cells += (size_t)planes * squares;
    }
    if (!status)
        status = finish(run, stream->cells.h_data, stream->d_cells.d_data, cells);
    if (!status)
        make_features(run, dst);
    return status;
}

static enum conv_status run_bank(struct conv_tensor_stream *stream,
                                 const struct conv_bank_context *bank, int height, int width,
                                 int64_t images, const void *src, float *dst, struct conv_err *err)
{
    const struct conv_bank_steps *steps = &bank->steps;
    const struct conv_bank_config *config = &bank->config;
    size_t in, out, total;
    if (!conv_bank_context_bytes(bank, height, width, &in, &out) ||
        __builtin_mul_overflow(in, (size_t)images, &in) ||
        __builtin_mul_overflow((size_t)height * (size_t)width * sizeof(float) * (size_t)steps->maps,
                               (size_t)images, &total))
        return conv_err_memory(err, "the batch is too large");
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = reserve(&stream->d_in, in + SLACK, err);
    if (status)
        return status;
    cudaError_t code =
        cudaMemcpyAsync(stream->d_in.d_data, src, in, cudaMemcpyHostToDevice, stream->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy planes to the device");
    int64_t row = (int64_t)conv_element_size(config->input) * width;
    struct run run = {
        .stream = stream,
        .steps = steps,
        .config = config,
        .shape = {.images = images, .height = height, .width = width},
        .planes = {.images = images,
                   .src = stream->d_in.d_data,
                   .src_row = row,
                   .src_plane = row * height,
                   .src_image = row * height,
                   .rows = height,
                   .stream = stream->cuda},
        .plane = (size_t)height * (size_t)width,
        .err = err,
    };
    status = pad(&run);
    if (status)
        return status;
    return config->pool.count ? run_pooled(&run, dst) : run_maps(&run, dst);
}

const struct conv_tensor_ops conv_cuda_tensors = {
    .open = open_cuda,
    .upload = upload,
    .release = release,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_staging = take_staging,
    .layer_run = run_layer,
    .bank_run = run_bank,
    .library = &conv_cudnn_variant,
    .library_open = open_library,
    .library_close = close_library,
    .layer_enqueue = enqueue_layer,
};
