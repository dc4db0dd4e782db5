// SPDX-License-Identifier: MIT
// Staging memory: slots that each hold one group, and buffers for their two sides. A buffer takes
// its memory the first time that it is needed, so that a short run does not pay for what it never
// fills, and keeps it to the end. All of them, and the chunks that images carry, stay within
// --mem-limit. An image larger than a buffer makes a buffer grow; when the limit leaves no room
// for that, free buffers give their memory back. Not thread-safe: the pipeline's lock guards it.
#ifndef CONV_PIPELINE_POOL_H
#define CONV_PIPELINE_POOL_H

#include "backend/backend.h"

struct conv_job;

struct conv_pool_buffer {
    uint8_t *data;
    size_t bytes;
    bool busy;
    bool pin_tried;
    struct conv_backend *pinned_by; // NULL: plain memory
};

struct conv_slot {
    struct conv_group group;
    struct conv_pool_buffer *in, *out; // the group's h_in and h_out; NULL where it has none
    bool busy;
    bool sealed;         // takes no more images
    bool left;           // a worker that was left behind still writes into it
    bool again;          // its images are to be read and decoded anew, on the CPU
    bool counted;        // as a group for a device to decode
    uint64_t touched_at; // an image placed or decoded; conv_clock_ns, as what follows
    uint64_t sealed_at;
    size_t longest;         // bytes of the longest stream that it has for the device
    size_t carried;         // bytes of chunks that its images take along
    size_t promised;        // bytes of the side out that it may still ask for
    int decoding;           // images whose decoder still writes
    int unfinished;         // images not yet encoded, failed or dropped
    struct conv_job *jobs;  // decoded images
    struct conv_slot *next; // in the queue of groups to run
};

struct conv_pool {
    const struct conv_backend_ops *ops; // which pin
    struct conv_slot *slots;
    int count;
    struct conv_pool_buffer *buffers; // two a slot
    size_t bytes;                     // what a buffer takes at first
    size_t keep;                      // what a buffer may keep from slot to slot
    size_t limit;
    size_t used; // bytes of all buffers
    size_t kept; // and what is promised, and what chunks take, of busy slots
};

struct conv_pool_config {
    const struct conv_backend_ops *ops; // pins and unpins buffers
    int count;                          // of slots
    size_t limit;                       // bytes that all buffers and metadata may take together
    // Bytes that a buffer takes the first time that it is needed. Less where `limit` or `keep` does
    // not leave that much.
    size_t usual_bytes;
    size_t keep; // bytes that a buffer may keep from slot to slot; SIZE_MAX: any number
    bool codes;  // a device decodes or encodes, so groups need a table of images
};

// CONV_ERR_MEMORY without memory for the slots; conv_pool_close is due then, too.
enum conv_status conv_pool_open(struct conv_pool *pool, const struct conv_pool_config *config,
                                struct conv_err *err);
void conv_pool_close(struct conv_pool *pool); // half-built is fine

// What a group begins with.
struct conv_pool_need {
    struct conv_group_room room; // of its first image
    size_t carried;              // bytes of chunks that goes with
    bool resident;               // h_in only; h_out is promised
};

// True if the pool could never have that much.
bool conv_pool_is_too_much(const struct conv_pool *pool, const struct conv_pool_need *need);

// An empty slot with room for what is needed, which if need be goes alone. *slot is NULL with
// CONV_OK if one has to wait for others to be released; CONV_ERR_LIMIT if waiting would not help.
enum conv_status conv_pool_acquire(struct conv_pool *pool, const struct conv_pool_need *need,
                                   struct conv_slot **slot, struct conv_err *err);
// The same for another image in a slot that is busy: whether there is room for its chunks, and
// that they are there.
bool conv_pool_may_carry(struct conv_pool *pool, size_t carried);
void conv_pool_carry(struct conv_pool *pool, struct conv_slot *slot, size_t carried);
void conv_pool_release(struct conv_pool *pool, struct conv_slot *slot);

// Takes memory out of those buffers of a slot, which is about to be released, that are too large to
// keep, for the caller to give up without the lock. Returns how many of the two.
int conv_pool_shed(struct conv_pool *pool, struct conv_slot *slot, struct conv_pool_buffer shed[2]);

// Of a resident group: h_in is free for others; h_out, which was promised, with `bytes`.
void conv_pool_take_back(struct conv_pool *pool, struct conv_slot *slot);
enum conv_status conv_pool_lend(struct conv_pool *pool, struct conv_slot *slot, size_t bytes,
                                struct conv_err *err);

// Has the backend pin the memory that the slot has, if nobody has tried that yet. To be called by
// who is about to hand the group to that backend, without the lock: it takes milliseconds, once in
// a buffer's life.
void conv_pool_pin(const struct conv_pool *pool, struct conv_slot *slot,
                   struct conv_backend *backend);

// For who sees that no more is wanted: takes the memory of a free buffer out of the pool; false if
// there is none left. And gives it back to the system, without the lock.
bool conv_pool_take_out(struct conv_pool *pool, struct conv_pool_buffer *buffer);
void conv_pool_give_up(const struct conv_pool *pool, const struct conv_pool_buffer *buffer);

#endif
