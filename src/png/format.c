// SPDX-License-Identifier: MIT
// PNG as a row of the table of formats: png.h's functions behind the types that all formats share.
#include "image/format.h"
#include "png/chunk.h"
#include "png/png.h"

// Indexes of conv_image_header.detail for the fields of a PNG header that the shape lacks.
enum { BIT_DEPTH, COLOR_TYPE, INTERLACED, TRANSPARENCY };

static struct conv_image_header pack_header(const struct conv_png_header *png)
{
    return (struct conv_image_header){
        .shape = png->shape,
        .device_stream = conv_png_is_plain(png),
        .detail = {[BIT_DEPTH] = (uint32_t)png->bit_depth,
                   [COLOR_TYPE] = (uint32_t)png->color_type,
                   [INTERLACED] = png->interlaced,
                   [TRANSPARENCY] = png->transparency},
    };
}

static struct conv_png_header unpack_header(const struct conv_image_header *header)
{
    return (struct conv_png_header){
        .width = header->shape.width,
        .height = header->shape.height,
        .bit_depth = (int)header->detail[BIT_DEPTH],
        .color_type = (int)header->detail[COLOR_TYPE],
        .interlaced = header->detail[INTERLACED],
        .transparency = header->detail[TRANSPARENCY],
        .shape = header->shape,
    };
}

static struct conv_png_codec *png_codec(struct conv_codec *codec)
{
    return (struct conv_png_codec *)codec;
}

static enum conv_status probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err)
{
    struct conv_png_header png;
    enum conv_status status = conv_png_probe(data, size, &png, err);
    if (!status)
        *header = pack_header(&png);
    return status;
}

static enum conv_status check_size(const uint8_t *data, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err)
{
    struct conv_png_header png = unpack_header(header);
    return conv_png_check_size(data, size, &png, err);
}

static enum conv_status collect(const uint8_t *data, size_t size,
                                const struct conv_image_header *header, bool look,
                                struct conv_metadata *metadata, struct conv_err *err)
{
    struct conv_png_header png = unpack_header(header);
    return conv_png_meta_collect(data, size, &png, look, metadata, err);
}

static enum conv_status take_common(const uint8_t *data, size_t size,
                                    const struct conv_image_header *header, bool look,
                                    struct conv_common *common, struct conv_err *err)
{
    (void)header;
    return conv_png_take_common(data, size, look, common, err);
}

static enum conv_status open_codec(struct conv_codec **codec,
                                   const struct conv_codec_config *config, struct conv_err *err)
{
    struct conv_png_codec *png;
    enum conv_status status = conv_png_codec_open(&png, config, err);
    *codec = (struct conv_codec *)png;
    return status;
}

static void close_codec(struct conv_codec *codec)
{
    conv_png_codec_close(png_codec(codec));
}

static void trim(struct conv_codec *codec)
{
    conv_png_codec_trim(png_codec(codec));
}

static size_t decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct conv_png_header png = unpack_header(header);
    return conv_png_decode_bytes(&png, size);
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               struct conv_err *err)
{
    struct conv_png_header png = unpack_header(header);
    return conv_png_decode(png_codec(codec), data, size, &png, dst, err);
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, struct conv_encoded *file,
                               struct conv_err *err)
{
    return conv_png_encode(png_codec(codec), src, metadata, file, err);
}

static bool copy_stream(uint8_t *stream, size_t *stream_bytes, const uint8_t *data, size_t size,
                        const struct conv_image_header *header)
{
    struct conv_png_header png = unpack_header(header);
    return conv_png_copy_stream(stream, stream_bytes, data, size, &png);
}

static void frame(struct conv_codec *codec, const struct conv_image *shape,
                  const struct conv_metadata *metadata, const uint8_t *encoded_data,
                  size_t encoded_bytes, struct conv_encoded *file)
{
    conv_png_frame(png_codec(codec), shape, metadata, encoded_data, encoded_bytes, file);
}

static const struct conv_format_device device = {
    .head_bytes = CONV_PNG_HEAD_SIZE,
    .looks_decodable = conv_png_looks_plain,
    .head_samples = conv_png_head_samples,
    .copy_stream = copy_stream,
    .frame = frame,
};

const struct conv_format conv_png_format = {
    .name = "PNG",
    .patterns = {"*.png"},
    .extension = ".png",
    .most_depth = 16,
    .most_side = CONV_CHUNK_MAX_FIELD,
    .head_bytes = CONV_PNG_SIGNATURE_SIZE,
    .check_head = conv_png_check_signature,
    .probe = probe,
    .check_size = check_size,
    .is_animated = conv_png_is_animated,
    .end = conv_png_end,
    .collect = collect,
    .take_common = take_common,
    .put_common = conv_png_put_common,
    .open = open_codec,
    .close = close_codec,
    .trim = trim,
    .decode_bytes = decode_bytes,
    .encode_bytes = conv_png_encode_bytes,
    .decode = decode,
    .encode = encode,
    .device = &device,
};
