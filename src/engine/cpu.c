// SPDX-License-Identifier: MIT
// The CPU backend: a worker filters its own image, straight after decoding it, on its own core.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "base/limits.h"
#include "engine/cpu_filter.h"
#include "kernels/stencil/alpha.h"
#include "kernels/stencil/stencil.h"

#define SCRATCH_ALIGN 64
#define ALIGN 256 // of blocks of the pools

struct conv_stream {
    const struct conv_backend *backend;
    void *scratch;
    size_t scratch_size;
};

static enum conv_status cpu_open(struct conv_backend **out,
                                 const struct conv_backend_config *config, struct conv_err *err)
{
    size_t chain_size = (size_t)config->filter_count * sizeof(struct conv_chain_op);
    struct conv_backend *backend = calloc(1, sizeof *backend + chain_size);
    if (!backend)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the filters");
    backend->op_count = config->filter_count;
    backend->alpha = config->alpha;
    backend->floats = config->floats;
    backend->deep = conv_filter_needs_16_bits(config->filters, config->filter_count);
    backend->wraps = config->border == CONV_BORDER_WRAP;
    for (int i = 0; i < config->filter_count; i++)
        backend->reach += config->filters[i].height / 2;
    if (config->context)
        backend->host = &config->context->host;
    enum conv_status status =
        conv_chain_prepare(backend->chain, config, CONV_ON_CPU, conv_cpu_features(), err);
    if (status) {
        free(backend);
        return status;
    }
    *out = backend;
    return CONV_OK;
}

static void cpu_close(struct conv_backend *backend)
{
    free(backend);
}

static void cpu_describe(const struct conv_backend *backend, char *text, size_t size)
{
    (void)backend;
    snprintf(text, size, "cpu");
}

static const char *cpu_variant(const struct conv_backend *backend, int index, int depth)
{
    return backend->chain[index].plan[conv_chain_at(depth)].variant->name;
}

static size_t cpu_table_bytes(int filter_count, bool codes)
{
    (void)filter_count;
    (void)codes;
    return 0;
}

