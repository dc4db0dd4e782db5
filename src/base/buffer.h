// SPDX-License-Identifier: MIT
// Memory that a worker reuses from image to image; it grows to the largest need.
#ifndef CONV_BASE_BUFFER_H
#define CONV_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Starts as {0}.
struct conv_buffer {
    uint8_t *data; // malloc'ed
    size_t size;   // bytes in use
    size_t capacity;
};

// Makes the capacity at least `capacity`; the bytes in use stay. False: out of memory, and the
// buffer is unchanged.
bool conv_buffer_reserve(struct conv_buffer *buffer, size_t capacity);

// Appends bytes; the capacity at least doubles when it has to grow. False as above.
bool conv_buffer_append(struct conv_buffer *buffer, const uint8_t *data, size_t size);

// Frees the memory and its content if the capacity exceeds `keep` bytes.
void conv_buffer_trim(struct conv_buffer *buffer, size_t keep);

void conv_buffer_free(struct conv_buffer *buffer); // also resets it to {0}

// An array of malloc that grows by one element at a time: room for another one after the first
// `count`, which may have left it in any number. Returns the array, which may have moved; NULL: no
// memory, and it is as it was. At a power of two an array is full, and is doubled.
void *conv_array_grow(void *array, size_t count, size_t each);

// Asks for large pages for a block that has not been used yet. Any size; small blocks and systems
// without large pages ignore it. Only pages that lie wholly in the block are affected.
void conv_huge_use(void *data, size_t size);

#endif
