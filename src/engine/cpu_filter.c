// SPDX-License-Identifier: MIT
// Filters on the CPU: of groups in staging memory, and of images in memory as the caller has them.
// Both are cut into bands of rows, which threads take one after the other.
#include "engine/cpu.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "engine/view.h"
#include "kernels/stencil/alpha.h"

#define SCRATCH_ALIGN 64
#define LEAST_REACHES 2 // rows of a band for each row that a large Gaussian reaches

// Rows [from, to) of a plane, or of pixels of `channels` float32 samples; width: in samples.
static enum conv_status filter_rows(const struct conv_stencil_plan *plan, int channels,
                                    const struct conv_plane *dst, const struct conv_plane *src,
                                    int width, int height, int from, int to, void *scratch)
{
    struct conv_stencil stencil;
    struct conv_stencil_plan own;
    if (channels > 1) {
        stencil = *plan->stencil;
        conv_stencil_interleave(&stencil, channels);
        conv_stencil_plan_init(&own, plan->variant, &stencil);
        plan = &own;
    }
    struct conv_stencil_plane plane = {
        .src = src->data,
        .dst = dst->data,
        .src_stride = src->stride,
        .dst_stride = dst->stride,
        .width = width,
        .height = height,
    };
    struct conv_stencil_batch batch = {
        .planes = &plane, .count = 1, .cpu = {.scratch = scratch, .from = from, .to = to}};
    return plan->variant->run(plan, &batch);
}

static enum conv_alpha_step alpha_step(const struct conv_backend *backend, int index)
{
    return backend->alpha == CONV_ALPHA_PREMULTIPLY
               ? conv_alpha_step_after(backend->alpha_kept, index, backend->op_count)
               : CONV_ALPHA_NOTHING;
}

// --- groups --------------------------------------------------------------------------------------

struct conv_stream {
    const struct conv_backend *backend;
    void *scratch;
    size_t scratch_size;
};

enum conv_status conv_cpu_stream_open(struct conv_backend *backend, struct conv_stream **out,
                                      size_t, struct conv_err *err)
{
    struct conv_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_memory(err, "no memory for a CPU stream");
    stream->backend = backend;
    *out = stream;
    return CONV_OK;
}

void conv_cpu_stream_close(struct conv_stream *stream)
{
    if (stream)
        free(stream->scratch);
    free(stream);
}

// Scratch of at least `size` bytes for kernels; NULL: out of memory.
static void *alloc_scratch(size_t size)
{
    void *scratch = aligned_alloc(SCRATCH_ALIGN, conv_image_align(size, SCRATCH_ALIGN));
    // Vectors reach beyond a row's end, and what they read there has no effect, as check_kernels
    // shows. It is initialised for valgrind's sake.
    return scratch ? memset(scratch, 0, size) : NULL;
}

static void drop_scratch(struct conv_stream *stream)
{
    free(stream->scratch);
    stream->scratch = NULL;
    stream->scratch_size = 0;
}

static enum conv_status reserve_scratch(struct conv_stream *stream, size_t size,
                                        struct conv_err *err)
{
    if (size <= stream->scratch_size)
        return CONV_OK;
    drop_scratch(stream);
    stream->scratch = alloc_scratch(size);
    if (!stream->scratch)
        return conv_err_memory(err, "no memory for %zu KiB of kernel scratch", size >> 10);
    stream->scratch_size = size;
    return CONV_OK;
}

// One filter of the chain on all planes of a group. Planes are cut into bands of rows, which the
// threads take one after the other.
struct filtering {
    const struct conv_chain_op *op;
    const struct conv_group *group;
    const uint8_t *src;
    uint8_t *dst;
    size_t scratch_size;
    atomic_flag has_own; // a thread uses `own`
    void *own;           // scratch of the stream, scratch_size bytes; the others allocate theirs
    atomic_int next;     // band to be taken
    _Atomic(int) status; // of the first kernel that failed
};

// Bytes of samples in a band: enough work for a thread to wake up for, few enough that the threads
// end at about the same time. Groups below SHARED_FROM bytes are finished before another thread has
// woken up.
#define GROUP_BAND_BYTES ((size_t)1 << 20)
#define SHARED_FROM (8 * GROUP_BAND_BYTES)

// A stream keeps scratch of at most this size: that of every kernel, unless rows have more
// than half a million samples.
#define SCRATCH_KEPT ((size_t)1 << 20)

