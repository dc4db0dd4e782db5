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

// --- image data ----------------------------------------------------------------------------------

#define SHARED_FROM ((size_t)4 << 20)   // bytes of a file: a smaller one is checked within 1 ms
#define GROUP_BYTES ((size_t)512 << 10) // of the file, at least
#define BLOCK ((size_t)16 << 10)        // is copied while it is in the nearest cache

// Consecutive chunks.
struct group {
    const uint8_t *from, *to; // data of the first chunk, end of the last one's
    size_t at;                // of its bytes in the joined data
};

// The IDAT chunks of a file, whose CRCs are checked and whose data is joined by several threads if
// there is much of it.
struct gather {
    const uint8_t *data; // of the first chunk; after join_chunks: of all
    size_t size;
    size_t chunks; // so far
    struct group *groups;
    size_t count;
};

struct work {
    const struct gather *gather;
    uint8_t *joined; // NULL: the data stays where it is
    bool for_device; // which alone reads it
    atomic_size_t next;
    atomic_bool bad;
};

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

// Checks the CRC of a chunk, whose data is at `at`, and copies the data.
static bool do_chunk(const struct work *work, uint8_t *to, const uint8_t *at, size_t size)
{
    uint32_t crc = conv_png_crc(0, at - 4, 4);
    for (size_t done = 0, bytes; done < size; done += bytes) {
        bytes = size - done < BLOCK ? size - done : BLOCK;
        crc = conv_png_crc(crc, at + done, bytes);
        if (work->for_device)
            stream_copy(to + done, at + done, bytes);
        else if (to)
            memcpy(to + done, at + done, bytes);
    }
    return crc == conv_chunk_read_u32(at + size);
}

static bool do_group(const struct work *work, const struct group *group)
{
    uint8_t *to = work->joined ? work->joined + group->at : NULL;
    for (const uint8_t *at = group->from;;) {
        size_t size = conv_chunk_read_u32(at - 8);
        if (!do_chunk(work, to, at, size))
            return false;
        if (to)
            to += size;
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

// Sets gather->data, in the file or in `joined`, which may be NULL. False if a CRC is wrong or
// memory is out.
static bool join_chunks(struct gather *gather, struct conv_buffer *joined, bool for_device,
                        struct conv_parallel *parallel)
{
    struct work work = {.gather = gather, .for_device = for_device};
    if (joined && (for_device || gather->chunks > 1)) {
        joined->size = 0; // the last image's
        if (!conv_buffer_reserve(joined, gather->size))
            return false;
        gather->data = work.joined = joined->data;
        joined->size = gather->size;
    }
    conv_parallel_run(gather->count > 1 ? parallel : NULL, 0, work_on, &work);
    return !atomic_load(&work.bad);
}

// --- all chunks ----------------------------------------------------------------------------------

#define MAX_OTHER 8000000 // libpng has a limit for chunks that are not image data

struct walk {
    struct conv_decode_content *content;
    const struct conv_image_header *header;
    const uint8_t *data; // the file
    size_t size;
    struct gather gather;
    bool idat_over; // another chunk came after the image data
};

// libpng skips ancillary chunks too, whatever they hold, but not if their type is invalid.
static bool is_skippable(uint32_t type, uint32_t length)
{
    return conv_chunk_is_named(type) && conv_chunk_is_ancillary(type) &&
           !conv_chunk_is_reserved(type) && length <= MAX_OTHER;
}

// Adds a chunk that makes pixels. Those before the image data must mean what conv_png_probe found.
static bool add_chunk(struct walk *walk, uint32_t type, struct conv_decode_span chunk)
{
    struct conv_decode_content *content = walk->content;
    const struct conv_image_header *header = walk->header;
    bool first = !content->plte.data && !content->trns.data && walk->gather.chunks == 0;
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
        if (content->trns.data || walk->gather.chunks > 0 || !header->png.transparency)
            return false;
        if (header->png.color_type == CONV_COLOR_PALETTE
                ? chunk.size < 1 || chunk.size > content->plte.size / 3
                : chunk.size != (header->png.color_type == CONV_COLOR_GRAY ? 2 : 6))
            return false;
        content->trns = chunk;
        return true;
    default:
        if (!walk->idat_over)
            gather_chunk(&walk->gather, chunk.data, chunk.size);
        return !walk->idat_over;
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
        if (own && type != CONV_CHUNK_IDAT && // whose CRCs are checked later
            conv_png_crc(0, span.data - 4, span.size + 4) !=
                conv_chunk_read_u32(span.data + span.size))
            return false;
        if (type == CONV_CHUNK_IEND)
            return span.size == 0 && walk->gather.chunks > 0;
        if (type != CONV_CHUNK_IDAT)
            walk->idat_over = walk->gather.chunks > 0;
        if ((type == CONV_CHUNK_IHDR && ihdr) ||
            (own ? !add_chunk(walk, type, span) : !is_skippable(type, chunk.length)))
            return false;
    }
    return false;
}

static bool find(struct conv_decode_content *content, struct conv_buffer *joined, bool for_device,
                 const struct conv_image_header *header, const uint8_t *data, size_t size,
                 struct conv_parallel *parallel)
{
    struct walk walk = {.content = content, .header = header, .data = data, .size = size};
    *content = (struct conv_decode_content){0};
    // Each group but the last has GROUP_BYTES.
    walk.gather.groups = calloc(size / GROUP_BYTES + 1, sizeof *walk.gather.groups);
    bool found = walk.gather.groups && walk_chunks(&walk) &&
                 join_chunks(&walk.gather, joined, for_device, parallel);
    free(walk.gather.groups);
    content->idat = (struct conv_decode_span){walk.gather.data, walk.gather.size};
    content->in_pieces = !joined && walk.gather.chunks > 1;
    return found;
}

bool conv_decode_content_find(struct conv_decode_content *content, struct conv_buffer *joined,
                              const struct conv_image_header *header, const uint8_t *data,
                              size_t size, struct conv_parallel *parallel)
{
    return find(content, joined, false, header, data, size,
                size >= SHARED_FROM ? parallel : NULL) &&
           (header->png.color_type != CONV_COLOR_PALETTE || content->plte.data) &&
           header->png.transparency == (content->trns.data != NULL);
}

bool conv_decode_content_copy(struct conv_buffer *room, const struct conv_image_header *header,
                              const uint8_t *data, size_t size)
{
    struct conv_decode_content content;
    if (!find(&content, room, true, header, data, size, NULL) || content.trns.data)
        return false;
#ifdef __SSE2__
    _mm_sfence(); // another thread hands the stream to the device
#endif
    return true;
}
