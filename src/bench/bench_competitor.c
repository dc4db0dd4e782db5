// SPDX-License-Identifier: MIT
// Other ways to decode PNG: what programs make of a library that inflates (libdeflate, igzip) and
// the reversal of filters, here conv's.
#include "bench/bench_codec.h"

#include <libdeflate.h>
#include <string.h>

#include "base/features.h"
#include "image/interleave.h"
#include "png/chunk.h"
#include "png/cpu/unfilter.h"

#if CONV_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#endif

// The streams of all IDAT chunks, one after the other in `to`; their bytes.
static size_t join_streams(uint8_t *to, const uint8_t *data, size_t size)
{
    struct conv_chunk chunk;
    size_t at = CONV_PNG_SIGNATURE_SIZE, bytes = 0;
    while (conv_chunk_next(&chunk, data, size, &at)) {
        if (chunk.type != CONV_CHUNK_IDAT)
            continue;
        memcpy(to + bytes, chunk.data, chunk.length);
        bytes += chunk.length;
    }
    return bytes;
}

static bool reverse_filters(uint8_t *dst, const uint8_t *rows, size_t row, int height, int pixel)
{
    const struct conv_unfilter *unfilter = conv_unfilter_choose(conv_cpu_features());
    const uint8_t *above = dst + row * (size_t)height + CONV_UNFILTER_SLACK; // zeros
    for (int y = 0; y < height; y++, rows += row + 1, above = dst, dst += row) {
        if (rows[0] >= CONV_UNFILTER_COUNT)
            return false;
        unfilter->reverse[conv_unfilter_index(pixel)][rows[0]](dst, rows + 1, above, row);
    }
    return true;
}

enum conv_status conv_competitor_decode(const struct conv_competitor *competitor,
                                        struct conv_buffer *pixels, const uint8_t *data,
                                        size_t size, const struct conv_image_header *header,
                                        struct conv_err *err)
{
    const struct conv_image *shape = &header->shape;
    size_t row = conv_interleave_bytes(shape), height = (size_t)shape->height;
    size_t start = row * height + 2 * CONV_UNFILTER_SLACK + row, filtered = (row + 1) * height;
    if (header->png.bit_depth != 8 || header->png.interlaced || header->png.transparency ||
        header->png.color_type == CONV_COLOR_PALETTE)
        return conv_err_unsupported(err, "not measured for this kind of image");
    if (!conv_buffer_reserve(pixels, start + filtered + CONV_UNFILTER_SLACK + size))
        return conv_err_memory(err, "out of memory");
    uint8_t *rows = pixels->data + start, *stream = rows + filtered + CONV_UNFILTER_SLACK;
    memset(rows - row - CONV_UNFILTER_SLACK, 0, row + CONV_UNFILTER_SLACK);
    return competitor->inflate(rows, filtered, stream, join_streams(stream, data, size)) &&
                   reverse_filters(pixels->data, rows, row, shape->height, shape->channels)
               ? CONV_OK
               : conv_err_format(err, "not decoded");
}

static bool inflate_libdeflate(uint8_t *dst, size_t room, const uint8_t *src, size_t size)
{
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    bool done = inflater && !libdeflate_zlib_decompress(inflater, src, size, dst, room, NULL);
    libdeflate_free_decompressor(inflater);
    return done;
}

#if CONV_HAVE_ISAL
static bool inflate_igzip(uint8_t *dst, size_t room, const uint8_t *src, size_t size)
{
    struct inflate_state state;
    isal_inflate_init(&state);
    state.crc_flag = ISAL_ZLIB;
    state.next_in = (uint8_t *)(uintptr_t)src;
    state.avail_in = (uint32_t)size;
    state.next_out = dst;
    state.avail_out = (uint32_t)room;
    return isal_inflate_stateless(&state) == ISAL_DECOMP_OK && state.avail_out == 0;
}
#endif

const struct conv_competitor conv_competitors[] = {
    {"libdeflate", inflate_libdeflate},
#if CONV_HAVE_ISAL
    {"igzip", inflate_igzip},
#endif
    {NULL, NULL},
};