// An even number, since most kernels compute two rows at a time.
static int band_rows(const struct conv_chain_op *op, const struct conv_group_plane *plane)
{
    size_t rows = GROUP_BAND_BYTES / conv_image_stride(plane->width, plane->depth) / 2 * 2;
    const struct conv_stencil *stencil = &op->stencil[conv_chain_at(plane->depth)];
    size_t least = 2 + (size_t)LEAST_REACHES * (size_t)conv_decimated_reach(&stencil->decimated);
    rows = rows < least ? least : rows;
    return rows < (size_t)plane->height ? (int)rows : plane->height;
}

static void filter_group_rows(struct filtering *f, int index, int from, int to, void *scratch)
{
    const struct conv_group_plane *shape = &f->group->planes[index];
    const struct conv_stencil_plan *plan = &f->op->plan[conv_chain_at(shape->depth)];
    ptrdiff_t stride = (ptrdiff_t)conv_image_stride(shape->width, shape->depth);
    struct conv_plane src = {(uint8_t *)(uintptr_t)f->src + shape->offset, stride}; // only read
    struct conv_plane dst = {f->dst + shape->offset, stride};
    if (plan->stencil->floats)
        dst.stride = (ptrdiff_t)conv_image_stride(shape->width, 32);
    enum conv_status status =
        filter_rows(plan, 1, &dst, &src, shape->width, shape->height, from, to, scratch);
    if (status)
        atomic_store(&f->status, (int)status);
}

// Takes bands until none is left.
static void filter_bands(void *context)
{
    struct filtering *f = context;
    bool has_own = !atomic_flag_test_and_set(&f->has_own);
    void *scratch = has_own || f->scratch_size == 0 ? f->own : alloc_scratch(f->scratch_size);
    if (!scratch && f->scratch_size > 0)
        return; // the thread that has `own` takes all
    for (;;) {
        int p = 0, rows = 0, band = atomic_fetch_add(&f->next, 1);
        for (; p < f->group->plane_count; p++) {
            rows = band_rows(f->op, &f->group->planes[p]);
            int bands = (f->group->planes[p].height + rows - 1) / rows;
            if (band < bands)
                break;
            band -= bands;
        }
        if (p == f->group->plane_count)
            break;
        int from = band * rows, left = f->group->planes[p].height - from;
        filter_group_rows(f, p, from, from + (left < rows ? left : rows), scratch);
    }
    if (!has_own && f->scratch_size > 0)
        free(scratch);
}

static enum conv_status filter_planes(struct conv_stream *stream, const struct conv_chain_op *op,
                                      const struct conv_group *group, const uint8_t *src,
                                      uint8_t *dst, struct conv_err *err)
{
    struct filtering f = {
        .op = op, .group = group, .src = src, .dst = dst, .has_own = ATOMIC_FLAG_INIT};
    for (int p = 0; p < group->plane_count; p++) {
        const struct conv_group_plane *shape = &group->planes[p];
        size_t size =
            conv_stencil_plan_scratch(&op->plan[conv_chain_at(shape->depth)], shape->width);
        f.scratch_size = size > f.scratch_size ? size : f.scratch_size;
    }
    enum conv_status status = reserve_scratch(stream, f.scratch_size, err);
    if (status)
        return status;
    f.own = stream->scratch;
    if (group->front >= SHARED_FROM && group->parallel) {
        conv_parallel_run(group->parallel, f.scratch_size, filter_bands, &f);
        return (enum conv_status)atomic_load(&f.status);
    }
    for (int p = 0; p < group->plane_count; p++)
        filter_group_rows(&f, p, 0, group->planes[p].height, f.own);
    return (enum conv_status)atomic_load(&f.status);
}

static void step_plane(enum conv_alpha_step step, const uint8_t *src, const struct conv_plane *dst,
                       const uint8_t *alpha, int width, int height, int depth)
{
    struct conv_stencil_plane plane = {.src = src,
                                       .dst = dst->data,
                                       .dst_stride = dst->stride,
                                       .width = width,
                                       .height = height,
                                       .alpha = alpha};
    conv_alpha_run(step, &plane, depth);
}

// `src`: the planes before the filter.
static void run_alpha_step(enum conv_alpha_step step, const struct conv_group *group,
                           const uint8_t *src, uint8_t *planes)
{
    for (int p = 0; p < group->plane_count; p++) {
        const struct conv_group_plane *shape = &group->planes[p];
        struct conv_plane dst = {planes + shape->offset,
                                 (ptrdiff_t)conv_image_stride(shape->width, shape->depth)};
        if (shape->alpha >= 0)
            step_plane(step, src + shape->offset, &dst, planes + group->planes[shape->alpha].offset,
                       shape->width, shape->height, shape->depth);
    }
}

