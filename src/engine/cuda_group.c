// SPDX-License-Identifier: MIT
// Groups of the run on a CUDA device. A stream of the backend has a CUDA stream and two device
// buffers: a group is uploaded to the first, filtered back and forth between them with one launch
// per filter and depth, and downloaded.
#include "engine/cuda_internal.h"
#include "kernels/stencil/alpha.h"

#include <assert.h>
#include <stdlib.h>

size_t conv_cuda_stream_table_bytes(int filter_count, bool codes)
{
    size_t stencils = (size_t)filter_count * sizeof(struct conv_stencil_plane);
    return stencils + (codes ? conv_cuda_coder_most_table_bytes() : 0);
}

static void free_buffers(struct conv_stream *stream)
{
    for (int i = 0; i < 2; i++)
        conv_cuda_memory_free(&stream->buffer[i]);
    conv_cuda_memory_free(&stream->cells);
}

// Makes both buffers hold `bytes`, and `spare` more if there is room for that in both. Their
// content is lost if they grow.
static enum conv_status reserve_buffers(struct conv_stream *stream, size_t bytes, size_t spare,
                                        struct conv_err *err)
{
    enum conv_status status = CONV_ERR_MEMORY;
    if (bytes <= stream->buffer[0].bytes && bytes <= stream->buffer[1].bytes)
        return CONV_OK;
    for (int with_spare = spare > 0; with_spare >= 0 && status == CONV_ERR_MEMORY; with_spare--) {
        size_t size = with_spare ? bytes + spare : bytes;
        free_buffers(stream);
        status = CONV_OK;
        for (int i = 0; i < 2 && !status; i++)
            status = conv_cuda_memory_reserve(&stream->buffer[i], size, 0, "for images", err);
    }
    if (status)
        free_buffers(stream);
    return status;
}

void conv_cuda_stream_close(struct conv_stream *stream)
{
    if (!stream)
        return;
    if (cudaSetDevice(stream->backend->device) == cudaSuccess) {
        free_buffers(stream);
        conv_cuda_coder_free(&stream->coder);
        for (int i = 0; i < MARK_COUNT; i++)
            conv_cuda_event_destroy(&stream->marks[i]);
        conv_cuda_clock_close(&stream->clock);
        if (stream->cuda)
            (void)cudaStreamDestroy(stream->cuda);
    }
    free(stream);
}

static enum conv_status fill_stream(struct conv_stream *stream, size_t bytes, struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_use(stream->backend->device, err);
    if (status)
        return status;
    // Inflating, which takes most of the time, has the lowest priority (inflate.cu). With the same
    // one everywhere, all streams inflate at once, then all encode, and copies come in between.
    int least = 0, greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (!code)
        code = cudaStreamCreateWithPriority(&stream->cuda, cudaStreamNonBlocking, greatest);
    if (code)
        return conv_cuda_device_report(err, code, "make a stream");
    for (int i = 0; i < MARK_COUNT && !status; i++)
        status = conv_cuda_event_create(&stream->marks[i], cudaEventBlockingSync, err);
    if (!status)
        status = conv_cuda_clock_open(&stream->clock, stream->cuda, err);
    return status ? status : reserve_buffers(stream, bytes, 0, err);
}

enum conv_status conv_cuda_stream_open(struct conv_backend *backend, struct conv_stream **out,
                                       size_t bytes, struct conv_err *err)
{
    struct conv_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_memory(err, "no memory for a CUDA stream");
    stream->backend = backend;
    enum conv_status status = fill_stream(stream, bytes, err);
    if (status)
        conv_cuda_stream_close(stream);
    else
        *out = stream;
    return status;
}

// --- running a group -----------------------------------------------------------------------------

// One launch: the planes of one depth and one filter of the chain.
struct launch {
    uint32_t tiles;
    int first, count; // in the filter's part of the table
};

