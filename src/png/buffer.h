// SPDX-License-Identifier: MIT
// Memory that grows with the largest image a worker has met and is kept for the next one.
#ifndef CONV_PNG_BUFFER_H
#define CONV_PNG_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_buffer {
    uint8_t *data; // malloc'ed
    size_t size;   // bytes in use
    size_t capacity;
};

// Makes room for `capacity` bytes in all; the bytes in use stay. False: out of memory, the buffer
// is as it was.
bool conv_buffer_reserve(struct conv_buffer *buffer, size_t capacity);

// Adds bytes at the end; the capacity at least doubles when it has to grow. False as above.
bool conv_buffer_append(struct conv_buffer *buffer, const uint8_t *data, size_t size);

// Gives the memory back, and what is in it, if it is more than `keep` bytes.
void conv_buffer_trim(struct conv_buffer *buffer, size_t keep);

void conv_buffer_free(struct conv_buffer *buffer);

#endif
