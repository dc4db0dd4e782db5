// SPDX-License-Identifier: MIT
#include "image/format.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// --- recognition ---------------------------------------------------------------------------------

static const struct kind {
    const char *name;
    size_t at; // of the magic bytes in the file
    size_t length;
    const char *magic;
    const char *extensions[5]; // ended by NULL
} kinds[] = {
    {"PNG", 0, 4, "\x89PNG", {"png", "apng"}},
    {"JPEG", 0, 3, "\xFF\xD8\xFF", {"jpg", "jpeg", "jpe", "jfif"}},
    {"TIFF", 0, 4, "II*\0", {"tif", "tiff"}},
    {"TIFF", 0, 4, "MM\0*", {NULL}},
    {"TIFF", 0, 4, "II+\0", {NULL}},
    {"TIFF", 0, 4, "MM\0+", {NULL}},
    {"WebP", 8, 4, "WEBP", {"webp"}},
    {"GIF", 0, 4, "GIF8", {"gif"}},
    {"AVIF", 4, 8, "ftypavif", {"avif"}},
    {"HEIC", 4, 7, "ftyphei", {"heic", "heif"}},
    {"HEIC", 4, 8, "ftypmif1", {NULL}},
    {"JPEG XL", 4, 4, "JXL ", {"jxl"}},
    {"JPEG XL", 0, 2, "\xFF\x0A", {NULL}},
    {"JPEG 2000", 4, 4, "jP  ", {"jp2", "j2k"}},
    {"BMP", 0, 2, "BM", {"bmp"}},
    {"OpenEXR", 0, 4, "\x76\x2F\x31\x01", {"exr"}},
    {"PDF", 0, 4, "%PDF", {"pdf"}},
    {"PNM", 0, 0, NULL, {"pnm"}},
    {"PPM", 0, 0, NULL, {"ppm"}},
    {"PGM", 0, 0, NULL, {"pgm"}},
    {"PBM", 0, 0, NULL, {"pbm"}},
    {"PAM", 0, 0, NULL, {"pam"}},
    {"SVG", 0, 4, "<svg", {"svg"}},
    {"TGA", 0, 0, NULL, {"tga"}},
    {"DNG", 0, 0, NULL, {"dng"}},
    {"NEF", 0, 0, NULL, {"nef"}},
    {"CR2", 0, 0, NULL, {"cr2"}},
    {"CR3", 0, 0, NULL, {"cr3"}},
    {"ARW", 0, 0, NULL, {"arw"}},
    {"RAF", 0, 0, NULL, {"raf"}},
    {"ORF", 0, 0, NULL, {"orf"}},
    {"RW2", 0, 0, NULL, {"rw2"}},
};

#define COUNT (sizeof kinds / sizeof kinds[0])

const char *conv_format_of_bytes(const uint8_t *data, size_t size)
{
    if (size >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '7' &&
        (isspace(data[2]) || data[2] == '#'))
        return data[1] == '7' ? "PAM" : "PNM";
    for (size_t i = 0; i < COUNT; i++) {
        const struct kind *kind = &kinds[i];
        if (kind->length > 0 && size >= kind->at + kind->length &&
            memcmp(data + kind->at, kind->magic, kind->length) == 0)
            return kind->name;
    }
    return NULL;
}

const char *conv_format_of_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (!dot || strchr(dot, '/'))
        return NULL;
    for (size_t i = 0; i < COUNT; i++)
        for (const char *const *extension = kinds[i].extensions; *extension; extension++)
            if (strcasecmp(dot + 1, *extension) == 0)
                return kinds[i].name;
    return NULL;
}

const char *conv_format_article(const char *format)
{
    return strchr("AEHIO", format[0]) || strcmp(format, "SVG") == 0 ? "an" : "a";
}

enum conv_status conv_format_check_head(const struct conv_format *format, const uint8_t *data,
                                        size_t size, struct conv_err *err)
{
    const char *kind = conv_format_of_bytes(data, size), *wanted = format->name;
    bool is_short = size < format->head_bytes, is_own = !format->signature && is_short;
    if (size == 0)
        return conv_err_format(err, "empty file");
    if (format->signature)
        is_own = memcmp(data, format->signature, is_short ? size : format->head_bytes) == 0;
    for (int i = 0; i < 2 && kind && format->kinds[i]; i++)
        is_own = is_own || strcmp(kind, format->kinds[i]) == 0;
    if (is_own)
        return !is_short ? CONV_OK : conv_err_format(err, "truncated: ends inside the signature");
    if (!kind || strcmp(kind, wanted) == 0)
        return conv_err_format(err, "not a %s (bad signature)", wanted);
    return conv_err_format(err, "%s %s, not a %s", conv_format_article(kind), kind, wanted);
}

void conv_metadata_free(struct conv_metadata *metadata)
{
    conv_buffer_free(&metadata->bytes);
    *metadata = (struct conv_metadata){0};
}

