// SPDX-License-Identifier: MIT
// The formats of netpbm as rows of the table of formats, and how they are written.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "png/cpu/interleave.h"
#include "pnm/pnm_internal.h"

#define HEAD_MOST 160 // bytes of a header that is written

// --- codec ---------------------------------------------------------------------------------------

static enum conv_status open_codec(struct conv_codec **out, const struct conv_format *format,
                                   const struct conv_codec_config *config, struct conv_err *err)
{
    struct conv_codec *codec = calloc(1, sizeof *codec);
    *out = codec;
    if (!codec)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the codec");
    codec->format = format;
    codec->config = *config;
    codec->splits = conv_unfilter_choose(conv_cpu_features());
    codec->joins = conv_filter_rows_choose(conv_cpu_features());
    return CONV_OK;
}

static void close_codec(struct conv_codec *codec)
{
    if (!codec)
        return;
    conv_buffer_free(&codec->row);
    conv_buffer_free(&codec->plane);
    conv_buffer_free(&codec->file);
    free(codec);
}

static void trim(struct conv_codec *codec)
{
    size_t keep = codec->config.keep ? codec->config.keep : SIZE_MAX;
    conv_buffer_trim(&codec->row, keep);
    conv_buffer_trim(&codec->plane, keep);
    conv_buffer_trim(&codec->file, keep);
}

// --- encoding ------------------------------------------------------------------------------------

// The header of an output, without the samples of alpha unless it is a PAM: an even number of
// bytes, so that samples of 16 bits are aligned.
static size_t write_head(char head[HEAD_MOST], int kind, const struct conv_image *image)
{
    static const char *const types[] = {"GRAYSCALE", "GRAYSCALE_ALPHA", "RGB", "RGB_ALPHA"};
    const char *space = "";
    int length = 0, top = image->depth == 8 ? 255 : CONV_PNM_MOST_VALUE;
    for (int i = 0; i < 2 && (i == 0 || length % 2); i++, space = " ")
        length = kind == 7
                     ? snprintf(head, HEAD_MOST,
                                "P7\nWIDTH %s%d\nHEIGHT %d\nDEPTH %d\nMAXVAL %d\nTUPLTYPE %s\n"
                                "ENDHDR\n",
                                space, image->width, image->height, image->channels, top,
                                types[image->channels - 1])
                     : snprintf(head, HEAD_MOST, "P%d\n%d %s%d\n%d\n", kind, image->width, space,
                                image->height, top);
    return (size_t)length;
}

// 5, 6 or 7 for an image in the output of a format; 0: it has no room for colours.
static int kind_of(const struct conv_format *format, const struct conv_image *image)
{
    bool color = image->channels >= 3;
    return format == &conv_pam_format   ? 7
           : format == &conv_ppm_format ? 6
           : !color                     ? 5
           : format == &conv_pnm_format ? 6
                                        : 0;
}

// What of the planes is written: gray three times where the file has colours.
static struct conv_image written(const struct conv_image *image, int kind)
{
    struct conv_image part = *image;
    if (kind == 7)
        return part;
    part.channels = kind == 6 ? 3 : 1;
    part.alpha = false;
    for (int c = 0; c < part.channels && image->channels < 3; c++)
        part.plane[c] = image->plane[0];
    return part;
}

static bool is_opaque(const struct conv_image *row)
{
    const struct conv_plane *alpha = &row->plane[row->channels - 1];
    unsigned least = row->depth == 8 ? 255 : CONV_PNM_MOST_VALUE;
    for (int x = 0; x < row->width; x++)
        least &=
            row->depth == 8 ? alpha->data[x] : ((const uint16_t *)(const void *)alpha->data)[x];
    return least == (row->depth == 8 ? 255u : CONV_PNM_MOST_VALUE);
}

static void join(const struct conv_codec *codec, uint8_t *to, const struct conv_image *row)
{
    const uint8_t *planes[CONV_IMAGE_MAX_CHANNELS];
    for (int c = 0; c < row->channels; c++)
        planes[c] = row->plane[c].data;
    if (row->depth == 8)
        codec->joins->join(to, planes, row->channels, (size_t)row->width);
    else
        conv_interleave_join(to, row, 0);
}

// Row y of the planes, or of the source.
static bool take_row(struct conv_codec *codec, struct conv_image *row, const struct conv_image *src,
                     const struct conv_row_source *source, int y)
{
    size_t stride = conv_image_stride(src->width, src->depth);
    *row = *src;
    row->height = 1;
    if (source && !conv_buffer_reserve(&codec->plane, CONV_IMAGE_MAX_CHANNELS * stride))
        return false;
    for (int c = 0; c < src->channels; c++)
        row->plane[c].data = source ? codec->plane.data + (size_t)c * stride
                                    : src->plane[c].data + y * src->plane[c].stride;
    if (source)
        source->get(source->context, y, row);
    return true;
}

