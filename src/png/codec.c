// SPDX-License-Identifier: MIT
// PNG as a row of the table of formats. One codec per worker: it chooses the decoder or encoder and
// owns the memory reused from image to image.
#include <assert.h>
#include <ctype.h>
#include <libdeflate.h>

#include "base/buffer.h"
#include "base/features.h"
#include "png/chunk.h"
#include "png/cpu/cpu_png.h"
#include "png/png.h"

// --- the header ----------------------------------------------------------------------------------

// The header of a PNG, and whether its image data can be enough. Nothing is decompressed here, and
// lengths are checked against the file's size.

#define MAX_PALETTE 256

// Upper bound of the image data per byte of filtered rows. Rows of two bytes that are flushed one
// by one take about 12 per row; more than that can only be empty blocks, which cost time and
// produce no pixels. The bound applies beyond the first MiB.
#define MOST_DATA_PER_BYTE 16
#define MOST_DATA_UNCHECKED ((size_t)1 << 20)

bool conv_chunk_crc_is_right(const struct conv_chunk *chunk)
{
    uint32_t crc = libdeflate_crc32(0, chunk->data - 4, (size_t)chunk->length + 4);
    return crc == conv_chunk_read_u32(chunk->data + chunk->length);
}

// Reports why there is no complete chunk at `at`.
static enum conv_status refuse_chunk(const uint8_t *data, size_t size, size_t at,
                                     struct conv_err *err)
{
    if (at == size)
        return conv_err_format(err, "truncated: ends before the image data");
    if (size - at >= 4 && conv_chunk_read_u32(data + at) > CONV_CHUNK_MAX_FIELD)
        return conv_err_format(err, "damaged: impossible chunk length at byte %zu", at);
    return conv_err_format(err, "truncated: ends inside the chunk that starts at byte %zu", at);
}

static bool depth_is_valid(int color_type, int depth)
{
    // Depths are powers of two: a set of them is their sum.
    static const int allowed[] = {
        [CONV_COLOR_GRAY] = 1 + 2 + 4 + 8 + 16, [CONV_COLOR_RGB] = 8 + 16,
        [CONV_COLOR_PALETTE] = 1 + 2 + 4 + 8,   [CONV_COLOR_GRAY_ALPHA] = 8 + 16,
        [CONV_COLOR_RGB_ALPHA] = 8 + 16,
    };
    bool known = color_type < (int)(sizeof allowed / sizeof allowed[0]);
    bool single = depth != 0 && (depth & (depth - 1)) == 0;
    return known && single && (depth & allowed[color_type]) != 0;
}

static enum conv_status read_header(const struct conv_chunk *chunk,
                                    struct conv_image_header *header, struct conv_err *err)
{
    const uint8_t *p = chunk->data;
    if (chunk->type != CONV_CHUNK_IHDR)
        return conv_err_format(err, "bad header: the first chunk is not IHDR");
    if (chunk->length != 13)
        return conv_err_format(err, "bad header: %u bytes instead of 13", (unsigned)chunk->length);
    if (!conv_chunk_crc_is_right(chunk))
        return conv_err_format(err, "bad header: wrong CRC");
    uint32_t width = conv_chunk_read_u32(p), height = conv_chunk_read_u32(p + 4);
    if (width == 0 || height == 0 || width > CONV_CHUNK_MAX_FIELD || height > CONV_CHUNK_MAX_FIELD)
        return conv_err_format(err, "bad header: %u x %u pixels", (unsigned)width,
                               (unsigned)height);
    if (!depth_is_valid(p[9], p[8]))
        return conv_err_format(err, "bad header: colour type %d with %d bits", p[9], p[8]);
    if (p[10] != 0 || p[11] != 0 || p[12] > 1)
        return conv_err_format(
            err, "bad header: unknown method (compression %d, filter %d, interlace %d)", p[10],
            p[11], p[12]);
    *header = (struct conv_image_header){
        .shape = {.width = (int)width, .height = (int)height},
        .png = {.bit_depth = p[8], .color_type = p[9], .interlaced = p[12] == 1},
    };
    return CONV_OK;
}

