// SPDX-License-Identifier: MIT
#include "pages.h"

#include <algorithm>
#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace convpy
{

namespace
{

constexpr uintptr_t least_bytes = uintptr_t{8} << 20; // below it there is little to gain

// The pages that the range begins and ends in belong to malloc, too, which does no harm: this is
// advice on how to back memory that has not been used.
void advise(uintptr_t first, uintptr_t end)
{
#ifdef MADV_HUGEPAGE
    if (end - first >= least_bytes)
        (void)madvise(reinterpret_cast<void *>(first), end - first,
                      MADV_HUGEPAGE); // may be refused
#else
    (void)first;
    (void)end;
#endif
}

} // namespace

void use_large_pages(std::vector<MemoryRange> blocks)
{
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    std::sort(blocks.begin(), blocks.end(),
              [](const MemoryRange &a, const MemoryRange &b) { return a.first < b.first; });
    uintptr_t first = 0, end = 0;
    for (const MemoryRange &block : blocks) {
        auto data = reinterpret_cast<uintptr_t>(block.first);
        uintptr_t begins = data / page * page;
        if (begins > end + page) {
            advise(first, end);
            first = begins;
        }
        end = (data + block.size + page - 1) / page * page;
    }
    advise(first, end);
}

} // namespace convpy
