// SPDX-License-Identifier: MIT
// WebP as a row of the table of formats. The only file that uses libwebp.
#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include "base/buffer.h"
#include "image/format.h"
#include "image/interleave.h"

#define PART ((size_t)1 << 18) // of a file between two looks at config.stop
#define QUALITY 90             // of an output that loses detail, if none was asked for
#define LOSSLESS_LEVEL 1       // of 0 to 9, each slower; 9 makes files about a tenth smaller

// Bytes per pixel that libwebp takes, measured on noise: 38 to encode, 4 to decode; and the file.
#define DECODE_BYTES 8
#define ENCODE_BYTES 48

// --- container -----------------------------------------------------------------------------------

// developers.google.com/speed/webp/docs/riff_container: chunks of a name, a length and data, padded
// to an even length, in a RIFF chunk.

#define WEBP_HEAD 12     // "RIFF", the length of the rest, "WEBP"
#define EXTENDED_HEAD 30 // with a chunk VP8X
#define NAME(a, b, c, d)                                                                           \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

struct chunk {
    uint32_t name; // little-endian
    const uint8_t *data;
    size_t size;
};

#define CHUNK_HEAD 8
#define FRAME_HEAD 16 // of an animation's frame

#define VP8X NAME('V', 'P', '8', 'X')
#define ICCP NAME('I', 'C', 'C', 'P')
#define EXIF NAME('E', 'X', 'I', 'F')
#define XMP NAME('X', 'M', 'P', ' ')
#define ANMF NAME('A', 'N', 'M', 'F')

// Flags of VP8X.
enum { HAS_ANIMATION = 2, HAS_XMP = 4, HAS_EXIF = 8, HAS_ALPHA = 16, HAS_ICC = 32 };

// Reads the chunk at *at, and moves *at after it. False at the end, and if it is cut off.
static bool next_chunk(struct chunk *chunk, const uint8_t *data, size_t size, size_t *at)
{
    if (size < *at || size - *at < CHUNK_HEAD)
        return false;
    chunk->name = conv_bytes_u32(data + *at, true);
    chunk->size = conv_bytes_u32(data + *at + 4, true);
    chunk->data = data + *at + CHUNK_HEAD;
    if (chunk->size > size - *at - CHUNK_HEAD)
        return false;
    *at += CHUNK_HEAD + chunk->size + chunk->size % 2;
    return true;
}

// The first chunk of that name.
static bool find(struct chunk *chunk, const uint8_t *data, size_t size, uint32_t name)
{
    size_t at = WEBP_HEAD;
    while (next_chunk(chunk, data, size, &at))
        if (chunk->name == name)
            return true;
    return false;
}

static bool extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes)
{
    *at = 0;
    *bytes = WEBP_HEAD;
    if (size < WEBP_HEAD)
        return false;
    uint32_t rest = conv_bytes_u32(data + 4, true);
    *bytes = CHUNK_HEAD + (uint64_t)rest + rest % 2;
    return true;
}

static bool is_animated(const uint8_t *data, size_t size)
{
    struct chunk chunk;
    return find(&chunk, data, size, VP8X) && chunk.size > 0 && (chunk.data[0] & HAS_ANIMATION);
}

// The image to decode: of an animation the first frame, else the whole file.
static void find_image(const uint8_t **image, size_t *image_size, const uint8_t *data, size_t size)
{
    struct chunk frame;
    bool is_frame =
        is_animated(data, size) && find(&frame, data, size, ANMF) && frame.size > FRAME_HEAD;
    *image = is_frame ? frame.data + FRAME_HEAD : data;
    *image_size = is_frame ? frame.size - FRAME_HEAD : size;
}

static int orientation(const uint8_t *data, size_t size)
{
    struct chunk exif;
    return find(&exif, data, size, EXIF) ? conv_exif_orientation(exif.data, exif.size) : 1;
}

// --- metadata ------------------------------------------------------------------------------------

static bool take(struct conv_buffer *buffer, const uint8_t *data, size_t size, uint32_t name)
{
    struct chunk chunk;
    return !find(&chunk, data, size, name) || chunk.size > CONV_COMMON_MOST ||
           conv_buffer_append(buffer, chunk.data, chunk.size);
}

