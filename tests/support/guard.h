// SPDX-License-Identifier: MIT
// Memory between two pages that cannot be accessed: reading or writing beyond it ends the test.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct guarded {
    uint8_t *map;
    size_t map_size;
    uint8_t *begin, *end; // of the accessible pages
    uint8_t *data;        // the last `size` bytes before `end`
};

// Whole pages for `size` bytes, with zeros in them.
static inline struct guarded guard_alloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (size + page - 1) / page * page;
    struct guarded made = {.map_size = inner + 2 * page};
    void *map = mmap(NULL, made.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED ||
        (inner > 0 && mprotect((uint8_t *)map + page, inner, PROT_READ | PROT_WRITE))) {
        perror("guard pages");
        abort();
    }
    made.map = (uint8_t *)map;
    made.begin = made.map + page;
    made.end = made.begin + inner;
    made.data = made.end - size;
    return made;
}

static inline void guard_free(struct guarded *guarded)
{
    if (guarded->map)
        munmap(guarded->map, guarded->map_size);
    guarded->map = NULL;
}
