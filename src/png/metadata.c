// SPDX-License-Identifier: MIT
// Selects the chunks of a PNG that are carried from input to output.
#include <libdeflate.h>
#include <string.h>

#include "base/buffer.h"
#include "image/format.h"
#include "png/chunk.h"

// Bytes of a chunk that is neither a profile nor a text: the longest known one, cHRM, has 32. No
// image is that small.
#define MOST_PLAIN 64

#define MOST_TRIES 4 // damaged ones cost time

// A PNG has one chunk of each `single` type. Those marked `late` may also follow the image data,
// where the others mean nothing.
static const struct {
    uint32_t type;
    bool single, late;
} carried[] = {
    {CONV_CHUNK_TYPE('i', 'C', 'C', 'P'), true, false},
    {CONV_CHUNK_TYPE('s', 'R', 'G', 'B'), true, false},
    {CONV_CHUNK_TYPE('g', 'A', 'M', 'A'), true, false},
    {CONV_CHUNK_TYPE('c', 'H', 'R', 'M'), true, false},
    {CONV_CHUNK_TYPE('c', 'I', 'C', 'P'), true, false},
    {CONV_CHUNK_TYPE('m', 'D', 'C', 'V'), true, false},
    {CONV_CHUNK_TYPE('p', 'H', 'Y', 's'), true, false},
    {CONV_CHUNK_TYPE('o', 'F', 'F', 's'), true, false},
    {CONV_CHUNK_TYPE('s', 'C', 'A', 'L'), true, false},
    {CONV_CHUNK_TYPE('s', 'T', 'E', 'R'), true, false},
    {CONV_CHUNK_TYPE('b', 'K', 'G', 'D'), true, false},
    {CONV_CHUNK_TYPE('e', 'X', 'I', 'f'), false, true},
    {CONV_CHUNK_TYPE('t', 'E', 'X', 't'), false, true},
    {CONV_CHUNK_TYPE('z', 'T', 'X', 't'), false, true},
    {CONV_CHUNK_TYPE('i', 'T', 'X', 't'), false, true},
};
enum { CARRIED_COUNT = sizeof carried / sizeof carried[0] };

static int carried_index(uint32_t type)
{
    for (int i = 0; i < CARRIED_COUNT; i++) {
        if (carried[i].type == type)
            return i;
    }
    return -1;
}

// PNG, 14.2: an editor that changes image data copies ancillary chunks that it does not recognise
// only if their type marks them as safe to copy.
static bool is_safe_to_copy(uint32_t type)
{
    return conv_chunk_is_named(type) && conv_chunk_is_ancillary(type) &&
           !conv_chunk_is_reserved(type) && conv_chunk_is_safe_to_copy(type);
}

// State while a file's chunks are collected.
struct collection {
    const struct conv_image_header *header;
    struct conv_buffer *buffer;
    const uint8_t *palette;
    uint32_t palette_size; // entries
    struct conv_png_inflater inflater;
    bool seen[CARRIED_COUNT];
    int tries[CONV_PNG_COMMENT]; // to read each kind of content
    bool late;                   // after the first IDAT
    struct conv_cleaning cleaning;
};

// True if the output has one channel in place of three.
static bool becomes_gray(const struct collection *collection)
{
    const struct conv_image_header *header = collection->header;
    return header->png.color_type & 2 && header->shape.channels - header->shape.alpha == 1;
}