// True if libpng would accept the tRNS chunk; otherwise it is ignored here as well.
static bool makes_alpha(const struct conv_chunk *chunk, const struct conv_image_header *header,
                        uint32_t palette_size)
{
    switch (header->png.color_type) {
    case CONV_COLOR_GRAY:
        return chunk->length == 2 && conv_chunk_crc_is_right(chunk);
    case CONV_COLOR_RGB:
        return chunk->length == 6 && conv_chunk_crc_is_right(chunk);
    case CONV_COLOR_PALETTE:
        return chunk->length > 0 && chunk->length <= palette_size && conv_chunk_crc_is_right(chunk);
    default:
        return false;
    }
}

static void complete_header(struct conv_image_header *header)
{
    bool color = header->png.color_type & 2;
    bool alpha = header->png.color_type & 4 || header->png.transparency;
    header->shape.channels = (color ? 3 : 1) + (alpha ? 1 : 0);
    header->shape.depth = header->png.bit_depth == 16 ? 16 : 8;
    header->shape.alpha = alpha;
    header->device_stream = !header->png.interlaced && !header->png.transparency &&
                            header->png.bit_depth >= 8 && !(header->png.color_type & 1);
}

static enum conv_status probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err)
{
    enum conv_status status = conv_format_check_head(&conv_png_format, data, size, err);
    if (status)
        return status;
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    if (!conv_chunk_next(&chunk, data, size, &at))
        return refuse_chunk(data, size, at, err);
    status = read_header(&chunk, header, err);
    if (status)
        return status;

    uint32_t palette_size = 0; // entries that the bit depth can reach
    bool trns_seen = false, space_seen = false;
    for (;;) {
        if (!conv_chunk_next(&chunk, data, size, &at))
            return refuse_chunk(data, size, at, err);
        if (chunk.type == CONV_CHUNK_IDAT)
            break;
        if (chunk.type == CONV_CHUNK_IEND)
            return conv_err_format(err, "damaged: no image data");
        if (chunk.type == CONV_CHUNK_PLTE && header->png.color_type == CONV_COLOR_PALETTE) {
            uint32_t most = 1u << header->png.bit_depth;
            if (chunk.length == 0 || chunk.length % 3 != 0 || chunk.length > 3 * MAX_PALETTE)
                return conv_err_format(err, "damaged: palette of %u bytes", (unsigned)chunk.length);
            palette_size = chunk.length / 3 < most ? chunk.length / 3 : most;
        }
        if (chunk.type == CONV_CHUNK_PLTE && header->png.color_type == CONV_COLOR_RGB &&
            chunk.length % 3 == 0 && chunk.length <= 3 * MAX_PALETTE)
            header->png.transparency =
                false; // libpng cancels a tRNS chunk that comes before PLTE ...
        if (chunk.type == CONV_CHUNK_TYPE('g', 'A', 'M', 'A') && chunk.length == 4 &&
            conv_chunk_crc_is_right(&chunk))
            header->gamma = conv_chunk_read_u32(chunk.data);
        space_seen |= chunk.type == CONV_CHUNK_TYPE('s', 'R', 'G', 'B') ||
                      chunk.type == CONV_CHUNK_TYPE('i', 'C', 'C', 'P') ||
                      chunk.type == CONV_CHUNK_TYPE('c', 'I', 'C', 'P');
        if (chunk.type == CONV_CHUNK_TRNS && !trns_seen &&
            makes_alpha(&chunk, header, palette_size))
            header->png.transparency = trns_seen = true; // ... and ignores one after it as a second
    }
    if (header->png.color_type == CONV_COLOR_PALETTE && palette_size == 0)
        return conv_err_format(err, "damaged: no palette");
    if (space_seen)
        header->gamma = 0;
    complete_header(header);
    return CONV_OK;
}

// --- the amount of image data --------------------------------------------------------------------

