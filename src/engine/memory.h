// SPDX-License-Identifier: MIT
// The context's pools of host and device memory: blocks that are freed are kept and handed out
// again. Pools belong to one thread at a time, except that any thread of the context may take and
// give host memory.
#ifndef CONV_ENGINE_MEMORY_H
#define CONV_ENGINE_MEMORY_H

#include <stddef.h>

#include "base/err.h"
#include "conv.h"

struct conv_device_context;
struct conv_device_ops;
struct conv_memory_pools;

// Pools that keep at most `keep` freed bytes each; 0: no limit. CONV_ERR_MEMORY. The device is set
// once it is open; until then nothing is taken.
enum conv_status conv_memory_open(struct conv_memory_pools **pools, size_t keep,
                                  struct conv_err *err);
void conv_memory_set_device(struct conv_memory_pools *pools, const struct conv_device_ops *ops,
                            struct conv_device_context *device);
// Returns the freed blocks to the device, which is still open.
void conv_memory_empty(struct conv_memory_pools *pools);
void conv_memory_close(struct conv_memory_pools *pools); // NULL is fine; emptied before

// At least `bytes` (0 is fine) at a multiple of 256. CONV_ERR_MEMORY, also after all freed blocks
// were returned to the system; CONV_ERR_DEVICE.
enum conv_status conv_memory_take(struct conv_memory_pools *pools, conv_memory memory, size_t bytes,
                                  void **data, struct conv_err *err);
void conv_memory_give(struct conv_memory_pools *pools, conv_memory memory,
                      void *data); // NULL is fine

#endif
