// SPDX-License-Identifier: MIT
#include "engine/staging.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Where the system has pages of this size, touching and pinning take half the time.
#define HUGE_PAGE ((size_t)2 << 20)

static void *map(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

// Maps more than needed and unmaps what lies around the aligned part.
static void *map_aligned(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = (size + page - 1) / page * page;
    uint8_t *pages = map(kept + HUGE_PAGE);
    if (!pages)
        return NULL;
    size_t lead = (HUGE_PAGE - (uintptr_t)pages % HUGE_PAGE) % HUGE_PAGE;
    if (lead > 0)
        munmap(pages, lead);
    munmap(pages + lead + kept, HUGE_PAGE - lead);
    (void)madvise(pages + lead, kept, MADV_HUGEPAGE);
    return pages + lead;
}

enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err)
{
    void *pages = size < HUGE_PAGE ? NULL : map_aligned(size);
    *memory =
        pages ? pages : map(size); // under a limit on address space the aligned attempt may fail
    if (!*memory)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of staging: %s",
                            size >> 20, strerror(errno));
    return CONV_OK;
}

// Writes to each page the value that it has. MAP_POPULATE or madvise would hold the lock on the
// address space meanwhile, which stalls every other mapping, above all the CUDA driver's.
void conv_staging_touch(void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += page)
        atomic_fetch_or_explicit((atomic_uchar *)memory + at, 0, memory_order_relaxed);
}

void conv_staging_free(void *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}
