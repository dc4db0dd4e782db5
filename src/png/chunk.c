// SPDX-License-Identifier: MIT
#include "png/chunk.h"

#include <libdeflate.h>

bool conv_chunk_crc_is_right(const struct conv_chunk *chunk)
{
    uint32_t crc = libdeflate_crc32(0, chunk->data - 4, (size_t)chunk->length + 4);
    return crc == conv_chunk_read_u32(chunk->data + chunk->length);
}
