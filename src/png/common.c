// SPDX-License-Identifier: MIT
// Metadata that other formats have as well, from and to PNG chunks.
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "png/chunk.h"
#include "png/png.h"

#define MOST_KEYWORD 79
#define COMMENT "Comment" // keywords end with their NUL
#define XMP "XML:com.adobe.xmp"
#define PROFILE "ICC profile"
#define PROFILE_LEVEL 6
#define FIRST_ROOM ((size_t)1 << 14)

enum { UNIT_UNKNOWN, UNIT_METRE }; // of pHYs
enum { PHYS_SIZE = 9 };

// --- from chunks ---------------------------------------------------------------------------------

// The bytes of a keyword with its NUL; 0 if there is none.
static size_t keyword_size(const struct conv_chunk *chunk)
{
    size_t most = chunk->length < MOST_KEYWORD + 1 ? chunk->length : MOST_KEYWORD + 1;
    size_t length = strnlen((const char *)chunk->data, most);
    return length < most ? length + 1 : 0;
}

static bool has_keyword(const struct conv_chunk *chunk, const char *keyword, size_t size)
{
    return keyword_size(chunk) == size && memcmp(chunk->data, keyword, size) == 0;
}

// Sets *at to where the text of an iTXt chunk begins. False if it is compressed or damaged.
static bool find_text(const struct conv_chunk *chunk, size_t *at)
{
    size_t from = keyword_size(chunk) + 2; // flag and method of compression
    if (from == 2 || from > chunk->length || chunk->data[from - 2] != 0)
        return false;
    for (int i = 0; i < 2; i++) { // language, translated keyword
        const uint8_t *nul = memchr(chunk->data + from, 0, chunk->length - from);
        if (!nul)
            return false;
        from = (size_t)(nul - chunk->data) + 1;
    }
    *at = from;
    return true;
}

// Inflates a profile of at most CONV_COMMON_MOST bytes; a longer or damaged one is not carried
// over. False: out of memory.
static bool inflate_profile(struct conv_buffer *icc, const uint8_t *data, size_t size)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    enum libdeflate_result result = LIBDEFLATE_INSUFFICIENT_SPACE;
    bool ok = decompressor;
    size_t room = FIRST_ROOM, used = 0;
    while (ok && result == LIBDEFLATE_INSUFFICIENT_SPACE && room <= CONV_COMMON_MOST) {
        ok = conv_buffer_reserve(icc, room);
        if (ok)
            result = libdeflate_zlib_decompress(decompressor, data, size, icc->data, room, &used);
        room *= 4;
    }
    icc->size = ok && result == LIBDEFLATE_SUCCESS ? used : 0;
    if (decompressor)
        libdeflate_free_decompressor(decompressor);
    return ok;
}

static bool take_comment(struct conv_common *common, const uint8_t *text, size_t size)
{
    static const uint8_t nul = 0;
    return conv_buffer_append(&common->comments, text, strnlen((const char *)text, size)) &&
           conv_buffer_append(&common->comments, &nul, 1);
}

static bool take_text(struct conv_common *common, const struct conv_chunk *chunk)
{
    size_t at;
    if (chunk->type == CONV_CHUNK_TYPE('t', 'E', 'X', 't'))
        return !has_keyword(chunk, COMMENT, sizeof COMMENT) ||
               take_comment(common, chunk->data + sizeof COMMENT, chunk->length - sizeof COMMENT);
    if (!find_text(chunk, &at))
        return true;
    if (has_keyword(chunk, COMMENT, sizeof COMMENT))
        return take_comment(common, chunk->data + at, chunk->length - at);
    if (has_keyword(chunk, XMP, sizeof XMP) && common->xmp.size == 0)
        return conv_buffer_append(&common->xmp, chunk->data + at, chunk->length - at);
    return true;
}

static void take_density(struct conv_common *common, const struct conv_chunk *chunk)
{
    common->density_x = conv_chunk_read_u32(chunk->data);
    common->density_y = conv_chunk_read_u32(chunk->data + 4);
    common->metres = chunk->data[8] == UNIT_METRE;
}