// Bytes of all rows, each with its filter byte; UINT64_MAX on overflow.
static uint64_t filtered_size(const struct conv_image_header *header)
{
    static const struct {
        unsigned x, y, dx, dy;
    } passes[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                  {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}, {0, 0, 1, 1}};
    enum { INTERLACED = 7, WHOLE = 1 }; // passes; the last row of the table is the whole image
    uint64_t bits = (uint64_t)conv_chunk_channels(header->png.color_type) *
                    (uint64_t)header->png.bit_depth,
             total = 0;
    int first = header->png.interlaced ? 0 : INTERLACED,
        count = header->png.interlaced ? INTERLACED : WHOLE;
    for (int i = first; i < first + count; i++) {
        // Coordinates are below 2^31: only the product and the sum can overflow.
        uint64_t width =
            ((uint64_t)header->shape.width + passes[i].dx - 1 - passes[i].x) / passes[i].dx;
        uint64_t height =
            ((uint64_t)header->shape.height + passes[i].dy - 1 - passes[i].y) / passes[i].dy;
        uint64_t size;
        if (width > 0 && (__builtin_mul_overflow(height, 1 + (width * bits + 7) / 8, &size) ||
                          __builtin_add_overflow(total, size, &total)))
            return UINT64_MAX;
    }
    return total;
}

// Returns the bytes of image data. *whole: the file ends with IEND or between two chunks.
static size_t data_size(const uint8_t *data, size_t size, bool *whole)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE, total = 0;
    struct conv_chunk chunk = {0};
    while (conv_chunk_next(&chunk, data, size, &at)) {
        if (chunk.type == CONV_CHUNK_IDAT)
            total += chunk.length;
        if (chunk.type == CONV_CHUNK_IEND)
            break;
    }
    *whole = chunk.type == CONV_CHUNK_IEND || at == size;
    if (!*whole && size - at >= 8 && conv_chunk_read_u32(data + at + 4) == CONV_CHUNK_IDAT)
        total += size - at - 8;
    return total;
}

static enum conv_status check_size(const uint8_t *data, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err)
{
    bool whole;
    size_t have = data_size(data, size, &whole);
    uint64_t filtered = filtered_size(header); // two bytes at least
    bool little = (filtered - 1) / CONV_CHUNK_MAX_EXPANSION >= have;
    bool much =
        have > MOST_DATA_UNCHECKED && (have - MOST_DATA_UNCHECKED) / MOST_DATA_PER_BYTE > filtered;
    if (!little && !much)
        return CONV_OK;
    return conv_err_format(err, "%s: too %s image data (%zu B) for %d x %d pixels",
                           little && !whole ? "truncated" : "damaged", little ? "little" : "much",
                           have, header->shape.width, header->shape.height);
}

static bool extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes)
{
    struct conv_chunk chunk;
    enum { FRAME = 12 }; // bytes of a chunk without data
    *at = *at ? *at : CONV_PNG_SIGNATURE_SIZE;
    while (*bytes = (uint64_t)*at + FRAME, *bytes <= size) {
        uint32_t length = conv_chunk_read_u32(data + *at);
        bool is_chunk = length <= CONV_CHUNK_MAX_FIELD;
        for (size_t i = 4; i < 8; i++)
            is_chunk &= isalpha(data[*at + i]) != 0;
        *bytes = is_chunk ? *bytes + length : 0;
        if (!is_chunk || *bytes > size)
            return false;
        if (!conv_chunk_next(&chunk, data, size, at) || chunk.type == CONV_CHUNK_IEND)
            return true;
    }
    return false;
}

// A valid acTL, whose first number is that of the frames, comes before the image data. In any other
// file the chunks of APNG mean nothing, and programs show a still image.
static bool is_animated(const uint8_t *data, size_t size)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    while (size > at && conv_chunk_next(&chunk, data, size, &at) && chunk.type != CONV_CHUNK_IDAT &&
           chunk.type != CONV_CHUNK_IEND) {
        if (chunk.type == CONV_CHUNK_TYPE('a', 'c', 'T', 'L') && chunk.length == 8 &&
            conv_chunk_crc_is_right(&chunk)) {
            uint32_t frames = conv_chunk_read_u32(chunk.data);
            return frames > 1 && frames <= CONV_CHUNK_MAX_FIELD;
        }
    }
    return false;
}

// --- the codec -----------------------------------------------------------------------------------

#define HEAD_BYTES 29 // signature and IHDR without its CRC

// scratch: interleaved rows, for other encoders.
struct own {
    struct conv_codec codec;
    int level;
    struct conv_encoder *fast; // ours; NULL with another
    struct conv_decoder decoder;
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
        return conv_err_usage(err, "compression level %d is not within 0 to %d, the %s encoder's",
                              config->level, most, encoder ? encoder->name : "fast");
    return CONV_OK;
}