static enum conv_status refuse(const struct conv_format *format, const char *what,
                               enum conv_hint hint, struct conv_err *err)
{
    return conv_err_hint(
        err, hint, 0,
        conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s cannot hold %s", format->name, what));
}

static enum conv_status encode_into(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source,
                                    const struct conv_file_room *room, size_t *size,
                                    struct conv_err *err)
{
    char head[HEAD_MOST];
    int kind = kind_of(codec->format, src);
    if (kind == 0)
        return refuse(codec->format, "colours", CONV_HINT_GRAY, err);
    struct conv_image row = written(src, kind);
    size_t bytes = conv_interleave_bytes(&row), head_size = write_head(head, kind, src);
    *size = head_size + bytes * (size_t)src->height;
    uint8_t *to = room->take(room->context, *size);
    if (!to)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu bytes", *size);
    memcpy(to, head, head_size);
    to += head_size;
    for (int y = 0; y < src->height; y++, to += bytes) {
        if (!take_row(codec, &row, src, source, y))
            return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
        if (kind != 7 && src->channels % 2 == 0 && !is_opaque(&row))
            return refuse(codec->format, "its transparent pixels", CONV_HINT_OTHER_FORMAT, err);
        row = written(&row, kind);
        join(codec, to, &row);
        if (conv_pnm_is_to_stop(codec, y, bytes))
            return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    }
    return CONV_OK;
}

static uint8_t *take_own(void *context, size_t bytes)
{
    struct conv_buffer *file = context;
    return conv_buffer_reserve(file, bytes) ? file->data : NULL;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, struct conv_encoded *file,
                               struct conv_err *err)
{
    const struct conv_file_room room = {take_own, &codec->file};
    size_t size = 0, plane = (size_t)src->width * (size_t)src->height;
    int kind = kind_of(codec->format, src);
    bool lies = (kind == 5 || kind == 7) && src->channels == 1 && src->depth == 8 &&
                src->plane[0].stride == src->width; // as in the file
    enum conv_status status = CONV_OK;
    (void)metadata;
    if (!lies)
        status = encode_into(codec, src, NULL, &room, &size, err);
    else if (!conv_buffer_reserve(&codec->file, HEAD_MOST))
        status = conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    else
        size = write_head((char *)codec->file.data, kind, src);
    if (!status)
        *file = (struct conv_encoded){
            .part = {{codec->file.data, size}, {src->plane[0].data, lies ? plane : 0}},
            .size = size + (lies ? plane : 0)};
    return status;
}

static size_t encode_bytes(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    (void)config, (void)metadata;
    struct conv_image most = *shape;
    most.channels = shape->channels < 3 ? 3 : shape->channels;
    return conv_interleave_bytes(&most) * (size_t)shape->height;
}

// --- rows ----------------------------------------------------------------------------------------

// Only `open` knows which of the formats a codec is for.
#define FORMAT(id, title, ...)                                                                     \
    static enum conv_status open_##id(                                                             \
        struct conv_codec **codec, const struct conv_codec_config *config, struct conv_err *err)   \
    {                                                                                              \
        return open_codec(codec, &conv_##id##_format, config, err);                                \
    }                                                                                              \
    const struct conv_format conv_##id##_format = {                                                \
        .name = title,                                                                             \
        .patterns = {__VA_ARGS__},                                                                 \
        .extension = "." #id,                                                                      \
        .most_depth = 16,                                                                          \
        .most_side = CONV_PNM_MOST_SIDE,                                                           \
        .head_bytes = CONV_PNM_HEAD,                                                               \
        .check_head = conv_pnm_check_head,                                                         \
        .probe = conv_pnm_probe,                                                                   \
        .check_size = conv_pnm_check_size,                                                         \
        .end = conv_pnm_end,                                                                       \
        .open = open_##id,                                                                         \
        .close = close_codec,                                                                      \
        .trim = trim,                                                                              \
        .decode_bytes = conv_pnm_decode_bytes,                                                     \
        .encode_bytes = encode_bytes,                                                              \
        .decode = conv_pnm_decode,                                                                 \
        .decode_rows = conv_pnm_decode_rows,                                                       \
        .encode = encode,                                                                          \
        .encode_into = encode_into,                                                                \
    }

FORMAT(pnm, "PNM", "*.pnm");
FORMAT(ppm, "PPM", "*.ppm");
FORMAT(pgm, "PGM", "*.pgm");
FORMAT(pam, "PAM", "*.pam");
