// SPDX-License-Identifier: MIT
// The chunks that make pixels; of large files, the CRCs are computed by several threads.
#include "png/cpu/decode_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h> // in each x86-64
#endif

#include "png/chunk.h"

// --- image data of large files -------------------------------------------------------------------

#define LEAST_FILE ((size_t)4 << 20)    // bytes: smaller files are checked within 1 ms
#define GROUP_BYTES ((size_t)512 << 10) // of the file, at least

// Consecutive chunks.
struct group {
    const uint8_t *from, *to; // data of the first chunk, end of the last one's
    size_t at;                // of its bytes in the joined data
};

// The IDAT chunks of a large file, whose CRCs are checked and whose data is joined by several
// threads.
struct gather {
    const uint8_t *data; // after end_gathering: the joined data
    size_t size;
    size_t chunks; // so far
    struct group *groups;
    size_t count;
};

struct work {
    const struct gather *gather;
    uint8_t *joined; // NULL: the data stays where it is
    atomic_size_t next;
    atomic_bool bad;
};

// False if the file is too small for it, or memory is out; end_gathering is then not called.
static bool start_gathering(struct gather *gather, size_t file_size)
{
    *gather = (struct gather){0};
    if (file_size < LEAST_FILE)
        return false;
    // Each but the last has GROUP_BYTES.
    gather->groups = calloc(file_size / GROUP_BYTES + 1, sizeof *gather->groups);
    return gather->groups;
}

// Adds the data of the next IDAT chunk, which follows the chunk before it in the file.
static void gather_chunk(struct gather *gather, const uint8_t *data, size_t size)
{
    struct group *last = gather->groups + gather->count - (gather->count > 0);
    if (gather->count == 0 || (size_t)(last->to - last->from) >= GROUP_BYTES) {
        last = gather->groups + gather->count++;
        *last = (struct group){.from = data, .at = gather->size};
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

static bool do_group(const struct work *work, const struct group *group)
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
    const struct gather *gather = work->gather;
    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= gather->count || atomic_load(&work->bad))
            return;
        if (!do_group(work, &gather->groups[i]))
            atomic_store(&work->bad, true);
    }
}