// Fills one part of the table, from `first` on: the group's planes of the stencil's depth. Returns
// the end. d_src, d_dst: where the group begins in both buffers.
static struct conv_stencil_plane *fill_table(struct conv_stencil_plane *first,
                                             const struct conv_group *group,
                                             const struct conv_stencil *stencil,
                                             const uint8_t *d_src, uint8_t *d_dst)
{
    int depth = stencil->depth, dst_depth = stencil->floats ? 32 : depth;
    struct conv_stencil_plane *table = first;
    for (int i = 0; i < group->plane_count; i++) {
        const struct conv_group_plane *plane = &group->planes[i];
        if (plane->depth != depth)
            continue;
        int64_t dst_stride = (int64_t)conv_image_stride(plane->width, dst_depth);
        *table++ = (struct conv_stencil_plane){
            .src = d_src + plane->offset,
            .dst = d_dst + plane->offset,
            .src_stride = (int64_t)conv_image_stride(plane->width, depth),
            .dst_stride = dst_stride,
            .width = plane->width,
            .height = plane->height,
            .dst_spare = (uint32_t)(dst_stride - (int64_t)plane->width * (dst_depth / 8)),
            .alpha = plane->alpha < 0 ? NULL : d_dst + group->planes[plane->alpha].offset,
        };
    }
    return table;
}

static int count_planes(const struct conv_group *group, int depth)
{
    int count = 0;
    for (; group; group = group->next)
        for (int i = 0; i < group->plane_count; i++)
            count += group->planes[i].depth == depth;
    return count;
}

// Builds the tables of all filters, as part of the upload, for `count` planes of the group and of
// those linked to it. A filter's part has its planes of 8 bits first, then those of 16 and 32.
// Returns the bytes of scratch memory that a launch needs.
static size_t build_tables(const struct conv_stream *stream, struct conv_stencil_plane *tables,
                           const struct conv_group *group, int count,
                           struct launch launches[CONV_FILTER_MAX_CHAIN][CONV_CHAIN_DEPTHS])
{
    int counts[CONV_CHAIN_DEPTHS];
    size_t most = 0;
    for (int d = 0; d < CONV_CHAIN_DEPTHS; d++)
        counts[d] = count_planes(group, 8 << d);
    for (int s = 0; s < stream->backend->op_count; s++) {
        const struct conv_chain_op *op = &stream->backend->chain[s];
        struct conv_stencil_plane *table = tables + (size_t)s * (size_t)count;
        const uint8_t *d_src = stream->buffer[s % 2].d_data;
        uint8_t *d_dst = stream->buffer[(s + 1) % 2].d_data;
        for (int d = 0, first = 0; d < CONV_CHAIN_DEPTHS; first += counts[d++]) {
            struct launch *launch = &launches[s][d];
            launch->first = first;
            launch->count = counts[d];
            if (launch->count == 0)
                continue;
            struct conv_stencil_plane *next = table + launch->first;
            struct conv_cuda_extent at = {0};
            for (const struct conv_group *one = group; one; one = one->next) {
                next = fill_table(next, one, &op->stencil[d], d_src + at.front, d_dst + at.front);
                conv_cuda_extent_add(&at, one);
            }
            launch->tiles =
                conv_stencil_tiles(op->plan[d].variant, table + launch->first, launch->count);
            size_t cells =
                conv_stencil_cells(&op->stencil[d], table + launch->first, launch->count);
            most = cells > most ? cells : most;
        }
    }
    return most;
}

// The steps of alpha before the first filter or after filter s, on the planes of a launch.
static enum conv_status launch_alpha(const struct conv_stream *stream, int s,
                                     const struct conv_stencil_plane *d_planes, int count,
                                     int depth, struct conv_err *err)
{
    const struct conv_backend *backend = stream->backend;
    if (!backend->premultiplied || depth == 32) // float32 is refused with such alpha
        return CONV_OK;
    enum conv_alpha_step step = conv_alpha_step_after(backend->alpha_kept, s, backend->op_count);
    bool kept = s >= 0 && backend->alpha_kept >> s & 1;
    if ((kept &&
         conv_cuda_alpha_run(CONV_ALPHA_RESTORE, false, d_planes, count, depth, stream->cuda)) ||
        conv_cuda_alpha_run(step, s < 0, d_planes, count, depth, stream->cuda))
        return conv_cuda_device_report(err, cudaGetLastError(), "launch kernel scale_alpha");
    return CONV_OK;
}

