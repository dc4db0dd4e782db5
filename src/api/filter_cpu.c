// SPDX-License-Identifier: MIT
// Filters on the CPU. The context's threads take bands of rows: a band is read with the rows above
// and below that its filters reach, so that its own rows get the same values as if the whole image
// were filtered. Planes are filtered where they are; other layouts pass through planes that stay in
// the caches.
#include "api/api_filter_cpu.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_view.h"
#include "backend/chain.h"
#include "base/features.h"
#include "base/lock.h"
#include "kernels/stencil/alpha.h"

struct conv_api_filter {
    const struct conv_api_host *host;
    enum conv_alpha_mode alpha;
    bool floats;
    bool deep;  // 8-bit images are filtered with 16 bits: the passes of a large Gaussian
    bool wraps; // the last rows reach the first ones
    int reach;  // rows above and below that the chain reads for a row
    int op_count;
    struct conv_chain_op chain[];
};

enum conv_status conv_api_filter_cpu_open(struct conv_api_filter **out,
                                          const struct conv_api_host *host,
                                          const struct conv_backend_config *config,
                                          struct conv_err *err)
{
    size_t chain_size = (size_t)config->filter_count * sizeof(struct conv_chain_op);
    struct conv_api_filter *filter = calloc(1, sizeof *filter + chain_size);
    if (!filter)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the filters");
    filter->host = host;
    filter->alpha = config->alpha;
    filter->floats = config->floats;
    filter->deep = conv_filter_needs_16_bits(config->filters, config->filter_count);
    filter->wraps = config->border == CONV_BORDER_WRAP;
    filter->op_count = config->filter_count;
    for (int i = 0; i < config->filter_count; i++)
        filter->reach += config->filters[i].height / 2;
    enum conv_status status =
        conv_chain_prepare(filter->chain, config, CONV_ON_CPU, conv_cpu_features(), err);
    if (status)
        free(filter);
    else
        *out = filter;
    return status;
}

void conv_api_filter_cpu_close(struct conv_api_filter *filter)
{
    free(filter);
}

const char *conv_api_filter_cpu_kernel(const struct conv_api_filter *filter, int index, int depth)
{
    return filter->chain[index].plan[conv_chain_at(depth)].variant->name;
}

// --- bands ---------------------------------------------------------------------------------------

// Bands of images that pass through planes of the context: with their copies they stay in the
// second-level cache, and the rows that two bands both read are few.
#define BAND_BYTES ((size_t)512 << 10)
#define LEAST_BAND_ROWS 32
#define BAND_REACHES 16 // rows of a band for each row that its filters reach
// Bands of images whose planes are filtered in place: enough to keep all threads busy to the end.
#define BANDS_PER_THREAD 4

struct run {
    struct conv_api_filter *filter;
    const conv_image *sources, *results;
    int count, threads;
    struct conv_lock lock;
    enum conv_status status; // the first failure
    struct conv_err *err;
    int first_task[];
};

// The depth that an image is filtered at.
static int depth_of(const struct conv_api_filter *filter, const conv_image *source)
{
    int depth = 8 * (int)conv_sample_bytes(source->sample);
    return filter->deep && depth == 8 ? 16 : depth;
}

// True if the only filter can read the source's planes and write the result's.
static bool is_direct(const struct conv_api_filter *filter, const conv_image *source,
                      const conv_image *result)
{
    return filter->op_count == 1 && !filter->deep && filter->alpha != CONV_ALPHA_PREMULTIPLY &&
           conv_api_is_planar(source) && conv_api_is_planar(result) &&
           !conv_api_view_is(source, result);
}

// Rows of a band of image i.
static int choose_rows(const struct run *run, int i)
{
    const struct conv_api_filter *filter = run->filter;
    const conv_image *source = &run->sources[i];
    size_t row = (size_t)(source->width * conv_sample_bytes(source->sample) * source->channels);
    int64_t least = LEAST_BAND_ROWS, rows;
    if (filter->wraps || conv_api_view_is(source, &run->results[i]))
        return source->height;
    if ((int64_t)filter->reach * BAND_REACHES > least)
        least = (int64_t)filter->reach * BAND_REACHES;
    if (is_direct(filter, source, &run->results[i]))
        rows = run->threads > 1 ? (int64_t)source->height * run->count /
                                      ((int64_t)run->threads * BANDS_PER_THREAD)
                                : source->height;
    else
        rows = (int64_t)(BAND_BYTES / row);
    rows = rows > least ? rows : least;
    return rows < source->height ? (int)rows : source->height;
}

// A band as it passes through the chain: rows `top` to `bottom` - 1 of the image are read, of which
// `first` to `last` - 1 become results.
struct band {
    int top, bottom, first, last;
};

