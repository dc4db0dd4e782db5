// SPDX-License-Identifier: MIT
#include "io/archive/archive_buffers.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>

// Capacities are multiples of this, so that members of similar sizes can use the same buffers.
#define STEP ((size_t)1 << 16)

// Unused buffers that are looked at; the last one given back is still in a cache.
#define MOST_LOOKS 8

struct conv_archive_buffer {
    alignas(max_align_t) struct conv_archive_buffer *next;
    size_t capacity; // of `data`
    alignas(max_align_t) unsigned char data[];
};

void conv_archive_buffers_open(struct conv_archive_buffers *buffers)
{
    *buffers = (struct conv_archive_buffers){0};
    pthread_mutex_init(&buffers->lock, NULL); // on Linux neither takes memory nor fails
}

void conv_archive_buffers_close(struct conv_archive_buffers *buffers)
{
    for (struct conv_archive_buffer *buffer; (buffer = buffers->unused);) {
        buffers->unused = buffer->next;
        free(buffer);
    }
    pthread_mutex_destroy(&buffers->lock);
}

// Finds an unused buffer of which at least half would be used.
static struct conv_archive_buffer *find(struct conv_archive_buffers *buffers, size_t size)
{
    struct conv_archive_buffer **link = &buffers->unused;
    for (int i = 0; *link && i < MOST_LOOKS; i++, link = &(*link)->next) {
        struct conv_archive_buffer *buffer = *link;
        if (buffer->capacity < size || buffer->capacity / 2 > size + STEP)
            continue;
        *link = buffer->next;
        buffers->unused_bytes -= buffer->capacity;
        return buffer;
    }
    return NULL;
}

void *conv_archive_buffers_take(struct conv_archive_buffers *buffers, size_t size)
{
    struct conv_archive_buffer *buffer = NULL;
    if (size >= STEP) {
        pthread_mutex_lock(&buffers->lock);
        buffer = find(buffers, size);
        pthread_mutex_unlock(&buffers->lock);
    }
    if (buffer)
        return buffer->data;
    size_t capacity = size < STEP ? size : (size + STEP - 1) / STEP * STEP;
    buffer = malloc(sizeof *buffer + capacity);
    if (!buffer)
        return NULL;
    buffer->capacity = capacity;
    return buffer->data;
}

void conv_archive_buffers_give(struct conv_archive_buffers *buffers, void *data)
{
    if (!data)
        return;
    struct conv_archive_buffer *buffer =
        (void *)((unsigned char *)data - offsetof(struct conv_archive_buffer, data));
    pthread_mutex_lock(&buffers->lock);
    bool keeps =
        buffer->capacity >= STEP && buffers->unused_bytes + buffer->capacity <= buffers->most;
    if (keeps) {
        buffer->next = buffers->unused;
        buffers->unused = buffer;
        buffers->unused_bytes += buffer->capacity;
    }
    pthread_mutex_unlock(&buffers->lock);
    if (!keeps)
        free(buffer);
}