static enum conv_status
launch_chain(const struct conv_stream *stream, const struct conv_stencil_plane *tables,
             struct conv_stencil_plane *d_tables, int plane_count,
             struct launch launches[CONV_FILTER_MAX_CHAIN][CONV_CHAIN_DEPTHS], struct conv_err *err)
{
    for (int s = 0; s < stream->backend->op_count; s++) {
        const struct conv_chain_op *op = &stream->backend->chain[s];
        for (int d = 0; d < CONV_CHAIN_DEPTHS; d++) {
            const struct launch *launch = &launches[s][d];
            if (launch->count == 0)
                continue;
            size_t first = (size_t)s * (size_t)plane_count + (size_t)launch->first;
            struct conv_stencil_batch batch = {
                .planes = tables + first,
                .count = launch->count,
                .cuda = {d_tables + first, launch->tiles, stream->cuda, stream->cells.d_data},
            };
            enum conv_status status = CONV_OK;
            if (s == 0)
                status = launch_alpha(stream, -1, d_tables + first, batch.count, 8 << d, err);
            if (!status)
                status = conv_cuda_plan_launch(&op->plan[d], &batch, err);
            if (!status)
                status = launch_alpha(stream, s, d_tables + first, batch.count, 8 << d, err);
            if (status)
                return status;
        }
    }
    return CONV_OK;
}

static enum conv_status set_mark(const struct conv_stream *stream, enum conv_cuda_mark mark,
                                 struct conv_err *err)
{
    return conv_cuda_event_record(stream->marks[mark], stream->cuda, err);
}

// The upload of a group is one copy: planes or streams, then the tables. Of groups that run
// together the streams of each are copied, one after the other, and then the tables.
struct upload {
    struct conv_cuda_extent all; // of the groups
    size_t codes;                // offset of the coders' tables from those of the filters
    size_t table_bytes;          // of all tables
    size_t bytes;                // without tables of several groups
    uint8_t *h_tables, *d_tables;
};

static void lay_out_upload(struct upload *upload, const struct conv_stream *stream,
                           const struct conv_group *group)
{
    *upload = (struct upload){0};
    for (const struct conv_group *one = group; one; one = one->next)
        conv_cuda_extent_add(&upload->all, one);
    const struct conv_cuda_extent *all = &upload->all;
    size_t stencils =
        (size_t)stream->backend->op_count * (size_t)all->planes * sizeof(struct conv_stencil_plane);
    upload->codes = conv_image_align(stencils, CONV_IMAGE_ROW_ALIGN);
    upload->table_bytes = upload->codes + conv_cuda_coder_table_bytes(all);
    upload->bytes = group->decoded ? all->streams : all->front;
    if (all->groups > 1)
        return;
    upload->bytes += upload->table_bytes;
    assert(upload->bytes + (conv_group_is_device_coded(group) ? 0 : group->back) <=
           group->in_capacity);
}

// After memory for them has been taken.
static void find_tables(struct upload *upload, const struct conv_stream *stream,
                        const struct conv_group *group, uint8_t *d_in)
{
    bool apart = upload->all.groups > 1;
    size_t after = upload->bytes - upload->table_bytes; // of a single group
    upload->h_tables = apart ? stream->coder.tables.h_data : group->h_in + after;
    upload->d_tables = apart ? stream->coder.part[CONV_CUDA_CODER_TABLES].d_data : d_in + after;
}

