// SPDX-License-Identifier: MIT
// Large blocks of memory: the first access to each page takes time, and with pages of 2 MiB there
// are fewer first accesses.
#ifndef CONV_BASE_HUGE_H
#define CONV_BASE_HUGE_H

#include <stddef.h>

// Asks for large pages for a block that has not been used yet. Any size; small blocks and systems
// without large pages ignore it. Only pages that lie wholly in the block are affected.
void conv_huge_use(void *data, size_t size);

#endif
