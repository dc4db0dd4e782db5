// SPDX-License-Identifier: MIT
// A chain of filters on images in device memory: queued on the caller's stream, without waiting.
// Aligned planes are filtered where they are. So are images stored as RGBRGB... if the chain's
// kernels support them. Others are converted to planes in scratch memory before the first filter,
// and back after the last one.
#include <stdlib.h>
#include <string.h>

#include "engine/cuda_internal.h"
#include "kernels/stencil/alpha.h"
#include "kernels/stencil/stencil.h"

// Images are filtered in groups whose planes fit into this much scratch memory (a larger image is a
// group of its own). The device reads and writes that much in 0.5 ms, 100 times as long as it takes
// to queue a group.
#define MOST_SCRATCH ((size_t)1 << 30)
#define MOST_IMAGES 8192 // of a group; a grid has 65535 rows of blocks, one for each plane

// --- plans for pixels ---------------------------------------------------------------------------

// Filters on images stored as RGBRGB...: a row of three channels is filtered like the row of a
// plane three times as wide, with taps three samples apart. The kernels must repeat pixels, not
// samples, at borders.
struct pixel_op {
    struct conv_stencil stencil;
    struct conv_stencil_plan plan; // refers to `stencil`
};

struct pixels {
    uint8_t *d_stencils;
    struct pixel_op ops[];
};

static void close_pixels(struct pixels *pixels)
{
    if (pixels && pixels->d_stencils)
        (void)cudaFree(pixels->d_stencils); // nothing can be done about a failure
    free(pixels);
}

static bool plan_op(struct pixel_op *op, const struct conv_stencil *planes, const char *variant,
                    int channels, unsigned capability)
{
    op->stencil = *planes;
    if (!conv_stencil_interleave(&op->stencil, channels))
        return false;
    const struct conv_variant *best =
        conv_stencil_pick(&op->stencil, 0, CONV_ON_CUDA, capability, variant);
    if (best)
        conv_stencil_plan_init(&op->plan, best, &op->stencil);
    return best;
}

// Makes the plans. *out is NULL if the chain's kernels for 8-bit samples do not support such
// images. `variant`: the forced kernel, or NULL.
static enum conv_status open_pixels(struct pixels **out, const struct conv_backend *backend,
                                    const char *variant, int channels, struct conv_err *err)
{
    struct conv_stencil_plan *plans[CONV_FILTER_MAX_CHAIN];
    int capability, count = backend->op_count;
    enum conv_status status = conv_cuda_device_capability(backend->device, &capability, err);
    if (status)
        return status;
    struct pixels *pixels = calloc(1, sizeof *pixels + (size_t)count * sizeof pixels->ops[0]);
    if (!pixels)
        return conv_err_memory(err, "out of memory");
    bool can = true;
    for (int i = 0; i < count && can; i++) {
        plans[i] = &pixels->ops[i].plan;
        can = plan_op(&pixels->ops[i], &backend->chain[i].stencil[conv_chain_at(8)], variant,
                      channels, (unsigned)capability);
    }
    if (can)
        status = conv_cuda_plans_upload(&pixels->d_stencils, plans, count, err);
    if (can && !status)
        *out = pixels;
    else
        close_pixels(pixels);
    return status;
}

// True if the view is stored as RGBRGB... and its rows begin at multiples of 16 bytes.
static bool fits_pixels(const conv_image *view)
{
    return view->column_stride == view->channels * view->channel_stride &&
           view->channel_stride == conv_sample_bytes(view->sample) &&
           view->row_stride >= view->width * view->column_stride &&
           ((uintptr_t)view->data | (uintptr_t)view->row_stride) % CONV_IMAGE_ROW_ALIGN == 0;
}

// --- tables --------------------------------------------------------------------------------------

// The upload of a table must not stop the caller, so it is copied from pinned memory, which stays
// until the device has read it. A filter that runs on the same images again finds its table there.

// Tables of planes in device memory. A table that equals an earlier one is not uploaded again.
#define MOST_TABLES 64

// Memory for tables on both sides.
struct pair {
    struct conv_cuda_mapped host;
    struct conv_cuda_memory device;
};

