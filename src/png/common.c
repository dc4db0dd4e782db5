// SPDX-License-Identifier: MIT
// Metadata that other formats have as well, from and to PNG chunks.
#include <ctype.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/format.h"
#include "png/chunk.h"

#define MOST_KEYWORD 79
#define COMMENT "Comment" // keywords end with their NUL
#define XMP "XML:com.adobe.xmp"
#define PROFILE "ICC profile"
#define RAW "Raw profile type "
#define CAPTIONS RAW "iptc"
#define JPEG_XMP "http://ns.adobe.com/xap/1.0/"
#define FIRST_ROOM ((size_t)1 << 14)
#define PROFILE_LEVEL 6
#define LONG_PACKET ((size_t)1 << 16)

enum { UNIT_UNKNOWN, UNIT_METRE }; // of pHYs
enum { PHYS_SIZE = 9 };
enum { TEXT = CONV_CHUNK_TYPE('t', 'E', 'X', 't'), DEFLATED = CONV_CHUNK_TYPE('z', 'T', 'X', 't') };
enum { INTERNATIONAL = CONV_CHUNK_TYPE('i', 'T', 'X', 't') };

// --- compressed chunks ---------------------------------------------------------------------------

void conv_png_inflater_free(struct conv_png_inflater *inflater)
{
    if (inflater->decompressor)
        libdeflate_free_decompressor(inflater->decompressor);
    conv_buffer_free(&inflater->scratch);
}

// Replaces the content of *out by that of a zlib stream, which must take all `size` bytes; empty if
// it is damaged. False: out of memory.
static bool inflate(struct conv_png_inflater *inflater, struct conv_buffer *out,
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
           inflate(inflater, icc, chunk->data + data, chunk->length - data);
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
    if (!inflate(inflater, &inflater->scratch, text->data, text->size))
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
    if (strcmp(text.keyword, COMMENT) != 0)
        return true;
    *content = CONV_PNG_COMMENT;
    return conv_common_add_comment(common, text.data, text.size);
}

// --- all chunks ---------------------------------------------------------------------------------

static void take_density(struct conv_common *common, const struct conv_chunk *chunk)
{
    common->density_x = conv_chunk_read_u32(chunk->data);
    common->density_y = conv_chunk_read_u32(chunk->data + 4);
    common->metres = chunk->data[8] == UNIT_METRE;
}

// The first of each kind. False: out of memory.
static bool take_chunk(struct conv_common *common, const struct conv_chunk *chunk,
                       struct conv_png_inflater *inflater)
{
    enum conv_png_content content;
    switch (chunk->type) {
    case CONV_CHUNK_TYPE('i', 'C', 'C', 'P'):
        return common->icc.size > 0 || conv_png_take_profile(&common->icc, chunk, inflater);
    case CONV_CHUNK_TYPE('p', 'H', 'Y', 's'):
        if (chunk->length == PHYS_SIZE && common->density_x == 0)
            take_density(common, chunk);
        return true;
    default:
        return conv_png_take_text(common, chunk, inflater, &content);
    }
}

bool conv_png_take_common(const uint8_t *data, size_t size, const struct conv_image_header *,
                          struct conv_cleaning cleaning, struct conv_common *common)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_png_inflater inflater = {0};
    struct conv_chunk chunk;
    bool ok = true;
    while (ok && size > at && conv_chunk_next(&chunk, data, size, &at) &&
           chunk.type != CONV_CHUNK_IEND) {
        if (chunk.type != CONV_CHUNK_IDAT && conv_chunk_is_ancillary(chunk.type) &&
            conv_chunk_crc_is_right(&chunk))
            ok = take_chunk(common, &chunk, &inflater);
    }
    conv_png_inflater_free(&inflater);
    return ok && conv_common_clean(common, cleaning);
}

// Of the same Exif that is carried over, which may be compressed text.
int conv_png_orientation(const uint8_t *data, size_t size)
{
    struct conv_common common = {0};
    if (!conv_png_take_common(data, size, NULL, (struct conv_cleaning){.look = true}, &common))
        common.exif.size = 0;
    int orientation = conv_exif_orientation(common.exif.data, common.exif.size);
    conv_common_free(&common);
    return orientation;
}

// --- to chunks -----------------------------------------------------------------------------------

bool conv_png_append_chunk(struct conv_buffer *buffer, uint32_t type, const void *head,
                           size_t head_size, const uint8_t *data, size_t size)
{
    uint8_t frame[8], crc[4];
    size_t start = buffer->size;
    if (size > CONV_CHUNK_MAX_FIELD - head_size)
        return true;
    conv_chunk_write_u32(frame, (uint32_t)(head_size + size));
    conv_chunk_write_u32(frame + 4, type);
    if (!conv_buffer_append(buffer, frame, sizeof frame) ||
        !conv_buffer_append(buffer, head, head_size) || !conv_buffer_append(buffer, data, size))
        return false;
    conv_chunk_write_u32(crc, libdeflate_crc32(0, buffer->data + start + 4, 4 + head_size + size));
    return conv_buffer_append(buffer, crc, sizeof crc);
}