// --- codecs --------------------------------------------------------------------------------------

enum conv_status conv_codec_open(struct conv_codec **out, const struct conv_format *format,
                                 const struct conv_codec_config *config, struct conv_err *err)
{
    struct conv_codec *codec = calloc(1, format->codec_bytes);
    enum conv_status status = CONV_OK;
    *out = NULL;
    if (!codec)
        return conv_err_memory(err, "no memory for the codec");
    codec->format = format;
    codec->config = *config;
    codec->config.keep = config->keep ? config->keep : SIZE_MAX;
    if (format->open)
        status = format->open(codec, err);
    if (status)
        conv_codec_close(codec);
    else
        *out = codec;
    return status;
}

void conv_codec_close(struct conv_codec *codec)
{
    if (!codec)
        return;
    if (codec->format->close)
        codec->format->close(codec);
    conv_buffer_free(&codec->scratch);
    conv_buffer_free(&codec->row);
    conv_buffer_free(&codec->file);
    free(codec);
}

void conv_codec_trim(struct conv_codec *codec)
{
    if (codec->format->trim)
        codec->format->trim(codec);
    conv_buffer_trim(&codec->scratch, codec->config.keep);
    conv_buffer_trim(&codec->row, codec->config.keep);
    conv_buffer_trim(&codec->file, codec->config.keep);
}

// --- failures ------------------------------------------------------------------------------------

enum conv_status conv_format_read_failure(const struct conv_format_fault *fault, size_t size,
                                          struct conv_err *err)
{
    if (fault->no_memory)
        return conv_err_memory(err, "out of memory");
    if (fault->cancelled)
        return conv_err_cancelled(err);
    if (fault->truncated)
        return conv_err_format(err, "truncated: ends too early, after %zu bytes", size);
    return conv_err_format(err, "damaged image: %s", fault->text);
}

enum conv_status conv_format_write_failure(const struct conv_format_fault *fault,
                                           struct conv_err *err)
{
    if (fault->no_memory || fault->cancelled)
        return conv_format_read_failure(fault, 0, err);
    return conv_err_unsupported(err, "cannot be encoded: %s", fault->text);
}

// --- metadata ------------------------------------------------------------------------------------

#define ICC_HEADER 128
#define ICC_SPACE 16 // offset of the colour space's name

void conv_common_free(struct conv_common *common)
{
    conv_buffer_free(&common->icc);
    conv_buffer_free(&common->exif);
    conv_buffer_free(&common->xmp);
    conv_buffer_free(&common->photoshop);
    conv_buffer_free(&common->comments);
    *common = (struct conv_common){0};
}

bool conv_common_add_comment(struct conv_common *common, const uint8_t *text, size_t size)
{
    static const uint8_t nul = 0;
    return conv_buffer_append(&common->comments, text, strnlen((const char *)text, size)) &&
           conv_buffer_append(&common->comments, &nul, 1);
}

const char *conv_common_next_comment(const struct conv_common *common, size_t *at)
{
    if (*at >= common->comments.size)
        return NULL;
    const char *comment = (const char *)common->comments.data + *at;
    *at += strlen(comment) + 1;
    return comment;
}

static void clean_comments(struct conv_buffer *comments)
{
    uint8_t *data = comments->data;
    size_t size = comments->size;
    comments->size = 0;
    for (size_t at = 0; at < size;) {
        size_t length = strlen((const char *)data + at);
        if (conv_embedded_is_text(data + at, length) && !conv_embedded_image(data + at, length)) {
            memmove(data + comments->size, data + at, length + 1);
            comments->size += length + 1;
        }
        at += length + 1;
    }
}

bool conv_common_clean(struct conv_common *common, struct conv_cleaning cleaning)
{
    clean_comments(&common->comments);
    if (conv_embedded_in_tables(common->icc.data, common->icc.size))
        common->icc.size = 0;
    if (cleaning.orientation >= 5) {
        uint32_t x = common->density_x;
        common->density_x = common->density_y;
        common->density_y = x;
    }
    if (cleaning.look) {
        common->xmp.size = common->photoshop.size = common->comments.size = 0;
        common->density_x = common->density_y = 0;
    }
    struct conv_buffer *exif = &common->exif;
    return (exif->size == 0 || conv_clean_exif(exif, exif->data, exif->size, cleaning)) &&
           (common->xmp.size == 0 || conv_clean_xmp(&common->xmp, cleaning.orientation > 1)) &&
           (common->photoshop.size == 0 || conv_clean_photoshop(&common->photoshop));
}

bool conv_common_icc_fits(const struct conv_buffer *icc, int colors)
{
    return icc->size >= ICC_HEADER &&
           memcmp(icc->data + ICC_SPACE, colors == 3 ? "RGB " : "GRAY", 4) == 0;
}
