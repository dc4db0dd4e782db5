// SPDX-License-Identifier: MIT
// Memory of the caller for encoded files (conv_encode_options.allocate), requested in groups.
#ifndef CONV_ENGINE_FILE_MEMORY_H
#define CONV_ENGINE_FILE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv.h"

struct conv_file_memory {
    void (*allocate)(void *user, int count, const int32_t *indices, const size_t *sizes,
                     void **memory);
    void *user;
    // The files for which memory is requested next, `count` of them; after the call their memory.
    int32_t *indices; // in the caller's list
    size_t *sizes;    // bytes
    void **memory;    // NULL: the caller has none
    int count;
};

// For at most `most` files at a time; options->allocate is set. CONV_ERR_MEMORY.
enum conv_status conv_file_memory_open(struct conv_file_memory *files,
                                       const conv_encode_options *options, int most,
                                       struct conv_err *err);
void conv_file_memory_close(struct conv_file_memory *files); // {0} is fine

// Adds a file to the list for which `call` requests memory. In the thread of the call.
void conv_file_memory_add(struct conv_file_memory *files, int index, size_t size);
// Calls the caller if there are files on the list. `memory` is valid until the next `add`, before
// which `count` is set to 0.
void conv_file_memory_call(struct conv_file_memory *files);

#endif
