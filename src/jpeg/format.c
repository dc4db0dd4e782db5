// SPDX-License-Identifier: MIT
// JPEG as a row of the table of formats, and the codec of a worker.
#include <string.h>

#include "image/format.h"
#include "jpeg/cpu/cpu_jpeg.h"
#include "jpeg/jpeg.h"

struct own {
    struct conv_codec codec;
    struct conv_buffer luma; // that replaces a file's, encoded
    struct conv_libjpeg_session *session;
    struct conv_jpeg_encoding encoding; // of the session
    uint8_t head[CONV_JPEG_HEAD_MOST];  // of the last frame
};

static void take_luma(struct conv_image_header *header)
{
    header->shape.channels = 1;
    header->jpeg.luma = true;
}

static void close_own(struct conv_codec *codec)
{
    struct own *own = (struct own *)codec;
    conv_libjpeg_end(&own->session);
    conv_buffer_free(&own->luma);
}

static void trim_own(struct conv_codec *codec)
{
    struct own *own = (struct own *)codec;
    conv_libjpeg_end(&own->session); // of an image that failed
    conv_buffer_trim(&own->luma, codec->config.keep);
}

static size_t decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct conv_jpeg_planes planes = conv_jpeg_planes_of(header);
    size_t coefficients =
        (size_t)header->jpeg.padded_blocks * CONV_JPEG_BLOCK_SAMPLES * sizeof(int16_t);
    if (header->jpeg.streamed)
        return conv_jpeg_decode_bytes(header, size);
    return conv_jpeg_planes_bytes(&planes) + (header->jpeg.several_scans ? coefficients : 0);
}

// Replacing luma takes all coefficients of the source, those of the new luma, and that as a file.
static size_t transfer_bytes(const struct conv_metadata *metadata, size_t most)
{
    struct conv_image_header header;
    if (!metadata || !metadata->source ||
        conv_jpeg_probe(metadata->bytes.data + metadata->bytes.size, metadata->source, &header,
                        NULL))
        return 0;
    size_t block = CONV_JPEG_BLOCK_SAMPLES * sizeof(int16_t);
    return 2 * (size_t)header.jpeg.padded_blocks * block + most + metadata->source;
}

static size_t encode_bytes(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    struct conv_jpeg_encoding encoding;
    conv_jpeg_choose(&encoding, config, shape, metadata);
    struct conv_jpeg_planes planes = {.width = shape->width,
                                      .height = shape->height,
                                      .components = shape->channels < 3 ? 1 : 3,
                                      .h = {encoding.h, 1, 1},
                                      .v = {encoding.v, 1, 1}};
    size_t most = conv_jpeg_most_bytes(&encoding, shape);
    return most + conv_jpeg_planes_bytes(&planes) + conv_jpeg_coefficient_bytes(&encoding, shape) +
           transfer_bytes(metadata, most);
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               const struct conv_rows *rows, struct conv_err *err)
{
    const atomic_int *stop = codec->config.stop;
    if (conv_jpeg_decode(&codec->scratch, data, size, header, dst, rows, stop))
        return CONV_OK;
    return conv_libjpeg_decode(&codec->scratch, data, size, header, dst, rows, stop, err);
}

// `rest`: further bytes of the file, of which `file` has the first.
static void put_parts(struct conv_encoded *encoded, const uint8_t *file, size_t size,
                      const uint8_t *rest, size_t rest_size, const struct conv_metadata *metadata)
{
    enum { SOI_SIZE = 2 };
    bool jfif = conv_jpeg_has_jfif(metadata);
    *encoded = (struct conv_encoded){
        .part = {{file, SOI_SIZE},
                 {jfif ? NULL : conv_jpeg_jfif, jfif ? 0 : CONV_JPEG_JFIF_SIZE},
                 {metadata ? metadata->bytes.data : NULL, metadata ? metadata->bytes.size : 0},
                 {file + SOI_SIZE, size - SOI_SIZE},
                 {rest, rest_size}},
    };
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        encoded->size += encoded->part[i].size;
}

