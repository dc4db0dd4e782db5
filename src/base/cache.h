// SPDX-License-Identifier: MIT
// The processor's caches, for benchmarks whose runs must all begin in the same state.
#ifndef CONV_BASE_CACHE_H
#define CONV_BASE_CACHE_H

#include <stddef.h>

// Writes `size` bytes of memory back and drops them from all caches of the machine, so that the
// next access goes to memory. Does nothing on processors other than x86-64 and AArch64. Any thread.
void conv_cache_flush(const void *memory, size_t size);

#endif