static size_t cpu_scratch_bytes(const struct conv_backend *backend, int width, int depth)
{
    size_t most = 0;
    for (int s = 0; s < backend->op_count; s++) {
        const struct conv_stencil_plan *plan = &backend->chain[s].plan[conv_chain_at(depth)];
        size_t bytes = conv_stencil_plan_scratch(plan, width);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static enum conv_status cpu_stream_open(struct conv_backend *backend, struct conv_stream **out,
                                        size_t bytes, struct conv_err *err)
{
    (void)bytes;
    struct conv_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CPU stream");
    stream->backend = backend;
    *out = stream;
    return CONV_OK;
}

static void cpu_stream_close(struct conv_stream *stream)
{
    if (!stream)
        return;
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu KiB of kernel scratch",
                            size >> 10);
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
#define BAND_BYTES ((size_t)1 << 20)
#define SHARED_FROM (8 * BAND_BYTES)

// A stream keeps scratch of at most this size: that of every kernel, unless rows have more
// than half a million samples.
#define SCRATCH_KEPT ((size_t)1 << 20)

// An even number, since most kernels compute two rows at a time.
static int band_rows(const struct conv_group_plane *plane)
{
    size_t rows = BAND_BYTES / conv_image_stride(plane->width, plane->depth) / 2 * 2;
    return rows < 2 ? 2 : rows < (size_t)plane->height ? (int)rows : plane->height;
}

static void filter_rows(struct filtering *f, int index, int from, int to, void *scratch)
{
    const struct conv_group_plane *shape = &f->group->planes[index];
    const struct conv_stencil_plan *plan = &f->op->plan[conv_chain_at(shape->depth)];
    int64_t stride = (int64_t)conv_image_stride(shape->width, shape->depth);
    struct conv_stencil_plane plane = {
        .src = f->src + shape->offset,
        .dst = f->dst + shape->offset,
        .src_stride = stride,
        .dst_stride = plan->stencil->floats ? (int64_t)conv_image_stride(shape->width, 32) : stride,
        .width = shape->width,
        .height = shape->height,
    };
    struct conv_stencil_batch batch = {
        .planes = &plane, .count = 1, .cpu = {.scratch = scratch, .from = from, .to = to}};
    enum conv_status status = plan->variant->run(plan, &batch);
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
            rows = band_rows(&f->group->planes[p]);
            int bands = (f->group->planes[p].height + rows - 1) / rows;
            if (band < bands)
                break;
            band -= bands;
        }
        if (p == f->group->plane_count)
            break;
        int from = band * rows, left = f->group->planes[p].height - from;
        filter_rows(f, p, from, from + (left < rows ? left : rows), scratch);
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
        filter_rows(&f, p, 0, group->planes[p].height, f.own);
    return (enum conv_status)atomic_load(&f.status);
}

// After a filter that is not the last: divides and multiplies premultiplied colours again.
static void renew_colours(const struct conv_group *group, uint8_t *planes)
{
    for (int p = 0; p < group->plane_count; p++) {
        const struct conv_group_plane *shape = &group->planes[p];
        if (shape->alpha < 0)
            continue;
        struct conv_stencil_plane plane = {
            .dst = planes + shape->offset,
            .dst_stride = (int64_t)conv_image_stride(shape->width, shape->depth),
            .width = shape->width,
            .height = shape->height,
            .alpha = planes + group->planes[shape->alpha].offset,
        };
        conv_alpha_renew(&plane, shape->depth);
    }
}

static enum conv_status cpu_stream_run(struct conv_stream *stream, struct conv_group *group,
                                       struct conv_err *err)
{
    uint64_t start = conv_clock_ns();
    uint8_t *src = group->h_in, *dst = group->h_out;
    for (int s = 0; s < stream->backend->op_count; s++) {
        enum conv_status status =
            filter_planes(stream, &stream->backend->chain[s], group, src, dst, err);
        if (status)
            return status;
        if (stream->backend->alpha == CONV_ALPHA_PREMULTIPLY && s + 1 < stream->backend->op_count)
            renew_colours(group, dst);
        group->h_result = dst;
        dst = src; // the next filter overwrites what this one has read
        src = group->h_result;
    }
    if (stream->scratch_size > SCRATCH_KEPT)
        drop_scratch(stream);
    group->ns_kernel = conv_clock_ns() - start;
    return CONV_OK;
}

static bool cpu_has_driver(void)
{
    return true;
}

static enum conv_status cpu_devices(struct conv_device_info *info, int room, int *count,
                                    struct conv_err *err)
{
    (void)err;
    *count = 1;
    if (room < 1)
        return CONV_OK;
    struct conv_limits limits;
    conv_limits_read(&limits);
    *info = (struct conv_device_info){.offers = conv_cpu_features(), .memory = limits.memory};
    conv_cpu_model(info->name, sizeof info->name);
    return CONV_OK;
}

// --- images in memory ----------------------------------------------------------------------------

static enum conv_status open_cpu(struct conv_device_context **out, int ordinal,
                                 const struct conv_device_host *host, struct conv_err *err)
{
    (void)ordinal;
    struct conv_device_context *device = malloc(sizeof *device);
    if (!device)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    device->host = *host;
    *out = device;
    return CONV_OK;
}

static void close_cpu(struct conv_device_context *device)
{
    free(device);
}

static enum conv_status synchronise_cpu(struct conv_device_context *device, struct conv_err *err)
{
    (void)device;
    (void)err;
    return CONV_OK;
}

static enum conv_status enter_cpu(struct conv_device_context *device, int *previous,
                                  struct conv_err *err)
{
    (void)device;
    (void)err;
    *previous = 0;
    return CONV_OK;
}

static void leave_cpu(struct conv_device_context *device, int previous)
{
    (void)device;
    (void)previous;
}

static enum conv_status allocate(struct conv_device_context *device, conv_memory memory,
                                 size_t bytes, void **data, struct conv_err *err)
{
    (void)device;
    (void)memory;
    *data = aligned_alloc(ALIGN, bytes);
    return *data ? CONV_OK
                 : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu KiB", bytes >> 10);
}

static void release(struct conv_device_context *device, conv_memory memory, void *data,
                    size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
    free(data);
}

const struct conv_device_ops conv_device_cpu = {
    .name = "cpu",
    .title = "the CPU",
    .place = CONV_ON_CPU,
    .built = true,
    .async = false,
    .has_driver = cpu_has_driver,
    .devices = cpu_devices,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .variant = cpu_variant,
    .table_bytes = cpu_table_bytes,
    .scratch_bytes = cpu_scratch_bytes,
    .stream_open = cpu_stream_open,
    .stream_close = cpu_stream_close,
    .stream_run = cpu_stream_run,
    .context_open = open_cpu,
    .context_close = close_cpu,
    .synchronise = synchronise_cpu,
    .enter = enter_cpu,
    .leave = leave_cpu,
    .allocate = allocate,
    .release = release,
    .filter_run = conv_cpu_views_run,
};
