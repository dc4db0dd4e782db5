// SPDX-License-Identifier: MIT
// The code that all places share, and the CPU: one core, as one worker of the program.
#include "bench/bench_launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/clock.h"
#include "bench/bench_cuda.h"
#include "engine/memory.h"
#include "image/image.h"

#define SCRATCH_ALIGN 64

// --- the CPU -------------------------------------------------------------------------------------

static enum conv_status cpu_open(struct conv_bench_launch *launch, int ordinal,
                                 struct conv_err *err)
{
    (void)launch;
    (void)ordinal;
    (void)err;
    return CONV_OK;
}

static void free_buffers(struct conv_bench_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        conv_staging_free(launch->buffers[i], launch->capacity);
        launch->buffers[i] = NULL;
    }
}

static void cpu_close(struct conv_bench_launch *launch)
{
    free_buffers(launch);
    free(launch->state);
}

static enum conv_status cpu_reserve(struct conv_bench_launch *launch, size_t bytes,
                                    struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    free_buffers(launch);
    launch->capacity = bytes;
    for (int i = 0; i < 2 && !status; i++) {
        void *memory = NULL;
        status = conv_staging_alloc(&memory, bytes, err);
        launch->buffers[i] = memory;
    }
    return status;
}

// The state is the kernels' scratch, for the widest plane and the filter that needs most.
static enum conv_status cpu_prepare(struct conv_bench_launch *launch, const uint8_t *source,
                                    struct conv_err *err)
{
    size_t most = 0;
    memcpy(launch->buffers[0], source, launch->bytes);
    for (int f = 0; f < launch->filter_count; f++)
        for (int p = 0; p < launch->plane_count; p++) {
            size_t size = conv_stencil_plan_scratch(&launch->plans[f], launch->tables[p].width);
            most = size > most ? size : most;
        }
    size_t bytes = conv_image_align(most ? most : 1, SCRATCH_ALIGN);
    free(launch->state);
    launch->state = aligned_alloc(SCRATCH_ALIGN, bytes);
    if (!launch->state)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu KiB of kernel scratch",
                            bytes >> 10);
    memset(launch->state, 0, bytes);
    return CONV_OK;
}

// A copy and the kernels must begin in the same state, or a copy after a slow kernel and one after
// a fast kernel differ by a factor of 2 to 4 where the planes fit into caches.
static uint64_t start_cold(const struct conv_bench_launch *launch)
{
    for (int i = 0; i < 2; i++)
        conv_cache_flush(launch->buffers[i], launch->bytes);
    return conv_clock_ns();
}

static enum conv_status cpu_run(struct conv_bench_launch *launch, uint64_t *ns,
                                struct conv_err *err)
{
    uint64_t start = start_cold(launch);
    for (int f = 0; f < launch->filter_count; f++)
        for (int p = 0; p < launch->plane_count; p++) {
            struct conv_stencil_batch batch = {
                .planes = &launch->tables[(size_t)f * (size_t)launch->plane_count + (size_t)p],
                .count = 1,
                .cpu.scratch = launch->state,
            };
            if (launch->variant->run(&launch->plans[f], &batch))
                return conv_err_set(err, CONV_ERR_DEVICE, "%s failed", launch->variant->name);
        }
    *ns = conv_clock_ns() - start;
    return CONV_OK;
}

static enum conv_status cpu_copy(struct conv_bench_launch *launch, uint64_t *ns,
                                 struct conv_err *err)
{
    (void)err;
    uint64_t start = start_cold(launch);
    memcpy(launch->buffers[1], launch->buffers[0], launch->bytes);
    *ns = conv_clock_ns() - start;
    return CONV_OK;
}

static enum conv_status cpu_read(const uint8_t *from, uint8_t *to, size_t size,
                                 struct conv_err *err)
{
    (void)err;
    memcpy(to, from, size);
    return CONV_OK;
}

static const struct conv_bench_launch_ops cpu_ops = {
    .open = cpu_open,
    .close = cpu_close,
    .reserve = cpu_reserve,
    .prepare = cpu_prepare,
    .run = cpu_run,
    .copy = cpu_copy,
    .read = cpu_read,
};

// --- all places ----------------------------------------------------------------------------------

