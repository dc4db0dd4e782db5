// SPDX-License-Identifier: MIT
#include "base/huge.h"

#include <stdint.h>
#include <sys/mman.h>

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
