// SPDX-License-Identifier: MIT
// The chunks of encoded files.
#include <string.h>

#include "png/cpu/crc.h"
#include "png/cpu/encode_internal.h"

// Writes length and CRC of the chunk whose type is at `type` and whose data ends at `end`; returns
// the end of the chunk.
static uint8_t *close_chunk(uint8_t *type, uint8_t *end)
{
    conv_chunk_write_u32(type - 4, (uint32_t)(end - type - 4));
    conv_chunk_write_u32(end, conv_png_crc(0, type, (size_t)(end - type)));
    return end + 4;
}

uint8_t *conv_encode_put_head(uint8_t *at, const struct conv_image *shape)
{
    static const uint8_t start[] = {137, 'P', 'N', 'G', 13,  10,  26,  10,
                                    0,   0,   0,   13,  'I', 'H', 'D', 'R'};
    static const uint8_t color_type[CONV_IMAGE_MAX_CHANNELS + 1] = {0, 0, 4, 2, 6};
    memcpy(at, start, sizeof start);
    conv_chunk_write_u32(at + 16, (uint32_t)shape->width);
    conv_chunk_write_u32(at + 20, (uint32_t)shape->height);
    at[24] = (uint8_t)shape->depth;
    at[25] = color_type[shape->channels];
    memset(at + 26, 0, 3);
    return close_chunk(at + 12, at + 29);
}

const uint8_t conv_encode_tail[CONV_ENCODE_TAIL] = {0,   0,   0,    0,    'I',  'E',
                                                    'N', 'D', 0xae, 0x42, 0x60, 0x82};

uint8_t *conv_encode_put_tail(uint8_t *at)
{
    return (uint8_t *)memcpy(at, conv_encode_tail, CONV_ENCODE_TAIL) + CONV_ENCODE_TAIL;
}

uint8_t *conv_encode_idat_open(struct conv_encode_idat *idat, uint8_t *at)
{
    memcpy(at + 4, "IDAT", 4);
    *idat = (struct conv_encode_idat){.type = at + 4, .summed = at + 4};
    return at + 8;
}

void conv_encode_idat_sum(struct conv_encode_idat *idat, uint8_t *end)
{
    idat->crc = conv_png_crc(idat->crc, idat->summed, (size_t)(end - idat->summed));
    idat->summed = end;
}

uint8_t *conv_encode_idat_close(struct conv_encode_idat *idat, uint8_t *end)
{
    conv_encode_idat_sum(idat, end);
    conv_chunk_write_u32(idat->type - 4, (uint32_t)(end - idat->type - 4));
    conv_chunk_write_u32(end, idat->crc);
    return end + 4;
}

// From the last to the first, since each moves up by the frames of those before it.
uint8_t *conv_encode_split_chunks(uint8_t *at, size_t size, size_t max_chunk)
{
    size_t chunks = size / max_chunk + (size % max_chunk > 0);
    uint8_t *data = at + 8;
    for (size_t i = chunks; i-- > 0;) {
        size_t count = i + 1 < chunks ? max_chunk : size - i * max_chunk;
        uint8_t *type = data + i * (max_chunk + CONV_CHUNK_FRAME) - 4;
        memmove(type + 4, data + i * max_chunk, count);
        memcpy(type, "IDAT", 4);
        close_chunk(type, type + 4 + count);
    }
    return at + size + chunks * CONV_CHUNK_FRAME;
}

size_t conv_encode_frames(size_t stripes)
{
    return CONV_ENCODE_HEAD + CONV_ENCODE_ZLIB_FRAME + CONV_CHUNK_FRAME * (stripes + 2) +
           CONV_BITS_SLACK;
}
