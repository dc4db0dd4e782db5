// SPDX-License-Identifier: MIT
#include "shared.h"

#include <cstdlib>

#include "block.h"
#include "scheduler.h"

#define MOST_STATICS 8
#define FIRST_ADDRESS 1024 // of dynamic shared memory for PTX: 0 is none

namespace emulated
{

struct static_array {
    const void *key;
    void *memory;
    size_t size;
};

struct shared_memory {
    uint8_t *dynamic;
    static_array statics[MOST_STATICS];
};

static shared_memory blocks[CONV_EMULATED_MOST_BLOCKS];

static void *allocate(size_t size)
{
    void *memory;
    // The most that kernels may request; after the end comes the address sanitizer's guard.
    if (posix_memalign(&memory, 128, size ? size : 1)) {
        complain("no memory for %zu bytes of shared memory", size);
        return nullptr;
    }
    fill_with_noise(memory, size);
    return memory;
}

void open_shared()
{
    shared_memory &own = blocks[place()];
    free(own.dynamic);
    own.dynamic = (uint8_t *)allocate(dynamic_bytes());
    for (static_array &array : own.statics) {
        free(array.memory);
        array = {};
    }
}

void *dynamic_shared()
{
    return blocks[place()].dynamic;
}

void *find_static_shared(const void *key, size_t size)
{
    for (static_array &array : blocks[place()].statics) {
        if (!array.key) {
            array = {key, allocate(size), size};
            announce(&array); // only its existence
        }
        if (array.key == key) {
            observe(&array);
            return array.memory;
        }
    }
    fail("more than %d arrays in shared memory", MOST_STATICS);
}

bool is_shared(const void *p)
{
    const shared_memory &own = blocks[place()];
    const uint8_t *at = (const uint8_t *)p;
    if (at >= own.dynamic && at < own.dynamic + dynamic_bytes())
        return true;
    for (const static_array &array : own.statics)
        if (array.key && at >= array.memory && at < (uint8_t *)array.memory + array.size)
            return true;
    return false;
}

size_t shared_offset(const void *p)
{
    const uint8_t *at = (const uint8_t *)p, *dynamic = blocks[place()].dynamic;
    if (at < dynamic || at > dynamic + dynamic_bytes())
        fail("%p is no address in dynamic shared memory", p);
    return (size_t)(at - dynamic) + FIRST_ADDRESS;
}

void *shared_at(uint32_t address, size_t size, size_t align)
{
    if (address < FIRST_ADDRESS || address - FIRST_ADDRESS + size > dynamic_bytes())
        fail("%zu bytes at shared address %u: outside of the block's %zu bytes", size,
             address - FIRST_ADDRESS, dynamic_bytes());
    if (address % align)
        fail("shared address %u is no multiple of %zu", address - FIRST_ADDRESS, align);
    return blocks[place()].dynamic + (address - FIRST_ADDRESS);
}

} // namespace emulated
