// SPDX-License-Identifier: MIT
// PNG as a row of the table of formats. One codec per worker: it chooses the decoder or encoder and
// owns the memory reused from image to image.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/features.h"
#include "png/chunk.h"
#include "png/cpu/cpu_png.h"
#include "png/cpu/interleave.h"
#include "png/png.h"

#define HEAD_BYTES 29 // signature and IHDR without its CRC

struct conv_codec {
    const struct conv_png_encoder *encoder; // NULL: ours
    int level;
    size_t keep;               // bytes per buffer that trim keeps
    const atomic_int *stop;    // may be NULL
    struct conv_encoder *fast; // ours; NULL with another
    struct conv_decoder decoder;
    struct conv_buffer pixels;      // interleaved rows
    struct conv_buffer file;        // the last encoded image
    uint8_t head[CONV_ENCODE_HEAD]; // of the last frame
};

static int level_of(const struct conv_codec_config *config)
{
    const struct conv_png_encoder *encoder = config->encoder;
    if (config->level != -1)
        return config->level;
    return encoder ? encoder->standard_level : CONV_ENCODE_DEFAULT_LEVEL;
}

enum conv_status conv_png_check_level(const struct conv_codec_config *config, struct conv_err *err)
{
    const struct conv_png_encoder *encoder = config->encoder;
    int most = encoder ? encoder->most_level : CONV_ENCODE_MAX_LEVEL;
    if (config->level < -1 || config->level > most)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "compression level %d is not within 0 to %d, the %s encoder's",
                            config->level, most, encoder ? encoder->name : "fast");
    return CONV_OK;
}

static void close_codec(struct conv_codec *codec)
{
    if (!codec)
        return;
    conv_encode_close(codec->fast);
    conv_decoder_free(&codec->decoder);
    conv_buffer_free(&codec->pixels);
    conv_buffer_free(&codec->file);
    free(codec);
}

static enum conv_status open_codec(struct conv_codec **codec,
                                   const struct conv_codec_config *config, struct conv_err *err)
{
    *codec = NULL;
    enum conv_status status = conv_png_check_level(config, err);
    if (status)
        return status;
    int level = level_of(config);
    struct conv_codec *made = calloc(1, sizeof *made);
    if (!made)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    made->encoder = config->encoder;
    made->level = level;
    made->keep = config->keep > 0 ? config->keep : SIZE_MAX;
    made->stop = made->decoder.stop = config->stop;
    made->decoder.parallel = config->parallel;
    if (made->encoder && made->encoder->prepare)
        made->encoder->prepare(level);
    if (!made->encoder)
        status =
            conv_encode_open(&made->fast, level, conv_cpu_features(), CONV_ENCODE_MAX_CHUNK, err);
    if (made->fast) {
        conv_encode_set_stop(made->fast, config->stop);
        conv_encode_share(made->fast, config->parallel);
    }
    if (status) {
        close_codec(made);
        return status;
    }
    *codec = made;
    return CONV_OK;
}

static void trim(struct conv_codec *codec)
{
    if (codec->fast)
        conv_encode_trim(codec->fast, codec->keep);
    conv_decoder_trim(&codec->decoder, codec->keep);
    conv_buffer_trim(&codec->pixels, codec->keep);
    conv_buffer_trim(&codec->file, codec->keep);
}

// From level 2 on all filtered rows are held at once.
static size_t encode_bytes(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    (void)metadata;
    return config->encoder ? config->encoder->bytes(shape)
                           : conv_encode_bytes(level_of(config), shape);
}

// Refuses files that libpng is certain to refuse, with its message. Otherwise they would be
// inflated twice, which costs twice libpng's time or more.
static bool is_refused(const struct conv_decoder *decoder, struct conv_err *err)
{
    if (decoder->inflate.ended_early)
        conv_err_set(err, CONV_ERR_FORMAT, "damaged image: Not enough image data");
    else if (decoder->bad_filter)
        conv_err_set(err, CONV_ERR_FORMAT, "damaged image: bad adaptive filter value");
    return decoder->inflate.ended_early || decoder->bad_filter;
}

// libpng allocates rows of its own. Those of the fast decoder would double the memory that a
// damaged file of long rows takes; interlaced files do not use them, and the next file may.
static void make_room(struct conv_codec *codec, const struct conv_image_header *header)
{
    conv_decoder_trim(&codec->decoder, header->png.interlaced ? codec->keep : 0);
}

// To the planes of *dst, or to `rows`.
static enum conv_status decode_to(struct conv_codec *codec, const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  const struct conv_image *dst, const struct conv_rows *rows,
                                  struct conv_err *err)
{
    codec->decoder.put_rows = rows;
    if (conv_decode_fast(&codec->decoder, data, size, header, dst))
        return CONV_OK;
    if (is_refused(&codec->decoder, err))
        return CONV_ERR_FORMAT;
    make_room(codec, header);
    return conv_libpng_decode(&codec->pixels, data, size, header, dst, rows, codec->stop, err);
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               struct conv_err *err)
{
    assert(dst->width == header->shape.width && dst->height == header->shape.height &&
           dst->channels == header->shape.channels && dst->depth == header->shape.depth);
    return decode_to(codec, data, size, header, dst, NULL, err);
}

