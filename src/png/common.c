// SPDX-License-Identifier: MIT
// Metadata that other formats have as well, from and to PNG chunks.
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "image/embedded.h"
#include "png/chunk.h"
#include "png/content.h"
#include "png/png.h"

#define MOST_KEYWORD 79
#define COMMENT "Comment" // keywords end with their NUL
#define XMP "XML:com.adobe.xmp"
#define PROFILE "ICC profile"
#define CAPTIONS "Raw profile type iptc"
#define PROFILE_LEVEL 6
#define LONG_PACKET ((size_t)1 << 16)

enum { UNIT_UNKNOWN, UNIT_METRE }; // of pHYs
enum { PHYS_SIZE = 9 };

// --- from chunks ---------------------------------------------------------------------------------

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

enum conv_status conv_png_take_common(const uint8_t *data, size_t size, bool look,
                                      struct conv_common *common, struct conv_err *err)
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
    ok = ok && conv_common_clean(common, look);
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

// --- to chunks -----------------------------------------------------------------------------------

// Appends a chunk of `head` and `data`, unless it is too long for one.
static bool append_chunk(struct conv_buffer *buffer, uint32_t type, const void *head,
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
        ok = append_chunk(buffer, type, head, head_size, deflated,
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
    return append_chunk(buffer, CONV_CHUNK_TYPE('p', 'H', 'Y', 's'), NULL, 0, data, sizeof data);
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
        return append_deflated(buffer, CONV_CHUNK_TYPE('i', 'T', 'X', 't'), head, keyword_size + 4,
                               text, size);
    }
    if (xmp || (!ascii && conv_embedded_is_utf8(text, size)))
        return append_chunk(buffer, CONV_CHUNK_TYPE('i', 'T', 'X', 't'), head, keyword_size + 4,
                            text, size);
    return append_chunk(buffer, CONV_CHUNK_TYPE('t', 'E', 'X', 't'), head, keyword_size, text,
                        size);
}

static bool put_comments(struct conv_buffer *buffer, const struct conv_buffer *comments)
{
    bool ok = true;
    for (size_t at = 0; at < comments->size && ok;) {
        size_t length = strlen((const char *)comments->data + at);
        ok = put_text(buffer, COMMENT, sizeof COMMENT, comments->data + at, length);
        at += length + 1;
    }
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
        ok = append_deflated(buffer, CONV_CHUNK_TYPE('z', 'T', 'X', 't'), head, sizeof head,
                             text.data, text.size);
    }
    conv_buffer_free(&text);
    return ok;
}

bool conv_png_put_texts(struct conv_buffer *buffer, const struct conv_common *common)
{
    bool ok = true;
    if (common->exif.size > 0)
        ok = append_chunk(buffer, CONV_CHUNK_TYPE('e', 'X', 'I', 'f'), NULL, 0, common->exif.data,
                          common->exif.size);
    if (ok && common->xmp.size > 0)
        ok = put_text(buffer, XMP, sizeof XMP, common->xmp.data, common->xmp.size);
    if (ok && common->photoshop.size > 0)
        ok = put_photoshop(buffer, &common->photoshop);
    return ok && put_comments(buffer, &common->comments);
}

enum conv_status conv_png_put_common(const struct conv_common *common,
                                     const struct conv_image *shape, struct conv_metadata *meta,
                                     struct conv_err *err)
{
    struct conv_buffer buffer = {.data = meta->data, .capacity = meta->capacity};
    bool ok = true;
    if (conv_common_icc_fits(&common->icc, shape->channels < 3 ? 1 : 3))
        ok = put_profile(&buffer, &common->icc);
    if (ok && common->density_x > 0 && common->density_x <= CONV_CHUNK_MAX_FIELD &&
        common->density_y > 0 && common->density_y <= CONV_CHUNK_MAX_FIELD)
        ok = put_density(&buffer, common);
    ok = ok && conv_png_put_texts(&buffer, common);
    *meta = (struct conv_metadata){buffer.data, buffer.size, buffer.capacity, buffer.size};
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}
