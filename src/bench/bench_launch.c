// SPDX-License-Identifier: MIT
#include "bench/bench_launch.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench_cuda.h"
#include "image/image.h"

#define SCRATCH_ALIGN 64
#define BANDS 32 // that threads take of a plane

static enum conv_status plan_chain(struct conv_bench_launch *launch,
                                   const struct conv_bench_chain *chain, unsigned have,
                                   struct conv_err *err)
{
    const struct conv_variant *variant = launch->variant;
    for (int f = 0; f < chain->count; f++) {
        struct conv_stencil other, *stencil = &launch->stencils[f];
        const struct conv_filter *filter = &chain->filters[f];
        bool any = false;
        conv_stencil_init(stencil, filter, chain->depth, chain->border, chain->border_value);
        for (int depth = 8; depth <= 32 && !any; depth *= 2) {
            conv_stencil_init(&other, filter, depth, chain->border, chain->border_value);
            any = conv_stencil_can(variant, &other, have);
        }
        if (!conv_stencil_can(variant, stencil, have))
            return any ? conv_err_usage(err, "not at this depth")
                       : conv_err_usage(err, "not for this filter or this %s",
                                        variant->place == CONV_ON_CUDA ? "GPU" : "CPU");
        conv_stencil_plan_init(&launch->plans[f], variant, stencil);
    }
    return CONV_OK;
}

static enum conv_status upload_plans(struct conv_bench_launch *launch, struct conv_err *err)
{
    size_t bytes = launch->ops->plan_bytes();
    enum conv_status status = launch->ops->take(
        &launch->scratch, (size_t)launch->filter_count * bytes, "prepare the filters", err);
    for (int f = 0; f < launch->filter_count && !status; f++)
        status =
            launch->ops->upload_plan(&launch->plans[f], launch->scratch + (size_t)f * bytes, err);
    return status;
}

enum conv_status conv_bench_launch_open(struct conv_bench_launch *launch,
                                        const struct conv_variant *variant,
                                        const struct conv_bench_chain *chain, int number,
                                        unsigned have, struct conv_err *err)
{
    const struct conv_bench_cuda *cuda = conv_bench_cuda();
    bool on_cuda = variant->place == CONV_ON_CUDA;
    *launch = (struct conv_bench_launch){.variant = variant, .filter_count = chain->count};
    if (on_cuda && !cuda)
        return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
    size_t count = (size_t)chain->count;
    launch->stencils = calloc(count, sizeof *launch->stencils);
    launch->plans = aligned_alloc(16, count * sizeof *launch->plans);
    if (!launch->stencils || !launch->plans)
        return conv_err_memory(err, "no memory for the filters");
    enum conv_status status = plan_chain(launch, chain, have, err);
    if (status)
        return status;
    launch->ops = on_cuda ? cuda->place : &conv_bench_place_cpu;
    launch->threads = number;
    status = launch->ops->open(&launch->place, number, err);
    return status || !on_cuda ? status : upload_plans(launch, err);
}

static void release_buffers(struct conv_bench_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        launch->ops->release(launch->buffers[i], launch->capacity);
        launch->buffers[i] = NULL;
    }
}

void conv_bench_launch_close(struct conv_bench_launch *launch)
{
    if (launch->ops) {
        release_buffers(launch);
        if (launch->ops->plan_bytes)
            launch->ops->release(launch->scratch, 0);
        else
            free(launch->scratch);
        launch->ops->release(launch->d_tables, launch->table_bytes);
        launch->ops->close(launch->place);
    }
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
    size_t cells = conv_stencil_cells(&launch->stencils[filter], table, count);
    launch->cell_bytes = cells > launch->cell_bytes ? cells : launch->cell_bytes;
}

static enum conv_status reserve(struct conv_bench_launch *launch, size_t bytes,
                                struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    release_buffers(launch);
    launch->capacity = bytes;
    for (int i = 0; i < 2 && !status; i++)
        status =
            launch->ops->take(&launch->buffers[i], bytes, "allocate memory for the images", err);
    return status;
}

// On the CPU the kernels' scratch for each thread, for the widest plane and the filter that needs
// most.
static enum conv_status take_scratch(struct conv_bench_launch *launch, struct conv_err *err)
{
    size_t most = 1;
    for (int f = 0; f < launch->filter_count; f++)
        for (int p = 0; p < launch->plane_count; p++) {
            size_t size = conv_stencil_plan_scratch(&launch->plans[f], launch->tables[p].width);
            most = size > most ? size : most;
        }
    launch->scratch_bytes = conv_image_align(most, SCRATCH_ALIGN);
    size_t bytes = launch->scratch_bytes * (size_t)launch->threads;
    free(launch->scratch);
    launch->scratch = aligned_alloc(SCRATCH_ALIGN, bytes);
    if (!launch->scratch)
        return conv_err_memory(err, "no memory for %zu KiB of kernel scratch", bytes >> 10);
    memset(launch->scratch, 0, bytes);
    return CONV_OK;
}

