// SPDX-License-Identifier: MIT
// Large pages for large new blocks of memory.
#ifndef CONV_PYTHON_PAGES_H
#define CONV_PYTHON_PAGES_H

#include <cstddef>
#include <vector>

namespace convpy
{

struct MemoryRange {
    char *first;
    size_t size; // bytes
};

// Asks for pages of 2 MiB for blocks that have not been written to yet, also for neighbouring
// blocks together, such as those of malloc. The first access to a page of 4 KiB takes longer than
// copying into it. malloc and Python have written the ends of each block, so that in blocks below 4
// MiB no large page is possible until the system moves what is there: with `now` it does so at
// once, in the calling thread. That takes a quarter of the time of one thread that accesses each
// small page, and more than that of many.
void use_large_pages(std::vector<MemoryRange> blocks, bool now);

// Bytes of freed memory that malloc keeps for later blocks. glibc begins with 128 KiB and raises
// that to twice the largest block that was freed, up to 64 MiB; the first call frees one that was
// never written to. Where the environment or the program sets the limit itself, it stays.
size_t kept_bytes();

} // namespace convpy

#endif
