// SPDX-License-Identifier: MIT
#include "support/own_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 32
#define FILL 0xa7

void own_memory_allocate(void *user, int count, const int32_t *indices, const size_t *sizes,
                         void **memory)
{
    struct own_memory *own = user;
    if (count < 1 || !pthread_equal(own->caller, pthread_self()))
        abort();
    for (int k = 0; k < count; k++) {
        int i = indices[k];
        if (i < 0 || i >= own->most || own->is_reserved[i])
            abort();
        free(own->data[i]);
        own->size[i] = sizes[k];
        own->data[i] = malloc(sizes[k] + GUARD);
        if (!own->data[i])
            abort();
        memset(own->data[i], FILL, sizes[k] + GUARD);
        memory[k] = i == own->refused ? NULL : own->data[i];
    }
}

void *own_memory_reserve(void *user, int32_t index, size_t most)
{
    struct own_memory *own = user;
    if (!pthread_equal(own->caller, pthread_self()) || index < 0 || index >= own->most)
        abort();
    if (own->reserved > 0 && (index <= own->last || own->files[own->last].size == 0))
        abort();
    if (index % 3 == 0)
        return NULL;
    own->data[index] = malloc(most + GUARD);
    if (!own->data[index])
        abort();
    memset(own->data[index], FILL, most + GUARD);
    own->size[index] = most;
    own->is_reserved[index] = true;
    own->last = index;
    own->reserved++;
    return own->data[index];
}

bool own_memory_holds(const struct own_memory *own, const conv_bytes *files, int i)
{
    const uint8_t *data = own->data[i];
    for (int k = 0; data && k < GUARD; k++)
        if (data[own->size[i] + (size_t)k] != FILL)
            return false;
    return data && files[i].data == data && files[i].size > 0 &&
           (own->is_reserved[i] ? files[i].size < own->size[i] : files[i].size == own->size[i]);
}

void own_memory_free(struct own_memory *own)
{
    for (int i = 0; i < own->most; i++)
        free(own->data[i]);
}