struct table {
    struct pair own; // of a large table
    uint8_t *h_data, *d_data;
    size_t capacity, bytes;
    cudaEvent_t used; // by the last work that reads it
    bool on_default;  // that work is on the default stream
};

// Starts as {0}.
struct table_cache {
    struct table table[MOST_TABLES];
    int count, next;
    struct pair block; // of small tables
};

// A table for up to 46 planes. Memory for all such tables is taken at once, so that later calls
// take none, however fast they follow each other.
#define SMALL_BYTES ((size_t)4 << 10)

static void free_pair(struct pair *pair)
{
    conv_cuda_mapped_free(&pair->host);
    conv_cuda_memory_free(&pair->device);
}

static enum conv_status reserve_pair(struct pair *pair, size_t bytes, struct conv_err *err)
{
    enum conv_status status = conv_cuda_mapped_reserve(&pair->host, bytes, "for tables", err);
    return status ? status : conv_cuda_memory_reserve(&pair->device, bytes, 0, "for tables", err);
}

static void free_tables(struct table_cache *tables)
{
    for (int i = 0; i < tables->count; i++) {
        free_pair(&tables->table[i].own);
        conv_cuda_event_destroy(&tables->table[i].used);
    }
    free_pair(&tables->block);
    *tables = (struct table_cache){0};
}

// Memory of its own for a table that no work reads; its content is lost.
static enum conv_status grow(struct table *table, size_t bytes, struct conv_err *err)
{
    size_t capacity = (bytes + bytes / 4 + SMALL_BYTES - 1) / SMALL_BYTES * SMALL_BYTES;
    table->capacity = table->bytes = 0;
    enum conv_status status = reserve_pair(&table->own, capacity, err);
    if (status)
        return status;
    table->h_data = table->own.host.h_data;
    table->d_data = table->own.device.d_data;
    table->capacity = capacity;
    return CONV_OK;
}

static struct table *find_equal(struct table_cache *tables, const void *content, size_t bytes)
{
    // The most recent tables are compared first.
    for (int i = 1; i <= tables->count; i++) {
        int at = (tables->next - i + tables->count) % tables->count;
        struct table *table = &tables->table[at];
        if (table->bytes == bytes && memcmp(table->h_data, content, bytes) == 0)
            return table;
    }
    return NULL;
}

// A table that no work reads any more. The oldest is the first to become free.
static enum conv_status find_free(struct table_cache *tables, struct table **out,
                                  struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    if (tables->count > 0) {
        struct table *oldest = &tables->table[tables->next % tables->count];
        code = tables->count < MOST_TABLES ? cudaEventQuery(oldest->used)
                                           : cudaEventSynchronize(oldest->used);
        if (!code) {
            tables->next = (tables->next + 1) % tables->count;
            *out = oldest;
            return CONV_OK;
        }
    }
    if (code && code != cudaErrorNotReady)
        return conv_cuda_device_report(err, code, "wait for a filter");
    (void)cudaGetLastError();
    // All are in use: adds another one, which is the most recent.
    struct table *added = &tables->table[tables->count];
    enum conv_status status = reserve_pair(&tables->block, MOST_TABLES * SMALL_BYTES, err);
    if (!status)
        status = conv_cuda_event_create(&added->used, cudaEventDisableTiming, err);
    if (status)
        return status;
    added->h_data = tables->block.host.h_data + (size_t)tables->count * SMALL_BYTES;
    added->d_data = tables->block.device.d_data + (size_t)tables->count * SMALL_BYTES;
    added->capacity = SMALL_BYTES;
    tables->count++;
    // The order of use starts again, which costs one more table at most.
    tables->next = 0;
    *out = added;
    return CONV_OK;
}

// The table in device memory, for work that is queued on `stream` until table_used.
// Kernels leave it as it was. Waits only if MOST_TABLES others are in use.
static enum conv_status get_table(struct table_cache *tables, const void *content, size_t bytes,
                                  cudaStream_t stream, struct table **out, struct conv_err *err)
{
    struct table *table = find_equal(tables, content, bytes);
    cudaError_t code = cudaSuccess;
    if (table) {
        // Its last use may be on another stream, and kernels keep counters in it. Comparing streams
        // does not help: a new one may have the address of one that has been destroyed. Only the
        // default stream is always the same.
        if (stream != NULL || !table->on_default)
            code = cudaStreamWaitEvent(stream, table->used, 0);
    } else {
        enum conv_status status = find_free(tables, &table, err);
        if (!status && bytes > table->capacity)
            status = grow(table, bytes, err);
        if (status)
            return status;
        memcpy(table->h_data, content, bytes);
        table->bytes = bytes;
        code = cudaMemcpyAsync(table->d_data, table->h_data, bytes, cudaMemcpyHostToDevice, stream);
    }
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    *out = table;
    return CONV_OK;
}

