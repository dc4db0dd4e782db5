// SPDX-License-Identifier: MIT
#include "pipeline/output.h"

#include <stdio.h>
#include <string.h>

void conv_output_plan(enum conv_output_type type, struct conv_job *job)
{
    struct conv_image *shape = &job->header.shape;
    job->file_depth = shape->depth;
    if (type == CONV_OUTPUT_U16)
        shape->depth = 16;
    if (type == CONV_OUTPUT_F32)
        shape->result_depth = 32;
    if (type == CONV_OUTPUT_F32 || shape->depth != job->file_depth)
        job->header.device_stream = false;
}

// From the last sample on, since floats take more room than the samples before them.
static void make_floats(struct conv_image *out, int channel, int depth)
{
    struct conv_plane *plane = &out->plane[channel];
    float *floats = (float *)(void *)plane->data;
    for (int y = out->height - 1; y >= 0; y--) {
        const uint8_t *row = plane->data + y * plane->stride;
        for (int x = out->width - 1; x >= 0; x--) {
            unsigned sample = depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
            floats[(size_t)y * (size_t)out->width + (size_t)x] = (float)sample;
        }
    }
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
        else
            close_rows(out, c);
        file->part[1 + c].data = out->plane[c].data;
        file->part[1 + c].size = plane;
        file->size += plane;
    }
}

enum conv_status conv_output_retarget(struct conv_item *item, struct conv_err *err)
{
    char target[PATH_MAX];
    size_t name = strlen(item->name) + 1;
    snprintf(target, sizeof target, "%s", conv_item_target(item));
    char *dot = strrchr(target, '.'), *slash = strrchr(target, '/');
    if (dot && dot > (slash ? slash + 1 : target))
        *dot = '\0';
    size_t length = strlen(target);
    if (name + length + sizeof ".npy" > sizeof item->name)
        return conv_err_set(err, CONV_ERR_LIMIT, "path too long");
    memcpy(item->name + name, target, length);
    strcpy(item->name + name + length, ".npy");
    item->target = name;
    return CONV_OK;
}
