// SPDX-License-Identifier: MIT
// Memory that a worker reuses from image to image; it grows to the largest need.
#pragma once

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

// --- numbers in the bytes of files ---------------------------------------------------------------

// The lowest byte comes first if `little`, else last.
static inline uint64_t conv_bytes_get(const uint8_t *from, size_t bytes, bool little)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | from[little ? bytes - 1 - i : i];
    return value;
}

static inline uint32_t conv_bytes_u32(const uint8_t *from, bool little)
{
    return (uint32_t)conv_bytes_get(from, 4, little);
}

static inline unsigned conv_bytes_u16(const uint8_t *from, bool little)
{
    return (unsigned)conv_bytes_get(from, 2, little);
}

static inline void conv_bytes_put(uint8_t *to, size_t bytes, uint64_t value, bool little)
{
    for (size_t i = 0; i < bytes; i++)
        to[little ? i : bytes - 1 - i] = (uint8_t)(value >> 8 * i);
}