// Sets *row to row y of the planes of *src, or of `source` (else NULL), which it gets in
// codec->row. False: out of memory.
static bool take_row(struct conv_codec *codec, struct conv_image *row, const struct conv_image *src,
                     const struct conv_row_source *source, int y)
{
    size_t stride = conv_image_stride(src->width, src->depth);
    *row = *src;
    row->height = 1;
    if (source && !conv_buffer_reserve(&codec->row, CONV_IMAGE_MAX_CHANNELS * stride))
        return false;
    for (int c = 0; c < src->channels; c++)
        row->plane[c].data =
            source ? codec->row.data + (size_t)c * stride : conv_image_row(src, c, y);
    if (source)
        source->get(source->context, y, row);
    return true;
}

static enum conv_status check_alpha(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source, int from, int to,
                                    struct conv_err *err)
{
    struct conv_image row;
    for (int y = from; y < to; y++) {
        unsigned least = 255;
        if (!take_row(codec, &row, src, source, y))
            return conv_err_memory(err, "out of memory");
        for (int x = 0; x < src->width; x++)
            least &= row.plane[row.channels - 1].data[x];
        if (least != 255)
            return conv_err_advise(err, CONV_ERR_UNSUPPORTED, CONV_HINT_OTHER_FORMAT,
                                   "JPEG cannot hold its transparent pixels");
    }
    return CONV_OK;
}

// Rows `from` to `to`, to codec->file.
static enum conv_status encode_to(struct conv_codec *codec, const struct conv_image *src,
                                  const struct conv_row_source *source,
                                  const struct conv_metadata *metadata, int from, int to,
                                  struct conv_err *err)
{
    struct own *own = (struct own *)codec;
    if (from == 0)
        conv_jpeg_choose(&own->encoding, &codec->config, src, metadata);
    if (src->depth != 8)
        return conv_err_unsupported(err, "JPEG has 8 bits per sample, not %d", src->depth);
    if (metadata && metadata->source)
        return conv_libjpeg_replace_luma(&codec->scratch, &own->luma, &codec->file, src,
                                         metadata->bytes.data + metadata->bytes.size,
                                         metadata->source, &own->encoding, codec->config.stop, err);
    bool alpha = src->channels % 2 == 0;
    enum conv_status status = alpha ? check_alpha(codec, src, source, from, to, err) : CONV_OK;
    return status
               ? status
               : conv_libjpeg_encode_some(&own->session, &codec->scratch, &codec->file, src, source,
                                          &own->encoding, from, to, codec->config.stop, err);
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, int from, int to,
                               struct conv_encoded *file, struct conv_err *err)
{
    enum conv_status status = encode_to(codec, src, NULL, metadata, from, to, err);
    if (status)
        return status;
    if (from == 0)
        put_parts(file, codec->file.data, codec->file.size, NULL, 0, metadata);
    else
        *file = (struct conv_encoded){.part = {{codec->file.data, codec->file.size}},
                                      .size = codec->file.size};
    return CONV_OK;
}

static enum conv_status encode_into(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source,
                                    const struct conv_file_room *room, size_t *size,
                                    struct conv_err *err)
{
    struct conv_encoded file;
    enum conv_status status = encode_to(codec, src, source, NULL, 0, src->height, err);
    if (status)
        return status;
    put_parts(&file, codec->file.data, codec->file.size, NULL, 0, NULL);
    uint8_t *to = room->take(room->context, file.size);
    if (!to)
        return conv_err_memory(err, "no memory for %zu bytes", file.size);
    for (int i = 0; i < CONV_ENCODED_PARTS; to += file.part[i++].size)
        if (file.part[i].size > 0)
            memcpy(to, file.part[i].data, file.part[i].size);
    *size = file.size;
    return CONV_OK;
}

// --- bands ---------------------------------------------------------------------------------------

// A larger stream is not copied: libjpeg-turbo decodes the same pixels without it.
#define MOST_STREAM ((size_t)32 << 20)

