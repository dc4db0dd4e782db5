// SPDX-License-Identifier: MIT
// Files of a group's images, decoded and encoded on the device: the tables of the images, the
// coders' device memory, and the download of encoded data. What formats differ in is in
// cuda_group_formats.c.
#include "engine/cuda_internal.h"

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

// An image whose stream could not be copied is decoded by a worker.
static bool is_decoded(const struct conv_group *group, const struct conv_group_image *image)
{
    return group->decoded && image->stream_bytes > 0;
}

static bool is_encoded(const struct conv_group *group, const struct conv_group_image *image)
{
    return group->encoded && (!group->decoded || image->stream_bytes > 0);
}

void conv_cuda_extent_add(struct conv_cuda_extent *extent, const struct conv_group *group)
{
    extent->groups++;
    extent->together = extent->together < group->together ? group->together : extent->together;
    extent->images += group->image_count;
    extent->planes += group->plane_count;
    extent->front += conv_image_align(group->front, CONV_IMAGE_PLANE_ALIGN);
    extent->back += conv_image_align(group->back, CONV_IMAGE_PLANE_ALIGN);
    extent->streams += conv_image_align(group->streams, CONV_IMAGE_PLANE_ALIGN);
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        extent->decodes[image->decoder] += is_decoded(group, image);
        extent->encodes[image->encoding.coder] += is_encoded(group, image);
    }
}

static size_t table_size(int count, size_t entry)
{
    return conv_image_align((size_t)count * entry, CONV_IMAGE_ROW_ALIGN);
}

size_t conv_cuda_coder_table_bytes(const struct conv_cuda_extent *all)
{
    size_t bytes = 0;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        bytes += table_size(all->decodes[f], conv_cuda_coders[f].decode_entry) +
                 table_size(all->encodes[f], conv_cuda_coders[f].encode_entry);
    return bytes;
}

size_t conv_cuda_coder_most_table_bytes(void)
{
    size_t decode = 0, encode = 0;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        const struct conv_cuda_coder_ops *ops = &conv_cuda_coders[f];
        decode = decode < ops->decode_entry ? ops->decode_entry : decode;
        encode = encode < ops->encode_entry ? ops->encode_entry : encode;
    }
    return decode + encode;
}

// Makes room for a table, and returns the batch that it describes.
static struct conv_cuda_batch take_table(struct conv_cuda_tables *tables, int count, size_t entry)
{
    struct conv_cuda_batch batch = {
        .count = count, .h_entries = tables->h_data, .d_entries = tables->d_data};
    tables->h_data += table_size(count, entry);
    tables->d_data += table_size(count, entry);
    return batch;
}

// Tables and answers of all batches: places of encoded data, then status words.
static void lay_out_batches(struct conv_cuda_coder *coder, const struct conv_cuda_extent *all,
                            struct conv_cuda_tables tables)
{
    struct conv_encode_result *places = (void *)coder->answers.h_data;
    uint32_t *status = (void *)(places + all->images);
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        const struct conv_cuda_coder_ops *ops = &conv_cuda_coders[f];
        coder->decode[f] = take_table(&tables, all->decodes[f], ops->decode_entry);
        coder->decode[f].status = status;
        status += all->decodes[f];
        coder->encode[f] = take_table(&tables, all->encodes[f], ops->encode_entry);
        coder->encode[f].places = places;
        places += all->encodes[f];
    }
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

