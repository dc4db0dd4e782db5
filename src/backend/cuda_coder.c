// SPDX-License-Identifier: MIT
// Decoding and encoding on the device: the tables of a group's images, the coders' device memory,
// and the download of encoded chunks.
#include "backend/cuda_internal.h"

#include "png/cuda/cuda_decode.h"

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

static enum conv_status reserve(struct conv_cuda_coder *coder, enum conv_cuda_coder_part part,
                                size_t bytes, struct conv_err *err)
{
    return conv_cuda_memory_reserve(&coder->part[part], bytes, spare_of(bytes, (size_t)1 << 16),
                                    "for coding", err);
}

static enum conv_status reserve_answers(struct conv_cuda_coder *coder, size_t bytes,
                                        struct conv_err *err)
{
    if (bytes <= coder->answers.bytes)
        return CONV_OK;
    return conv_cuda_mapped_reserve(&coder->answers, bytes + spare_of(bytes, (size_t)1 << 12),
                                    "for coding", err);
}

void conv_cuda_coder_free(struct conv_cuda_coder *coder)
{
    for (int i = 0; i < CONV_CUDA_CODER_PARTS; i++)
        conv_cuda_memory_free(&coder->part[i]);
    conv_cuda_mapped_free(&coder->answers);
    *coder = (struct conv_cuda_coder){0};
}

// --- tables --------------------------------------------------------------------------------------

// Device addresses of an image's planes: filtered ones in `d_planes`, a passthrough one in the
// coder's memory.
static void find_planes(const struct conv_cuda_coder *coder, const struct conv_group *group,
                        const struct conv_group_image *image, uint8_t *d_planes,
                        uint8_t *planes[CONV_IMAGE_MAX_CHANNELS])
{
    int filtered = image->shape.channels - (image->passthrough != SIZE_MAX);
    for (int c = 0; c < filtered; c++)
        planes[c] = d_planes + group->planes[image->plane + c].offset;
    if (image->passthrough != SIZE_MAX)
        planes[filtered] = coder->part[CONV_CUDA_CODER_PASSTHROUGH].d_data + image->passthrough -
                           (group->capacity - group->back);
}

static enum conv_status make_decode_table(struct conv_cuda_coder *coder,
                                          const struct conv_group *group,
                                          struct conv_decode_image *table, uint8_t *d_planes,
                                          struct conv_err *err)
{
    size_t rows = 0;
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        const struct conv_image *shape = &image->shape;
        table[i] = (struct conv_decode_image){
            .d_stream = coder->part[CONV_CUDA_CODER_STREAMS].d_data + image->stream,
            .stride = (int64_t)conv_image_stride(shape->width, shape->depth),
            .stream_bytes = (uint32_t)image->stream_bytes,
            .width = shape->width,
            .height = shape->height,
            .channels = shape->channels,
            .depth = shape->depth,
        };
        find_planes(coder, group, image, d_planes, table[i].d_plane);
        rows += conv_cuda_decode_scratch(&table[i]);
    }
    enum conv_status status = reserve(coder, CONV_CUDA_CODER_ROWS, rows, err);
    if (!status)
        conv_cuda_decode_plan(table, group->image_count, coder->part[CONV_CUDA_CODER_ROWS].d_data);
    return status;
}

