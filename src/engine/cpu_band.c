// SPDX-License-Identifier: MIT
// Planes are filtered where they are; other layouts are copied to planes that stay in the caches.
#include <string.h>

#include "engine/cpu_filter.h"
#include "engine/view.h"
#include "kernels/stencil/alpha.h"

// The depth that an image is filtered at.
static int depth_of(const struct conv_backend *filter, const conv_image *source)
{
    int depth = 8 * (int)conv_sample_bytes(source->sample);
    return filter->deep && depth == 8 ? 16 : depth;
}

bool conv_cpu_band_is_direct(const struct conv_backend *filter, const conv_image *source,
                             const conv_image *result)
{
    return filter->op_count == 1 && !filter->deep && filter->alpha != CONV_ALPHA_PREMULTIPLY &&
           conv_view_is_planar(source) && conv_view_is_planar(result) &&
           !conv_view_is(source, result);
}

// Rows [first, last) of a view, as a view.
static conv_image cut_rows(const conv_image *view, int first, int last)
{
    conv_image part = *view;
    part.data = (uint8_t *)view->data + first * view->row_stride;
    part.height = last - first;
    return part;
}

// The first `channels` channels from `channel` on, as a view.
static conv_image cut_channels(const conv_image *view, int channel, int channels)
{
    conv_image part = *view;
    part.data = (uint8_t *)view->data + channel * view->channel_stride;
    part.channels = channels;
    part.has_alpha = 0;
    return part;
}

static enum conv_status filter_plane(const struct conv_stencil_plan *plan,
                                     const struct conv_plane *dst, const struct conv_plane *src,
                                     int width, int height, void *scratch)
{
    struct conv_stencil_plane plane = {
        .src = src->data,
        .dst = dst->data,
        .src_stride = src->stride,
        .dst_stride = dst->stride,
        .width = width,
        .height = height,
    };
    struct conv_stencil_batch batch = {.planes = &plane, .count = 1, .cpu.scratch = scratch};
    return plan->variant->run(plan, &batch);
}

// For a plane that is filtered in place: the rows next to the band's ends were computed as if the
// image ended there. They are computed again, from the rows on both sides.
static enum conv_status filter_seam(const struct conv_stencil_plan *plan,
                                    const struct conv_image *dst, const struct conv_image *src,
                                    int channel, int from, int to, struct conv_plane *spare,
                                    void *scratch)
{
    int reach = plan->stencil->height / 2;
    int top = from > reach ? from - reach : 0;
    int bottom = src->height - to > reach ? to + reach : src->height;
    const struct conv_plane *in = &src->plane[channel], *out = &dst->plane[channel];
    struct conv_plane part = {in->data + top * in->stride, in->stride};
    enum conv_status status = filter_plane(plan, spare, &part, src->width, bottom - top, scratch);
    size_t row = (size_t)dst->width * (size_t)(dst->depth / 8);
    for (int y = from; y < to && !status; y++)
        memcpy(out->data + y * out->stride, spare->data + (y - top) * spare->stride, row);
    return status;
}

static enum conv_status filter_direct(const struct conv_stencil_plan *plan,
                                      const conv_image *result, const conv_image *source,
                                      int channels, const struct conv_cpu_band *band, void *scratch,
                                      struct conv_plane *spare)
{
    struct conv_image dst = conv_view_planes(result), src = conv_view_planes(source);
    int reach = plan->stencil->height / 2, rows = band->last - band->first;
    int seam = rows < reach ? rows : reach; // the last band may have fewer rows
    enum conv_status status = CONV_OK;
    for (int c = 0; c < channels && !status; c++) {
        const struct conv_plane *in = &src.plane[c], *out = &dst.plane[c];
        struct conv_plane from = {in->data + band->first * in->stride, in->stride};
        struct conv_plane to = {out->data + band->first * out->stride, out->stride};
        status = filter_plane(plan, &to, &from, src.width, rows, scratch);
        if (!status && band->first > 0)
            status =
                filter_seam(plan, &dst, &src, c, band->first, band->first + seam, spare, scratch);
        if (!status && band->last < src.height)
            status =
                filter_seam(plan, &dst, &src, c, band->last - seam, band->last, spare, scratch);
    }
    return status;
}

// Divides and multiplies premultiplied colours between two filters.
static void renew_colours(const struct conv_image *image)
{
    for (int c = 0; image->alpha && c < image->channels - 1; c++) {
        struct conv_stencil_plane plane = {
            .dst = image->plane[c].data,
            .dst_stride = image->plane[c].stride,
            .width = image->width,
            .height = image->height,
            .alpha = image->plane[image->channels - 1].data,
        };
        conv_alpha_renew(&plane, image->depth);
    }
}

// Filters the planes of `at[0]` through the whole chain, back and forth between the two images;
// returns the one that has the results. The first may be the source itself, if it is not written.
static enum conv_status filter_chain(const struct conv_backend *filter,
                                     const struct conv_image *source, struct conv_image at[2],
                                     void *scratch, const struct conv_image **result)
{
    const struct conv_image *src = source;
    enum conv_status status = CONV_OK;
    for (int s = 0; s < filter->op_count && !status; s++) {
        const struct conv_stencil_plan *plan = &filter->chain[s].plan[conv_chain_at(source->depth)];
        struct conv_image *dst = src == &at[0] ? &at[1] : &at[0];
        for (int c = 0; c < src->channels && !status; c++)
            status = filter_plane(plan, &dst->plane[c], &src->plane[c], src->width, src->height,
                                  scratch);
        if (!status && filter->alpha == CONV_ALPHA_PREMULTIPLY && s + 1 < filter->op_count)
            renew_colours(dst);
        src = dst;
    }
    *result = src;
    return status;
}

