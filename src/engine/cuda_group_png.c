// SPDX-License-Identifier: MIT
// PNG of a group's images, decoded and encoded on the device: the tables of the images, the coders'
// device memory, and the download of encoded chunks.
#include "engine/cuda_internal.h"

#include "png/cuda/cuda_png.h"

// --- limits --------------------------------------------------------------------------------------

size_t conv_cuda_coder_table_bytes(void)
{
    return sizeof(struct conv_decode_image) + sizeof(struct conv_encode_image);
}

bool conv_cuda_coder_takes_stream(const struct conv_image *shape, size_t most_bytes)
{
    struct conv_decode_image image = {
        .stream_bytes = (uint32_t)most_bytes,
        .width = shape->width,
        .height = shape->height,
        .channels = shape->channels,
        .depth = shape->depth,
    };
    return most_bytes <= UINT32_MAX && conv_cuda_decode_takes(&image);
}

size_t conv_cuda_coder_chunks_bytes(const struct conv_image *shape)
{
    return conv_cuda_encode_bound(shape->width, shape->height, shape->channels, shape->depth);
}

// --- device memory -------------------------------------------------------------------------------

// The next group may be somewhat larger, so an eighth more is allocated, up to a multiple of
// `step`.
static size_t spare_of(size_t bytes, size_t step)
{
    return conv_image_align(bytes + bytes / 8, step) - bytes;
}

// Of `of->groups` groups; with room for as many as may run at once, since memory that grows stalls
// all streams.
static enum conv_status reserve(struct conv_stream *stream, enum conv_cuda_coder_part part,
                                size_t bytes, const struct conv_cuda_extent *of,
                                struct conv_err *err)
{
    int most = of->groups < of->together ? of->together : of->groups;
    size_t all = stream->coder.is_device_coded ? bytes / (size_t)of->groups * (size_t)most : bytes;
    all = all < bytes ? bytes : all;
    return conv_cuda_memory_reserve(&stream->coder.part[part], bytes,
                                    all - bytes + spare_of(all, (size_t)1 << 16), "for coding",
                                    err);
}

static enum conv_status reserve_mapped(struct conv_cuda_mapped *memory, size_t bytes,
                                       struct conv_err *err)
{
    if (bytes <= memory->bytes)
        return CONV_OK;
    return conv_cuda_mapped_reserve(memory, bytes + spare_of(bytes, (size_t)1 << 12), "for coding",
                                    err);
}

void conv_cuda_coder_free(struct conv_cuda_coder *coder)
{
    for (int i = 0; i < CONV_CUDA_CODER_PARTS; i++)
        conv_cuda_memory_free(&coder->part[i]);
    conv_cuda_mapped_free(&coder->answers);
    conv_cuda_mapped_free(&coder->tables);
    *coder = (struct conv_cuda_coder){0};
}

// --- tables --------------------------------------------------------------------------------------

void conv_cuda_extent_add(struct conv_cuda_extent *extent, const struct conv_group *group)
{
    extent->groups++;
    extent->together = extent->together < group->together ? group->together : extent->together;
    extent->images += group->image_count;
    extent->planes += group->plane_count;
    extent->front += conv_image_align(group->front, CONV_IMAGE_PLANE_ALIGN);
    extent->back += conv_image_align(group->back, CONV_IMAGE_PLANE_ALIGN);
    extent->streams += conv_image_align(group->streams, CONV_IMAGE_PLANE_ALIGN);
}

// Device addresses of an image's planes: filtered ones in `d_planes`, a passthrough one in the
// coder's memory. `at`: where the group begins.
static void find_planes(const struct conv_cuda_coder *coder, const struct conv_group *group,
                        const struct conv_cuda_extent *at, const struct conv_group_image *image,
                        uint8_t *d_planes, uint8_t *planes[CONV_IMAGE_MAX_CHANNELS])
{
    int filtered = image->shape.channels - (image->passthrough != SIZE_MAX);
    for (int c = 0; c < filtered; c++)
        planes[c] = d_planes + at->front + group->planes[image->plane + c].offset;
    if (image->passthrough != SIZE_MAX)
        planes[filtered] = coder->part[CONV_CUDA_CODER_PASSTHROUGH].d_data + at->back +
                           image->passthrough - (group->capacity - group->back);
}

// Fills the group's part of the table; returns the bytes of its filtered rows.
static size_t fill_decode_table(const struct conv_cuda_coder *coder, const struct conv_group *group,
                                const struct conv_cuda_extent *at, struct conv_decode_image *table,
                                uint8_t *d_planes)
{
    size_t rows = 0;
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        const struct conv_image *shape = &image->shape;
        table[i] = (struct conv_decode_image){
            .d_stream = coder->part[CONV_CUDA_CODER_STREAMS].d_data + at->streams + image->stream,
            .stride = (int64_t)conv_image_stride(shape->width, shape->depth),
            .stream_bytes = (uint32_t)image->stream_bytes,
            .width = shape->width,
            .height = shape->height,
            .channels = shape->channels,
            .depth = shape->depth,
        };
        find_planes(coder, group, at, image, d_planes, table[i].d_plane);
        rows += conv_cuda_decode_scratch(&table[i]);
    }
    return rows;
}

