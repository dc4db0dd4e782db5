// SPDX-License-Identifier: MIT
#include "png/content.h"

#include <ctype.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "image/embedded.h"

#define MOST_KEYWORD 79
#define XMP "XML:com.adobe.xmp"
#define RAW "Raw profile type "
#define JPEG_XMP "http://ns.adobe.com/xap/1.0/" // ends with its NUL
#define FIRST_ROOM ((size_t)1 << 14)

enum { TEXT = CONV_CHUNK_TYPE('t', 'E', 'X', 't'), DEFLATED = CONV_CHUNK_TYPE('z', 'T', 'X', 't') };
enum { INTERNATIONAL = CONV_CHUNK_TYPE('i', 'T', 'X', 't') };

void conv_png_inflater_free(struct conv_png_inflater *inflater)
{
    if (inflater->decompressor)
        libdeflate_free_decompressor(inflater->decompressor);
    conv_buffer_free(&inflater->scratch);
}

bool conv_png_inflate(struct conv_png_inflater *inflater, struct conv_buffer *out,
                      const uint8_t *data, size_t size)
{
    enum libdeflate_result result = LIBDEFLATE_INSUFFICIENT_SPACE;
    size_t room = FIRST_ROOM, used = 0, read = 0;
    out->size = 0;
    if (!inflater->decompressor)
        inflater->decompressor = libdeflate_alloc_decompressor();
    if (!inflater->decompressor)
        return false;
    while (result == LIBDEFLATE_INSUFFICIENT_SPACE && inflater->used + room <= CONV_COMMON_MOST) {
        if (!conv_buffer_reserve(out, room))
            return false;
        result = libdeflate_zlib_decompress_ex(inflater->decompressor, data, size, out->data, room,
                                               &read, &used);
        inflater->used += result == LIBDEFLATE_SUCCESS ? used : room;
        room *= 4;
    }
    out->size = result == LIBDEFLATE_SUCCESS && read == size ? used : 0;
    return true;
}

bool conv_png_take_profile(struct conv_buffer *icc, const struct conv_chunk *chunk,
                           struct conv_png_inflater *inflater)
{
    size_t most = chunk->length < MOST_KEYWORD + 1 ? chunk->length : MOST_KEYWORD + 1;
    size_t name = strnlen((const char *)chunk->data, most), data = name + 2; // NUL and method
    icc->size = 0;
    return name == most || data > chunk->length ||
           conv_png_inflate(inflater, icc, chunk->data + data, chunk->length - data);
}

// --- texts ---------------------------------------------------------------------------------------

struct text {
    const char *keyword;
    const uint8_t *data;
    size_t size;
};

// Sets *at after the NUL that ends a string; false if there is none.
static bool skip_string(const struct conv_chunk *chunk, size_t *at, size_t most)
{
    size_t left = chunk->length - *at;
    const uint8_t *nul = memchr(chunk->data + *at, 0, left < most ? left : most);
    if (nul)
        *at = (size_t)(nul - chunk->data) + 1;
    return nul;
}

// Sets *good if the chunk has a keyword and a text, which may be in the scratch memory. False: out
// of memory.
static bool read_text(struct text *text, const struct conv_chunk *chunk,
                      struct conv_png_inflater *inflater, bool *good)
{
    const uint8_t *data = chunk->data;
    size_t at = 0;
    bool deflated = chunk->type == DEFLATED;
    *good = skip_string(chunk, &at, MOST_KEYWORD + 1) && at > 1;
    if (*good && chunk->type == INTERNATIONAL) { // flag, method, language, translated keyword
        *good = chunk->length - at >= 2 && data[at] <= 1;
        deflated = *good && data[at] == 1;
        at += *good ? (deflated ? 1 : 2) : 0;
    }
    if (*good && deflated) {
        *good = at < chunk->length && data[at] == 0;
        at++;
    }
    if (*good && chunk->type == INTERNATIONAL)
        *good = skip_string(chunk, &at, SIZE_MAX) && skip_string(chunk, &at, SIZE_MAX);
    if (!*good)
        return true;
    *text = (struct text){(const char *)data, data + at, chunk->length - at};
    if (!deflated)
        return true;
    if (!conv_png_inflate(inflater, &inflater->scratch, text->data, text->size))
        return false;
    *good = inflater->scratch.size > 0;
    text->data = inflater->scratch.data;
    text->size = inflater->scratch.size;
    return true;
}