static enum conv_status plan_chain(struct conv_bench_launch *launch,
                                   const struct conv_bench_chain *chain, unsigned have,
                                   struct conv_err *err)
{
    const struct conv_variant *variant = launch->variant;
    for (int f = 0; f < chain->count; f++) {
        struct conv_stencil other, *stencil = &launch->stencils[f];
        const struct conv_filter *filter = &chain->filters[f];
        conv_stencil_init(stencil, filter, chain->depth, chain->border, chain->border_value);
        conv_stencil_init(&other, filter, 24 - chain->depth, chain->border, chain->border_value);
        if (conv_stencil_can(variant, stencil, have))
            conv_stencil_plan_init(&launch->plans[f], variant, stencil);
        else if (conv_stencil_can(variant, &other, have))
            return conv_err_set(err, CONV_ERR_USAGE, "not at this depth");
        else
            return conv_err_set(err, CONV_ERR_USAGE, "not for this filter or this %s",
                                variant->place == CONV_ON_CUDA ? "GPU" : "CPU");
    }
    return CONV_OK;
}

enum conv_status conv_bench_launch_open(struct conv_bench_launch *launch,
                                        const struct conv_variant *variant,
                                        const struct conv_bench_chain *chain, int ordinal,
                                        unsigned have, struct conv_err *err)
{
    const struct conv_bench_cuda *cuda = conv_bench_cuda();
    *launch = (struct conv_bench_launch){.variant = variant, .filter_count = chain->count};
    if (variant->place == CONV_ON_CUDA && !cuda)
        return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
    const struct conv_bench_launch_ops *ops =
        variant->place == CONV_ON_CUDA ? cuda->launch : &cpu_ops;
    size_t count = (size_t)chain->count;
    launch->stencils = calloc(count, sizeof *launch->stencils);
    launch->plans = aligned_alloc(16, count * sizeof *launch->plans);
    if (!launch->stencils || !launch->plans)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the filters");
    enum conv_status status = plan_chain(launch, chain, have, err);
    if (status)
        return status;
    launch->ops = ops;
    return ops->open(launch, ordinal, err);
}

void conv_bench_launch_close(struct conv_bench_launch *launch)
{
    if (launch->ops)
        launch->ops->close(launch);
    free(launch->stencils);
    free(launch->plans);
    free(launch->tables);
    *launch = (struct conv_bench_launch){0};
}

static void fill_table(struct conv_bench_launch *launch, int filter,
                       const struct conv_bench_plane *planes)
{
    int count = launch->plane_count, depth = launch->stencils[filter].depth;
    struct conv_stencil_plane *table = launch->tables + (size_t)filter * (size_t)count;
    for (int p = 0; p < count; p++) {
        int64_t stride = (int64_t)conv_image_stride(planes[p].width, depth);
        table[p] = (struct conv_stencil_plane){
            .src = launch->buffers[filter % 2] + planes[p].offset,
            .dst = launch->buffers[(filter + 1) % 2] + planes[p].offset,
            .src_stride = stride,
            .dst_stride = stride,
            .width = planes[p].width,
            .height = planes[p].height,
            .dst_spare = (uint32_t)(stride - (int64_t)planes[p].width * (depth / 8)),
        };
    }
    if (launch->variant->place == CONV_ON_CUDA)
        launch->tiles[filter] = conv_stencil_tiles(launch->variant, table, count);
}

enum conv_status conv_bench_launch_place(struct conv_bench_launch *launch,
                                         const struct conv_bench_plane *planes, int count,
                                         const uint8_t *source, size_t bytes, struct conv_err *err)
{
    size_t entries = (size_t)count * (size_t)launch->filter_count;
    struct conv_stencil_plane *tables = realloc(launch->tables, entries * sizeof *tables);
    if (!tables)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a list of %d planes", count);
    launch->tables = tables;
    launch->plane_count = count;
    launch->bytes = bytes;
    enum conv_status status =
        bytes <= launch->capacity ? CONV_OK : launch->ops->reserve(launch, bytes, err);
    for (int f = 0; f < launch->filter_count && !status; f++)
        fill_table(launch, f, planes);
    return status ? status : launch->ops->prepare(launch, source, err);
}

enum conv_status conv_bench_launch_run(struct conv_bench_launch *launch, uint64_t *ns,
                                       struct conv_err *err)
{
    return launch->ops->run(launch, ns, err);
}

enum conv_status conv_bench_launch_copy(struct conv_bench_launch *launch, uint64_t *ns,
                                        struct conv_err *err)
{
    return launch->ops->copy(launch, ns, err);
}

enum conv_status conv_bench_launch_read(const struct conv_bench_launch *launch, size_t offset,
                                        uint8_t *result, size_t size, struct conv_err *err)
{
    return launch->ops->read(launch->buffers[launch->filter_count % 2] + offset, result, size, err);
}
