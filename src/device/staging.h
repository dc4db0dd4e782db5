// SPDX-License-Identifier: MIT
// Staging memory, in which groups lie. It is plain memory, so that it is there before any device
// is; who hands a group to a device pins it first (host_pin of struct conv_backend_ops).
#ifndef CONV_DEVICE_STAGING_H
#define CONV_DEVICE_STAGING_H

#include <stddef.h>

#include "base/err.h"

// Pages of their own, which come from the system untouched: staging costs what images fill.
enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err);
// Has all of them there, as pinning would have, but several threads may do so at once: a driver
// pins for one at a time.
void conv_staging_touch(void *memory, size_t size);
void conv_staging_free(void *memory, size_t size); // NULL is fine

#endif