// ImageMagick's way: a line of the name, a line of the number of bytes, hexadecimal digits. False:
// out of memory.
static bool append_raw(struct conv_buffer *out, const struct text *text)
{
    const uint8_t *p = text->data, *end = p + text->size;
    size_t start = out->size;
    unsigned byte = 1; // and a mark above the digits
    while (p < end && *p == '\n')
        p++;
    p = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    while (p && p < end && isspace(*p))
        p++;
    while (p && p < end && isdigit(*p))
        p++;
    if (!p || !conv_buffer_reserve(out, start + text->size / 2))
        return !p;
    for (; p < end; p++) {
        if (!isxdigit(*p))
            continue;
        byte = byte << 4 | (unsigned)(isdigit(*p) ? *p - '0' : (*p | 0x20) - 'a' + 10);
        if (byte >= 0x100) {
            out->data[out->size++] = (uint8_t)byte;
            byte = 1;
        }
    }
    return true;
}

// False: out of memory.
static bool take_raw(struct conv_common *common, const struct text *text,
                     enum conv_png_content *content)
{
    const char *kind = text->keyword + sizeof RAW - 1;
    struct conv_buffer raw = {0}, *to = NULL;
    bool ok = append_raw(&raw, text);
    size_t from = 0;
    *content = CONV_PNG_DAMAGED;
    if (strcmp(kind, "APP1") == 0 && raw.size > sizeof JPEG_XMP &&
        memcmp(raw.data, JPEG_XMP, sizeof JPEG_XMP) == 0) {
        kind = "xmp";
        from = sizeof JPEG_XMP;
    }
    if (strcmp(kind, "exif") == 0 || strcmp(kind, "APP1") == 0) {
        *content = CONV_PNG_EXIF;
        to = &common->exif;
    } else if (strcmp(kind, "xmp") == 0) {
        *content = CONV_PNG_XMP;
        to = &common->xmp;
    } else if (strcmp(kind, "iptc") == 0 || strcmp(kind, "8bim") == 0) {
        *content = CONV_PNG_PHOTOSHOP;
        to = &common->photoshop;
    }
    if (ok && to && to->size == 0 && raw.size > from)
        ok = conv_buffer_append(to, raw.data + from, raw.size - from);
    conv_buffer_free(&raw);
    return ok;
}

static bool take_comment(struct conv_common *common, const struct text *text)
{
    static const uint8_t nul = 0;
    return conv_buffer_append(&common->comments, text->data,
                              strnlen((const char *)text->data, text->size)) &&
           conv_buffer_append(&common->comments, &nul, 1);
}

bool conv_png_take_text(struct conv_common *common, const struct conv_chunk *chunk,
                        struct conv_png_inflater *inflater, enum conv_png_content *content)
{
    struct text text;
    bool good;
    *content = CONV_PNG_OTHER;
    if (chunk->type == CONV_CHUNK_TYPE('e', 'X', 'I', 'f')) {
        *content = CONV_PNG_EXIF;
        return common->exif.size > 0 ||
               conv_buffer_append(&common->exif, chunk->data, chunk->length);
    }
    if (chunk->type != TEXT && chunk->type != DEFLATED && chunk->type != INTERNATIONAL)
        return true;
    if (!read_text(&text, chunk, inflater, &good))
        return false;
    *content = CONV_PNG_DAMAGED;
    if (!good)
        return true;
    if (strncmp(text.keyword, RAW, sizeof RAW - 1) == 0)
        return take_raw(common, &text, content);
    if (strcmp(text.keyword, XMP) == 0) {
        *content = CONV_PNG_XMP;
        return common->xmp.size > 0 || conv_buffer_append(&common->xmp, text.data, text.size);
    }
    if (!conv_embedded_is_text(text.data, text.size) || conv_embedded_image(text.data, text.size) ||
        conv_embedded_image(chunk->data, chunk->length))
        return true;
    *content = CONV_PNG_OTHER;
    if (strcmp(text.keyword, "Comment") != 0)
        return true;
    *content = CONV_PNG_COMMENT;
    return take_comment(common, &text);
}
