// SPDX-License-Identifier: MIT
// Images through a chain of filters as one group on the CPU, as workers of a run filter them.
#pragma once

#include <stdlib.h>

#include "engine/engine.h"

#define FILTER_GROUP_MOST 4 // images

struct filter_group {
    struct conv_stream *stream;
    struct conv_group group;
    struct conv_group_plane planes[FILTER_GROUP_MOST * CONV_IMAGE_MAX_CHANNELS];
    struct conv_placed placed[FILTER_GROUP_MOST]; // `in` is to be filled
    int count;
};

static inline void filter_group_open(struct filter_group *filter, struct conv_backend *backend,
                                     enum conv_alpha_mode alpha, const struct conv_image *shapes,
                                     int count)
{
    struct conv_err err;
    size_t bytes = 0;
    *filter = (struct filter_group){.count = count};
    for (int i = 0; i < count; i++)
        bytes += conv_group_need(&shapes[i], alpha != CONV_ALPHA_KEEP, 0);
    bytes = conv_image_align(bytes, CONV_IMAGE_PLANE_ALIGN);
    filter->group = (struct conv_group){
        .h_in = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, bytes),
        .h_out = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, bytes),
        .capacity = bytes,
        .in_capacity = bytes,
        .planes = filter->planes,
        .plane_capacity = FILTER_GROUP_MOST * CONV_IMAGE_MAX_CHANNELS,
    };
    if (!filter->group.h_in || !filter->group.h_out ||
        conv_device_cpu.stream_open(backend, &filter->stream, 0, &err))
        abort();
    for (int i = 0; i < count; i++)
        if (!conv_group_place(&filter->group, &shapes[i], alpha != CONV_ALPHA_KEEP, 0,
                              &filter->placed[i]))
            abort();
}

static inline void filter_group_close(struct filter_group *filter)
{
    conv_device_cpu.stream_close(filter->stream);
    free(filter->group.h_in);
    free(filter->group.h_out);
}

// results[i] are views of the group's memory.
static inline enum conv_status filter_group_run(struct filter_group *filter,
                                                struct conv_image *results, struct conv_err *err)
{
    enum conv_status status = conv_device_cpu.stream_run(filter->stream, &filter->group, err);
    for (int i = 0; i < filter->count; i++)
        conv_group_result(&filter->group, &filter->placed[i], &results[i]);
    return status;
}
