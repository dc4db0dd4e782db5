// SPDX-License-Identifier: MIT
// The chunks that make pixels; of large files, the CRCs are computed by several threads.
#include "png/cpu/decode_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "png/chunk.h"

// --- image data of large files -------------------------------------------------------------------

#define LEAST_FILE ((size_t)4 << 20)    // bytes: smaller files are checked within 1 ms
#define GROUP_BYTES ((size_t)512 << 10) // of the file, at least

struct conv_gather_group {
    const uint8_t *from, *to; // data of the first chunk, end of the last one's
    size_t at;                // of its bytes in the joined data
};

struct work {
    const struct conv_gather *gather;
    uint8_t *joined; // NULL: the data stays where it is
    atomic_size_t next;
    atomic_bool bad;
};

bool conv_gather_start(struct conv_gather *gather, size_t file_size)
{
    *gather = (struct conv_gather){0};
    if (file_size < LEAST_FILE)
        return false;
    // Each but the last has GROUP_BYTES.
    gather->groups = calloc(file_size / GROUP_BYTES + 1, sizeof *gather->groups);
    return gather->groups;
}

void conv_gather_add(struct conv_gather *gather, const uint8_t *data, size_t size)
{
    struct conv_gather_group *last = gather->groups + gather->count - (gather->count > 0);
    if (gather->count == 0 || (size_t)(last->to - last->from) >= GROUP_BYTES) {
        last = gather->groups + gather->count++;
        *last = (struct conv_gather_group){.from = data, .at = gather->size};
    }
    last->to = data + size;
    if (gather->chunks++ == 0)
        gather->data = data;
    gather->size += size;
}

// `at` is the data of a chunk.
static bool is_right(const uint8_t *at, size_t size)
{
    return conv_png_crc(0, at - 4, size + 4) == conv_chunk_read_u32(at + size);
}

static bool do_group(const struct work *work, const struct conv_gather_group *group)
{
    uint8_t *to = work->joined ? work->joined + group->at : NULL;
    for (const uint8_t *at = group->from;;) {
        size_t size = conv_chunk_read_u32(at - 8);
        if (!is_right(at, size))
            return false;
        if (to) {
            memcpy(to, at, size);
            to += size;
        }
        if (at + size == group->to)
            return true;
        at += size + CONV_CHUNK_FRAME;
    }
}

static void work_on(void *context)
{
    struct work *work = context;
    const struct conv_gather *gather = work->gather;
    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= gather->count || atomic_load(&work->bad))
            return;
        if (!do_group(work, &gather->groups[i]))
            atomic_store(&work->bad, true);
    }
}

bool conv_gather_end(struct conv_gather *gather, bool wanted, struct conv_buffer *joined,
                     struct conv_parallel *parallel)
{
    struct work work = {.gather = gather};
    bool good = wanted;
    if (good && gather->chunks > 1) {
        joined->size = 0; // the last image's
        good = conv_buffer_reserve(joined, gather->size);
        work.joined = joined->data;
    }
    if (good) {
        conv_parallel_run(gather->count > 1 ? parallel : NULL, 0, work_on, &work);
        good = !atomic_load(&work.bad);
    }
    if (good && work.joined) {
        gather->data = joined->data;
        joined->size = gather->size;
    }
    free(gather->groups);
    gather->groups = NULL;
    return good;
}

// --- all chunks ----------------------------------------------------------------------------------

#ifdef __SSE2__
#include <emmintrin.h> // in each x86-64
#endif

#define MAX_OTHER 8000000 // libpng has a limit for chunks that are not image data

// libpng skips ancillary chunks too, whatever they hold, but not if their type is invalid.
static bool is_skippable(uint32_t type, uint32_t length)
{
    return conv_chunk_is_named(type) && conv_chunk_is_ancillary(type) &&
           !conv_chunk_is_reserved(type) && length <= MAX_OTHER;
}

// Copies past the caches: the lines that are overwritten are not read first, and what is in the
// caches stays. On 16 cores, with PNG on an H200, a run takes 14 % less of their time than with
// memcpy.
static void stream_copy(uint8_t *dst, const uint8_t *src, size_t size)
{
#ifdef __SSE2__
    size_t head = (16 - (uintptr_t)dst % 16) % 16;
    head = head < size ? head : size;
    memcpy(dst, src, head);
    size_t at = head;
    for (; size - at >= 64; at += 64)
        for (size_t i = at; i < at + 64; i += 16)
            _mm_stream_si128((__m128i *)(void *)(dst + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(src + i)));
    memcpy(dst + at, src + at, size - at);
#else
    memcpy(dst, src, size);
#endif
}

