// SPDX-License-Identifier: MIT
// The IDAT chunks of a large file, whose CRCs are checked and whose data is joined by several
// threads.
#ifndef CONV_PNG_CPU_GATHER_H
#define CONV_PNG_CPU_GATHER_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/parallel.h"

struct conv_gather_group;

// The state for one image. Used by one thread.
struct conv_gather {
    const uint8_t *data; // after conv_gather_end: the joined data
    size_t size;
    size_t chunks;                    // so far
    struct conv_gather_group *groups; // of consecutive chunks, some hundred KiB each
    size_t count;
};

// False if the file is too small for it, or memory is out; conv_gather_end is then not called.
bool conv_gather_start(struct conv_gather *gather, size_t file_size);

// Adds the data of the next IDAT chunk, which follows the chunk before it in the file.
void conv_gather_add(struct conv_gather *gather, const uint8_t *data, size_t size);

// If `wanted`, sets gather->data, in the file or in `joined`. False if a CRC is wrong or memory is
// out. Frees the groups.
bool conv_gather_end(struct conv_gather *gather, bool wanted, struct conv_buffer *joined,
                     struct conv_parallel *parallel);

#endif