static enum conv_status table_used(struct table *table, cudaStream_t stream, struct conv_err *err)
{
    table->on_default = stream == NULL;
    return conv_cuda_event_record(table->used, stream, err);
}

// --- opening -------------------------------------------------------------------------------------

struct conv_cuda_views {
    struct conv_device_context *device;
    const struct conv_backend *backend;                 // the chain, uploaded
    struct pixels *pixels[CONV_IMAGE_MAX_CHANNELS + 1]; // by channels; NULL: no plans
    enum conv_alpha_mode alpha;
    bool floats;
    struct table_cache tables;
    struct conv_stencil_plane *planes; // of the group that is being queued
    size_t plane_room;
};

void conv_cuda_views_close(struct conv_cuda_views *views)
{
    if (!views)
        return;
    free_tables(&views->tables);
    for (int channels = 2; channels <= CONV_IMAGE_MAX_CHANNELS; channels++)
        close_pixels(views->pixels[channels]);
    free(views->planes);
    free(views);
}

enum conv_status conv_cuda_views_open(struct conv_cuda_views **out,
                                      const struct conv_backend *backend,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err)
{
    struct conv_cuda_views *views = calloc(1, sizeof *views);
    if (!views)
        return conv_err_memory(err, "out of memory");
    views->device = config->context;
    views->backend = backend;
    views->alpha = config->alpha;
    views->floats = config->floats;
    enum conv_status status = CONV_OK;
    for (int channels = 2; channels <= CONV_IMAGE_MAX_CHANNELS && !status; channels++)
        status = open_pixels(&views->pixels[channels], backend, config->variant, channels, err);
    if (status)
        conv_cuda_views_close(views);
    else
        *out = views;
    return status;
}

// --- where planes are ----------------------------------------------------------------------------

// Images of one shape.
struct run {
    struct conv_cuda_views *filter;
    const conv_image *results, *sources;
    cudaStream_t stream;
    int width, height, channels, depth, result_depth;
    const struct pixels *pixels; // images are filtered as they are, without planes
    int filtered; // planes of an image that are filtered; the rest is alpha, which is copied
    bool alpha, premultiplied;
    bool loads, stores; // sources are rearranged before, results after the filters
    int op_count;
    // Bytes of scratch memory per image: planes as loaded, two sets between filters, results.
    size_t loaded_bytes, between_bytes, stored_bytes, image_bytes;
    size_t cell_bytes; // of filters, per image; after those of all images
    uint8_t *d_scratch;
    int first, count; // the images of the group that is being queued
};

static uint8_t *scratch_of(const struct run *run, int image)
{
    return run->d_scratch + (size_t)(image - run->first) * run->image_bytes;
}

// The layout of an image, or, if RGBRGB... is filtered as it is, of one plane of all its samples.
static struct conv_layout_view layout_of(const struct run *run, const conv_image *image)
{
    struct conv_layout_view layout = conv_cuda_view_layout(image);
    if (run->pixels) {
        layout.column = layout.sample_bytes;
        layout.channels = 1;
        layout.alpha = false;
    }
    return layout;
}

// The planes that the first filter reads, those between filters and those that the last one writes.
static struct conv_layout_view loaded_planes(const struct run *run, int image)
{
    if (!run->loads)
        return layout_of(run, &run->sources[image]);
    return conv_cuda_view_planes(scratch_of(run, image), run->width, run->height, run->channels,
                                 run->depth, run->alpha);
}

static struct conv_layout_view planes_between(const struct run *run, int image, int index)
{
    return conv_cuda_view_planes(scratch_of(run, image) + run->loaded_bytes +
                                     (size_t)(index % 2) * run->between_bytes,
                                 run->width, run->height, run->filtered, run->depth, run->alpha);
}