static bool append_deflated(struct conv_buffer *buffer, uint32_t type, const void *head,
                            size_t head_size, const uint8_t *data, size_t size)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(PROFILE_LEVEL);
    bool ok = compressor;
    size_t room = ok ? libdeflate_zlib_compress_bound(compressor, size) : 0;
    uint8_t *deflated = ok ? malloc(room) : NULL;
    ok = deflated;
    if (ok)
        ok =
            conv_png_append_chunk(buffer, type, head, head_size, deflated,
                                  libdeflate_zlib_compress(compressor, data, size, deflated, room));
    free(deflated);
    if (compressor)
        libdeflate_free_compressor(compressor);
    return ok;
}

static bool put_profile(struct conv_buffer *buffer, const struct conv_buffer *icc)
{
    static const uint8_t head[sizeof PROFILE + 1] = PROFILE; // name, method of compression
    return append_deflated(buffer, CONV_CHUNK_TYPE('i', 'C', 'C', 'P'), head, sizeof head,
                           icc->data, icc->size);
}

static bool put_density(struct conv_buffer *buffer, const struct conv_common *common)
{
    uint8_t data[PHYS_SIZE];
    conv_chunk_write_u32(data, common->density_x);
    conv_chunk_write_u32(data + 4, common->density_y);
    data[8] = common->metres ? UNIT_METRE : UNIT_UNKNOWN;
    return conv_png_append_chunk(buffer, CONV_CHUNK_TYPE('p', 'H', 'Y', 's'), NULL, 0, data,
                                 sizeof data);
}

// Latin-1 in tEXt, else iTXt, whose head is flag and method of compression and two empty texts. A
// long packet is compressed.
static bool put_text(struct conv_buffer *buffer, const char *keyword, size_t keyword_size,
                     const uint8_t *text, size_t size)
{
    uint8_t head[MOST_KEYWORD + 1 + 4] = {0};
    bool ascii = true, xmp = strcmp(keyword, XMP) == 0;
    for (size_t i = 0; i < size; i++)
        ascii = ascii && text[i] < 0x80;
    memcpy(head, keyword, keyword_size);
    if (xmp && size > LONG_PACKET) {
        head[keyword_size] = 1;
        return append_deflated(buffer, INTERNATIONAL, head, keyword_size + 4, text, size);
    }
    if (xmp || (!ascii && conv_embedded_is_utf8(text, size)))
        return conv_png_append_chunk(buffer, INTERNATIONAL, head, keyword_size + 4, text, size);
    return conv_png_append_chunk(buffer, TEXT, head, keyword_size, text, size);
}

static bool put_comments(struct conv_buffer *buffer, const struct conv_common *common)
{
    size_t at = 0;
    const char *comment;
    bool ok = true;
    while (ok && (comment = conv_common_next_comment(common, &at)))
        ok = put_text(buffer, COMMENT, sizeof COMMENT, (const uint8_t *)comment, strlen(comment));
    return ok;
}

// As ImageMagick and exiv2 write captions: a name, the number of bytes, lines of 36 bytes.
static bool put_photoshop(struct conv_buffer *buffer, const struct conv_buffer *photoshop)
{
    static const uint8_t head[sizeof CAPTIONS + 1] = CAPTIONS; // and method of compression
    static const char digits[] = "0123456789abcdef";
    struct conv_buffer text = {0};
    size_t size = photoshop->size;
    bool ok = conv_buffer_reserve(&text, 2 * size + size / 36 + 64);
    if (ok)
        text.size = (size_t)snprintf((char *)text.data, 64, "\niptc\n%8zu", size);
    for (size_t i = 0; ok && i < size; i++) {
        if (i % 36 == 0)
            text.data[text.size++] = '\n';
        text.data[text.size++] = (uint8_t)digits[photoshop->data[i] >> 4];
        text.data[text.size++] = (uint8_t)digits[photoshop->data[i] & 15];
    }
    if (ok) {
        text.data[text.size++] = '\n';
        ok = append_deflated(buffer, DEFLATED, head, sizeof head, text.data, text.size);
    }
    conv_buffer_free(&text);
    return ok;
}

bool conv_png_put_texts(struct conv_buffer *buffer, const struct conv_common *common)
{
    bool ok = true;
    if (common->exif.size > 0)
        ok = conv_png_append_chunk(buffer, CONV_CHUNK_TYPE('e', 'X', 'I', 'f'), NULL, 0,
                                   common->exif.data, common->exif.size);
    if (ok && common->xmp.size > 0)
        ok = put_text(buffer, XMP, sizeof XMP, common->xmp.data, common->xmp.size);
    if (ok && common->photoshop.size > 0)
        ok = put_photoshop(buffer, &common->photoshop);
    return ok && put_comments(buffer, common);
}

bool conv_png_put_common(const struct conv_common *common, const struct conv_image *shape,
                         struct conv_metadata *metadata)
{
    struct conv_buffer *buffer = &metadata->bytes;
    bool ok = true;
    buffer->size = 0;
    if (conv_common_icc_fits(&common->icc, shape->channels < 3 ? 1 : 3))
        ok = put_profile(buffer, &common->icc);
    if (ok && common->density_x > 0 && common->density_x <= CONV_CHUNK_MAX_FIELD &&
        common->density_y > 0 && common->density_y <= CONV_CHUNK_MAX_FIELD)
        ok = put_density(buffer, common);
    ok = ok && conv_png_put_texts(buffer, common);
    metadata->front = buffer->size;
    return ok;
}
