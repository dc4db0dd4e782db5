// SPDX-License-Identifier: MIT
// Staging memory: slots that each hold one group. A slot takes its memory the first time that it is
// needed, so that a short run does not pay for what it never fills, and keeps it to the end. All of
// them, and the chunks that their pictures carry, stay within --mem-limit. A picture larger than a
// slot makes a slot grow; when the limit leaves no room for that, free slots give their memory
// back. Not thread-safe: the pipeline's lock guards it.
#ifndef CONV_PIPELINE_POOL_H
#define CONV_PIPELINE_POOL_H

#include "backend/backend.h"
#include "pipeline/pipeline.h"

struct conv_job;

struct conv_slot {
    struct conv_group group;
    bool pin_tried;
    struct conv_backend *in_pinned_by, *out_pinned_by; // NULL: plain memory
    bool busy;
    bool sealed;            // takes no more pictures
    bool again;             // its pictures are to be read and decoded anew, on the CPU
    bool counted;           // as a group for a device to decode
    uint64_t sealed_at;     // conv_clock_ns
    size_t longest;         // bytes of the longest stream that it has for the device
    size_t carried;         // bytes of chunks that its pictures take along
    int decoding;           // pictures whose decoder still writes
    int unfinished;         // pictures not yet encoded, failed or dropped
    struct conv_job *jobs;  // decoded pictures
    struct conv_slot *next; // in the queue of groups to run
};

struct conv_pool {
    const struct conv_backend_ops *ops; // which pin
    struct conv_slot *slots;
    int count;
    size_t bytes; // what a slot takes at first, a side
    size_t limit;
    size_t used;    // bytes of staging, both sides of all slots
    size_t carried; // and of chunks, of busy slots
};

// `count` slots for the run that is configured.
enum conv_status conv_pool_open(struct conv_pool *pool, const struct conv_pipeline_config *config,
                                int count, struct conv_err *err);
void conv_pool_close(struct conv_pool *pool); // half-built is fine

// An empty slot whose group takes `need` bytes a side, and a picture with `carried` bytes of
// chunks, which if need be goes alone. *slot is NULL with CONV_OK if one has to wait for a slot to
// be released; CONV_ERR_LIMIT if waiting would not help.
enum conv_status conv_pool_acquire(struct conv_pool *pool, size_t need, size_t carried,
                                   struct conv_slot **slot, struct conv_err *err);
// The same for another picture in a slot that is busy: whether there is room for its chunks, and
// that they are there.
bool conv_pool_may_carry(struct conv_pool *pool, const struct conv_slot *slot, size_t carried);
void conv_pool_carry(struct conv_pool *pool, struct conv_slot *slot, size_t carried);
void conv_pool_release(struct conv_pool *pool, struct conv_slot *slot);

// Has the backend pin the slot's memory, if nobody has tried that yet. To be called by who is about
// to hand the group to that backend, without the lock: it takes milliseconds, once in a slot's
// life.
void conv_pool_pin(const struct conv_pool *pool, struct conv_slot *slot,
                   struct conv_backend *backend);

#endif
