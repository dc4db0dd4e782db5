// SPDX-License-Identifier: MIT
// Finds the chunks of a PNG file that the fast decoder needs.
#ifndef CONV_PNG_CPU_DECODE_CONTENT_H
#define CONV_PNG_CPU_DECODE_CONTENT_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/parallel.h"
#include "png/png.h"

// --- image data of large files -------------------------------------------------------------------

// The IDAT chunks of a large file, whose CRCs are checked and whose data is joined by several
// threads.

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

// --- all chunks ----------------------------------------------------------------------------------

// Finds the chunks of a PNG file that the fast decoder needs.

struct conv_decode_span {
    const uint8_t *data;
    size_t size;
};

// The data of the chunks. The caller sets `joined`, `most`, `gather` and `for_device`.
struct conv_decode_content {
    struct conv_decode_span plte, trns, idat;
    struct conv_buffer *joined; // for several IDAT chunks
    size_t most;                // bytes that they have together
    struct conv_gather *gather; // collects them instead, if there is one; NULL: there is none
    bool for_device;            // `joined` gets a single one, too, and only a device reads it
    bool idat_seen;             // at least one; idat.data does not tell, since it may be empty
    bool idat_joined;           // `idat` is the content of `joined`
    bool idat_over;             // another chunk came after the image data
};

// Finds the chunks and checks their CRCs. *content then refers to `data`. False for files that are
// left to libpng: with damage, an unusual order of chunks or no image data; or if memory is
// lacking.
bool conv_decode_content_walk(struct conv_decode_content *content,
                              const struct conv_image_header *header, const uint8_t *data,
                              size_t size);

#endif