// If `wanted`, sets gather->data, in the file or in `joined`. False if a CRC is wrong or memory is
// out. Frees the groups.
static bool end_gathering(struct gather *gather, bool wanted, struct conv_buffer *joined,
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

#define MAX_OTHER 8000000 // libpng has a limit for chunks that are not image data

struct walk {
    struct conv_decode_content *content;
    const struct conv_image_header *header;
    const uint8_t *data; // the file
    size_t size;
    struct conv_buffer *joined; // for several IDAT chunks
    struct gather *gather;      // collects them instead; NULL: there is none
    bool for_device;            // `joined` gets a single one, too, and only a device reads it
    bool idat_seen;             // at least one; idat.data does not tell, since it may be empty
    bool idat_joined;           // `idat` is the content of `joined`
    bool idat_over;             // another chunk came after the image data
};

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
static uint32_t take_crc(const struct walk *walk, uint32_t type, struct conv_decode_span chunk)
{
    struct conv_buffer *joined = walk->joined;
    bool fits = joined->size <= joined->capacity && chunk.size <= joined->capacity - joined->size;
    if (type != CONV_CHUNK_IDAT || !walk->for_device || !fits)
        return conv_png_crc(0, chunk.data - 4, chunk.size + 4);
    uint32_t crc = conv_png_crc(0, chunk.data - 4, 4);
    for (size_t at = 0; at < chunk.size; at += BLOCK) {
        size_t bytes = chunk.size - at < BLOCK ? chunk.size - at : BLOCK;
        crc = conv_png_crc(crc, chunk.data + at, bytes);
        stream_copy(joined->data + joined->size + at, chunk.data + at, bytes);
    }
    return crc;
}

static bool add_idat(struct walk *walk, struct conv_decode_span chunk)
{
    struct conv_decode_span *idat = &walk->content->idat;
    struct conv_buffer *joined = walk->joined;
    bool first = !walk->idat_seen;
    if (walk->idat_over)
        return false;
    walk->idat_seen = true;
    if (walk->gather) {
        gather_chunk(walk->gather, chunk.data, chunk.size);
        return true;
    }
    if (walk->for_device) { // take_crc has copied it
        if (chunk.size > joined->capacity - joined->size)
            return false;
        joined->size += chunk.size;
        return true;
    }
    if (first) {
        *idat = chunk;
        return true;
    }
    if (!walk->idat_joined) {
        walk->idat_joined = true;
        joined->size = 0; // the last image's
        if (!conv_buffer_reserve(joined, walk->size) ||
            !conv_buffer_append(joined, idat->data, idat->size))
            return false;
    }
    if (!conv_buffer_append(joined, chunk.data, chunk.size))
        return false;
    *idat = (struct conv_decode_span){joined->data, joined->size};
    return true;
}

// Adds a chunk that makes pixels. Those before the image data must mean what conv_png_probe found.
static bool add_chunk(struct walk *walk, uint32_t type, struct conv_decode_span chunk)
{
    struct conv_decode_content *content = walk->content;
    const struct conv_image_header *header = walk->header;
    bool first = !content->plte.data && !content->trns.data && !walk->idat_seen;
    size_t entries;
    switch (type) {
    case CONV_CHUNK_IHDR:
        return first && !walk->idat_over;
    case CONV_CHUNK_PLTE:
        // In an RGB image it is a suggestion, which is ignored.
        entries = chunk.size / 3;
        if (!first || !(header->png.color_type & 2) || chunk.size % 3 != 0 || entries < 1 ||
            entries > 256)
            return false;
        content->plte = chunk;
        return true;
    case CONV_CHUNK_TRNS:
        if (content->trns.data || walk->idat_seen || !header->png.transparency)
            return false;
        if (header->png.color_type == CONV_COLOR_PALETTE
                ? chunk.size < 1 || chunk.size > content->plte.size / 3
                : chunk.size != (header->png.color_type == CONV_COLOR_GRAY ? 2 : 6))
            return false;
        content->trns = chunk;
        return true;
    default:
        return add_idat(walk, chunk);
    }
}

static bool walk_chunks(struct walk *walk)
{
    struct conv_chunk chunk;
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    if (walk->size < at)
        return false;
    for (bool ihdr = false; conv_chunk_next(&chunk, walk->data, walk->size, &at); ihdr = true) {
        uint32_t type = chunk.type;
        struct conv_decode_span span = {chunk.data, chunk.length};
        bool own = type == CONV_CHUNK_IHDR || type == CONV_CHUNK_PLTE || type == CONV_CHUNK_TRNS ||
                   type == CONV_CHUNK_IDAT || type == CONV_CHUNK_IEND;
        bool checked_later = type == CONV_CHUNK_IDAT && walk->gather;
        if (own && !checked_later &&
            take_crc(walk, type, span) != conv_chunk_read_u32(span.data + span.size))
            return false;
        if (type == CONV_CHUNK_IEND)
            return span.size == 0 && walk->idat_seen;
        if (type != CONV_CHUNK_IDAT)
            walk->idat_over = walk->idat_seen;
        if ((type == CONV_CHUNK_IHDR && ihdr) ||
            (own ? !add_chunk(walk, type, span) : !is_skippable(type, chunk.length)))
            return false;
    }
    return false;
}

bool conv_decode_content_find(struct conv_decode_content *content, struct conv_buffer *joined,
                              const struct conv_image_header *header, const uint8_t *data,
                              size_t size, struct conv_parallel *parallel)
{
    struct gather gather;
    bool gathers = conv_parallel_most(parallel, 0) > 1 && start_gathering(&gather, size);
    struct walk walk = {.content = content,
                        .header = header,
                        .data = data,
                        .size = size,
                        .joined = joined,
                        .gather = gathers ? &gather : NULL};
    *content = (struct conv_decode_content){0};
    bool found = walk_chunks(&walk);
    if (gathers) {
        found = end_gathering(&gather, found, joined, parallel) && found;
        content->idat = (struct conv_decode_span){gather.data, gather.size};
    }
    return found && (header->png.color_type != CONV_COLOR_PALETTE || content->plte.data) &&
           header->png.transparency == (content->trns.data != NULL);
}

bool conv_decode_content_copy(struct conv_buffer *room, const struct conv_image_header *header,
                              const uint8_t *data, size_t size)
{
    struct conv_decode_content content = {0};
    struct walk walk = {.content = &content,
                        .header = header,
                        .data = data,
                        .size = size,
                        .joined = room,
                        .for_device = true};
    if (!walk_chunks(&walk) || content.trns.data)
        return false;
#ifdef __SSE2__
    _mm_sfence(); // another thread hands the stream to the device
#endif
    return true;
}
