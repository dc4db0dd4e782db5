// SPDX-License-Identifier: MIT
// A TIFF that libtiff has open, in memory. Inside src/tiff only.
#ifndef CONV_TIFF_LIBTIFF_H
#define CONV_TIFF_LIBTIFF_H

#include "image/format.h"

// Least bytes by which the output buffer grows.
#define CONV_LIBTIFF_LEAST_ROOM ((size_t)1 << 16)

// Largest block that libtiff allocates besides those for samples and lists: the tables of LZW have
// 144 KiB.
#define CONV_LIBTIFF_MOST_STATE ((size_t)256 << 10)

// Starts as {0} with `data` and `size`, or with `file`, `start` and `most`.
struct conv_libtiff {
    struct tiff *tif;    // libtiff's TIFF; NULL: it could not be opened
    const uint8_t *data; // that is read
    size_t size, at;
    bool decoding;            // the directory has been read: almost every warning is of damage
    bool failed;              // `fault` says why
    bool closed;              // what libtiff still writes is not wanted
    struct conv_buffer *file; // that is written, from offset `start` of a file on
    size_t start, most;       // bytes that it is expected to take
    struct conv_format_fault fault;
};

// Opens a file for the thread that calls this. `most`: bytes that libtiff may allocate at once.
// Sets tiff->failed unless it is open; conv_libtiff_close in either case.
void conv_libtiff_open(struct conv_libtiff *tiff, const char *mode, size_t most);
void conv_libtiff_close(struct conv_libtiff *tiff);

#endif