static struct conv_layout_view stored_planes(const struct run *run, int image)
{
    if (!run->stores)
        return layout_of(run, &run->results[image]);
    size_t before = run->image_bytes - run->stored_bytes;
    return conv_cuda_view_planes(scratch_of(run, image) + before, run->width, run->height,
                                 run->channels, run->result_depth, run->alpha);
}

// True if all images are stored as RGBRGB... and can be filtered as they are: the chain has kernels
// for them, and all samples are filtered.
static bool are_pixels(const struct run *run, int count)
{
    bool all = run->filter->pixels[run->channels] && run->depth == 8 && !run->filter->floats &&
               !run->premultiplied && run->filtered == run->channels &&
               (int64_t)run->width * run->channels <= INT32_MAX / 2; // kernels add borders
    for (int i = 0; i < count && all; i++)
        all = fits_pixels(&run->sources[i]) && fits_pixels(&run->results[i]);
    return all;
}

static const struct conv_stencil_plan *plan_of(const struct run *run, int op)
{
    if (run->pixels)
        return &run->pixels->ops[op].plan;
    return &run->filter->backend->chain[op].plan[conv_chain_at(run->depth)];
}

static void plan_run(struct run *run, int count)
{
    const struct conv_cuda_views *filter = run->filter;
    const conv_image *shape = run->sources;
    run->width = shape->width;
    run->height = shape->height;
    run->channels = shape->channels;
    run->depth = 8 * (int)conv_sample_bytes(shape->sample);
    run->result_depth = filter->floats ? 32 : run->depth;
    run->alpha = shape->has_alpha && shape->channels > 1;
    run->premultiplied = run->alpha && filter->alpha == CONV_ALPHA_PREMULTIPLY;
    run->filtered = run->channels - (run->alpha && filter->alpha == CONV_ALPHA_KEEP);
    run->op_count = filter->backend->op_count;
    if (are_pixels(run, count)) {
        run->pixels = filter->pixels[run->channels];
        run->width *= run->channels;
        run->channels = run->filtered = 1;
        run->alpha = false;
    }
    run->loads = run->premultiplied; // colours are multiplied in place
    run->stores = false;
    for (int i = 0; i < count && !run->pixels; i++) {
        run->loads |= !conv_cuda_view_is_aligned(&run->sources[i], false);
        run->stores |= !conv_cuda_view_is_aligned(&run->results[i], false);
    }
    size_t plane = conv_image_plane_bytes(run->width, run->height, run->depth);
    size_t result = conv_image_plane_bytes(run->width, run->height, run->result_depth);
    int sets = run->op_count < 3 ? run->op_count - 1 : 2;
    run->loaded_bytes = run->loads ? (size_t)run->channels * plane : 0;
    run->between_bytes = (size_t)run->filtered * plane;
    run->stored_bytes = run->stores ? (size_t)run->channels * result : 0;
    run->image_bytes = run->loaded_bytes + (size_t)sets * run->between_bytes + run->stored_bytes;
    for (int op = 0; op < run->op_count; op++) {
        struct conv_stencil_plane one = {.width = run->width, .height = run->height};
        size_t bytes =
            (size_t)run->filtered * conv_stencil_cells(plan_of(run, op)->stencil, &one, 1);
        run->cell_bytes = bytes > run->cell_bytes ? bytes : run->cell_bytes;
    }
}

// --- the table of planes -------------------------------------------------------------------------

// The entries of one filter, or of the multiplication before the first one, for all images of the
// group. `op` -1: in place on the loaded planes.
static void fill_table(const struct run *run, struct conv_stencil_plane *table, int op)
{
    for (int i = run->first; i < run->first + run->count; i++) {
        bool last = op == run->op_count - 1;
        struct conv_layout_view src =
            op <= 0 ? loaded_planes(run, i) : planes_between(run, i, op - 1);
        struct conv_layout_view dst = op < 0 ? src
                                      : last ? stored_planes(run, i)
                                             : planes_between(run, i, op);
        int64_t spare = dst.padded ? dst.row - (int64_t)run->width * dst.sample_bytes : 0;
        for (int c = 0; c < run->filtered; c++)
            *table++ = (struct conv_stencil_plane){
                .src = src.channel[c],
                .dst = dst.channel[c],
                .src_stride = src.row,
                .dst_stride = dst.row,
                .width = run->width,
                .height = run->height,
                .dst_spare = (uint32_t)spare,
                .alpha = run->premultiplied && c < run->channels - 1
                             ? dst.channel[run->channels - 1]
                             : NULL,
            };
    }
}

