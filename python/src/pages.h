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

} // namespace convpy

#endif