// Fills the group's entries, which come after those of *at, and adds to `scratch` what decoding
// them takes.
static void fill_tables(struct conv_stream *stream, const struct conv_group *group,
                        struct conv_cuda_extent at, size_t scratch[CONV_DEVICE_CODERS])
{
    struct conv_cuda_coder *coder = &stream->coder;
    uint8_t *d_filtered = stream->buffer[stream->backend->op_count % 2].d_data;
    for (int i = 0; i < group->image_count; i++) {
        const struct conv_group_image *image = &group->images[i];
        struct conv_cuda_coded coded = {
            .image = image,
            .stride = (int64_t)conv_image_stride(image->shape.width, image->shape.depth),
        };
        if (is_decoded(group, image)) {
            const struct conv_cuda_coder_ops *ops = &conv_cuda_coders[image->decoder];
            size_t entry = (size_t)at.decodes[image->decoder]++ * ops->decode_entry;
            coded.h_stream = group->h_in + image->stream;
            coded.d_stream =
                coder->part[CONV_CUDA_CODER_STREAMS].d_data + at.streams + image->stream;
            find_planes(coder, group, &at, image, stream->buffer[0].d_data, coded.d_plane);
            scratch[image->decoder] +=
                ops->put_stream(coder->decode[image->decoder].h_entries + entry, &coded);
        }
        if (is_encoded(group, image)) {
            enum conv_device_coder f = image->encoding.coder;
            size_t entry = (size_t)at.encodes[f]++ * conv_cuda_coders[f].encode_entry;
            find_planes(coder, group, &at, image, d_filtered, coded.d_plane);
            conv_cuda_coders[f].put_planes(coder->encode[f].h_entries + entry, &coded);
        }
    }
}

// Batches follow each other on the stream, so they share the scratch memory.
static enum conv_status plan_batches(struct conv_stream *stream, const struct conv_cuda_extent *all,
                                     const size_t decode_scratch[CONV_DEVICE_CODERS],
                                     struct conv_err *err)
{
    struct conv_cuda_coder *coder = &stream->coder;
    size_t scratch = 0, output = 0;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        struct conv_cuda_batch *batch = &coder->encode[f];
        if (batch->count &&
            conv_cuda_coders[f].plan_encoding(&batch->plan, batch->h_entries, batch->count))
            return conv_err_set(err, all->groups > 1 ? CONV_ERR_MEMORY : CONV_ERR_DEVICE,
                                "the group is too large to be encoded on CUDA");
        scratch = scratch < batch->plan.scratch_bytes ? batch->plan.scratch_bytes : scratch;
        scratch = scratch < decode_scratch[f] ? decode_scratch[f] : scratch;
        output += conv_image_align(batch->plan.output_bytes, CONV_IMAGE_PLANE_ALIGN);
    }
    enum conv_status status = reserve(stream, CONV_CUDA_CODER_SCRATCH, scratch, all, err);
    if (!status)
        status = reserve(stream, CONV_CUDA_CODER_OUTPUT, output, all, err);
    uint8_t *d_output = coder->part[CONV_CUDA_CODER_OUTPUT].d_data;
    for (int f = 0; f < CONV_DEVICE_CODERS && !status; f++) {
        struct conv_cuda_batch *decode = &coder->decode[f], *encode = &coder->encode[f];
        decode->d_scratch = encode->d_scratch = coder->part[CONV_CUDA_CODER_SCRATCH].d_data;
        if (decode->count)
            conv_cuda_coders[f].plan_decoding(decode->h_entries, decode->count, decode->d_scratch);
        encode->d_output = d_output;
        d_output += conv_image_align(encode->plan.output_bytes, CONV_IMAGE_PLANE_ALIGN);
    }
    return status;
}

enum conv_status conv_cuda_coder_make_tables(struct conv_stream *stream,
                                             const struct conv_group *group,
                                             const struct conv_cuda_extent *all,
                                             const struct conv_cuda_tables *tables,
                                             struct conv_err *err)
{
    size_t scratch[CONV_DEVICE_CODERS] = {0};
    struct conv_cuda_extent at = {0};
    lay_out_batches(&stream->coder, all, *tables);
    for (const struct conv_group *one = group; one; one = one->next) {
        fill_tables(stream, one, at, scratch);
        conv_cuda_extent_add(&at, one);
    }
    return plan_batches(stream, all, scratch, err);
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

enum conv_status conv_cuda_coder_decode(struct conv_stream *stream, struct conv_err *err)
{
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        if (stream->coder.decode[f].count &&
            conv_cuda_coders[f].decode(stream, &stream->coder.decode[f]))
            return conv_cuda_device_report(err, cudaGetLastError(), "launch the decoder");
    return CONV_OK;
}

enum conv_status conv_cuda_coder_encode(struct conv_stream *stream, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int f = 0; f < CONV_DEVICE_CODERS && !status; f++)
        if (stream->coder.encode[f].count)
            status = conv_cuda_coder_run(f, stream->cuda, &stream->coder.encode[f], err);
    return status;
}

