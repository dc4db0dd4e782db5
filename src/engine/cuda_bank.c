// SPDX-License-Identifier: MIT
// Filter banks on a CUDA device. A stream uploads planes, computes and pools all of them step by
// step and downloads maps, or sums of cells; several streams overlap these.
#include "engine/cuda_device.h"
#include "engine/cuda_tensor.h"
#include "kernels/layer/cuda/cuda_layers.h"

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
    status = conv_cuda_layer_pad(&padding, &run->shape, &run->planes,
                                 (float *)run->stream->d_padded.d_data);
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
    bool combined = step->kind == CONV_BANK_STEP_COMBINED;
    int maps = step->layer.maps;
    size_t scratch;
    shape.images = 1;
    enum conv_status status = conv_layer_context_scratch(step->dense, &shape, &scratch, run->err);
    if (!status)
        status = reserve(&stream->d_scratch, scratch + CONV_CUDA_TENSOR_SLACK, run->err);
    if (!status && combined)
        status = reserve(&stream->d_filters, run->plane * (size_t)maps * sizeof(float), run->err);
    for (int64_t i = 0; i < run->shape.images && !status; i++) {
        struct conv_layer_batch batch = run->planes;
        float *own = dst + i * dst_image;
        batch.images = 1;
        batch.src = (const uint8_t *)batch.src + i * batch.src_image;
        batch.dst = combined ? stream->d_filters.d_data : (void *)own;
        batch.scratch = stream->d_scratch.d_data;
        status = conv_layer_context_enqueue(step->dense, &shape, &batch, run->err);
        if (status || !combined)
            continue;
        const float *filters = (const float *)stream->d_filters.d_data;
        status = step->combine == CONV_BANK_MAX
                     ? conv_cuda_combine_max(own, filters, maps, (int64_t)run->plane, stream->cuda)
                     : conv_cuda_combine_magnitude(own, filters, (int64_t)run->plane, stream->cuda);
        if (status)
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
    return conv_cuda_tensor_stream_wait(stream, "compute a filter bank", run->err);
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

enum conv_status conv_cuda_bank_run(struct conv_tensor_stream *stream,
                                    const struct conv_bank_context *bank, int height, int width,
                                    int64_t images, const void *src, float *dst,
                                    struct conv_err *err)
{
    const struct conv_bank_steps *steps = &bank->steps;
    const struct conv_bank_config *config = &bank->config;
    size_t in, out, total;
    if (!conv_bank_context_bytes(bank, height, width, &in, &out) ||
        __builtin_mul_overflow(in, (size_t)images, &in) ||
        __builtin_mul_overflow((size_t)height * (size_t)width * sizeof(float) * (size_t)steps->maps,
                               (size_t)images, &total))
        return conv_err_set(err, CONV_ERR_MEMORY, "the batch is too large");
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = reserve(&stream->d_in, in + CONV_CUDA_TENSOR_SLACK, err);
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
