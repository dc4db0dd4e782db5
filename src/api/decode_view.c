// SPDX-License-Identifier: MIT
// Single PNG files: what they hold, and their samples. A view of the file's own planes is decoded
// in place; for other views, rows are converted as they come.
#include "api/decode_view.h"

#include "api/api_codecs.h"
#include "engine/view.h"

conv_status conv_probe_png(const void *data, size_t size, conv_png_info *info, char *message)
{
    struct conv_image_header header;
    struct conv_err err;
    enum conv_status status =
        data && info ? conv_png_format.probe(data, size, &header, &err)
                     : conv_err_set(&err, CONV_ERR_USAGE, "%s is NULL", data ? "`info`" : "`data`");
    if (status) {
        if (message)
            conv_api_explain(message, CONV_MESSAGE_SIZE, &err);
        return status;
    }
    *info = (conv_png_info){
        .width = header.shape.width,
        .height = header.shape.height,
        .channels = header.shape.channels,
        .sample = header.shape.depth == 16 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8,
        .has_alpha = header.shape.alpha,
        .bit_depth = header.png.bit_depth,
        .color_type = header.png.color_type,
        .interlaced = header.png.interlaced,
        .animated = conv_png_format.is_animated(data, size),
    };
    return CONV_OK;
}

// Writes rows to a view that is not the file's planes.
struct row_writer {
    const conv_image *view;
    conv_image row;                 // of the file: one interleaved row of native samples
    struct conv_view_copier copier; // from `row`
    uint16_t *native;               // of 16 bits: memory of a row
};

static void put_row(void *context, int y, const struct conv_image *row)
{
    const struct row_writer *writer = context;
    conv_image from = conv_view_of(row), to = *writer->view;
    to.data = (uint8_t *)to.data + y * to.row_stride;
    conv_view_copy(&to, &from, 0, 1);
}

static void put_interleaved(void *context, int y, const uint8_t *row)
{
    const struct row_writer *writer = context;
    const conv_image *view = writer->view;
    const void *from = row;
    if (writer->native) {
        size_t count = (size_t)writer->row.width * (size_t)writer->row.channels;
        const uint16_t *samples = (const uint16_t *)(const void *)row;
        for (size_t i = 0; i < count; i++)
            writer->native[i] = conv_view_from_big_endian(samples[i]);
        from = writer->native;
    }
    conv_view_copier_row(&writer->copier, view, (uint8_t *)view->data + y * view->row_stride,
                         &writer->row, from);
}

static enum conv_status decode_rows(conv_context *context, struct conv_codec *codec,
                                    const conv_bytes *file, const struct conv_image_header *header,
                                    const conv_image *view, struct conv_err *err)
{
    bool wide = header->shape.depth == 16;
    int channels = header->shape.channels;
    struct row_writer writer = {
        .view = view,
        .row = conv_image_interleaved(NULL, header->shape.width, 1, channels,
                                      wide ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8, CONV_HOST),
    };
    conv_view_copier_init(&writer.copier, view, &writer.row);
    struct conv_png_rows rows = {put_row, put_interleaved, &writer};
    void *memory = NULL;
    struct conv_memory_pools *pools = context->device->pools;
    enum conv_status status = CONV_OK;
    if (wide)
        status = conv_memory_take(pools, CONV_HOST, (size_t)writer.row.row_stride, &memory, err);
    writer.native = memory;
    if (!status)
        status = conv_png_decode_rows(codec, file->data, file->size, header, &rows, err);
    conv_memory_give(pools, CONV_HOST, memory);
    return status;
}

enum conv_status conv_api_decode_view(conv_context *context, int worker, const conv_bytes *file,
                                      const struct conv_image_header *header,
                                      const conv_image *view, struct conv_err *err)
{
    struct conv_codec *codec;
    enum conv_status status = conv_api_codecs_get(context->codecs, worker, -1, &codec, err);
    if (status)
        return status;
    struct conv_image planes = conv_view_planes(view);
    if (conv_view_is_planar(view) && view->channels == header->shape.channels &&
        planes.depth == header->shape.depth)
        status = conv_png_format.decode(codec, file->data, file->size, header, &planes, err);
    else
        status = decode_rows(context, codec, file, header, view, err);
    conv_png_format.trim(codec);
    return status;
}