// Converts bKGD to the output's colour type and depth; returns the number of samples, 0 if it is
// invalid.
static int convert_background(uint16_t samples[3], const struct conv_chunk *chunk,
                              const struct collection *collection)
{
    const struct conv_image_header *header = collection->header;
    const uint8_t *p = chunk->data;
    if (header->png.color_type == CONV_COLOR_PALETTE) {
        if (chunk->length != 1 || p[0] >= collection->palette_size)
            return 0;
        for (size_t c = 0; c < 3; c++)
            samples[c] = collection->palette[3 * (size_t)p[0] + c];
        return 3;
    }
    int count = header->png.color_type & 2 ? 3 : 1;
    unsigned most = (1u << header->png.bit_depth) - 1;
    if (chunk->length != 2 * (uint32_t)count)
        return 0;
    for (int c = 0; c < count; c++) {
        unsigned sample = (unsigned)(p[2 * c] << 8 | p[2 * c + 1]);
        if (sample > most)
            return 0;
        samples[c] = (uint16_t)(most < 255 ? sample * (255 / most) : sample);
    }
    return count;
}

// The same samples at the output's depth, if that is another one.
static void scale_background(uint16_t samples[3], int count, const struct collection *collection)
{
    int from = collection->header->png.bit_depth == 16 ? 16 : 8,
        to = collection->header->shape.depth;
    for (int c = 0; c < count && from < to; c++)
        samples[c] = (uint16_t)(samples[c] * 257);
    for (int c = 0; c < count && from > to; c++)
        samples[c] = (uint16_t)((samples[c] + 128u) / 257);
}

static bool append_background(const struct conv_chunk *chunk, struct collection *collection)
{
    uint16_t samples[3];
    uint8_t bytes[CONV_CHUNK_FRAME + 2 * 3];
    int count = convert_background(samples, chunk, collection);
    size_t size = 2 * (size_t)count;
    if (count == 0)
        return true;
    if (becomes_gray(collection)) { // BT.601, as the image
        samples[0] =
            (uint16_t)((299u * samples[0] + 587u * samples[1] + 114u * samples[2] + 500) / 1000);
        count = 1;
        size = 2;
    }
    scale_background(samples, count, collection);
    conv_chunk_write_u32(bytes, (uint32_t)size);
    conv_chunk_write_u32(bytes + 4, chunk->type);
    for (int c = 0; c < count; c++) {
        bytes[8 + 2 * c] = (uint8_t)(samples[c] >> 8);
        bytes[9 + 2 * c] = (uint8_t)samples[c];
    }
    conv_chunk_write_u32(bytes + 8 + size, libdeflate_crc32(0, bytes + 4, 4 + size));
    return conv_buffer_append(collection->buffer, bytes, CONV_CHUNK_FRAME + size);
}

// pHYs: pixels per unit of x and y, and the unit.
#define PHYS_SIZE 9
static bool append_turned_density(const struct conv_chunk *chunk,
                                  const struct collection *collection)
{
    uint8_t bytes[CONV_CHUNK_FRAME + PHYS_SIZE];
    memcpy(bytes, chunk->data - 8, 8);
    memcpy(bytes + 8, chunk->data + 4, 4);
    memcpy(bytes + 12, chunk->data, 4);
    bytes[16] = chunk->data[8];
    conv_chunk_write_u32(bytes + 8 + PHYS_SIZE, libdeflate_crc32(0, bytes + 4, 4 + PHYS_SIZE));
    return conv_buffer_append(collection->buffer, bytes, sizeof bytes);
}

static bool is_color(uint32_t type)
{
    return type == CONV_CHUNK_TYPE('i', 'C', 'C', 'P') ||
           type == CONV_CHUNK_TYPE('s', 'R', 'G', 'B') ||
           type == CONV_CHUNK_TYPE('g', 'A', 'M', 'A') ||
           type == CONV_CHUNK_TYPE('c', 'H', 'R', 'M') ||
           type == CONV_CHUNK_TYPE('c', 'I', 'C', 'P') ||
           type == CONV_CHUNK_TYPE('m', 'D', 'C', 'V');
}

