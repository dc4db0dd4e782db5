// SPDX-License-Identifier: MIT
#include "run/layer_image.h"

#include <stdlib.h>
#include <string.h>

static int colours(const struct conv_image *shape)
{
    return shape->channels - shape->alpha; // alpha is dropped
}

// True if the samples go to the kernel as they are.
static bool takes_bytes(const struct conv_layer_image *image, const struct conv_image *shape)
{
    return shape->depth == 8 && (!image->samples->gray || colours(shape) == 1);
}

static const struct conv_operation *operation_of(const struct conv_layer_image *image)
{
    return image->of_bytes ? &image->contexts->of_bytes : &image->contexts->of_floats;
}

static enum conv_status fit_bank(struct conv_layer_image *image, const struct conv_image *shape,
                                 struct conv_err *err)
{
    const struct conv_bank_context *bank = operation_of(image)->bank;
    const struct conv_pooling *pool = &image->contexts->pool;
    int64_t maps = conv_bank_context_maps(bank);
    if (!conv_bank_context_bytes(bank, shape->height, shape->width, &image->in_bytes,
                                 &image->result_bytes))
        return conv_err_set(err, CONV_ERR_LIMIT, "the image has too many pixels for %lld maps",
                            (long long)maps);
    if (!pool->count)
        image->out = (struct conv_tensor_shape){3, {maps, shape->height, shape->width}};
    else if (pool->grid == 1)
        image->out = (struct conv_tensor_shape){2, {maps, pool->count}};
    else
        image->out = (struct conv_tensor_shape){4, {maps, pool->count, pool->grid, pool->grid}};
    return CONV_OK;
}

static enum conv_status fit_layer(struct conv_layer_image *image, const struct conv_image *shape,
                                  struct conv_err *err)
{
    const struct conv_layer *layer = conv_layer_context_layer(operation_of(image)->layer);
    int channels = image->samples->gray ? 1 : colours(shape);
    if (channels != layer->channels)
        return conv_err_hint(
            err, channels == 3 && layer->channels == 1 ? CONV_HINT_GRAY : CONV_HINT_NONE, 0,
            conv_err_set(err, CONV_ERR_USAGE,
                         "the image has shape (%d, %d, %d); the weights, of shape (%d, %d, %d, "
                         "%d), expect %d channel%s",
                         channels, shape->height, shape->width, layer->maps, layer->channels,
                         layer->kernel_height, layer->kernel_width, layer->channels,
                         layer->channels == 1 ? "" : "s"));
    if (!conv_layer_context_bytes(layer, shape->height, shape->width, &image->in_bytes,
                                  &image->result_bytes))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the image has %d x %d pixels, too few or too many for a kernel of "
                            "%d x %d",
                            shape->width, shape->height, layer->kernel_width, layer->kernel_height);
    image->out = (struct conv_tensor_shape){
        3,
        {layer->maps, conv_layer_out_height(layer, shape->height),
         conv_layer_out_width(layer, shape->width)},
    };
    return CONV_OK;
}

static enum conv_status fit(struct conv_layer_image *image, struct conv_err *err)
{
    const struct conv_image *shape = &image->reader.header.shape;
    image->of_bytes = takes_bytes(image, shape);
    enum conv_status status =
        operation_of(image)->bank ? fit_bank(image, shape, err) : fit_layer(image, shape, err);
    image->bytes = conv_image_bytes(shape) + image->in_bytes + image->result_bytes;
    return status;
}

void conv_layer_image_end(const struct conv_layer_image *image, enum conv_stage stage,
                          uint64_t start, uint64_t ns[CONV_STAGE_COUNT])
{
    const struct conv_image *shape = &image->reader.header.shape;
    struct conv_trace_item item = {
        .name = image->name, .width = shape->width, .height = shape->height};
    ns[stage] += conv_trace_end(image->track, stage, start, &item);
}

enum conv_status conv_layer_image_read(struct conv_layer_image *image, const struct conv_item *item,
                                       uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_READ);
    struct conv_image_reader *reader = &image->reader;
    image->name = item->name;
    reader->header.shape.width = reader->header.shape.height = 0; // not the last image's
    enum conv_status status = conv_image_reader_read(reader, item, err);
    conv_layer_image_end(image, CONV_STAGE_READ, start, ns);
    const struct conv_input input = {.info = reader->info};
    if (!status && !image->samples->first_frame)
        status = conv_image_reader_check_single(reader->format, &reader->file, item, &input, err);
    return status ? status : fit(image, err);
}