// Memory of one task: the kernels' scratch, then images.
struct task_memory {
    void *block;
    void *scratch;
    uint8_t *images;
};

static enum conv_status take_memory(const struct conv_backend *filter, struct task_memory *memory,
                                    int width, int depth, size_t image_bytes, struct conv_err *err)
{
    size_t scratch = 0;
    for (int s = 0; s < filter->op_count; s++) {
        size_t own = conv_stencil_plan_scratch(&filter->chain[s].plan[conv_chain_at(depth)], width);
        scratch = own > scratch ? own : scratch;
    }
    size_t used = conv_image_align(scratch, CONV_IMAGE_PLANE_ALIGN);
    enum conv_status status =
        conv_memory_take(filter->host->pools, CONV_HOST, used + image_bytes, &memory->block, err);
    if (status)
        return status;
    // Vectors reach beyond a row's end. What they read there has no effect, as check_kernels shows;
    // it is initialised for valgrind only.
    memory->scratch = memset(memory->block, 0, scratch);
    memory->images = (uint8_t *)memory->block + used;
    return CONV_OK;
}

static enum conv_status run_direct(const struct conv_backend *filter,
                                   const struct conv_cpu_band *band, const conv_image *result,
                                   const conv_image *source, int channels, struct conv_err *err)
{
    int depth = depth_of(filter, source);
    size_t stride = conv_image_stride(source->width, filter->floats ? 32 : depth);
    struct task_memory memory;
    enum conv_status status = take_memory(filter, &memory, source->width, depth,
                                          stride * 3 * (size_t)(filter->reach + 1), err);
    if (status)
        return status;
    struct conv_plane spare = {memory.images, (ptrdiff_t)stride};
    status = filter_direct(&filter->chain[0].plan[conv_chain_at(depth)], result, source, channels,
                           band, memory.scratch, &spare);
    conv_memory_give(filter->host->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

// Filters with copies of the bands in planes of the context.
static enum conv_status run_staged(const struct conv_backend *filter,
                                   const struct conv_cpu_band *band, const conv_image *result,
                                   const conv_image *whole, int channels, struct conv_err *err)
{
    conv_image source = cut_rows(whole, band->top, band->bottom);
    bool alpha = source.has_alpha && channels == source.channels;
    source = cut_channels(&source, 0, channels);
    int depth = depth_of(filter, &source);
    struct conv_image shape = conv_view_planes(&source), room, staged[3];
    bool widens = depth != shape.depth;
    shape.alpha = alpha;
    shape.depth = depth;
    room = shape;
    room.depth = filter->floats ? 32 : depth;
    size_t each = conv_image_bytes(&room);
    struct task_memory memory;
    bool premultiply = filter->alpha == CONV_ALPHA_PREMULTIPLY && alpha;
    bool gathers = !conv_view_is_planar(&source) || premultiply || widens;
    enum conv_status status = take_memory(filter, &memory, source.width, depth, 3 * each, err);
    if (status)
        return status;
    for (int k = 0; k < 3; k++)
        conv_image_lay_out(&staged[k], &shape, memory.images + (size_t)k * each);
    const struct conv_image *in = &shape, *out;
    if (gathers) {
        conv_image view = conv_view_of(&staged[2]);
        conv_view_copy(&view, &source, 0, source.height);
        in = &staged[2];
    }
    if (premultiply)
        conv_alpha_multiply(in);
    if (filter->floats) { // of the last filter
        struct conv_image wide = room;
        conv_image_lay_out(&wide, &room, staged[(filter->op_count - 1) % 2].plane[0].data);
        wide.alpha = alpha;
        staged[(filter->op_count - 1) % 2] = wide;
    }
    status = filter_chain(filter, in, staged, memory.scratch, &out);
    if (!status && premultiply)
        conv_alpha_divide(out);
    if (!status) {
        conv_image view = conv_view_of(out);
        view = cut_rows(&view, band->first - band->top, band->last - band->top);
        conv_image target = cut_rows(result, band->first, band->last);
        target = cut_channels(&target, 0, channels);
        conv_view_copy(&target, &view, 0, target.height);
    }
    conv_memory_give(filter->host->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

enum conv_status conv_cpu_band_run(const struct conv_backend *filter,
                                   const struct conv_cpu_band *band, const conv_image *result,
                                   const conv_image *source, struct conv_err *err)
{
    bool passes = source->has_alpha && filter->alpha == CONV_ALPHA_KEEP;
    int channels = source->channels - passes;
    enum conv_status status = conv_cpu_band_is_direct(filter, source, result)
                                  ? run_direct(filter, band, result, source, channels, err)
                                  : run_staged(filter, band, result, source, channels, err);
    if (!status && passes && !conv_view_is(source, result)) {
        conv_image from = cut_channels(source, channels, 1), to = cut_channels(result, channels, 1);
        conv_view_copy(&to, &from, band->first, band->last - band->first);
    }
    return status;
}