// Appends a chunk of text or Exif: as it is if it is plain text, else what remains after cleaning.
// The first good one of each kind.
static bool append_text(struct collection *collection, const struct conv_chunk *chunk)
{
    struct conv_common common = {0};
    enum conv_png_content content;
    bool ok = conv_png_take_text(&common, chunk, &collection->inflater, &content);
    bool plain = content == CONV_PNG_OTHER || content == CONV_PNG_COMMENT;
    if (ok && plain && !collection->cleaning.look)
        ok = conv_buffer_append(collection->buffer, chunk->data - 8,
                                CONV_CHUNK_FRAME + (size_t)chunk->length);
    if (ok && content < CONV_PNG_COMMENT && content > CONV_PNG_OTHER &&
        collection->tries[content] < MOST_TRIES) {
        ok = conv_common_clean(&common, collection->cleaning) &&
             conv_png_put_texts(collection->buffer, &common);
        bool good = common.exif.size + common.xmp.size + common.photoshop.size > 0;
        collection->tries[content] += good ? MOST_TRIES : 1;
    }
    conv_common_free(&common);
    return ok;
}

// A profile that can be read and holds no image. False: out of memory.
static bool check_profile(struct collection *collection, const struct conv_chunk *chunk, bool *good)
{
    struct conv_buffer *icc = &collection->inflater.scratch;
    bool ok = conv_png_take_profile(icc, chunk, &collection->inflater);
    *good = ok && icc->size > 0 && !conv_embedded_in_tables(icc->data, icc->size);
    return ok;
}

// False: out of memory.
static bool collect_chunk(const struct conv_chunk *chunk, struct collection *collection)
{
    int i = carried_index(chunk->type);
    if (chunk->type == CONV_CHUNK_PLTE && conv_chunk_crc_is_right(chunk)) {
        collection->palette = chunk->data;
        collection->palette_size = chunk->length / 3;
    }
    if (i < 0
            ? !is_safe_to_copy(chunk->type)
            : (collection->late && !carried[i].late) || (collection->seen[i] && carried[i].single))
        return true;
    if (!conv_chunk_crc_is_right(chunk))
        return true;
    // A profile of colours is not allowed in a gray PNG.
    bool profile = chunk->type == CONV_CHUNK_TYPE('i', 'C', 'C', 'P');
    if (profile && becomes_gray(collection))
        return true;
    if (i >= 0 && carried[i].late)
        return append_text(collection, chunk);
    if ((!profile && chunk->length > MOST_PLAIN) ||
        (collection->cleaning.look && !is_color(chunk->type)))
        return true;
    bool good = true;
    if (profile && !check_profile(collection, chunk, &good))
        return false;
    if (!good)
        return true;
    if (i >= 0)
        collection->seen[i] = true;
    if (chunk->type == CONV_CHUNK_TYPE('b', 'K', 'G', 'D'))
        return append_background(chunk, collection);
    if (chunk->type == CONV_CHUNK_TYPE('p', 'H', 'Y', 's') && chunk->length == PHYS_SIZE &&
        collection->cleaning.orientation >= 5)
        return append_turned_density(chunk, collection);
    return conv_buffer_append(collection->buffer, chunk->data - 8,
                              CONV_CHUNK_FRAME + (size_t)chunk->length);
}

enum conv_status conv_png_collect(const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  struct conv_cleaning cleaning, struct conv_metadata *metadata,
                                  struct conv_err *err)
{
    struct conv_buffer buffer = {.data = metadata->data, .capacity = metadata->capacity};
    struct collection collection = {.header = header, .buffer = &buffer, .cleaning = cleaning};
    size_t at = CONV_PNG_SIGNATURE_SIZE, front = 0;
    struct conv_chunk chunk;
    bool ok = true;
    while (ok && size > at && conv_chunk_next(&chunk, data, size, &at) &&
           chunk.type != CONV_CHUNK_IEND) {
        collection.late |= chunk.type == CONV_CHUNK_IDAT;
        ok = collect_chunk(&chunk, &collection);
        if (!collection.late)
            front = buffer.size;
    }
    conv_png_inflater_free(&collection.inflater);
    *metadata = (struct conv_metadata){
        .data = buffer.data, .size = buffer.size, .capacity = buffer.capacity, .front = front};
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}