static enum conv_status make_encode_table(struct conv_cuda_coder *coder,
                                          const struct conv_group *group,
                                          struct conv_encode_image *table, uint8_t *d_planes,
                                          struct conv_err *err)
{
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        const struct conv_image *shape = &image->shape;
        uint8_t *planes[CONV_IMAGE_MAX_CHANNELS] = {0};
        find_planes(coder, group, image, d_planes, planes);
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
    if (conv_cuda_encode_plan(&coder->plan, table, group->image_count))
        return conv_err_set(err, CONV_ERR_DEVICE, "the group is too large to be encoded on CUDA");
    enum conv_status status =
        reserve(coder, CONV_CUDA_CODER_SCRATCH, coder->plan.scratch_bytes, err);
    return status ? status : reserve(coder, CONV_CUDA_CODER_CHUNKS, coder->plan.output_bytes, err);
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
                                         size_t in_bytes, size_t table_offset, struct conv_err *err)
{
    struct conv_cuda_coder *coder = &stream->coder;
    size_t images = (size_t)group->image_count;
    enum conv_status status = reserve(coder, CONV_CUDA_CODER_PASSTHROUGH, group->back, err);
    if (!status)
        status = reserve_answers(
            coder, images * (sizeof(struct conv_encode_result) + sizeof(uint32_t)), err);
    if (!status && group->decoded)
        status = reserve(coder, CONV_CUDA_CODER_STREAMS, in_bytes, err);
    coder->decodes = table_offset;
    coder->encodes =
        table_offset + (group->decoded ? images * sizeof(struct conv_decode_image) : 0);
    if (!status && group->decoded)
        status = make_decode_table(coder, group, (void *)(group->h_in + coder->decodes),
                                   stream->buffer[0].d_data, err);
    if (!status && group->encoded)
        status = make_encode_table(coder, group, (void *)(group->h_in + coder->encodes),
                                   stream->buffer[stream->backend->op_count % 2].d_data, err);
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

static bool is_split(struct conv_backend *backend, const struct conv_group *group)
{
    size_t longest = 0;
    for (int i = 0; i < group->image_count && i < MOST_SPLIT; i++)
        if (longest < group->images[i].stream_bytes)
            longest = group->images[i].stream_bytes;
    bool split = group->image_count <= MOST_SPLIT &&
                 (atomic_load(&backend->has_split) || !atomic_load(&backend->has_whole) ||
                  atomic_fetch_add(&backend->whole_bytes, longest) + longest >= LEAST_SPLIT);
    atomic_store(split ? &backend->has_split : &backend->has_whole, true);
    return split;
}

// Bytes of the results of a group: where each image's chunks are, then a status word per image.
static size_t results_bytes(const struct conv_group *group)
{
    return (size_t)group->image_count * sizeof(struct conv_encode_result);
}

enum conv_status conv_cuda_coder_decode(struct conv_stream *stream, struct conv_group *group,
                                        const uint8_t *d_in, struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    struct conv_decode_batch batch = {
        .images = (const void *)(group->h_in + coder->decodes),
        .d_images = (const void *)(d_in + coder->decodes),
        .count = group->image_count,
        .split =
            is_split(stream->backend, group) ? CONV_DECODE_SPLIT_AUTO : CONV_DECODE_SPLIT_NEVER,
        .d_stop = stream->backend->d_stop,
        .d_status = (void *)(coder->answers.h_data + results_bytes(group)),
        .stream = stream->cuda,
    };
    return conv_cuda_decode(&batch)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the decoder")
               : CONV_OK;
}

enum conv_status conv_cuda_coder_encode(struct conv_stream *stream, const uint8_t *d_in,
                                        struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    struct conv_encode_batch batch = {
        .plan = coder->plan,
        .d_images = (const void *)(d_in + coder->encodes),
        .d_scratch = coder->part[CONV_CUDA_CODER_SCRATCH].d_data,
        .output = coder->part[CONV_CUDA_CODER_CHUNKS].d_data,
        .results = (void *)coder->answers.h_data,
        .stream = stream->cuda,
    };
    return conv_cuda_encode(&batch)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the encoder")
               : CONV_OK;
}

void conv_cuda_coder_note_decoded(const struct conv_cuda_coder *coder, struct conv_group *group)
{
    const uint32_t *states = (const void *)(coder->answers.h_data + results_bytes(group));
    for (int i = 0; i < group->image_count; i++)
        group->images[i].failed = states[i] != CONV_DECODE_DECODED;
}

enum conv_status conv_cuda_coder_copy_chunks(struct conv_stream *stream, struct conv_group *group,
                                             struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    const struct conv_encode_result *results = (const void *)coder->answers.h_data;
    size_t bytes = 0;
    for (int i = 0; i < group->image_count; i++) {
        struct conv_group_image *image = &group->images[i];
        image->chunks = results[i].offset;
        image->chunks_bytes = results[i].size;
        if (bytes < results[i].offset + results[i].size)
            bytes = results[i].offset + results[i].size;
    }
    if (bytes > coder->plan.output_bytes || bytes > group->capacity)
        return conv_err_set(err, CONV_ERR_DEVICE, "CUDA encoded more than fits into the buffer");
    if (group->memory) {
        enum conv_status status = group->memory->acquire_out(group->memory, bytes, err);
        if (status)
            return status;
        group->h_result = group->h_out;
    }
    cudaError_t code = cudaMemcpyAsync(group->h_out, coder->part[CONV_CUDA_CODER_CHUNKS].d_data,
                                       bytes, cudaMemcpyDeviceToHost, stream->cuda);
    return code ? conv_cuda_device_report(err, code, "copy encoded images from the device")
                : CONV_OK;
}
