// SPDX-License-Identifier: MIT
#include "bench/kernel_run.h"
#include "cli/device.h"

#include <stdlib.h>
#include <string.h>

#include "device/staging.h"

enum conv_status conv_kernel_run_open(struct conv_kernel_run *contender,
                                      const struct conv_variant *row,
                                      const struct conv_options *options,
                                      const struct conv_filter *filters, int filter_count,
                                      struct conv_err *err)
{
    *contender = (struct conv_kernel_run){.variant = row, .filter_count = filter_count};
    struct conv_backend_config config = {
        .filters = filters,
        .filter_count = filter_count,
        .border = options->border,
        .border_value = options->border_value,
        .alpha = options->alpha,
        .row = row,
    };
    struct conv_device_list list;
    enum conv_status status = conv_device_parse_one(options, &list, err);
    if (status)
        return status;
    config.device = list.ordinals[0];
    const struct conv_backend_ops *ops = options->backends[row->place];
    status = ops->open(&contender->backend, &config, err);
    if (status)
        return status;
    contender->ops = ops;
    return ops->stream_open(contender->backend, &contender->stream, 1 << 20, err);
}

static void free_staging(struct conv_kernel_run *contender)
{
    struct conv_group *group = &contender->group;
    conv_staging_free(group->h_in, group->capacity);
    conv_staging_free(group->h_out, group->capacity);
    group->h_in = group->h_out = NULL;
    group->capacity = 0;
}

void conv_kernel_run_close(struct conv_kernel_run *contender)
{
    if (!contender->ops)
        return;
    free_staging(contender);
    free(contender->planes);
    contender->planes = NULL;
    contender->ops->stream_close(contender->stream);
    contender->ops->close(contender->backend);
    contender->ops = NULL;
}

static enum conv_status reserve(struct conv_kernel_run *contender, size_t bytes, int planes,
                                struct conv_err *err)
{
    struct conv_group *group = &contender->group;
    if (planes > group->plane_capacity) {
        free(contender->planes);
        contender->planes = calloc((size_t)planes, sizeof *contender->planes);
        group->planes = contender->planes;
        group->plane_capacity = contender->planes ? planes : 0;
        if (!contender->planes)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a list of %d planes", planes);
    }
    if (bytes <= group->capacity)
        return CONV_OK;
    void *h_in = NULL, *h_out = NULL;
    free_staging(contender);
    enum conv_status status = conv_staging_alloc(&h_in, bytes, err);
    group->h_in = h_in;
    group->capacity = bytes;
    if (!status)
        status = conv_staging_alloc(&h_out, bytes, err);
    group->h_out = h_out;
    return status;
}

enum conv_status conv_kernel_run_place(struct conv_kernel_run *contender,
                                       const struct conv_image *shapes, int count,
                                       bool filter_alpha, struct conv_image *in,
                                       struct conv_err *err)
{
    size_t table = contender->ops->table_bytes(contender->filter_count, false), need = 0;
    int planes = 0;
    for (int i = 0; i < count; i++) {
        need += conv_group_need(&shapes[i], filter_alpha, table);
        planes += shapes[i].channels;
    }
    enum conv_status status = reserve(contender, need, planes, err);
    if (status)
        return status;
    conv_group_reset(&contender->group);
    for (int i = 0; i < count; i++) {
        size_t offsets[CONV_IMAGE_MAX_CHANNELS];
        struct conv_image placed;
        conv_group_place(&contender->group, &shapes[i], filter_alpha, table, in ? &in[i] : &placed,
                         offsets);
    }
    return CONV_OK;
}

enum conv_status conv_kernel_run_copy(struct conv_kernel_run *contender,
                                      const struct conv_kernel_run *other,
                                      const struct conv_image *shape, bool filter_alpha,
                                      struct conv_err *err)
{
    enum conv_status status = conv_kernel_run_place(contender, shape, 1, filter_alpha, NULL, err);
    if (!status) // planes lie at the same offsets in every group
        memcpy(contender->group.h_in, other->group.h_in, other->group.front);
    return status;
}

bool conv_kernel_run_differs(const struct conv_kernel_run *reference,
                             const struct conv_kernel_run *contender, struct conv_difference *first)
{
    for (int p = 0; p < reference->group.plane_count; p++) {
        const struct conv_group_plane *plane = &reference->planes[p];
        size_t stride = conv_image_stride(plane->width, plane->depth);
        size_t sample = (size_t)plane->depth / 8;
        for (int y = 0; y < plane->height; y++) {
            const uint8_t *a = reference->group.h_result + plane->offset + (size_t)y * stride;
            const uint8_t *b = contender->group.h_result + plane->offset + (size_t)y * stride;
            if (memcmp(a, b, (size_t)plane->width * sample) == 0)
                continue;
            int x = 0;
            while (memcmp(a + (size_t)x * sample, b + (size_t)x * sample, sample) == 0)
                x++;
            uint16_t wide[2];
            memcpy(&wide[0], a + (size_t)x * sample, sample);
            memcpy(&wide[1], b + (size_t)x * sample, sample);
            *first = (struct conv_difference){.plane = p, .x = x, .y = y};
            first->expected = sample == 1 ? a[x] : wide[0];
            first->got = sample == 1 ? b[x] : wide[1];
            return true;
        }
    }
    return false;
}