enum conv_status conv_cpu_stream_run(struct conv_stream *stream, struct conv_group *group,
                                     struct conv_err *err)
{
    uint64_t start = conv_clock_ns();
    uint8_t *src = group->h_in, *dst = group->h_out;
    const struct conv_backend *backend = stream->backend;
    run_alpha_step(alpha_step(backend, -1), group, src, src);
    for (int s = 0; s < backend->op_count; s++) {
        enum conv_status status = filter_planes(stream, &backend->chain[s], group, src, dst, err);
        if (status)
            return status;
        if (backend->alpha_kept >> s & 1)
            run_alpha_step(CONV_ALPHA_RESTORE, group, src, dst);
        run_alpha_step(alpha_step(backend, s), group, src, dst);
        group->h_result = dst;
        dst = src; // the next filter overwrites what this one has read
        src = group->h_result;
    }
    if (stream->scratch_size > SCRATCH_KEPT)
        drop_scratch(stream);
    group->ns_kernel = conv_clock_ns() - start;
    return CONV_OK;
}

// --- one band of an image ------------------------------------------------------------------------

// Rows `top` to `bottom` - 1 of the image are read, of which `first` to `last` - 1 become results.
// Planes are filtered where they are, float32 samples of pixels as one plane; other layouts are
// copied to planes that stay in the caches.
struct band {
    int top, bottom, first, last;
    int channels; // of the pixels of such a plane; else 1
};

// Makes one plane of two images of float32 pixels if kernels can filter them so. Returns the
// channels of its pixels, else 1. Alpha is filtered as well.
static int join_channels(const struct conv_backend *filter, conv_image *source, conv_image *result)
{
    int channels = source->channels;
    bool passes = source->has_alpha && filter->alpha == CONV_ALPHA_KEEP;
    if (source->sample != CONV_SAMPLE_F32 || result->sample != CONV_SAMPLE_F32 || channels == 1 ||
        !conv_view_is_packed(source) || !conv_view_is_packed(result) ||
        filter->alpha == CONV_ALPHA_PREMULTIPLY || (passes && conv_view_is(source, result)) ||
        source->width > INT_MAX / 2 / channels)
        return 1;
    for (int s = 0; s < filter->op_count; s++)
        if (!filter->chain[s].plan[conv_chain_at(32)].variant->pixels)
            return 1;
    conv_image *views[] = {source, result};
    for (int k = 0; k < 2; k++) {
        views[k]->width *= channels;
        views[k]->channels = 1;
        views[k]->column_stride = conv_sample_bytes(CONV_SAMPLE_F32);
        views[k]->has_alpha = 0;
    }
    return channels;
}