static bool take_common(const uint8_t *data, size_t size, const struct conv_image_header *,
                        struct conv_cleaning cleaning, struct conv_common *common)
{
    return take(&common->icc, data, size, ICCP) && take(&common->exif, data, size, EXIF) &&
           take(&common->xmp, data, size, XMP) && conv_common_clean(common, cleaning);
}

// Appends a chunk, unless there is nothing in it.
static bool put(struct conv_buffer *chunks, uint32_t name, const struct conv_buffer *content)
{
    static const uint8_t padding[1];
    uint8_t head[CHUNK_HEAD];
    if (content->size == 0)
        return true;
    conv_bytes_put(head, 4, name, true);
    conv_bytes_put(head + 4, 4, (uint32_t)content->size, true);
    return conv_buffer_append(chunks, head, sizeof head) &&
           conv_buffer_append(chunks, content->data, content->size) &&
           conv_buffer_append(chunks, padding, content->size % 2);
}

// Gray is written as RGB.
static bool put_common(const struct conv_common *common, const struct conv_image *,
                       struct conv_metadata *metadata)
{
    struct conv_buffer *chunks = &metadata->bytes;
    chunks->size = 0;
    bool done = !conv_common_icc_fits(&common->icc, 3) || put(chunks, ICCP, &common->icc);
    metadata->front = chunks->size;
    return done && put(chunks, EXIF, &common->exif) && put(chunks, XMP, &common->xmp);
}

// The parts of a file that libwebp has written, with metadata; `head` is one of them.
static void put_parts(struct conv_encoded *encoded, uint8_t *head, const uint8_t *file, size_t size,
                      const struct conv_image *shape, const struct conv_metadata *metadata)
{
    size_t front = metadata ? metadata->front : 0,
           late = metadata ? metadata->bytes.size - front : 0;
    size_t from = WEBP_HEAD, at = from;
    struct chunk chunk;
    *encoded = (struct conv_encoded){.part = {{file, size}}, .size = size};
    if (front + late == 0)
        return;
    uint8_t flags = front > 0 ? HAS_ICC : 0;
    if (next_chunk(&chunk, file, size, &at) && chunk.name == VP8X) {
        flags |= chunk.data[0] & HAS_ALPHA;
        from = at;
    } else if (shape->alpha) { // a lossless image has its alpha inside
        flags |= HAS_ALPHA;
    }
    for (size_t next = 0;
         late > 0 && next_chunk(&chunk, metadata->bytes.data + front, late, &next);)
        flags |= chunk.name == EXIF ? HAS_EXIF : HAS_XMP;
    *encoded = (struct conv_encoded){.part = {{head, EXTENDED_HEAD},
                                              {metadata->bytes.data, front},
                                              {file + from, size - from},
                                              {metadata->bytes.data + front, late}}};
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        encoded->size += encoded->part[i].size;
    memcpy(head, "RIFF....WEBPVP8X", 16);
    conv_bytes_put(head + 4, 4, (uint32_t)(encoded->size - CHUNK_HEAD), true);
    conv_bytes_put(head + 16, 4, EXTENDED_HEAD - WEBP_HEAD - CHUNK_HEAD, true);
    conv_bytes_put(head + 20, 4, flags, true);
    for (int i = 0; i < 3; i++) {
        head[24 + i] = (uint8_t)((shape->width - 1) >> 8 * i);
        head[27 + i] = (uint8_t)((shape->height - 1) >> 8 * i);
    }
}
// --- header --------------------------------------------------------------------------------------