static struct band find_band(const struct conv_api_filter *filter, int height, int rows, int index)
{
    struct band band = {.first = index * rows};
    band.last = height - band.first > rows ? band.first + rows : height;
    band.top = band.first > filter->reach ? band.first - filter->reach : 0;
    band.bottom = height - band.last > filter->reach ? band.last + filter->reach : height;
    return band;
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

// --- filtering a band ----------------------------------------------------------------------------

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
                                      int channels, const struct band *band, void *scratch,
                                      struct conv_plane *spare)
{
    struct conv_image dst = conv_api_planes(result), src = conv_api_planes(source);
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
static enum conv_status filter_chain(const struct conv_api_filter *filter,
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

static enum conv_status take_memory(const struct conv_api_filter *filter,
                                    struct task_memory *memory, int width, int depth,
                                    size_t image_bytes, struct conv_err *err)
{
    size_t scratch = 0;
    for (int s = 0; s < filter->op_count; s++) {
        size_t own = conv_stencil_plan_scratch(&filter->chain[s].plan[conv_chain_at(depth)], width);
        scratch = own > scratch ? own : scratch;
    }
    size_t used = conv_image_align(scratch, CONV_IMAGE_PLANE_ALIGN);
    enum conv_status status =
        conv_api_take(filter->host->pools, CONV_HOST, used + image_bytes, &memory->block, err);
    if (status)
        return status;
    // Vectors reach beyond a row's end, and what they read there has no effect, as check_kernels
    // shows. It is initialised for valgrind's sake.
    memory->scratch = memset(memory->block, 0, scratch);
    memory->images = (uint8_t *)memory->block + used;
    return CONV_OK;
}

static enum conv_status run_direct(const struct run *run, int i, const struct band *band,
                                   int channels, struct conv_err *err)
{
    struct conv_api_filter *filter = run->filter;
    const conv_image *source = &run->sources[i], *result = &run->results[i];
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
    conv_api_give(filter->host->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

// Filters through planes of the context.
static enum conv_status run_staged(const struct run *run, int i, const struct band *band,
                                   int channels, struct conv_err *err)
{
    struct conv_api_filter *filter = run->filter;
    conv_image source = cut_rows(&run->sources[i], band->top, band->bottom);
    bool alpha = source.has_alpha && channels == source.channels;
    source = cut_channels(&source, 0, channels);
    int depth = depth_of(filter, &source);
    struct conv_image shape = conv_api_planes(&source), room, staged[3];
    bool widens = depth != shape.depth;
    shape.alpha = alpha;
    shape.depth = depth;
    room = shape;
    room.depth = filter->floats ? 32 : depth;
    size_t each = conv_image_bytes(&room);
    struct task_memory memory;
    bool premultiply = filter->alpha == CONV_ALPHA_PREMULTIPLY && alpha;
    bool gathers = !conv_api_is_planar(&source) || premultiply || widens;
    enum conv_status status = take_memory(filter, &memory, source.width, depth, 3 * each, err);
    if (status)
        return status;
    for (int k = 0; k < 3; k++)
        conv_image_lay_out(&staged[k], &shape, memory.images + (size_t)k * each);
    const struct conv_image *in = &shape, *out;
    if (gathers) {
        conv_image view = conv_api_view_of(&staged[2]);
        conv_api_convert(&view, &source, 0, source.height);
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
        conv_image view = conv_api_view_of(out);
        view = cut_rows(&view, band->first - band->top, band->last - band->top);
        conv_image target = cut_rows(&run->results[i], band->first, band->last);
        target = cut_channels(&target, 0, channels);
        conv_api_convert(&target, &view, 0, target.height);
    }
    conv_api_give(filter->host->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

static void run_task(void *context, int worker, int task)
{
    struct run *run = context;
    struct conv_err err;
    int i = 0;
    (void)worker;
    for (int low = 0, high = run->count;
         low < high;) { // the last image whose first task is <= task
        int middle = low + (high - low) / 2;
        if (run->first_task[middle] <= task)
            i = middle, low = middle + 1;
        else
            high = middle;
    }
    const conv_image *source = &run->sources[i], *result = &run->results[i];
    struct band band =
        find_band(run->filter, source->height, choose_rows(run, i), task - run->first_task[i]);
    bool passes = source->has_alpha && run->filter->alpha == CONV_ALPHA_KEEP;
    int channels = source->channels - passes;
    enum conv_status status = is_direct(run->filter, source, result)
                                  ? run_direct(run, i, &band, channels, &err)
                                  : run_staged(run, i, &band, channels, &err);
    if (!status && passes && !conv_api_view_is(source, result)) {
        conv_image from = cut_channels(source, channels, 1), to = cut_channels(result, channels, 1);
        conv_api_convert(&to, &from, band.first, band.last - band.first);
    }
    if (!status)
        return;
    conv_lock_acquire(&run->lock);
    if (!run->status) {
        run->status = status;
        *run->err = err;
    }
    conv_lock_release(&run->lock);
}

enum conv_status conv_api_filter_cpu_run(struct conv_api_filter *filter, const conv_image *results,
                                         const conv_image *sources, int count, void *stream,
                                         struct conv_err *err)
{
    (void)stream;
    struct run *run;
    void *memory;
    uint64_t samples = 0;
    int64_t tasks = 0;
    for (int i = 0; i < count; i++)
        samples += (uint64_t)sources[i].width * (uint64_t)sources[i].height *
                   (uint64_t)sources[i].channels;
    enum conv_status status =
        conv_api_take(filter->host->pools, CONV_HOST,
                      sizeof *run + (size_t)count * sizeof run->first_task[0], &memory, err);
    if (status)
        return status;
    run = memory;
    *run = (struct run){.filter = filter, .sources = sources, .results = results, .err = err};
    run->count = count;
    run->threads = conv_api_threads_for(filter->host->threads, samples);
    for (int i = 0; i < count; i++) {
        int rows = choose_rows(run, i);
        run->first_task[i] = (int)tasks;
        tasks += (sources[i].height + (int64_t)rows - 1) / rows;
        if (tasks > INT_MAX) {
            conv_api_give(filter->host->pools, CONV_HOST, memory);
            return conv_err_set(err, CONV_ERR_LIMIT, "too many images for one call");
        }
    }
    if (conv_lock_init(&run->lock)) {
        status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for a lock");
    } else {
        conv_api_workers_run(filter->host->workers, run->threads, run_task, run, (int)tasks);
        conv_lock_destroy(&run->lock);
        status = run->status;
    }
    conv_api_give(filter->host->pools, CONV_HOST, memory);
    return status;
}
