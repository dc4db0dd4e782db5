// SPDX-License-Identifier: MIT
// The formats that the device decodes and encodes: entries of the coders' tables, and launches.
#include "engine/cuda_internal.h"

#include <string.h>

#include "engine/view.h"

// --- PNG -----------------------------------------------------------------------------------------

static size_t png_takes_stream(const struct conv_image_header *header, size_t most_bytes)
{
    struct conv_decode_image image = {
        .stream_bytes = (uint32_t)most_bytes,
        .width = header->shape.width,
        .height = header->shape.height,
        .channels = header->shape.channels,
        .depth = header->shape.depth,
    };
    bool takes = most_bytes <= UINT32_MAX && conv_cuda_decode_takes(&image) &&
                 header->orientation <= 1 && !header->weighed;
    return takes ? conv_cuda_decode_scratch(&image) : 0;
}

static size_t png_encoded_bytes(const struct conv_image *shape, const struct conv_device_encoding *)
{
    return conv_cuda_encode_bound(shape->width, shape->height, shape->channels, shape->depth);
}

static size_t png_put_stream(void *entry, const struct conv_cuda_coded *coded)
{
    const struct conv_image *shape = &coded->image->shape;
    struct conv_decode_image *image = entry;
    *image = (struct conv_decode_image){
        .d_stream = coded->d_stream,
        .stride = coded->stride,
        .stream_bytes = (uint32_t)coded->image->stream_bytes,
        .width = shape->width,
        .height = shape->height,
        .channels = shape->channels,
        .depth = shape->depth,
    };
    for (int c = 0; c < shape->channels; c++)
        image->d_plane[c] = coded->d_plane[c];
    return conv_cuda_decode_scratch(image);
}

static void png_put_planes(void *entry, const struct conv_cuda_coded *coded)
{
    const struct conv_image *shape = &coded->image->shape;
    struct conv_encode_image *image = entry;
    *image = (struct conv_encode_image){
        .stride = coded->stride,
        .width = shape->width,
        .height = shape->height,
        .channels = shape->channels,
        .depth = shape->depth,
    };
    for (int c = 0; c < shape->channels; c++)
        image->plane[c] = coded->d_plane[c];
}

// Batches of at most this many images are decoded by many blocks of threads per image. With more
// images one block each suffices to occupy all SMs, since other streams decode at the same time.
#define MOST_SPLIT 4

// Loading the kernels for parts takes 20 ms, when a group first uses them. In that time the other
// kernels decode this many bytes of one stream. So loading does not pay for a single group of few
// images, such as the last one of a run, but it pays for several.
#define LEAST_SPLIT ((size_t)4 << 20)

static bool is_split(struct conv_backend *backend, const struct conv_decode_image *images,
                     int count)
{
    size_t longest = 0;
    for (int i = 0; i < count && i < MOST_SPLIT; i++)
        if (longest < images[i].stream_bytes)
            longest = images[i].stream_bytes;
    bool split = count <= MOST_SPLIT &&
                 (atomic_load(&backend->has_split) || !atomic_load(&backend->has_whole) ||
                  atomic_fetch_add(&backend->whole_bytes, longest) + longest >= LEAST_SPLIT);
    atomic_store(split ? &backend->has_split : &backend->has_whole, true);
    return split;
}

static enum conv_status png_decode(struct conv_stream *stream, const struct conv_cuda_batch *batch)
{
    const struct conv_decode_image *images = (const void *)batch->h_entries;
    return conv_cuda_decode(&(struct conv_decode_batch){
        .images = images,
        .d_images = (const void *)batch->d_entries,
        .count = batch->count,
        .at_once = batch->at_once,
        .split = !stream->backend || is_split(stream->backend, images, batch->count)
                     ? CONV_DECODE_SPLIT_AUTO
                     : CONV_DECODE_SPLIT_NEVER,
        .d_stop = stream->backend ? stream->backend->d_stop : NULL,
        .d_status = batch->status,
        .stream = stream->cuda,
    });
}

#if CONV_HAVE_JPEG
// --- JPEG ----------------------------------------------------------------------------------------

static size_t jpeg_takes_stream(const struct conv_image_header *header, size_t most_bytes)
{
    struct conv_jpeg_decode_image image = {
        .stream_bytes = (uint32_t)most_bytes,
        .width = header->shape.width,
        .height = header->shape.height,
        .components = header->jpeg.components,
        .segments = header->jpeg.segments,
    };
    memcpy(image.h, header->jpeg.h, sizeof image.h);
    memcpy(image.v, header->jpeg.v, sizeof image.v);
    bool takes = most_bytes <= UINT32_MAX && conv_cuda_jpeg_decode_takes(&image);
    return takes ? conv_cuda_jpeg_decode_scratch(&image) : 0;
}

// The encoder's bound is several times the bytes of the planes, which encoded data hardly ever
// take: only noise at the highest qualities does.
static size_t jpeg_encoded_bytes(const struct conv_image *shape,
                                 const struct conv_device_encoding *encoding)
{
    struct conv_jpeg_encode_image image = {
        .width = shape->width,
        .height = shape->height,
        .components = shape->channels,
        .h = encoding->h,
        .v = encoding->v,
    };
    size_t bound = shape->depth == 8 ? conv_cuda_jpeg_encode_bound(&image) : 0;
    size_t usual = conv_image_bytes(shape) + 4096;
    return bound < usual ? bound : usual;
}