static void close_own(struct conv_codec *codec)
{
    struct own *own = (struct own *)codec;
    conv_encode_close(own->fast);
    conv_decoder_free(&own->decoder);
}

static enum conv_status open_own(struct conv_codec *codec, struct conv_err *err)
{
    struct own *own = (struct own *)codec;
    const struct conv_codec_config *config = &codec->config;
    enum conv_status status = conv_png_check_level(config, err);
    if (status)
        return status;
    own->level = level_of(config);
    own->decoder.stop = config->stop;
    own->decoder.parallel = config->parallel;
    if (config->encoder && config->encoder->prepare)
        config->encoder->prepare(own->level);
    if (!config->encoder)
        status = conv_encode_open(&own->fast, own->level, conv_cpu_features(),
                                  CONV_ENCODE_MAX_CHUNK, err);
    if (own->fast) {
        conv_encode_set_stop(own->fast, config->stop);
        conv_encode_share(own->fast, config->parallel);
    }
    return status;
}

static void trim_own(struct conv_codec *codec)
{
    struct own *own = (struct own *)codec;
    if (own->fast)
        conv_encode_trim(own->fast, codec->config.keep);
    conv_decoder_trim(&own->decoder, codec->config.keep);
}

// From level 2 on all filtered rows are held at once.
static size_t encode_bytes(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *)
{
    return config->encoder ? config->encoder->bytes(shape)
                           : conv_encode_bytes(level_of(config), shape);
}

// Refuses files that libpng is certain to refuse, with its message. Otherwise they would be
// inflated twice, which costs twice libpng's time or more.
static bool is_refused(const struct conv_decoder *decoder, struct conv_err *err)
{
    if (decoder->inflate.ended_early)
        conv_err_format(err, "damaged image: Not enough image data");
    else if (decoder->bad_filter)
        conv_err_format(err, "damaged image: bad adaptive filter value");
    return decoder->inflate.ended_early || decoder->bad_filter;
}

// libpng allocates rows of its own. Those of the fast decoder would double the memory that a
// damaged file of long rows takes; interlaced files do not use them, and the next file may.
static void make_room(struct own *own, const struct conv_image_header *header)
{
    conv_decoder_trim(&own->decoder, header->png.interlaced ? own->codec.config.keep : 0);
}

// To the planes of *dst, or to `rows`.
static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               const struct conv_rows *rows, struct conv_err *err)
{
    struct own *own = (struct own *)codec;
    assert(rows || (dst->width == header->shape.width && dst->height == header->shape.height &&
                    dst->channels == header->shape.channels && dst->depth == header->shape.depth));
    own->decoder.put_rows = rows;
    if (conv_decode_fast(&own->decoder, data, size, header, dst))
        return CONV_OK;
    if (is_refused(&own->decoder, err))
        return CONV_ERR_FORMAT;
    make_room(own, header);
    return conv_libpng_decode(&codec->scratch, data, size, header, dst, rows, codec->config.stop,
                              err);
}

static void put_parts(struct conv_encoded *bytes, const uint8_t *head,
                      const struct conv_metadata *meta, const uint8_t *idat, size_t idat_size)
{
    size_t late = meta ? meta->bytes.size - meta->front : 0;
    *bytes = (struct conv_encoded){
        .part = {{head, CONV_ENCODE_HEAD},
                 {meta ? meta->bytes.data : NULL, meta ? meta->front : 0},
                 {idat, idat_size},
                 {late > 0 ? meta->bytes.data + meta->front : NULL, late},
                 {conv_encode_tail, CONV_ENCODE_TAIL}},
    };
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        bytes->size += bytes->part[i].size;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *meta, int from, int to,
                               struct conv_encoded *bytes, struct conv_err *err)
{
    struct own *own = (struct own *)codec;
    struct conv_buffer *file = &codec->file;
    bool all = from == 0 && to == src->height;
    enum conv_status status =
        !all                    ? conv_encode_some(own->fast, file, src, from, to, err)
        : codec->config.encoder ? codec->config.encoder->encode(&codec->scratch, file, src,
                                                                own->level, codec->config.stop, err)
                                : conv_encode_image(own->fast, file, src, NULL, err);
    if (status)
        return status;
    size_t head = all ? CONV_ENCODE_HEAD : 0, tail = all ? CONV_ENCODE_TAIL : 0;
    conv_encode_put_head(own->head, src);
    put_parts(bytes, own->head, meta, file->data + head, file->size - head - tail);
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if ((i < 2 && from > 0) || (i > 2 && to < src->height)) { // around the image data
            bytes->size -= bytes->part[i].size;
            bytes->part[i].size = 0;
        }
    return CONV_OK;
}