static void fill_encode_table(const struct conv_cuda_coder *coder, const struct conv_group *group,
                              const struct conv_cuda_extent *at, struct conv_encode_image *table,
                              uint8_t *d_planes)
{
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        const struct conv_image *shape = &image->shape;
        uint8_t *planes[CONV_IMAGE_MAX_CHANNELS] = {0};
        find_planes(coder, group, at, image, d_planes, planes);
        table[i] = (struct conv_encode_image){
            .stride = (int64_t)conv_image_stride(shape->width, shape->depth),
            .width = shape->width,
            .height = shape->height,
            .channels = shape->channels,
            .depth = shape->depth,
        };
        for (int c = 0; c < shape->channels; c++)
            table[i].plane[c] = planes[c];
    }
}

static enum conv_status plan_decoding(struct conv_stream *stream,
                                      const struct conv_cuda_extent *all,
                                      struct conv_decode_image *table, size_t rows,
                                      struct conv_err *err)
{
    enum conv_status status = reserve(stream, CONV_CUDA_CODER_ROWS, rows, all, err);
    if (!status)
        conv_cuda_decode_plan(table, all->images, stream->coder.part[CONV_CUDA_CODER_ROWS].d_data);
    return status;
}

static enum conv_status plan_encoding(struct conv_stream *stream,
                                      const struct conv_cuda_extent *all,
                                      struct conv_encode_image *table, struct conv_err *err)
{
    struct conv_encode_plan *plan = &stream->coder.plan;
    if (conv_cuda_encode_plan(plan, table, all->images))
        return conv_err_set(err, all->groups > 1 ? CONV_ERR_MEMORY : CONV_ERR_DEVICE,
                            "the group is too large to be encoded on CUDA");
    enum conv_status status =
        reserve(stream, CONV_CUDA_CODER_SCRATCH, plan->scratch_bytes, all, err);
    return status ? status : reserve(stream, CONV_CUDA_CODER_CHUNKS, plan->output_bytes, all, err);
}

enum conv_status conv_cuda_coder_make_tables(struct conv_stream *stream,
                                             const struct conv_group *group,
                                             const struct conv_cuda_extent *all, uint8_t *h_tables,
                                             struct conv_err *err)
{
    struct conv_cuda_coder *coder = &stream->coder;
    struct conv_decode_image *decodes = (void *)h_tables;
    size_t decode_bytes = group->decoded ? (size_t)all->images * sizeof *decodes : 0, rows = 0;
    struct conv_encode_image *encodes = (void *)(h_tables + decode_bytes);
    coder->decodes = 0;
    coder->encodes = decode_bytes;
    struct conv_cuda_extent at = {0};
    for (const struct conv_group *one = group; one; one = one->next) {
        if (one->decoded)
            rows +=
                fill_decode_table(coder, one, &at, decodes + at.images, stream->buffer[0].d_data);
        if (one->encoded)
            fill_encode_table(coder, one, &at, encodes + at.images,
                              stream->buffer[stream->backend->op_count % 2].d_data);
        conv_cuda_extent_add(&at, one);
    }
    enum conv_status status =
        group->decoded ? plan_decoding(stream, all, decodes, rows, err) : CONV_OK;
    return status || !group->encoded ? status : plan_encoding(stream, all, encodes, err);
}

// Streams and tables share one block, since they are uploaded together.
uint8_t *conv_cuda_coder_d_in(const struct conv_cuda_coder *coder)
{
    return coder->part[CONV_CUDA_CODER_STREAMS].d_data;
}

uint8_t *conv_cuda_coder_d_passthrough(const struct conv_cuda_coder *coder)
{
    return coder->part[CONV_CUDA_CODER_PASSTHROUGH].d_data;
}

enum conv_status conv_cuda_coder_prepare(struct conv_stream *stream, const struct conv_group *group,
                                         const struct conv_cuda_extent *all, size_t in_bytes,
                                         size_t table_bytes, struct conv_err *err)
{
    struct conv_cuda_coder *coder = &stream->coder;
    size_t answers = sizeof(struct conv_encode_result) + sizeof(uint32_t);
    coder->is_device_coded = conv_group_is_device_coded(group);
    enum conv_status status = reserve(stream, CONV_CUDA_CODER_PASSTHROUGH, all->back, all, err);
    if (!status)
        status = reserve_mapped(&coder->answers, (size_t)all->images * answers, err);
    if (!status && group->decoded)
        status = reserve(stream, CONV_CUDA_CODER_STREAMS, in_bytes, all, err);
    if (!status && all->groups > 1)
        status = reserve_mapped(&coder->tables, table_bytes, err);
    if (!status && all->groups > 1)
        status = reserve(stream, CONV_CUDA_CODER_TABLES, table_bytes, all, err);
    return status;
}

// --- work ----------------------------------------------------------------------------------------

// Groups of at most this many images are decoded by many blocks of threads per image. With more
// images one block each suffices to occupy all SMs, since other streams decode at the same time.
#define MOST_SPLIT 4

