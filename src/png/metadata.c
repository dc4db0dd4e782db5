// SPDX-License-Identifier: MIT
// Selects the chunks of a PNG that are carried from input to output.
#include <string.h>

#include "base/buffer.h"
#include "image/format.h"
#include "png/chunk.h"

// Bytes of a chunk that is neither a profile nor a text: the longest known one, cHRM, has 32. No
// image is that small.
#define MOST_PLAIN 64

#define MOST_TRIES 4 // damaged ones cost time

// A PNG has one chunk of each `single` type. Those marked `late` may also follow the image data,
// where the others mean nothing; `color` changes how the image looks.
static const struct {
    uint32_t type;
    bool single, late, color;
} carried[] = {
    {CONV_CHUNK_TYPE('i', 'C', 'C', 'P'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('s', 'R', 'G', 'B'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('g', 'A', 'M', 'A'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('c', 'H', 'R', 'M'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('c', 'I', 'C', 'P'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('m', 'D', 'C', 'V'), .single = true, .color = true},
    {CONV_CHUNK_TYPE('p', 'H', 'Y', 's'), .single = true},
    {CONV_CHUNK_TYPE('o', 'F', 'F', 's'), .single = true},
    {CONV_CHUNK_TYPE('s', 'C', 'A', 'L'), .single = true},
    {CONV_CHUNK_TYPE('s', 'T', 'E', 'R'), .single = true},
    {CONV_CHUNK_TYPE('b', 'K', 'G', 'D'), .single = true},
    {CONV_CHUNK_TYPE('e', 'X', 'I', 'f'), .late = true},
    {CONV_CHUNK_TYPE('t', 'E', 'X', 't'), .late = true},
    {CONV_CHUNK_TYPE('z', 'T', 'X', 't'), .late = true},
    {CONV_CHUNK_TYPE('i', 'T', 'X', 't'), .late = true},
};
enum { CARRIED_COUNT = sizeof carried / sizeof carried[0] };

static int carried_index(uint32_t type)
{
    for (int i = 0; i < CARRIED_COUNT; i++)
        if (carried[i].type == type)
            return i;
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
    uint8_t bytes[2 * 3];
    int count = convert_background(samples, chunk, collection);
    if (count == 0)
        return true;
    if (becomes_gray(collection)) { // BT.601, as the image
        samples[0] =
            (uint16_t)((299u * samples[0] + 587u * samples[1] + 114u * samples[2] + 500) / 1000);
        count = 1;
    }
    scale_background(samples, count, collection);
    for (int c = 0; c < count; c++)
        conv_bytes_put(bytes + 2 * c, 2, samples[c], false);
    return conv_png_append_chunk(collection->buffer, chunk->type, NULL, 0, bytes,
                                 2 * (size_t)count);
}

// pHYs: pixels per unit of x and y, and the unit.
#define PHYS_SIZE 9
static bool append_turned_density(const struct conv_chunk *chunk,
                                  const struct collection *collection)
{
    uint8_t turned[PHYS_SIZE];
    memcpy(turned, chunk->data + 4, 4);
    memcpy(turned + 4, chunk->data, 4);
    turned[8] = chunk->data[8];
    return conv_png_append_chunk(collection->buffer, chunk->type, NULL, 0, turned, PHYS_SIZE);
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
        (collection->cleaning.look && (i < 0 || !carried[i].color)))
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

bool conv_png_collect(const uint8_t *data, size_t size, const struct conv_image_header *header,
                      struct conv_cleaning cleaning, struct conv_metadata *metadata)
{
    struct conv_buffer *buffer = &metadata->bytes;
    struct collection collection = {.header = header, .buffer = buffer, .cleaning = cleaning};
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    struct conv_chunk chunk;
    bool ok = true;
    buffer->size = metadata->front = 0;
    while (ok && size > at && conv_chunk_next(&chunk, data, size, &at) &&
           chunk.type != CONV_CHUNK_IEND) {
        collection.late |= chunk.type == CONV_CHUNK_IDAT;
        ok = collect_chunk(&chunk, &collection);
        if (!collection.late)
            metadata->front = buffer->size;
    }
    conv_png_inflater_free(&collection.inflater);
    return ok;
}
