// SPDX-License-Identifier: MIT
// The bytes of an item's file: from its source into memory, within limits.
#ifndef CONV_FILES_FILE_READ_H
#define CONV_FILES_FILE_READ_H

#include "image/format.h"
#include "io/source.h"

// A buffer, which is reused from file to file. Starts as {0}; its owner frees `data`.
struct conv_file {
    const uint8_t *bytes; // of the file: in `data`, or where the item has them in memory already
    size_t size;
    uint8_t *data;
    size_t capacity;        // of `data`
    struct conv_file *next; // in its owner's list
};

struct conv_file_read {
    size_t limit;                   // bytes; larger files are refused
    atomic_int *stop;               // non-zero: reading is cancelled; may be NULL
    struct conv_parallel *parallel; // threads that may help with a large file; may be NULL
    // Each may be NULL. `grow` is called before the buffer takes `capacity` bytes and may wait;
    // `pause` and `resume` are called around waits for a pipe.
    void (*grow)(void *context, size_t capacity);
    void (*pause)(void *context), (*resume)(void *context);
    void *context;
};

// The capacity with which a file of that size is read.
size_t conv_file_read_capacity(size_t size);

// Opens the item, reads its file and closes it; bytes that are in memory already are not copied.
// *format is the format of the first bytes, which are checked before more memory is allocated; on
// failure it may be NULL. input->info is set. CONV_ERR_IO, CONV_ERR_USAGE, CONV_ERR_FORMAT,
// CONV_ERR_LIMIT with a hint, CONV_ERR_MEMORY, CONV_ERR_CANCELLED.
enum conv_status conv_file_read(const struct conv_file_read *how, const struct conv_item *item,
                                struct conv_input *input, struct conv_file *file,
                                const struct conv_format **format, struct conv_err *err);

#endif