// --- rearranging ---------------------------------------------------------------------------------

typedef struct conv_layout_copy (*copy_fn)(const struct run *run, int image);

static enum conv_status queue_copies(const struct run *run, copy_fn copy, struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = run->stream};
    enum conv_status status = CONV_OK;
    for (int i = run->first; i < run->first + run->count && !status; i++) {
        struct conv_layout_copy next = copy(run, i);
        status = conv_cuda_copies_add(&copies, &next, err);
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
}

static struct conv_layout_copy load_copy(const struct run *run, int image)
{
    return (struct conv_layout_copy){loaded_planes(run, image),
                                     conv_cuda_view_layout(&run->sources[image]), run->width,
                                     run->height};
}

static struct conv_layout_view only_channel(struct conv_layout_view view, int channel)
{
    view.channel[0] = view.channel[channel];
    view.channels = 1;
    view.alpha = false;
    return view;
}

// Alpha that is not filtered.
static struct conv_layout_copy alpha_copy(const struct run *run, int image)
{
    return (struct conv_layout_copy){only_channel(stored_planes(run, image), run->channels - 1),
                                     only_channel(loaded_planes(run, image), run->channels - 1),
                                     run->width, run->height};
}

static struct conv_layout_copy store_copy(const struct run *run, int image)
{
    return (struct conv_layout_copy){conv_cuda_view_layout(&run->results[image]),
                                     stored_planes(run, image), run->width, run->height};
}

// --- scratch memory ------------------------------------------------------------------------------

// At least `bytes` of scratch memory for work that is queued on `stream` until
// scratch_used. Waits for the device only when it grows.
static enum conv_status take_scratch(struct conv_device_context *device, size_t bytes,
                                     cudaStream_t stream, uint8_t **d_memory, struct conv_err *err)
{
    struct conv_cuda_context_scratch *scratch = &device->own->scratch;
    bool grows = bytes > scratch->memory.bytes;
    cudaError_t code =
        grows ? cudaEventSynchronize(scratch->used) : cudaStreamWaitEvent(stream, scratch->used, 0);
    if (code)
        return conv_cuda_device_report(err, code, "wait for a filter");
    enum conv_status status =
        conv_cuda_memory_reserve(&scratch->memory, bytes, bytes / 8, "for planes", err);
    *d_memory = scratch->memory.d_data;
    return status;
}

static enum conv_status scratch_used(struct conv_device_context *device, cudaStream_t stream,
                                     struct conv_err *err)
{
    return conv_cuda_event_record(device->own->scratch.used, stream, err);
}

// --- running -------------------------------------------------------------------------------------

static enum conv_status launch_op(const struct run *run, int op,
                                  const struct conv_stencil_plane *table,
                                  struct conv_stencil_plane *d_table, uint32_t tiles,
                                  struct conv_err *err)
{
    const struct conv_stencil_plan *plan = plan_of(run, op);
    struct conv_stencil_batch batch = {
        .planes = table,
        .count = run->count * run->filtered,
        .cuda = {d_table, tiles, run->stream,
                 run->d_scratch + (size_t)run->count * run->image_bytes},
    };
    enum conv_status status = conv_cuda_plan_launch(plan, &batch, err);
    if (status)
        return status;
    if (run->premultiplied)
        status = conv_cuda_alpha_run(conv_alpha_step_after(0, op, run->op_count), false, d_table,
                                     batch.count, run->depth, run->stream);
    return status ? conv_cuda_device_report(err, cudaGetLastError(), "launch kernel scale_alpha")
                  : CONV_OK;
}