// Our own encoder only. The file is a little longer than the samples at most.
static enum conv_status encode_into(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source,
                                    const struct conv_file_room *room, size_t *size,
                                    struct conv_err *err)
{
    const struct own *own = (const struct own *)codec;
    struct conv_buffer into = {.capacity = conv_encode_room(own->fast, src)};
    uint8_t *file = into.data = room->take(room->context, into.capacity);
    if (!file)
        return conv_err_memory(err, "no memory for %zu bytes", into.capacity);
    enum conv_status status = conv_encode_image(own->fast, &into, src, source, err);
    assert(into.data == file); // large enough, so it has not grown
    *size = into.size;
    return status;
}

// --- bands ---------------------------------------------------------------------------------------

static void decodes_bands(struct conv_image_header *header, size_t, struct conv_bands *bands)
{
    *bands = (struct conv_bands){.bytes = conv_decode_rows_most(header)};
    if (header->png.interlaced)
        bands->refusal = "an interlaced PNG has no rows in their order";
}

static void encodes_bands(const struct conv_codec *codec, const struct conv_image *shape,
                          const struct conv_metadata *, int rows, struct conv_bands *bands)
{
    const struct own *own = (const struct own *)codec;
    *bands = (struct conv_bands){0};
    if (own->fast)
        bands->unit = conv_encode_some_rows(own->fast, shape);
    if (!own->fast)
        bands->refusal = "this encoder takes whole images";
    else if (bands->unit == 0)
        bands->refusal = "a PNG of less than 8 MiB of samples is encoded as a whole";
    else if (rows > 0)
        bands->bytes = conv_encode_some_bytes(own->fast, shape, rows);
}

// --- for decoding and encoding on a device -------------------------------------------------------

// The bytes are not validated, and a tRNS chunk after them is not seen.
static bool looks_decodable(const uint8_t *head, size_t)
{
    bool palette = head[25] & 1, interlaced = head[28] != 0;
    return !conv_format_check_head(&conv_png_format, head, HEAD_BYTES, NULL) && !interlaced &&
           head[24] >= 8 && !palette;
}

// Palettes count as RGB, less than 8 bits as 8. 0 if it is not the head of a PNG.
static uint64_t head_samples(const uint8_t *head, size_t, uint64_t)
{
    uint64_t width = conv_chunk_read_u32(head + 16), height = conv_chunk_read_u32(head + 20);
    uint64_t pixels = (width & INT32_MAX) * (height & INT32_MAX);
    int type = head[25];
    bool valid = type == CONV_COLOR_GRAY || type == CONV_COLOR_RGB || type == CONV_COLOR_PALETTE ||
                 type == CONV_COLOR_GRAY_ALPHA || type == CONV_COLOR_RGB_ALPHA;
    if (!valid || conv_format_check_head(&conv_png_format, head, HEAD_BYTES, NULL))
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
                  const struct conv_device_encoding *, const struct conv_metadata *meta,
                  const uint8_t *idat, size_t idat_size, struct conv_encoded *bytes)
{
    struct own *own = (struct own *)codec;
    conv_encode_put_head(own->head, shape);
    put_parts(bytes, own->head, meta, idat, idat_size);
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
    .signature = "\x89PNG\r\n\x1a\n",
    .probe = probe,
    .check_size = check_size,
    .orientation = conv_png_orientation,
    .is_animated = is_animated,
    .extent = extent,
    .collect = conv_png_collect,
    .take_common = conv_png_take_common,
    .put_common = conv_png_put_common,
    .codec_bytes = sizeof(struct own),
    .open = open_own,
    .close = close_own,
    .trim = trim_own,
    .decode_bytes = conv_decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = decode,
    .encode = encode,
    .encode_into = encode_into,
    .decodes_bands = decodes_bands,
    .encodes_bands = encodes_bands,
    .device = &device,
};
