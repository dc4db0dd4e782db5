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

// Asks for pages of 2 MiB for blocks that have not been written to yet, where they lie side by side
// as blocks of malloc do. The first access to a page of 4 KiB takes longer than copying into it.
void use_large_pages(std::vector<MemoryRange> blocks);

} // namespace convpy

#endif