// Loading the kernels for parts takes 20 ms, when a group first uses them. In that time the other
// kernels decode this many bytes of one stream. So loading does not pay for a single group of few
// images, such as the last one of a run, but it pays for several.
#define LEAST_SPLIT ((size_t)4 << 20)

static bool is_split(struct conv_backend *backend, const struct conv_group *group, int count)
{
    size_t longest = 0;
    for (int i = 0; i < group->image_count && i < MOST_SPLIT; i++)
        if (longest < group->images[i].stream_bytes)
            longest = group->images[i].stream_bytes;
    bool split = count <= MOST_SPLIT &&
                 (atomic_load(&backend->has_split) || !atomic_load(&backend->has_whole) ||
                  atomic_fetch_add(&backend->whole_bytes, longest) + longest >= LEAST_SPLIT);
    atomic_store(split ? &backend->has_split : &backend->has_whole, true);
    return split;
}

// Bytes of the results of that many images: where each one's chunks are. Then comes a status word
// per image.
static size_t results_bytes(int count)
{
    return (size_t)count * sizeof(struct conv_encode_result);
}

enum conv_status conv_cuda_coder_decode(struct conv_stream *stream, const struct conv_group *group,
                                        int count, const struct conv_cuda_tables *tables,
                                        struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    bool split = is_split(stream->backend, group, count);
    struct conv_decode_batch batch = {
        .images = (const void *)(tables->h_data + coder->decodes),
        .d_images = (const void *)(tables->d_data + coder->decodes),
        .count = count,
        .split = split ? CONV_DECODE_SPLIT_AUTO : CONV_DECODE_SPLIT_NEVER,
        .d_stop = stream->backend->d_stop,
        .d_status = (void *)(coder->answers.h_data + results_bytes(count)),
        .stream = stream->cuda,
    };
    return conv_cuda_decode(&batch)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the decoder")
               : CONV_OK;
}

enum conv_status conv_cuda_coder_encode(struct conv_stream *stream,
                                        const struct conv_cuda_tables *tables, struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    struct conv_encode_batch batch = {
        .plan = coder->plan,
        .d_images = (const void *)(tables->d_data + coder->encodes),
        .d_scratch = coder->part[CONV_CUDA_CODER_SCRATCH].d_data,
        .output = coder->part[CONV_CUDA_CODER_CHUNKS].d_data,
        .results = (void *)coder->answers.h_data,
        .stream = stream->cuda,
    };
    return conv_cuda_encode(&batch)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the encoder")
               : CONV_OK;
}

void conv_cuda_coder_note_decoded(const struct conv_cuda_coder *coder, struct conv_group *group,
                                  int count)
{
    const uint32_t *states = (const void *)(coder->answers.h_data + results_bytes(count));
    for (; group; group = group->next)
        for (int i = 0; i < group->image_count; i++)
            group->images[i].failed = *states++ != CONV_DECODE_DECODED;
}

// Sets the places of the group's chunks in its own memory. They begin at *from in the output, where
// they take *bytes.
static void place_chunks(struct conv_group *group, const struct conv_encode_result *results,
                         size_t *from, size_t *bytes)
{
    size_t end = 0;
    *from = SIZE_MAX;
    for (int i = 0; i < group->image_count; i++) {
        if (*from > results[i].offset)
            *from = results[i].offset;
        if (end < results[i].offset + results[i].size)
            end = results[i].offset + results[i].size;
    }
    *from = group->image_count ? *from : 0;
    *bytes = end - *from;
    for (int i = 0; i < group->image_count; i++) {
        group->images[i].chunks = results[i].offset - *from;
        group->images[i].chunks_bytes = results[i].size;
    }
}

static enum conv_status copy_group(struct conv_stream *stream, struct conv_group *group,
                                   const struct conv_encode_result *results, struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    size_t from, bytes;
    place_chunks(group, results, &from, &bytes);
    if (from + bytes > coder->plan.output_bytes || bytes > group->capacity)
        return conv_err_set(err, CONV_ERR_DEVICE, "CUDA encoded more than fits into the buffer");
    if (group->memory) {
        enum conv_status status = group->memory->acquire_out(group->memory, bytes, err);
        if (status)
            return status;
        group->h_result = group->h_out;
    }
    cudaError_t code =
        cudaMemcpyAsync(group->h_out, coder->part[CONV_CUDA_CODER_CHUNKS].d_data + from, bytes,
                        cudaMemcpyDeviceToHost, stream->cuda);
    return code ? conv_cuda_device_report(err, code, "copy encoded images from the device")
                : CONV_OK;
}

enum conv_status conv_cuda_coder_copy_chunks(struct conv_stream *stream, struct conv_group *group,
                                             struct conv_err *err)
{
    const struct conv_encode_result *results = (const void *)stream->coder.answers.h_data;
    enum conv_status status = CONV_OK;
    for (; group && !status; group = group->next) {
        status = copy_group(stream, group, results, err);
        results += group->image_count;
    }
    return status;
}