static enum conv_status decode_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_rows *rows, struct conv_err *err)
{
    return decode_to(codec, data, size, header, NULL, rows, err);
}

static void put_parts(struct conv_encoded *bytes, const uint8_t *head,
                      const struct conv_metadata *meta, const uint8_t *idat, size_t idat_size)
{
    size_t late = meta ? meta->size - meta->front : 0;
    *bytes = (struct conv_encoded){
        .part = {{head, CONV_ENCODE_HEAD},
                 {meta ? meta->data : NULL, meta ? meta->front : 0},
                 {idat, idat_size},
                 {late > 0 ? meta->data + meta->front : NULL, late},
                 {conv_encode_tail, CONV_ENCODE_TAIL}},
    };
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        bytes->size += bytes->part[i].size;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *meta, struct conv_encoded *bytes,
                               struct conv_err *err)
{
    enum conv_status status;
    if (codec->encoder)
        status = codec->encoder->encode(&codec->pixels, &codec->file, src, codec->level,
                                        codec->stop, err);
    else
        status = conv_encode_image(codec->fast, &codec->file, src, NULL, err);
    if (status)
        return status;
    const struct conv_buffer *file = &codec->file;
    size_t data_size = file->size - CONV_ENCODE_HEAD - CONV_ENCODE_TAIL;
    put_parts(bytes, file->data, meta, file->data + CONV_ENCODE_HEAD, data_size);
    return CONV_OK;
}

// Our own encoder only. The file is a little longer than the samples at most.
static enum conv_status encode_into(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source,
                                    const struct conv_file_room *room, size_t *size,
                                    struct conv_err *err)
{
    struct conv_buffer into = {.capacity = conv_encode_room(codec->fast, src)};
    uint8_t *file = into.data = room->take(room->context, into.capacity);
    if (!file)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu bytes", into.capacity);
    enum conv_status status = conv_encode_image(codec->fast, &into, src, source, err);
    assert(into.data == file); // large enough, so it has not grown
    *size = into.size;
    return status;
}

// --- for decoding and encoding on a device -------------------------------------------------------

// The bytes are not validated, and a tRNS chunk after them is not seen.
static bool looks_decodable(const uint8_t *head, size_t bytes)
{
    (void)bytes;
    struct conv_err err;
    bool palette = head[25] & 1, interlaced = head[28] != 0;
    return !conv_png_check_head(head, HEAD_BYTES, &err) && !interlaced && head[24] >= 8 && !palette;
}

// Palettes count as RGB, less than 8 bits as 8. 0 if it is not the head of a PNG.
static uint64_t head_samples(const uint8_t *head, size_t bytes, uint64_t size)
{
    (void)bytes;
    struct conv_err err;
    (void)size;
    uint64_t width = conv_chunk_read_u32(head + 16), height = conv_chunk_read_u32(head + 20);
    uint64_t pixels = (width & INT32_MAX) * (height & INT32_MAX);
    int type = head[25];
    bool valid = type == CONV_COLOR_GRAY || type == CONV_COLOR_RGB || type == CONV_COLOR_PALETTE ||
                 type == CONV_COLOR_GRAY_ALPHA || type == CONV_COLOR_RGB_ALPHA;
    if (!valid || conv_png_check_head(head, HEAD_BYTES, &err))
        return 0;
    uint64_t channels = (uint64_t)conv_chunk_channels(type);
    channels = type == CONV_COLOR_PALETTE ? 3 : channels;
    return pixels > UINT64_MAX / 8 ? 0 : pixels * channels * (head[24] == 16 ? 2 : 1);
}

static bool copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                        const struct conv_image_header *header)
{
    return header->device_stream &&
           conv_decode_copy_stream(stream, stream_size, data, size, header);
}

static void frame(struct conv_codec *codec, const struct conv_image *shape,
                  const struct conv_device_encoding *encoding, const struct conv_metadata *meta,
                  const uint8_t *idat, size_t idat_size, struct conv_encoded *bytes)
{
    (void)encoding;
    conv_encode_put_head(codec->head, shape);
    put_parts(bytes, codec->head, meta, idat, idat_size);
}

static const struct conv_format_device device = {
    .coder = CONV_DEVICE_PNG,
    .head_bytes = HEAD_BYTES,
    .looks_decodable = looks_decodable,
    .head_samples = head_samples,
    .parts = 1,
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
    .check_head = conv_png_check_head,
    .probe = conv_png_probe,
    .check_size = conv_png_check_size,
    .orientation = conv_png_orientation,
    .is_animated = conv_png_is_animated,
    .end = conv_png_end,
    .collect = conv_png_collect,
    .take_common = conv_png_take_common,
    .put_common = conv_png_put_common,
    .open = open_codec,
    .close = close_codec,
    .trim = trim,
    .decode_bytes = conv_decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = decode,
    .decode_rows = decode_rows,
    .encode = encode,
    .encode_into = encode_into,
    .device = &device,
};
