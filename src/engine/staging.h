// SPDX-License-Identifier: MIT
// Staging memory of groups. It is plain memory, so that it is available before any device is open;
// it is pinned before its first upload (cuda_memory.h). Any thread may call any of these.
#ifndef CONV_ENGINE_STAGING_H
#define CONV_ENGINE_STAGING_H

#include <stddef.h>

#include "base/err.h"

// Whole pages, which take no memory until they are first written. CONV_ERR_MEMORY.
enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err);
// Makes all pages resident, as pinning does, but on several threads at once: a driver pins one
// block at a time. The content stays.
void conv_staging_touch(void *memory, size_t size);
void conv_staging_free(void *memory, size_t size); // NULL is fine

#endif