static cudaError_t copy_several_in(const struct conv_stream *stream, const struct conv_group *group,
                                   const struct upload *upload, uint8_t *d_in)
{
    cudaError_t code = cudaMemcpyAsync(upload->d_tables, upload->h_tables, upload->table_bytes,
                                       cudaMemcpyHostToDevice, stream->cuda);
    struct conv_cuda_extent at = {0};
    for (; group && !code; group = group->next) {
        code = cudaMemcpyAsync(d_in + at.streams, group->h_in, group->streams,
                               cudaMemcpyHostToDevice, stream->cuda);
        conv_cuda_extent_add(&at, group);
    }
    return code;
}

static enum conv_status copy_in(const struct conv_stream *stream, const struct conv_group *group,
                                const struct upload *upload, uint8_t *d_in, struct conv_err *err)
{
    cudaError_t code = upload->all.groups > 1
                           ? copy_several_in(stream, group, upload, d_in)
                           : cudaMemcpyAsync(d_in, group->h_in, upload->bytes,
                                             cudaMemcpyHostToDevice, stream->cuda);
    if (!code && group->encoded && !group->decoded && group->back)
        code = cudaMemcpyAsync(stream->coder.part[CONV_CUDA_CODER_PASSTHROUGH].d_data,
                               group->h_in + group->capacity - group->back, group->back,
                               cudaMemcpyHostToDevice, stream->cuda);
    return conv_cuda_check(code, "copy images to the device", err);
}

static enum conv_status copy_planes_out(struct conv_stream *stream, struct conv_group *group,
                                        struct conv_err *err)
{
    cudaError_t code =
        cudaMemcpyAsync(group->h_out, stream->buffer[stream->backend->op_count % 2].d_data,
                        group->front, cudaMemcpyDeviceToHost, stream->cuda);
    if (!code && group->decoded && group->back)
        code = cudaMemcpyAsync(group->h_in + group->capacity - group->back,
                               stream->coder.part[CONV_CUDA_CODER_PASSTHROUGH].d_data, group->back,
                               cudaMemcpyDeviceToHost, stream->cuda);
    return conv_cuda_check(code, "copy images from the device", err);
}

static enum conv_status queue_copy_out(struct conv_stream *stream, struct conv_group *group,
                                       struct conv_err *err)
{
    enum conv_status status = group->encoded ? conv_cuda_coder_copy_encoded(stream, group, err)
                                             : copy_planes_out(stream, group, err);
    return status ? status : set_mark(stream, MARK_COPIED_OUT, err);
}

// A device has one queue for all downloads, in which a copy that waits for its group's kernels
// delays those of other streams. Downloads of coded groups, whose kernels take long, are therefore
// enqueued after the kernels; the size of an encoder's output is not known earlier anyway.
static bool copies_later(const struct conv_group *group)
{
    return group->image_count > 0;
}

// A stream is opened for groups of usual size; a larger image makes its buffers grow for good.
// Groups of compressed data vary in the bytes of their planes, and freeing device memory stalls all
// streams: those get spare memory.
static enum conv_status take_memory(struct conv_stream *stream, const struct conv_group *group,
                                    const struct upload *upload, struct conv_err *err)
{
    size_t bytes = group->decoded ? upload->all.front : upload->bytes;
    size_t spare = conv_group_is_device_coded(group) ? bytes / 4 : 0;
    enum conv_status status = reserve_buffers(stream, bytes, spare, err);
    if (status || !group->image_count)
        return status;
    return conv_cuda_coder_prepare(stream, group, &upload->all, upload->bytes, upload->table_bytes,
                                   err);
}

// Enqueues decoding, filters and encoding.
static enum conv_status queue_kernels(
    struct conv_stream *stream, const struct conv_group *group, const struct upload *upload,
    struct launch launches[CONV_FILTER_MAX_CHAIN][CONV_CHAIN_DEPTHS], struct conv_err *err)
{
    enum conv_status status = group->decoded ? conv_cuda_coder_decode(stream, err) : CONV_OK;
    if (!status)
        status = launch_chain(stream, (const void *)upload->h_tables, (void *)upload->d_tables,
                              upload->all.planes, launches, err);
    return status || !group->encoded ? status : conv_cuda_coder_encode(stream, err);
}

