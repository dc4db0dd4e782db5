// SPDX-License-Identifier: MIT
// Sparse files in tar archives: the archive has the parts between the holes, one after the other,
// and a map of their places. Versions of GNU tar have written four kinds of maps. Private to
// src/io/tar_*.c.
#ifndef CONV_ARCHIVE_TAR_SPARSE_H
#define CONV_ARCHIVE_TAR_SPARSE_H

#include "io/archive/archive_input.h"
#include "io/archive/tar_header.h"

// The most parts of a map; they take 16 MiB.
#define CONV_TAR_MOST_PARTS ((size_t)1 << 20)

struct conv_tar_part {
    uint64_t at, size; // bytes
};

// Starts as {0}.
struct conv_tar_sparse {
    struct conv_tar_part *parts; // malloc'ed
    size_t count, capacity;
    uint64_t size;      // of the file with its holes
    bool is_at_content; // the map comes before the first part (PAX format 1.0)
    bool has_offset;    // of a part whose size is still to come (PAX format 0.0)
    uint64_t offset;    // the same
    size_t next;        // while reading: the part at `produced`, or the next one
    uint64_t produced;  // bytes of the file that were read
};

void conv_tar_sparse_free(struct conv_tar_sparse *sparse); // {0} afterwards

// Adds a part. CONV_ERR_LIMIT, CONV_ERR_MEMORY.
enum conv_status conv_tar_sparse_add(struct conv_tar_sparse *sparse, uint64_t at, uint64_t size,
                                     struct conv_err *err);

// Reads the map in a header of type 'S' and in the blocks that follow it. CONV_ERR_FORMAT,
// CONV_ERR_LIMIT, CONV_ERR_MEMORY for this file alone: the input is at its first part then, as
// after CONV_OK. *is_over: the archive ends, or cannot be read; *err has the reason.
enum conv_status conv_tar_sparse_old(struct conv_tar_sparse *sparse,
                                     const struct conv_tar_header *header,
                                     struct conv_archive_input *input, bool *is_over,
                                     struct conv_err *err);

// "offset,size,offset,size": PAX format 0.1. CONV_ERR_FORMAT and as `add`.
enum conv_status conv_tar_sparse_list(struct conv_tar_sparse *sparse, const char *text, size_t size,
                                      struct conv_err *err);

// Reads the map before the first part, and takes its bytes off *left, those of the content.
// CONV_ERR_FORMAT and as `add`, for this file alone; CONV_ERR_IO and CONV_ERR_CANCELLED of the
// input.
enum conv_status conv_tar_sparse_begin(struct conv_tar_sparse *sparse,
                                       struct conv_archive_input *input, uint64_t *left,
                                       struct conv_err *err);

// True if the parts follow one another within the file and take `left` bytes together.
bool conv_tar_sparse_fits(const struct conv_tar_sparse *sparse, uint64_t left);

// The next bytes of the file, at most `size`; takes those that were read from the input off *left.
// Fewer only at the end of the file, or where the input ends. -1 with *err of the input.
ssize_t conv_tar_sparse_read(struct conv_tar_sparse *sparse, struct conv_archive_input *input,
                             uint64_t *left, uint8_t *data, size_t size, struct conv_err *err);

#endif