static bool is_direct(const struct conv_backend *filter, const conv_image *source,
                      const conv_image *result)
{
    return filter->op_count == 1 && filter->alpha != CONV_ALPHA_PREMULTIPLY &&
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

// Rows [from, to) of an image of a filter whose configuration keeps alpha of no filter.
static void step_image(enum conv_alpha_step step, const struct conv_image *image, int from, int to)
{
    ptrdiff_t at = from * image->plane[0].stride; // of all planes
    const uint8_t *alpha = image->plane[image->channels - 1].data + at;
    for (int c = 0; image->alpha && c < image->channels - 1; c++) {
        struct conv_plane rows = {image->plane[c].data + at, image->plane[c].stride};
        step_plane(step, NULL, &rows, alpha, image->width, to - from, image->depth);
    }
}

// Filters the planes of `at[0]` through the whole chain, back and forth between the two images;
// returns the one that has the results, the band's. The first may be the source itself, if it is
// not written.
static enum conv_status filter_chain(const struct conv_backend *filter, const struct band *band,
                                     const struct conv_image *source, struct conv_image at[2],
                                     void *scratch, const struct conv_image **result)
{
    const struct conv_image *src = source;
    enum conv_status status = CONV_OK;
    for (int s = 0; s < filter->op_count && !status; s++) {
        const struct conv_stencil_plan *plan = &filter->chain[s].plan[conv_chain_at(source->depth)];
        struct conv_image *dst = src == &at[0] ? &at[1] : &at[0];
        bool ends = s == filter->op_count - 1;
        int from = ends ? band->first - band->top : 0;
        int to = ends ? band->last - band->top : src->height;
        for (int c = 0; c < src->channels && !status; c++)
            status = filter_rows(plan, band->channels, &dst->plane[c], &src->plane[c], src->width,
                                 src->height, from, to, scratch);
        if (!status)
            step_image(alpha_step(filter, s), dst, from, to);
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
        conv_memory_take(filter->device->pools, CONV_HOST, used + image_bytes, &memory->block, err);
    if (status)
        return status;
    // Vectors reach beyond a row's end. What they read there has no effect, as check_kernels shows;
    // it is initialised for valgrind only.
    memory->scratch = memset(memory->block, 0, scratch);
    memory->images = (uint8_t *)memory->block + used;
    return CONV_OK;
}

// Filters the planes where they are.
static enum conv_status run_direct(const struct conv_backend *filter, const struct band *band,
                                   const conv_image *result, const conv_image *source, int channels,
                                   struct conv_err *err)
{
    struct conv_image dst = conv_view_planes(result), src = conv_view_planes(source);
    const struct conv_stencil_plan *plan = &filter->chain[0].plan[conv_chain_at(src.depth)];
    struct task_memory memory;
    enum conv_status status = take_memory(filter, &memory, src.width, src.depth, 0, err);
    if (status)
        return status;
    for (int c = 0; c < channels && !status; c++)
        status = filter_rows(plan, band->channels, &dst.plane[c], &src.plane[c], src.width,
                             src.height, band->first, band->last, memory.scratch);
    conv_memory_give(filter->device->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

// Filters with copies of the bands in planes of the context.
static enum conv_status run_staged(const struct conv_backend *filter, const struct band *band,
                                   const conv_image *result, const conv_image *whole, int channels,
                                   struct conv_err *err)
{
    conv_image source = cut_rows(whole, band->top, band->bottom);
    bool alpha = source.has_alpha && channels == source.channels;
    source = cut_channels(&source, 0, channels);
    struct conv_image shape = conv_view_planes(&source), room, staged[3];
    shape.alpha = alpha;
    room = shape;
    room.depth = filter->floats ? 32 : shape.depth;
    size_t each = conv_image_bytes(&room);
    struct task_memory memory;
    bool premultiply = filter->alpha == CONV_ALPHA_PREMULTIPLY && alpha;
    bool gathers = !conv_view_is_planar(&source) || premultiply;
    enum conv_status status =
        take_memory(filter, &memory, source.width, shape.depth, 3 * each, err);
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
        step_image(alpha_step(filter, -1), in, 0, in->height);
    if (filter->floats) { // of the last filter
        struct conv_image wide = room;
        conv_image_lay_out(&wide, &room, staged[(filter->op_count - 1) % 2].plane[0].data);
        wide.alpha = alpha;
        staged[(filter->op_count - 1) % 2] = wide;
    }
    status = filter_chain(filter, band, in, staged, memory.scratch, &out);
    if (!status) {
        conv_image view = conv_view_of(out);
        view = cut_rows(&view, band->first - band->top, band->last - band->top);
        conv_image target = cut_rows(result, band->first, band->last);
        target = cut_channels(&target, 0, channels);
        conv_view_copy(&target, &view, 0, target.height);
    }
    conv_memory_give(filter->device->pools, CONV_HOST, memory.block);
    return status ? conv_err_set(err, status, "a kernel failed") : CONV_OK;
}

static enum conv_status run_band(const struct conv_backend *filter, struct band *band,
                                 const conv_image *result, const conv_image *source,
                                 struct conv_err *err)
{
    bool passes = source->has_alpha && filter->alpha == CONV_ALPHA_KEEP;
    conv_image from = *source, to = *result;
    band->channels = join_channels(filter, &from, &to);
    int last = source->channels - 1, channels = from.channels - (passes && from.channels > 1);
    enum conv_status status = is_direct(filter, &from, &to)
                                  ? run_direct(filter, band, &to, &from, channels, err)
                                  : run_staged(filter, band, &to, &from, channels, err);
    if (!status && passes && !conv_view_is(source, result)) {
        from = cut_channels(source, last, 1), to = cut_channels(result, last, 1);
        conv_view_copy(&to, &from, band->first, band->last - band->first);
    }
    return status;
}

// --- images --------------------------------------------------------------------------------------

// Bands of images that pass through planes of the context: with their copies they stay in the
// second-level cache, and the rows that two bands both read are few.
#define BAND_BYTES ((size_t)512 << 10)
#define LEAST_BAND_ROWS 32
#define BAND_REACHES 16 // rows of a band for each row that its filters reach, up to
#define REACHING_ROWS 1024
// Bands of images whose planes are filtered in place: enough to keep all threads busy to the end.
#define BANDS_PER_THREAD 4

struct run {
    struct conv_backend *filter;
    const conv_image *sources, *results;
    int count, threads;
    struct conv_lock lock;
    enum conv_status status; // the first failure
    struct conv_err *err;
    int first_task[];
};

// Rows of a band of image i.
static int choose_rows(const struct run *run, int i)
{
    const struct conv_backend *filter = run->filter;
    const conv_image *source = &run->sources[i];
    size_t row = (size_t)(source->width * conv_sample_bytes(source->sample) * source->channels);
    int64_t least = LEAST_BAND_ROWS, rows;
    conv_image from = *source, to = run->results[i];
    join_channels(filter, &from, &to);
    bool direct = is_direct(filter, &from, &to);
    if (!direct && (filter->wraps || conv_view_is(source, &run->results[i])))
        return source->height;
    if ((int64_t)filter->reach * BAND_REACHES > least)
        least = (int64_t)filter->reach * BAND_REACHES;
    if (least > REACHING_ROWS)
        least = REACHING_ROWS + (int64_t)filter->reach * LEAST_REACHES;
    if (direct)
        rows = run->threads > 1 ? (int64_t)source->height * run->count /
                                      ((int64_t)run->threads * BANDS_PER_THREAD)
                                : source->height;
    else
        rows = (int64_t)(BAND_BYTES / row);
    rows = rows > least ? rows : least;
    return rows < source->height ? (int)rows : source->height;
}

static struct band find_band(const struct conv_backend *filter, int height, int rows, int index)
{
    struct band band = {.first = index * rows};
    band.last = height - band.first > rows ? band.first + rows : height;
    int top = band.first - filter->reach;
    band.top = top > 0 ? top - top % filter->grid : 0;
    band.bottom = height - band.last > filter->reach ? band.last + filter->reach : height;
    return band;
}

static void run_task(void *context, int, int task)
{
    struct run *run = context;
    struct conv_err err;
    int i = 0;
    for (int low = 0, high = run->count;
         low < high;) { // the last image whose first task is <= task
        int middle = low + (high - low) / 2;
        if (run->first_task[middle] <= task)
            i = middle, low = middle + 1;
        else
            high = middle;
    }
    const conv_image *source = &run->sources[i];
    struct band band =
        find_band(run->filter, source->height, choose_rows(run, i), task - run->first_task[i]);
    enum conv_status status = run_band(run->filter, &band, &run->results[i], source, &err);
    if (!status)
        return;
    conv_lock_acquire(&run->lock);
    if (!run->status) {
        run->status = status;
        *run->err = err;
    }
    conv_lock_release(&run->lock);
}

enum conv_status conv_cpu_filter_run(struct conv_backend *filter, const conv_image *results,
                                     const conv_image *sources, int count, void *,
                                     struct conv_err *err)
{
    struct run *run;
    void *memory;
    uint64_t samples = 0;
    int64_t tasks = 0;
    for (int i = 0; i < count; i++)
        samples += (uint64_t)sources[i].width * (uint64_t)sources[i].height *
                   (uint64_t)sources[i].channels;
    enum conv_status status =
        conv_memory_take(filter->device->pools, CONV_HOST,
                         sizeof *run + (size_t)count * sizeof run->first_task[0], &memory, err);
    if (status)
        return status;
    run = memory;
    *run = (struct run){.filter = filter, .sources = sources, .results = results, .err = err};
    run->count = count;
    run->threads = conv_workers_for(filter->device->threads, samples);
    for (int i = 0; i < count && tasks <= INT_MAX; i++) {
        int rows = choose_rows(run, i);
        run->first_task[i] = (int)tasks;
        tasks += (sources[i].height + (int64_t)rows - 1) / rows;
    }
    if (tasks > INT_MAX) {
        status = conv_err_limit(err, "too many images for one call");
    } else {
        conv_lock_init(&run->lock);
        conv_workers_run(filter->device->workers, run->threads, run_task, run, (int)tasks);
        conv_lock_destroy(&run->lock);
        status = run->status;
    }
    conv_memory_give(filter->device->pools, CONV_HOST, memory);
    return status;
}