// The CRC of a chunk's type and data. A device's stream gets the data on the way, block by block
// while they are in the nearest cache.
#define BLOCK ((size_t)16 << 10)
static uint32_t take_crc(struct conv_decode_content *content, uint32_t type,
                         struct conv_decode_span chunk)
{
    struct conv_buffer *joined = content->joined;
    bool fits = joined->size <= joined->capacity && chunk.size <= joined->capacity - joined->size;
    if (type != CONV_CHUNK_IDAT || !content->for_device || !fits)
        return conv_png_crc(0, chunk.data - 4, chunk.size + 4);
    uint32_t crc = conv_png_crc(0, chunk.data - 4, 4);
    for (size_t at = 0; at < chunk.size; at += BLOCK) {
        size_t bytes = chunk.size - at < BLOCK ? chunk.size - at : BLOCK;
        crc = conv_png_crc(crc, chunk.data + at, bytes);
        stream_copy(joined->data + joined->size + at, chunk.data + at, bytes);
    }
    return crc;
}

static bool add_idat(struct conv_decode_content *content, struct conv_decode_span chunk)
{
    struct conv_decode_span *idat = &content->idat;
    struct conv_buffer *joined = content->joined;
    bool first = !content->idat_seen;
    if (content->idat_over)
        return false;
    content->idat_seen = true;
    if (content->gather) {
        conv_gather_add(content->gather, chunk.data, chunk.size);
        return true;
    }
    if (content->for_device) { // take_crc has copied it
        if (chunk.size > joined->capacity - joined->size)
            return false;
        joined->size += chunk.size;
        *idat = (struct conv_decode_span){joined->data, joined->size};
        return true;
    }
    if (first) {
        *idat = chunk;
        return true;
    }
    if (!content->idat_joined) {
        content->idat_joined = true;
        joined->size = 0; // the last image's
        if (!conv_buffer_reserve(joined, content->most) ||
            !conv_buffer_append(joined, idat->data, idat->size))
            return false;
    }
    if (!conv_buffer_append(joined, chunk.data, chunk.size))
        return false;
    *idat = (struct conv_decode_span){joined->data, joined->size};
    return true;
}

// Adds a chunk that makes pixels. Those before the image data must mean what conv_png_probe found.
static bool add_chunk(struct conv_decode_content *content, const struct conv_image_header *header,
                      uint32_t type, struct conv_decode_span chunk)
{
    bool first = !content->plte.data && !content->trns.data && !content->idat_seen;
    size_t entries;
    switch (type) {
    case CONV_CHUNK_IHDR:
        return first && !content->idat_over;
    case CONV_CHUNK_PLTE:
        // In an RGB image it is a suggestion, which is ignored.
        entries = chunk.size / 3;
        if (!first || !(header->png.color_type & 2) || chunk.size % 3 != 0 || entries < 1 ||
            entries > 256)
            return false;
        content->plte = chunk;
        return true;
    case CONV_CHUNK_TRNS:
        if (content->trns.data || content->idat_seen || !header->png.transparency)
            return false;
        if (header->png.color_type == CONV_COLOR_PALETTE
                ? chunk.size < 1 || chunk.size > content->plte.size / 3
                : chunk.size != (header->png.color_type == CONV_COLOR_GRAY ? 2 : 6))
            return false;
        content->trns = chunk;
        return true;
    default:
        return add_idat(content, chunk);
    }
}

bool conv_decode_content_walk(struct conv_decode_content *content,
                              const struct conv_image_header *header, const uint8_t *data,
                              size_t size)
{
    const uint8_t *at = data + CONV_PNG_SIGNATURE_SIZE, *end = data + size;
    for (bool ihdr = false;;) {
        if (end - at < CONV_CHUNK_FRAME)
            return false;
        uint32_t length = conv_chunk_read_u32(at), type = conv_chunk_read_u32(at + 4);
        if (length > (size_t)(end - at) - CONV_CHUNK_FRAME)
            return false;
        struct conv_decode_span chunk = {at + 8, length};
        at += CONV_CHUNK_FRAME + (size_t)length;
        bool own = type == CONV_CHUNK_IHDR || type == CONV_CHUNK_PLTE || type == CONV_CHUNK_TRNS ||
                   type == CONV_CHUNK_IDAT || type == CONV_CHUNK_IEND;
        bool checked_later = type == CONV_CHUNK_IDAT && content->gather;
        if (own && !checked_later &&
            take_crc(content, type, chunk) != conv_chunk_read_u32(chunk.data + chunk.size))
            return false;
        if (type == CONV_CHUNK_IEND)
            return length == 0 && content->idat_seen;
        if (type == CONV_CHUNK_IHDR && ihdr)
            return false;
        ihdr = true;
        if (type != CONV_CHUNK_IDAT)
            content->idat_over = content->idat_seen;
        if (own ? !add_chunk(content, header, type, chunk) : !is_skippable(type, length))
            return false;
    }
}
