// SPDX-License-Identifier: MIT
// What decoding and encoding PNG files share: the results of a batch, whose items can fail
// independently of each other, and the coders of the context's threads. One batch per call; only
// conv_api_batch_fail and conv_api_codecs_get may be called by several threads.
#ifndef CONV_API_API_PNG_H
#define CONV_API_API_PNG_H

#include "api/api_context.h"
#include "base/lock.h"
#include "png/png.h"

struct conv_api_batch {
    conv_context *context;
    conv_item *items; // of the caller; may be NULL
    int count;
    struct conv_lock lock;
    int first_failed; // the lowest index; INT_MAX: none. Its reason is in context->err.
    enum conv_status status;
    bool device_lost;
};

// Prepares a batch of `count` files: opens the context's codecs and sets *memory to room for
// `count` items of `size` bytes each, all zeros; NULL for no items. The caller gives it back with
// conv_memory_give, also on failure. CONV_ERR_MEMORY, in context->err.
enum conv_status conv_api_batch_prepare(conv_context *context, int count, size_t size,
                                        void **memory);

// Marks all items as CONV_OK. CONV_ERR_MEMORY.
enum conv_status conv_api_batch_start(struct conv_api_batch *batch, conv_context *context,
                                      conv_item *items, int count);

// For a call that fails as a whole: every item gets its status and reason. `items` may be NULL.
// Returns what conv_api_end does.
enum conv_status conv_api_batch_refuse(conv_context *context, conv_item *items, int count,
                                       enum conv_status status);

// Notes that item `index` failed. Any thread.
void conv_api_batch_fail(struct conv_api_batch *batch, int index, enum conv_status status,
                         const struct conv_err *err);

// The status of the first item that failed, as the call's result.
enum conv_status conv_api_batch_end(struct conv_api_batch *batch);

// --- coders, with their scratch memory -----------------------------------------------------------

// For workers 0 to threads - 1. CONV_ERR_MEMORY.
enum conv_status conv_api_codecs_open(struct conv_api_codecs **codecs, int threads,
                                      struct conv_err *err);
void conv_api_codecs_close(struct conv_api_codecs *codecs); // NULL is fine

// The codec of a worker for an encoder's level; -1 for decoding, and for the default level. Opened
// at the first call. CONV_ERR_USAGE: no such level; CONV_ERR_MEMORY.
enum conv_status conv_api_codecs_get(struct conv_api_codecs *codecs, int worker, int level,
                                     struct conv_codec **codec, struct conv_err *err);

#endif