static void decodes_bands(struct conv_image_header *header, size_t size, struct conv_bands *bands)
{
    *bands = (struct conv_bands){0};
    if (header->jpeg.several_scans)
        bands->refusal = "a progressive JPEG, or one in several scans, has no row before its end";
    header->jpeg.streamed = header->jpeg.streamed && size <= MOST_STREAM;
    bands->bytes = decode_bytes(header, size);
}

static void encodes_bands(const struct conv_codec *codec, const struct conv_image *shape,
                          const struct conv_metadata *metadata, int rows, struct conv_bands *bands)
{
    struct conv_jpeg_encoding encoding;
    struct conv_image part = *shape;
    conv_jpeg_choose(&encoding, &codec->config, shape, metadata);
    *bands = (struct conv_bands){.unit = 8 * encoding.v};
    if (encoding.progressive || encoding.optimize)
        bands->refusal = "a JPEG that is progressive or optimised is written as a whole";
    if (metadata && metadata->source)
        bands->refusal = "the chroma of its file is carried over as a whole";
    part.height = rows;
    if (rows > 0)
        bands->bytes = encode_bytes(&codec->config, &part, metadata);
}

// --- for decoding and encoding on a device -------------------------------------------------------

// Metadata come before the frame. If the head does not reach it: most files are baseline ones.
static bool looks_decodable(const uint8_t *head, size_t bytes)
{
    struct conv_image_header header;
    return conv_jpeg_probe(head, bytes, &header, NULL)
               ? conv_format_check_head(&conv_jpeg_format, head, bytes, NULL) == CONV_OK
               : header.device_stream;
}

// A photograph has 8 to 11 bytes of samples per byte of its file at qualities of about 90.
#define SAMPLES_PER_BYTE 9
static uint64_t head_samples(const uint8_t *head, size_t bytes, uint64_t size)
{
    struct conv_image_header header;
    const struct conv_image *shape = &header.shape;
    return conv_jpeg_probe(head, bytes, &header, NULL)
               ? size * SAMPLES_PER_BYTE
               : (uint64_t)shape->width * (uint64_t)shape->height * (uint64_t)shape->channels;
}

static void frame(struct conv_codec *codec, const struct conv_image *shape,
                  const struct conv_device_encoding *encoding, const struct conv_metadata *metadata,
                  const uint8_t *data, size_t size, struct conv_encoded *file)
{
    size_t head = conv_jpeg_write_head(((struct own *)codec)->head, shape, encoding);
    put_parts(file, ((struct own *)codec)->head, head, data, size, metadata);
}

static const struct conv_format_device device = {
    .coder = CONV_DEVICE_JPEG,
    .same_bytes = true,
    .head_bytes = CONV_JPEG_HEAD_SIZE,
    .looks_decodable = looks_decodable,
    .head_samples = head_samples,
    .parts = 64, // alone on an H200, 9 of 768 x 512 and 217 of 24 megapixels
    .stream_bytes = conv_jpeg_stream_bytes,
    .copy_stream = conv_jpeg_copy_stream,
    .choose = conv_jpeg_choose_device,
    .frame = frame,
};

const struct conv_format conv_jpeg_format = {
    .name = "JPEG",
    .patterns = {"*.jpg", "*.jpeg", "*.jpe", "*.jfif"},
    .extension = ".jpg",
    .most_depth = 8,
    .most_side = CONV_LIBJPEG_MOST_SIDE,
    .head_bytes = CONV_JPEG_HEAD_SIZE,
    .signature = "\xFF\xD8\xFF",
    .probe = conv_jpeg_probe,
    .check_size = conv_jpeg_check_size,
    .take_luma = take_luma,
    .orientation = conv_jpeg_orientation,
    .extent = conv_jpeg_extent,
    .has_trailers = true,
    .take_common = conv_jpeg_take_common,
    .put_common = conv_jpeg_put_common,
    .keep = conv_jpeg_keep,
    .codec_bytes = sizeof(struct own),
    .close = close_own,
    .trim = trim_own,
    .decode_bytes = decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = decode,
    .encode = encode,
    .device = &device,
    .encode_into = encode_into,
    .decodes_bands = decodes_bands,
    .encodes_bands = encodes_bands,
};