void conv_cuda_coder_note_decoded(const struct conv_cuda_coder *coder, struct conv_group *group)
{
    const uint32_t *status[CONV_DEVICE_CODERS];
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        status[f] = coder->decode[f].status;
    for (; group; group = group->next)
        for (int i = 0; i < group->image_count; i++) {
            struct conv_group_image *image = &group->images[i];
            image->failed = !is_decoded(group, image) || *status[image->decoder]++ != 0;
        }
}

// A part of a batch's output, and where it will be in the group's h_out.
struct span {
    size_t from, end, to;
};

// Notes for the group's images that a coder has encoded where their data is in its output, by
// *places, which moves to those of the next group.
static struct span find_span(struct conv_group *group, enum conv_device_coder f,
                             const struct conv_encode_result **places)
{
    struct span span = {.from = SIZE_MAX};
    for (int i = 0; i < group->image_count; i++) {
        struct conv_group_image *image = &group->images[i];
        if (image->encoding.coder != f || !is_encoded(group, image))
            continue;
        image->encoded = (*places)->offset;
        image->encoded_bytes = (*places)->size;
        (*places)++;
        size_t end = image->encoded + image->encoded_bytes;
        span.from = span.from < image->encoded ? span.from : image->encoded;
        span.end = span.end > end ? span.end : end;
    }
    span.from = span.end ? span.from : 0;
    return span;
}

static enum conv_status copy_group(struct conv_stream *stream, struct conv_group *group,
                                   const struct conv_encode_result *places[CONV_DEVICE_CODERS],
                                   struct conv_err *err)
{
    const struct conv_cuda_coder *coder = &stream->coder;
    struct span span[CONV_DEVICE_CODERS];
    size_t bytes = 0;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        span[f] = find_span(group, f, &places[f]);
        if (span[f].end > coder->encode[f].plan.output_bytes)
            return conv_err_set(err, CONV_ERR_DEVICE, "CUDA encoded more than it can");
        span[f].to = bytes;
        bytes += span[f].end - span[f].from;
    }
    for (int i = 0; i < group->image_count; i++) {
        const struct span *of = &span[group->images[i].encoding.coder];
        group->images[i].encoded += of->to - of->from;
    }
    if (bytes > group->capacity)
        return conv_err_memory(err, "CUDA encoded more than fits into the buffer");
    if (group->memory) {
        enum conv_status status = group->memory->acquire_out(group->memory, bytes, err);
        if (status)
            return status;
        group->h_result = group->h_out;
    }
    cudaError_t code = cudaSuccess;
    for (int f = 0; f < CONV_DEVICE_CODERS && !code; f++)
        if (span[f].end > span[f].from)
            code =
                cudaMemcpyAsync(group->h_out + span[f].to, coder->encode[f].d_output + span[f].from,
                                span[f].end - span[f].from, cudaMemcpyDeviceToHost, stream->cuda);
    return conv_cuda_check(code, "copy encoded images from the device", err);
}

enum conv_status conv_cuda_coder_copy_encoded(struct conv_stream *stream, struct conv_group *group,
                                              struct conv_err *err)
{
    const struct conv_encode_result *places[CONV_DEVICE_CODERS];
    enum conv_status status = CONV_OK;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        places[f] = stream->coder.encode[f].places;
    for (; group && !status; group = group->next)
        status = copy_group(stream, group, places, err);
    return status;
}
