// SPDX-License-Identifier: MIT
#include "backend/staging.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of staging: %s",
                            size >> 20, strerror(errno));
    *memory = pages;
    return CONV_OK;
}

void conv_staging_free(void *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}