static enum conv_status copy_tables(struct conv_bench_launch *launch, struct conv_err *err)
{
    size_t entries = (size_t)launch->filter_count * (size_t)launch->plane_count;
    size_t bytes = entries * sizeof *launch->tables;
    size_t tables = conv_image_align(bytes, SCRATCH_ALIGN * 4), all = tables + launch->cell_bytes;
    enum conv_status status = CONV_OK;
    if (all > launch->table_bytes) {
        launch->ops->release(launch->d_tables, launch->table_bytes);
        launch->d_tables = NULL;
        launch->table_bytes = all;
        status = launch->ops->take(&launch->d_tables, all, "copy the images to the device", err);
    }
    launch->d_cells = launch->d_tables + tables;
    return status ? status
                  : launch->ops->copy_in(launch->d_tables, launch->tables, bytes,
                                         "copy the images to the device", err);
}

enum conv_status conv_bench_launch_place(struct conv_bench_launch *launch,
                                         const struct conv_bench_plane *planes, int count,
                                         const uint8_t *source, size_t bytes, struct conv_err *err)
{
    size_t entries = (size_t)count * (size_t)launch->filter_count;
    struct conv_stencil_plane *tables = realloc(launch->tables, entries * sizeof *tables);
    if (!tables)
        return conv_err_memory(err, "no memory for a list of %d planes", count);
    launch->tables = tables;
    launch->plane_count = count;
    launch->bytes = bytes;
    enum conv_status status = bytes <= launch->capacity ? CONV_OK : reserve(launch, bytes, err);
    for (int f = 0; f < launch->filter_count && !status; f++)
        fill_table(launch, f, planes);
    if (!status)
        status = launch->ops->copy_in(launch->buffers[0], source, bytes,
                                      "copy the images to the device", err);
    if (status)
        return status;
    return launch->variant->place == CONV_ON_CUDA ? copy_tables(launch, err)
                                                  : take_scratch(launch, err);
}

// CUDA takes all planes of a filter in one launch, a core one after the other.
static enum conv_status run_chain(void *context, int, int, void *stream)
{
    const struct conv_bench_launch *launch = context;
    bool on_cuda = launch->variant->place == CONV_ON_CUDA;
    size_t count = (size_t)launch->plane_count;
    for (int f = 0; f < launch->filter_count; f++) {
        struct conv_stencil_batch batch = {.planes = launch->tables + (size_t)f * count,
                                           .count = on_cuda ? launch->plane_count : 1};
        if (on_cuda) {
            batch.cuda.d_planes =
                (struct conv_stencil_plane *)(void *)launch->d_tables + (size_t)f * count;
            batch.cuda.tiles = launch->tiles[f];
            batch.cuda.stream = stream;
            batch.cuda.scratch = launch->d_cells;
        } else {
            batch.cpu.scratch = launch->scratch;
        }
        for (size_t p = 0; p < (on_cuda ? 1 : count); p++, batch.planes++)
            if (launch->variant->run(&launch->plans[f], &batch))
                return CONV_ERR_DEVICE;
    }
    return CONV_OK;
}

static enum conv_status run_band(void *context, int worker, int task, void *)
{
    const struct conv_bench_launch *launch = context;
    const struct conv_stencil_plane *plane =
        launch->tables + (size_t)launch->filter * (size_t)launch->plane_count + task / BANDS;
    int64_t band = task % BANDS;
    struct conv_stencil_batch batch = {
        .planes = plane,
        .count = 1,
        .cpu = {.scratch = launch->scratch + (size_t)worker * launch->scratch_bytes,
                .from = (int)(band * plane->height / BANDS),
                .to = (int)((band + 1) * plane->height / BANDS)},
    };
    return batch.cpu.from == batch.cpu.to
               ? CONV_OK
               : launch->variant->run(&launch->plans[launch->filter], &batch);
}

enum conv_status conv_bench_launch_share(struct conv_bench_launch *launch, struct conv_err *err)
{
    struct conv_bench_work work = {
        .run = run_band,
        .context = launch,
        .tasks = launch->plane_count * BANDS,
        .name = launch->variant->name,
    };
    enum conv_status status = CONV_OK;
    uint64_t ns;
    for (launch->filter = 0; launch->filter < launch->filter_count && !status; launch->filter++)
        status = launch->ops->run(launch->place, &work, &ns, err);
    return status;
}

enum conv_status conv_bench_launch_run(struct conv_bench_launch *launch, uint64_t *ns,
                                       struct conv_err *err)
{
    struct conv_bench_work work = {
        .run = run_chain,
        .context = launch,
        .tasks = 1,
        .name = launch->variant->name,
        .cold = {{launch->buffers[0], launch->bytes}, {launch->buffers[1], launch->bytes}},
    };
    return launch->ops->run(launch->place, &work, ns, err);
}

enum conv_status conv_bench_launch_copy(struct conv_bench_launch *launch, uint64_t *ns,
                                        struct conv_err *err)
{
    return launch->ops->copy(launch->place, launch->buffers[1], launch->buffers[0], launch->bytes,
                             ns, err);
}

enum conv_status conv_bench_launch_read(const struct conv_bench_launch *launch, uint8_t *result,
                                        size_t size, struct conv_err *err)
{
    return launch->ops->copy_out(result, launch->buffers[launch->filter_count % 2], size, err);
}