// Enqueues the group, and those linked to it, and returns without waiting.
static enum conv_status queue_group(struct conv_stream *stream, struct conv_group *group,
                                    struct conv_err *err)
{
    struct launch launches[CONV_FILTER_MAX_CHAIN][CONV_CHAIN_DEPTHS] = {0};
    struct upload upload;
    lay_out_upload(&upload, stream, group);
    enum conv_status status = take_memory(stream, group, &upload, err);
    if (status)
        return status;
    uint8_t *d_in = group->decoded ? stream->coder.part[CONV_CUDA_CODER_STREAMS].d_data
                                   : stream->buffer[0].d_data;
    find_tables(&upload, stream, group, d_in);
    const struct conv_cuda_tables tables = {upload.h_tables + upload.codes,
                                            upload.d_tables + upload.codes};
    if (group->image_count)
        status = conv_cuda_coder_make_tables(stream, group, &upload.all, &tables, err);
    if (status)
        return status;
    size_t cells =
        build_tables(stream, (void *)upload.h_tables, group, upload.all.planes, launches);

    if ((status = conv_cuda_memory_reserve(&stream->cells, cells, cells / 4, "for filters", err)) ||
        (status = set_mark(stream, MARK_START, err)) ||
        (status = copy_in(stream, group, &upload, d_in, err)) ||
        (status = set_mark(stream, MARK_COPIED_IN, err)) ||
        (status = queue_kernels(stream, group, &upload, launches, err)) ||
        (status = set_mark(stream, MARK_FILTERED, err)) || copies_later(group))
        return status;
    return queue_copy_out(stream, group, err);
}

// Returns once the groups' results are in staging memory.
static enum conv_status wait_for_group(struct conv_stream *stream, struct conv_group *group,
                                       struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    if (group->memory) {
        code = cudaEventSynchronize(stream->marks[MARK_COPIED_IN]);
        for (struct conv_group *one = group; one && !code; one = one->next)
            one->memory->release_in(one->memory);
    }
    if (!code && copies_later(group)) {
        code = cudaEventSynchronize(stream->marks[MARK_FILTERED]);
        enum conv_status status = code ? CONV_OK : queue_copy_out(stream, group, err);
        if (status)
            return status;
    }
    if (!code)
        code = cudaEventSynchronize(stream->marks[MARK_COPIED_OUT]);
    return conv_cuda_check(code, "filter a group of images", err);
}

static enum conv_status read_time(const struct conv_stream *stream, enum conv_cuda_mark from,
                                  uint64_t *ns, struct conv_err *err)
{
    return conv_cuda_event_elapsed(stream->marks[from], stream->marks[from + 1], ns, err);
}

enum conv_status conv_cuda_stream_run(struct conv_stream *stream, struct conv_group *group,
                                      struct conv_err *err)
{
    group->h_result = group->h_out;
    if (group->plane_count == 0)
        return CONV_OK;
    enum conv_status status = conv_cuda_device_use(stream->backend->device, err);
    if (status)
        return status;
    status = queue_group(stream, group, err);
    if (!status)
        status = wait_for_group(stream, group, err);
    if (status) {
        // Operations in flight must not touch the caller's memory after the return.
        (void)cudaStreamSynchronize(stream->cuda);
        (void)cudaGetLastError();
        if (status == CONV_ERR_MEMORY) // the next group may need it, perhaps without coders
            conv_cuda_coder_free(&stream->coder);
        return status;
    }
    if (group->decoded)
        conv_cuda_coder_note_decoded(&stream->coder, group);
    if ((status = conv_cuda_clock_read(&stream->clock, stream->cuda, stream->marks[MARK_START],
                                       &group->ns_start, err)) ||
        (status = read_time(stream, MARK_START, &group->ns_copy_in, err)) ||
        (status = read_time(stream, MARK_COPIED_IN, &group->ns_kernel, err)))
        return status;
    return read_time(stream, MARK_FILTERED, &group->ns_copy_out, err);
}
