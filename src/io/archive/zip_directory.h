// SPDX-License-Identifier: MIT
// Records of a zip file that is being written (private to src/io/zip_*.c): the header before an
// entry, and the central directory, which is collected while entries are written.
// APPNOTE.TXT 6.3.10 of PKWARE defines them.
#ifndef CONV_ARCHIVE_ZIP_DIRECTORY_H
#define CONV_ARCHIVE_ZIP_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/err.h"

enum conv_zip_method { CONV_ZIP_STORED = 0, CONV_ZIP_DEFLATED = 8 };

struct conv_zip_entry {
    const char *name; // any bytes; a folder's ends in a slash
    size_t name_size; // 1 to CONV_ZIP_NAME_MOST
    unsigned mode;    // with the file's type
    time_t mtime;
    enum conv_zip_method method;
    bool sum_follows; // after the content, in a descriptor: the header has neither sum nor sizes
    uint32_t crc;
    uint64_t packed, size; // bytes in the archive, and without compression
    uint64_t offset;       // of the header
};

#define CONV_ZIP_NAME_MOST 32768
#define CONV_ZIP_HEADER_MOST (128 + CONV_ZIP_NAME_MOST) // bytes of any record of an entry
#define CONV_ZIP_END_MOST 128

// These write a record to `dst`, with room for CONV_ZIP_HEADER_MOST bytes, and return its size.
size_t conv_zip_header(uint8_t *dst, const struct conv_zip_entry *entry);
size_t conv_zip_descriptor(uint8_t *dst, const struct conv_zip_entry *entry);

// The central directory. Starts as {0}. What does not fit into a buffer goes to a temporary file,
// so that memory does not grow with the number of entries.
struct conv_zip_directory {
    uint8_t *buffer;
    size_t used;
    FILE *file;    // NULL: all of it is in the buffer
    bool is_taken; // conv_zip_directory_take was called
    uint64_t size; // of all records
    uint64_t count;
};

// CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_zip_directory_add(struct conv_zip_directory *directory,
                                        const struct conv_zip_entry *entry, struct conv_err *err);

// Hands out the directory piece by piece: sets *data and returns how many bytes, 0 at the end, -1
// with *err. Nothing can be added any more.
ptrdiff_t conv_zip_directory_take(struct conv_zip_directory *directory, const uint8_t **data,
                                  struct conv_err *err);

// What ends a zip file whose directory begins at `offset`. dst: CONV_ZIP_END_MOST bytes; returns
// how many it took.
size_t conv_zip_directory_end(uint8_t *dst, const struct conv_zip_directory *directory,
                              uint64_t offset);

void conv_zip_directory_free(struct conv_zip_directory *directory); // leaves {0}

#endif
