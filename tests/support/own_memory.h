// SPDX-License-Identifier: MIT
// Memory of the caller for files of conv_encode_png, with guard bytes after each file.
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "conv.h"

#define OWN_MEMORY_MOST 100

struct own_memory {
    pthread_t caller;
    int most;    // indices below it are expected
    int refused; // the index that gets no memory; -1: none
    void *data[OWN_MEMORY_MOST];
    size_t size[OWN_MEMORY_MOST];
    // Of own_memory_reserve.
    const conv_bytes *files; // of the call
    int reserved;            // calls that returned memory
    int last;                // index of the last of them, if there was one
    bool is_reserved[OWN_MEMORY_MOST];
};

// For conv_encode_options.allocate, with a struct own_memory as `user`.
void own_memory_allocate(void *user, int count, const int32_t *indices, const size_t *sizes,
                         void **memory);

// For conv_encode_options.reserve: memory for every index that 3 does not divide.
void *own_memory_reserve(void *user, int32_t index, size_t most);

// True if files[i] is in the memory that was given for it, and nothing was written past its end.
bool own_memory_holds(const struct own_memory *own, const conv_bytes *files, int i);

void own_memory_free(struct own_memory *own);