// The stream begins with what the decoder has to know of it.
static size_t jpeg_put_stream(void *entry, const struct conv_cuda_coded *coded)
{
    const struct conv_jpeg_stream *head = (const void *)coded->h_stream;
    const struct conv_image *shape = &coded->image->shape;
    struct conv_jpeg_decode_image *image = entry;
    const conv_image upright = {
        .data = coded->d_plane[0],
        .width = shape->width,
        .height = shape->height,
        .column_stride = 1,
        .row_stride = coded->stride,
    };
    const conv_image stored = conv_view_stored(&upright, head->orientation);
    *image = (struct conv_jpeg_decode_image){
        .d_stream = coded->d_stream,
        .stream_bytes = (uint32_t)coded->image->stream_bytes,
        .column = stored.column_stride,
        .stride = stored.row_stride,
        .width = stored.width,
        .height = stored.height,
        .components = head->components,
        .gray = shape->channels < head->components && !head->weighed,
        .weighed = head->weighed,
        .segments = head->segments,
    };
    memcpy(image->h, head->h, sizeof image->h);
    memcpy(image->v, head->v, sizeof image->v);
    for (int c = 0; c < shape->channels; c++)
        image->d_plane[c] = coded->d_plane[c] + ((uint8_t *)stored.data - coded->d_plane[0]);
    return conv_cuda_jpeg_decode_scratch(image);
}

static void jpeg_put_planes(void *entry, const struct conv_cuda_coded *coded)
{
    const struct conv_image *shape = &coded->image->shape;
    const struct conv_device_encoding *encoding = &coded->image->encoding;
    struct conv_jpeg_encode_image *image = entry;
    *image = (struct conv_jpeg_encode_image){
        .stride = coded->stride,
        .width = shape->width,
        .height = shape->height,
        .components = shape->channels,
        .h = encoding->h,
        .v = encoding->v,
    };
    memcpy(image->quant, encoding->quant, sizeof image->quant);
    for (int c = 0; c < shape->channels; c++)
        image->plane[c] = coded->d_plane[c];
}

static enum conv_status jpeg_decode(struct conv_stream *stream, const struct conv_cuda_batch *batch)
{
    return conv_cuda_jpeg_decode(&(struct conv_jpeg_decode_batch){
        .images = (const void *)batch->h_entries,
        .d_images = (const void *)batch->d_entries,
        .count = batch->count,
        .d_scratch = batch->d_scratch,
        .d_stop = stream->backend ? stream->backend->d_stop : NULL,
        .d_status = batch->status,
        .stream = stream->cuda,
    });
}
#endif

// --- the table -----------------------------------------------------------------------------------

const struct conv_cuda_coder_ops conv_cuda_coders[CONV_DEVICE_CODERS] = {
    [CONV_DEVICE_PNG] =
        {
            .decode_entry = sizeof(struct conv_decode_image),
            .encode_entry = sizeof(struct conv_encode_image),
            .takes_stream = png_takes_stream,
            .encoded_bytes = png_encoded_bytes,
            .put_stream = png_put_stream,
            .put_planes = png_put_planes,
            .plan_decoding = conv_cuda_decode_plan,
            .plan_encoding = conv_cuda_encode_plan,
            .decode = png_decode,
            .encode = conv_cuda_encode,
        },
#if CONV_HAVE_JPEG
    [CONV_DEVICE_JPEG] =
        {
            .decode_entry = sizeof(struct conv_jpeg_decode_image),
            .encode_entry = sizeof(struct conv_jpeg_encode_image),
            .takes_stream = jpeg_takes_stream,
            .encoded_bytes = jpeg_encoded_bytes,
            .put_stream = jpeg_put_stream,
            .put_planes = jpeg_put_planes,
            .plan_decoding = conv_cuda_jpeg_decode_plan,
            .plan_encoding = conv_cuda_jpeg_encode_plan,
            .decode = jpeg_decode,
            .encode = conv_cuda_jpeg_encode,
        },
#endif
};

bool conv_cuda_coder_takes_stream(enum conv_device_coder coder,
                                  const struct conv_image_header *header, size_t most_bytes)
{
    return conv_cuda_coders[coder].takes_stream(header, most_bytes);
}

size_t conv_cuda_coder_encoded_bytes(const struct conv_image *shape,
                                     const struct conv_device_encoding *encoding)
{
    return conv_cuda_coders[encoding->coder].encoded_bytes(shape, encoding);
}

enum conv_status conv_cuda_coder_run(enum conv_device_coder coder, cudaStream_t stream,
                                     const struct conv_cuda_batch *batch, struct conv_err *err)
{
    const struct conv_encode_batch work = {
        .plan = batch->plan,
        .d_images = batch->d_entries,
        .d_scratch = batch->d_scratch,
        .output = batch->d_output,
        .results = batch->places,
        .stream = stream,
    };
    return conv_cuda_coders[coder].encode(&work)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the encoder")
               : CONV_OK;
}
