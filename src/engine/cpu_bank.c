// SPDX-License-Identifier: MIT
// Filter banks on the CPU: the calling thread computes one image after the other, and pools each
// step's maps before the next step, so that only one step's maps are in memory.
#include "engine/cpu_tensor.h"

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
    enum conv_status status =
        conv_cpu_tensor_reserve(&stream->padded, rows * columns * sizeof(float), "maps", err);
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
    enum conv_status status = conv_cpu_tensor_reserve(
        &stream->scratch, conv_separable_scratch(filters, shape->width) * sizeof(float), "maps",
        err);
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
    size_t scratch, plane = (size_t)shape->height * (size_t)shape->width;
    bool combined = step->kind == CONV_BANK_STEP_COMBINED;
    enum conv_status status = conv_layer_context_scratch(step->dense, shape, &scratch, err);
    if (!status)
        status = conv_cpu_tensor_reserve(&stream->scratch, scratch, "maps", err);
    if (!status && combined)
        status = conv_cpu_tensor_reserve(
            &stream->filters, plane * (size_t)step->layer.maps * sizeof(float), "maps", err);
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
        status = conv_cpu_tensor_reserve(
            &stream->maps, plane * (size_t)steps->most_maps * sizeof(float), "maps", err);
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

enum conv_status conv_cpu_bank_run(struct conv_tensor_stream *stream,
                                   const struct conv_bank_context *bank, int height, int width,
                                   int64_t images, const void *src, float *dst,
                                   struct conv_err *err)
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
