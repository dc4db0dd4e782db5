// SPDX-License-Identifier: MIT
#include "base/cache.h"

#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)

#define LINE 64

// clflush waits for the line before it, clflushopt (Skylake, Zen and later) does not: 6 MB in
// 0.35 ms instead of 12 on a Sapphire Rapids.
static int has_clflushopt(void)
{
    unsigned eax, ebx = 0, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_CLFLUSHOPT);
}

void conv_cache_flush(const void *memory, size_t size)
{
    const char *line = (const char *)((uintptr_t)memory & ~(uintptr_t)(LINE - 1));
    const char *end = (const char *)memory + size;
    int fast = has_clflushopt();
    for (; line < end; line += LINE) {
        if (fast)
            __asm__ volatile("clflushopt %0" : : "m"(*line) : "memory");
        else
            __asm__ volatile("clflush %0" : : "m"(*line) : "memory");
    }
    __asm__ volatile("mfence" : : : "memory");
}

#elif defined(__aarch64__)

void conv_cache_flush(const void *memory, size_t size)
{
    uint64_t type;
    __asm__("mrs %0, ctr_el0" : "=r"(type));
    uintptr_t bytes = (uintptr_t)4 << (type >> 16 & 15); // of the smallest line of the data caches
    const char *line = (const char *)((uintptr_t)memory & ~(bytes - 1));
    const char *end = (const char *)memory + size;
    for (; line < end; line += bytes)
        __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
    __asm__ volatile("dsb ish" : : : "memory");
}

#else

void conv_cache_flush(const void *memory, size_t size)
{
    (void)memory;
    (void)size;
}

#endif