// The first of each kind. False: out of memory.
static bool take_chunk(struct conv_common *common, const struct conv_chunk *chunk)
{
    size_t keyword = keyword_size(chunk);
    switch (chunk->type) {
    case CONV_CHUNK_TYPE('i', 'C', 'C', 'P'):
        return keyword == 0 || chunk->length <= keyword || common->icc.size > 0 ||
               inflate_profile(&common->icc, chunk->data + keyword + 1,
                               chunk->length - keyword - 1);
    case CONV_CHUNK_TYPE('e', 'X', 'I', 'f'):
        return common->exif.size > 0 ||
               conv_buffer_append(&common->exif, chunk->data, chunk->length);
    case CONV_CHUNK_TYPE('p', 'H', 'Y', 's'):
        if (chunk->length == PHYS_SIZE && common->density_x == 0)
            take_density(common, chunk);
        return true;
    case CONV_CHUNK_TYPE('t', 'E', 'X', 't'):
    case CONV_CHUNK_TYPE('i', 'T', 'X', 't'):
        return take_text(common, chunk);
    default:
        return true;
    }
}

enum conv_status conv_png_take_common(const uint8_t *data, size_t size, struct conv_common *common,
                                      struct conv_err *err)
{
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    bool ok = true;
    while (ok && size > at && conv_chunk_next(&chunk, data, size, &at) &&
           chunk.type != CONV_CHUNK_IEND) {
        if (chunk.type != CONV_CHUNK_IDAT && conv_chunk_is_ancillary(chunk.type) &&
            conv_chunk_crc_is_right(&chunk))
            ok = take_chunk(common, &chunk);
    }
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

static bool put_profile(struct conv_buffer *buffer, const struct conv_buffer *icc)
{
    static const uint8_t head[sizeof PROFILE + 1] = PROFILE; // name, method of compression
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(PROFILE_LEVEL);
    bool ok = compressor;
    size_t room = ok ? libdeflate_zlib_compress_bound(compressor, icc->size) : 0;
    uint8_t *data = ok ? malloc(room) : NULL;
    ok = data;
    if (ok) {
        size_t size = libdeflate_zlib_compress(compressor, icc->data, icc->size, data, room);
        ok = append_chunk(buffer, CONV_CHUNK_TYPE('i', 'C', 'C', 'P'), head, sizeof head, data,
                          size);
    }
    free(data);
    if (compressor)
        libdeflate_free_compressor(compressor);
    return ok;
}

static bool put_density(struct conv_buffer *buffer, const struct conv_common *common)
{
    uint8_t data[PHYS_SIZE];
    conv_chunk_write_u32(data, common->density_x);
    conv_chunk_write_u32(data + 4, common->density_y);
    data[8] = common->metres ? UNIT_METRE : UNIT_UNKNOWN;
    return append_chunk(buffer, CONV_CHUNK_TYPE('p', 'H', 'Y', 's'), NULL, 0, data, sizeof data);
}

// Bytes of the UTF-8 character at `text`; 0 if there is none.
static size_t character_size(const uint8_t *text, size_t left)
{
    size_t size = text[0] < 0x80                       ? 1
                  : text[0] >= 0xC2 && text[0] < 0xE0  ? 2
                  : text[0] >= 0xE0 && text[0] < 0xF0  ? 3
                  : text[0] >= 0xF0 && text[0] <= 0xF4 ? 4
                                                       : 0;
    if (size > left)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return size;
}

static bool is_utf8(const uint8_t *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t step = character_size(text + at, size - at);
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

// Latin-1 in tEXt, else iTXt, whose head is flag and method of compression and two empty texts.
static bool put_text(struct conv_buffer *buffer, const char *keyword, size_t keyword_size,
                     const uint8_t *text, size_t size)
{
    uint8_t head[MOST_KEYWORD + 1 + 4] = {0};
    bool ascii = true, xmp = strcmp(keyword, XMP) == 0;
    for (size_t i = 0; i < size; i++)
        ascii = ascii && text[i] < 0x80;
    memcpy(head, keyword, keyword_size);
    if (xmp || (!ascii && is_utf8(text, size)))
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
    if (ok && common->exif.size > 0)
        ok = append_chunk(&buffer, CONV_CHUNK_TYPE('e', 'X', 'I', 'f'), NULL, 0, common->exif.data,
                          common->exif.size);
    if (ok && common->xmp.size > 0)
        ok = put_text(&buffer, XMP, sizeof XMP, common->xmp.data, common->xmp.size);
    ok = ok && put_comments(&buffer, &common->comments);
    *meta = (struct conv_metadata){buffer.data, buffer.size, buffer.capacity, buffer.size};
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}