// --- the layer's input ---------------------------------------------------------------------------

static void copy_bytes(uint8_t *dst, const struct conv_image *planes, int channels)
{
    size_t row = (size_t)planes->width;
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < planes->height; y++, dst += row)
            memcpy(dst, planes->plane[c].data + y * planes->plane[c].stride, row);
}

static unsigned sample(const struct conv_image *image, int channel, int x, int y)
{
    const uint8_t *row = image->plane[channel].data + y * image->plane[channel].stride;
    return image->depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

// Samples, or the luminance of BT.601 in thousandths, divided once: the float32 that is nearest to
// the exact quotient. (The double between them changes nothing: no quotient of such integers is
// that near to the middle between two floats.)
static void convert(float *dst, const struct conv_image *planes, int channels,
                    const struct conv_layer_samples *samples)
{
    bool weighs = samples->gray && channels == 3;
    double divisor =
        planes->depth == 16 ? (samples->to_255 ? 257 : 65535) : (samples->to_255 ? 1 : 255);
    divisor *= weighs ? 1000 : 1;
    for (int c = 0; c < (weighs ? 1 : channels); c++)
        for (int y = 0; y < planes->height; y++)
            for (int x = 0; x < planes->width; x++) {
                unsigned value = sample(planes, c, x, y);
                if (weighs)
                    value =
                        299 * value + 587 * sample(planes, 1, x, y) + 114 * sample(planes, 2, x, y);
                *dst++ = (float)(value / divisor);
            }
}

static enum conv_status reserve_planes(struct conv_layer_image *image, size_t size,
                                       struct conv_err *err)
{
    if (size <= image->planes_size)
        return CONV_OK;
    free(image->planes);
    image->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, size);
    image->planes_size = image->planes ? size : 0;
    return image->planes ? CONV_OK
                         : conv_err_set(err, CONV_ERR_MEMORY, "no memory for an image of %zu MiB",
                                        size >> 20);
}

// The stream that fits the image, opened at its first use, and its staging memory.
static enum conv_status prepare_stream(struct conv_layer_image *image, void **h_in,
                                       struct conv_err *err)
{
    struct conv_operation_stream *stream = &image->streams[image->of_bytes];
    enum conv_status status = CONV_OK;
    if (!image->has_stream[image->of_bytes])
        status = conv_operation_stream_open(operation_of(image), 1, stream, err);
    if (status)
        return status;
    image->has_stream[image->of_bytes] = true;
    return conv_operation_stream_staging(stream, image->in_bytes, image->result_bytes, h_in,
                                         &image->result, err);
}

enum conv_status conv_layer_image_compute(struct conv_layer_image *image,
                                          uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err)
{
    const struct conv_image *header = &image->reader.header.shape;
    struct conv_layer_shape shape = {1, header->height, header->width};
    struct conv_image planes;
    void *h_in;
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    enum conv_status status = reserve_planes(image, conv_image_bytes(header), err);
    if (!status)
        status = prepare_stream(image, &h_in, err);
    if (status)
        return status;
    conv_image_lay_out(&planes, header, image->planes);
    status = conv_image_reader_decode(&image->reader, &planes, err);
    if (!status && image->of_bytes)
        copy_bytes(h_in, &planes, colours(header));
    else if (!status)
        convert(h_in, &planes, colours(header), image->samples);
    conv_layer_image_end(image, CONV_STAGE_DECODE, start, ns);
    if (status)
        return status;
    start = conv_trace_begin(CONV_STAGE_KERNEL);
    status = conv_operation_stream_run(&image->streams[image->of_bytes], &shape, 1, h_in,
                                       image->result, err);
    conv_layer_image_end(image, CONV_STAGE_KERNEL, start, ns);
    return status;
}

void conv_layer_image_trim(struct conv_layer_image *image)
{
    free(image->planes);
    image->planes = NULL;
    image->planes_size = 0;
    for (int i = 0; i < 2; i++) {
        conv_operation_stream_close(&image->streams[i]);
        image->has_stream[i] = false;
    }
    struct conv_image_reader limits = {
        .file_limit = image->reader.file_limit,
        .pixel_limit = image->reader.pixel_limit,
    };
    conv_image_reader_close(&image->reader);
    image->reader = limits;
}

void conv_layer_image_close(struct conv_layer_image *image)
{
    conv_layer_image_trim(image);
}
