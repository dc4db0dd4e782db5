// SPDX-License-Identifier: MIT
#include "base/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool conv_buffer_reserve(struct conv_buffer *buffer, size_t capacity)
{
    if (capacity <= buffer->capacity)
        return true;
    uint8_t *data = realloc(buffer->data, capacity);
    if (!data)
        return false;
    conv_huge_use(data, capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

bool conv_buffer_append(struct conv_buffer *buffer, const uint8_t *data, size_t size)
{
    if (size > SIZE_MAX - buffer->size)
        return false;
    size_t needed = buffer->size + size;
    if (needed > buffer->capacity) {
        size_t twice = buffer->capacity > SIZE_MAX / 2 ? SIZE_MAX : 2 * buffer->capacity;
        if (!conv_buffer_reserve(buffer, needed > twice ? needed : twice))
            return false;
    }
    if (size > 0)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size = needed;
    return true;
}

void conv_buffer_trim(struct conv_buffer *buffer, size_t keep)
{
    if (buffer->capacity > keep)
        conv_buffer_free(buffer);
}

void conv_buffer_free(struct conv_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct conv_buffer){0};
}

#define LEAST_ELEMENTS 16

void *conv_array_grow(void *array, size_t count, size_t each)
{
    bool is_full = count == 0 || (count >= LEAST_ELEMENTS && (count & (count - 1)) == 0);
    size_t room = count == 0 ? LEAST_ELEMENTS : 2 * count, bytes;
    if (!is_full)
        return array;
    return __builtin_mul_overflow(room, each, &bytes) ? NULL : realloc(array, bytes);
}

#define HUGE_PAGE ((size_t)2 << 20)
#define LEAST (4 * HUGE_PAGE) // bytes: below it there is little to gain

void conv_huge_use(void *data, size_t size)
{
#ifdef MADV_HUGEPAGE
    uintptr_t first = ((uintptr_t)data + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)data + size) / HUGE_PAGE * HUGE_PAGE;
    if (size >= LEAST)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE); // advice: it may be refused
#else
    (void)data;
    (void)size;
#endif
}
