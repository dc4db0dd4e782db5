// SPDX-License-Identifier: MIT
#include "run/stages.h"

#include <stdio.h>
#include <string.h>

int conv_output_depth(const struct conv_pipeline_config *config, const struct conv_job *job)
{
    int depth = job->header.shape.depth, most = job->output_format->most_depth;
    bool as_file = config->deep && config->output_type == CONV_OUTPUT_SAME;
    if (config->output_type == CONV_OUTPUT_U8 || (as_file && job->file_depth == 8))
        most = 8;
    return depth < most ? depth : most;
}

// An output without a name below the sink, on standard output for example, has the format of its
// input.
static const struct conv_format *choose_format(const struct conv_pipeline_config *config,
                                               const struct conv_job *job)
{
    const struct conv_format *named = conv_formats_of_name(job->output.path);
    return config->output_format ? config->output_format : named ? named : job->format;
}

static void plan_depths(const struct conv_pipeline_config *config, struct conv_job *job)
{
    enum conv_output_type type = config->output_type;
    struct conv_image *shape = &job->header.shape;
    job->file_depth = shape->depth;
    if (type == CONV_OUTPUT_U16 || config->deep)
        shape->depth = 16;
    if (type == CONV_OUTPUT_F32)
        shape->result_depth = 32;
    if (type == CONV_OUTPUT_F32 || shape->depth != job->file_depth)
        job->header.device_stream = false;
    conv_blend_plan(&config->blend, job);
}

static enum conv_status collect(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_file *file = job->file;
    const struct conv_format *from = job->format, *to = job->output_format;
    struct conv_image_header output = job->header;
    output.shape.depth = conv_output_depth(config, job);
    bool look = config->strip == CONV_STRIP_MOST;
    if (from == to && from->collect)
        return from->collect(file->bytes, file->size, &output, look, &job->meta, &job->err);
    struct conv_common common = {0};
    struct conv_image_header file_header;
    conv_blend_file_header(job, &file_header);
    enum conv_status status =
        from->take_common(file->bytes, file->size, &file_header, look, &common, &job->err);
    if (job->file_channels != output.shape.channels) // gray: not with a profile of colours
        common.icc.size = 0;
    if (!status)
        status = to->put_common(&common, &output.shape, &job->meta, &job->err);
    conv_common_free(&common);
    return status;
}

enum conv_status conv_output_plan(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    job->output_format = choose_format(config, job);
    job->meta.size = job->meta.front = 0;
    plan_depths(config, job);
    if (config->output_type == CONV_OUTPUT_F32)
        return CONV_OK;
    enum conv_status status = conv_blend_check(&config->blend, job);
    if (status)
        return status;
    const struct conv_format *format = job->output_format;
    if (shape->width > format->most_side || shape->height > format->most_side)
        return conv_err_set(&job->err, CONV_ERR_UNSUPPORTED,
                            "%d x %d pixels: %s holds at most %d per side", shape->width,
                            shape->height, format->name, format->most_side);
    if (config->output_type == CONV_OUTPUT_U16 && format->most_depth < 16)
        return conv_err_set(&job->err, CONV_ERR_UNSUPPORTED, "%s cannot hold 16 bits per sample",
                            format->name);
    return config->strip == CONV_STRIP_ALL ? CONV_OK : collect(config, job);
}

// In place, where rows of floats take at least the room of rows of samples: backwards from the last
// sample, each is read before it is overwritten.
static void make_floats(struct conv_image *out, int channel, int depth)
{
    struct conv_plane *plane = &out->plane[channel];
    ptrdiff_t stride = (ptrdiff_t)conv_image_stride(out->width, out->depth);
    for (int y = out->height - 1; y >= 0; y--) {
        const uint8_t *row = plane->data + y * plane->stride;
        float *floats = (float *)(void *)(plane->data + y * stride);
        for (int x = out->width - 1; x >= 0; x--)
            floats[x] = depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
    }
    plane->stride = stride;
}

static void close_rows(const struct conv_image *out, int channel)
{
    size_t row = (size_t)out->width * sizeof(float);
    const struct conv_plane *plane = &out->plane[channel];
    for (int y = 1; y < out->height && row != (size_t)plane->stride; y++)
        memmove(plane->data + (size_t)y * row, plane->data + y * plane->stride, row);
}

void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file)
{
    size_t plane = (size_t)out->width * (size_t)out->height * sizeof(float);
    struct conv_tensor_shape shape = {3, {out->channels, out->height, out->width}};
    if (out->channels == 1)
        shape = (struct conv_tensor_shape){2, {out->height, out->width}};
    *file = (struct conv_encoded){0};
    file->part[0].data = header;
    file->part[0].size = file->size = conv_npy_write(header, CONV_ELEMENT_F32, &shape, 0);
    _Static_assert(CONV_ENCODED_PARTS > CONV_IMAGE_MAX_CHANNELS, "a part for each plane");
    for (int c = 0; c < out->channels; c++) {
        if (placed->out_offset[c] == SIZE_MAX)
            make_floats(out, c, placed->in.depth);
        close_rows(out, c);
        file->part[1 + c].data = out->plane[c].data;
        file->part[1 + c].size = plane;
        file->size += plane;
    }
}