static enum conv_status probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err)
{
    WebPBitstreamFeatures features;
    const uint8_t *image;
    size_t image_size;
    *header = (struct conv_image_header){0};
    enum conv_status status = conv_format_check_head(&conv_webp_format, data, size, err);
    if (status)
        return status;
    find_image(&image, &image_size, data, size);
    VP8StatusCode code = WebPGetFeatures(image, image_size, &features);
    if (code == VP8_STATUS_NOT_ENOUGH_DATA)
        return conv_err_format(err, "truncated: ends inside the header");
    if (code || features.width < 1 || features.height < 1)
        return conv_err_format(err, "damaged: bad header");
    if (features.has_animation)
        return conv_err_format(err, "damaged: an animation without a frame");
    header->shape.width = features.width;
    header->shape.height = features.height;
    header->shape.channels = features.has_alpha ? 4 : 3;
    header->shape.alpha = features.has_alpha != 0;
    header->shape.depth = 8;
    header->lossy = features.format != 2;
    return CONV_OK;
}

static enum conv_status check_size(const uint8_t *data, size_t size,
                                   const struct conv_image_header *, struct conv_err *err)
{
    size_t at = 0;
    uint64_t whole;
    if (extent(data, size, &at, &whole) && whole <= (uint64_t)size + 1)
        return CONV_OK;
    return conv_err_format(err, "truncated: %zu of %llu bytes", size, (unsigned long long)whole);
}

// --- codec ---------------------------------------------------------------------------------------

struct own {
    struct conv_codec codec;
    WebPMemoryWriter file;
    uint8_t head[EXTENDED_HEAD];
};

static enum conv_status open_own(struct conv_codec *codec, struct conv_err *)
{
    WebPMemoryWriterInit(&((struct own *)codec)->file);
    return CONV_OK;
}

static void close_own(struct conv_codec *codec)
{
    WebPMemoryWriterClear(&((struct own *)codec)->file);
}

static void trim_own(struct conv_codec *codec)
{
    if (((struct own *)codec)->file.max_size > codec->config.keep)
        close_own(codec);
}

// --- decoding ------------------------------------------------------------------------------------

static enum conv_status explain(VP8StatusCode code, size_t size, struct conv_err *err)
{
    struct conv_format_fault fault = {
        .no_memory = code == VP8_STATUS_OUT_OF_MEMORY,
        .cancelled = code == VP8_STATUS_USER_ABORT,
        .truncated = code == VP8_STATUS_SUSPENDED || code == VP8_STATUS_NOT_ENOUGH_DATA,
        .text = "its codes are wrong",
    };
    return conv_format_read_failure(&fault, size, err);
}

// Part by part, so that a signal is noticed; the file is not copied.
static VP8StatusCode decode_parts(WebPIDecoder *decoder, const uint8_t *image, size_t size,
                                  const atomic_int *stop)
{
    VP8StatusCode code = VP8_STATUS_SUSPENDED;
    for (size_t there = 0; there < size && code == VP8_STATUS_SUSPENDED;) {
        there = size - there < PART ? size : there + PART;
        code =
            conv_cancel_is_asked(stop) ? VP8_STATUS_USER_ABORT : WebPIUpdate(decoder, image, there);
    }
    return code;
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               const struct conv_rows *rows, struct conv_err *err)
{
    WebPDecoderConfig config;
    const uint8_t *image;
    size_t image_size, row = (size_t)header->shape.width * (size_t)header->shape.channels;
    size_t all = row * (size_t)header->shape.height;
    find_image(&image, &image_size, data, size);
    if (!conv_buffer_reserve(&codec->scratch, all) || !WebPInitDecoderConfig(&config))
        return conv_err_memory(err, "out of memory");
    config.output.colorspace = header->shape.alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA =
        (WebPRGBABuffer){.rgba = codec->scratch.data, .stride = (int)row, .size = all};
    WebPIDecoder *decoder = WebPIDecode(NULL, 0, &config);
    VP8StatusCode code = decoder ? decode_parts(decoder, image, image_size, codec->config.stop)
                                 : VP8_STATUS_OUT_OF_MEMORY;
    WebPIDelete(decoder);
    if (code)
        return explain(code, size, err);
    for (int y = 0; y < header->shape.height; y++)
        if (rows)
            rows->put_interleaved(rows->context, y, codec->scratch.data + (size_t)y * row);
        else
            conv_interleave_split(dst, y, codec->scratch.data + (size_t)y * row);
    return CONV_OK;
}

static size_t pixels_times(const struct conv_image *shape, size_t bytes)
{
    return (size_t)shape->width * (size_t)shape->height * bytes;
}