// Launches all filters; the table of filter `op` begins at entry (op + premultiplied) * planes.
static enum conv_status queue_filters(const struct run *run, struct conv_err *err)
{
    struct conv_cuda_views *filter = run->filter;
    struct table *table = NULL;
    int planes = run->count * run->filtered, extra = run->premultiplied;
    uint32_t tiles[CONV_FILTER_MAX_CHAIN];
    size_t entries = (size_t)(run->op_count + extra) * (size_t)planes;
    if (run->premultiplied)
        fill_table(run, filter->planes, -1);
    for (int op = 0; op < run->op_count; op++) {
        struct conv_stencil_plane *part = filter->planes + (size_t)(op + extra) * (size_t)planes;
        fill_table(run, part, op);
        tiles[op] = conv_stencil_tiles(plan_of(run, op)->variant, part, planes);
        (void)conv_stencil_cells(plan_of(run, op)->stencil, part, planes);
    }
    enum conv_status status =
        get_table(&filter->tables, filter->planes, entries * sizeof(struct conv_stencil_plane),
                  run->stream, &table, err);
    if (status)
        return status;
    struct conv_stencil_plane *d_planes = (void *)table->d_data;
    if (run->premultiplied &&
        conv_cuda_alpha_run(CONV_ALPHA_MULTIPLY, false, d_planes, planes, run->depth, run->stream))
        return conv_cuda_device_report(err, cudaGetLastError(), "launch kernel scale_alpha");
    for (int op = 0; op < run->op_count && !status; op++) {
        size_t at = (size_t)(op + extra) * (size_t)planes;
        status = launch_op(run, op, filter->planes + at, d_planes + at, tiles[op], err);
    }
    enum conv_status noted = table_used(table, run->stream, err);
    return status ? status : noted;
}

static enum conv_status queue_group(struct run *run, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    size_t bytes = run->image_bytes + run->cell_bytes;
    if (bytes > 0)
        status = take_scratch(run->filter->device, (size_t)run->count * bytes, run->stream,
                              &run->d_scratch, err);
    if (!status && run->loads)
        status = queue_copies(run, load_copy, err);
    if (!status)
        status = queue_filters(run, err);
    if (!status && run->filtered < run->channels)
        status = queue_copies(run, alpha_copy, err);
    if (!status && run->stores)
        status = queue_copies(run, store_copy, err);
    if (bytes > 0 && run->d_scratch) {
        enum conv_status noted = scratch_used(run->filter->device, run->stream, err);
        status = status ? status : noted;
    }
    return status;
}

static enum conv_status reserve_planes(struct conv_cuda_views *filter, size_t count,
                                       struct conv_err *err)
{
    if (count <= filter->plane_room)
        return CONV_OK;
    free(filter->planes);
    filter->planes = calloc(count, sizeof *filter->planes);
    filter->plane_room = filter->planes ? count : 0;
    return filter->planes ? CONV_OK : conv_err_memory(err, "out of memory");
}

// Images of one shape.
static enum conv_status queue_alike(struct run *run, int count, struct conv_err *err)
{
    struct conv_cuda_views *filter = run->filter;
    plan_run(run, count);
    size_t bytes = run->image_bytes + run->cell_bytes;
    size_t group = bytes ? MOST_SCRATCH / bytes : MOST_IMAGES;
    group = group < 1 ? 1 : group > MOST_IMAGES ? MOST_IMAGES : group;
    if (group > (size_t)count)
        group = (size_t)count;
    enum conv_status status = reserve_planes(
        filter, group * (size_t)run->filtered * (size_t)(run->op_count + run->premultiplied), err);
    for (run->first = 0; run->first < count && !status; run->first += run->count) {
        run->count = count - run->first < (int)group ? count - run->first : (int)group;
        status = queue_group(run, err);
    }
    return status;
}

static bool are_alike(const conv_image *a, const conv_image *b)
{
    return a->width == b->width && a->height == b->height && a->channels == b->channels &&
           a->sample == b->sample && !a->has_alpha == !b->has_alpha;
}

enum conv_status conv_cuda_filter_run(struct conv_backend *backend, const conv_image *results,
                                      const conv_image *sources, int count, void *stream,
                                      struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int first = 0, last; first < count && !status; first = last) {
        for (last = first + 1; last < count && are_alike(&sources[first], &sources[last]);)
            last++;
        struct run run = {.filter = backend->views,
                          .results = results + first,
                          .sources = sources + first,
                          .stream = stream};
        status = queue_alike(&run, last - first, err);
    }
    return status;
}
