// SPDX-License-Identifier: MIT
#include "pages.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

namespace convpy
{

namespace
{

constexpr uintptr_t large_page = uintptr_t{2} << 20;
constexpr uintptr_t least_bytes = 4 * large_page; // below it there is little to gain

// Largest block that glibc's limits follow: 32 MiB with its own overhead, in whole pages.
constexpr size_t most_block = (size_t{32} << 20) - (size_t{64} << 10);

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // of Linux 6.1; older systems refuse it
#endif

// The pages that the range begins and ends in belong to malloc, too, which does no harm: this is
// advice on how to back memory that has not been used. All of it may be refused.
void advise(uintptr_t first, uintptr_t end, bool now)
{
#ifdef MADV_HUGEPAGE
    if (end - first < least_bytes)
        return;
    (void)madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE);
    uintptr_t from = (first + large_page - 1) / large_page * large_page;
    if (now)
        (void)madvise(reinterpret_cast<void *>(from), end / large_page * large_page - from,
                      MADV_COLLAPSE);
#else
    (void)first;
    (void)end;
    (void)now;
#endif
}

} // namespace

void use_large_pages(std::vector<MemoryRange> blocks, bool now)
{
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    std::sort(blocks.begin(), blocks.end(),
              [](const MemoryRange &a, const MemoryRange &b) { return a.first < b.first; });
    uintptr_t first = 0, end = 0;
    for (const MemoryRange &block : blocks) {
        auto data = reinterpret_cast<uintptr_t>(block.first);
        uintptr_t begins = data / page * page;
        if (begins > end + page) {
            advise(first, end, now);
            first = begins;
        }
        end = (data + block.size + page - 1) / page * page;
    }
    advise(first, end, now);
}

size_t kept_bytes()
{
    static const bool raised = [] {
        void *volatile block = malloc(most_block); // volatile: compilers remove unused blocks
        free(block);
        return block != nullptr;
    }();
    (void)raised;
    return 2 * most_block;
}

} // namespace convpy