static size_t decode_bytes(const struct conv_image_header *header, size_t)
{
    return pixels_times(&header->shape, DECODE_BYTES + (size_t)header->shape.channels);
}

// --- encoding ------------------------------------------------------------------------------------

static int may_continue(int, const WebPPicture *picture)
{
    const struct conv_codec *codec = picture->user_data;
    return !conv_cancel_is_asked(codec->config.stop);
}

// Fills a row of 0xAARRGGBB.
static void put_row(uint32_t *to, const struct conv_image *src, int y)
{
    const uint8_t *r = conv_image_row(src, 0, y), *g = r, *b = r;
    const uint8_t *alpha = src->alpha ? conv_image_row(src, src->channels - 1, y) : NULL;
    if (src->channels >= 3)
        g = conv_image_row(src, 1, y), b = conv_image_row(src, 2, y);
    for (int x = 0; x < src->width; x++)
        to[x] = (alpha ? (uint32_t)alpha[x] : 255u) << 24 | (uint32_t)r[x] << 16 |
                (uint32_t)g[x] << 8 | b[x];
}

// A quality, and an input that has lost detail already, ask for lossy compression.
static bool configure(WebPConfig *config, const struct conv_codec_config *asked,
                      const struct conv_metadata *metadata)
{
    bool lossy = asked->quality > 0 || (metadata && metadata->kept.lossy);
    float quality = (float)(asked->quality > 0 ? asked->quality : QUALITY);
    if (!WebPConfigPreset(config, WEBP_PRESET_DEFAULT, quality))
        return false;
    config->exact = 1; // colours of transparent pixels as well
    return lossy || WebPConfigLosslessPreset(config, LOSSLESS_LEVEL);
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, int, int,
                               struct conv_encoded *file, struct conv_err *err)
{
    struct own *own = (struct own *)codec;
    WebPConfig config;
    WebPPicture picture;
    struct conv_format_fault fault = {.text = "libwebp refuses it"};
    if (src->depth != 8)
        return conv_err_unsupported(err, "WebP has 8 bits per sample, not %d", src->depth);
    if (!configure(&config, &codec->config, metadata) || !WebPPictureInit(&picture))
        return conv_format_write_failure(&fault, err);
    picture.use_argb = 1;
    picture.width = src->width;
    picture.height = src->height;
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &own->file;
    picture.progress_hook = may_continue;
    picture.user_data = codec;
    own->file.size = 0;
    bool done = WebPPictureAlloc(&picture);
    for (int y = 0; y < src->height && done; y++)
        put_row(picture.argb + (ptrdiff_t)y * picture.argb_stride, src, y);
    done = done && WebPEncode(&config, &picture);
    WebPEncodingError code = picture.error_code;
    WebPPictureFree(&picture);
    fault.no_memory = code == VP8_ENC_ERROR_OUT_OF_MEMORY || code == VP8_ENC_ERROR_BAD_WRITE ||
                      code == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY;
    fault.cancelled = code == VP8_ENC_ERROR_USER_ABORT;
    if (!done)
        return conv_format_write_failure(&fault, err);
    put_parts(file, own->head, own->file.mem, own->file.size, src, metadata);
    return CONV_OK;
}

static size_t encode_bytes(const struct conv_codec_config *, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    return pixels_times(shape, ENCODE_BYTES) + (metadata ? metadata->bytes.size : 0);
}

const struct conv_format conv_webp_format = {
    .name = "WebP",
    .patterns = {"*.webp"},
    .extension = ".webp",
    .most_depth = 8,
    .most_side = WEBP_MAX_DIMENSION,
    .head_bytes = WEBP_HEAD,
    .kinds = {"WebP"},
    .probe = probe,
    .check_size = check_size,
    .orientation = orientation,
    .is_animated = is_animated,
    .extent = extent,
    .take_common = take_common,
    .put_common = put_common,
    .codec_bytes = sizeof(struct own),
    .open = open_own,
    .close = close_own,
    .trim = trim_own,
    .decode_bytes = decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = decode,
    .encode = encode,
};
