// SPDX-License-Identifier: MIT
// Staging memory: slots that each hold one group, and buffers for their two sides. A buffer gets
// its memory when it is first needed, so that a short run does not pay for buffers that it never
// fills, and keeps it to the end. All buffers, and the metadata that images carry, stay within a
// limit. An image larger than a buffer makes a buffer grow; when the limit leaves no room for that,
// free buffers give their memory back. The scheduler's lock guards it, except where a function says
// that it is called without.
#pragma once

#include "engine/engine.h"

// --- slots ---------------------------------------------------------------------------------------

// A slot: staging memory with one group of images, from the first that is placed to the last that
// is encoded. The scheduler's lock guards it, except for the group's samples, which belong to the
// workers that decode into it, then to the stream that runs it, then to the workers that encode.
//
//   FREE ──► OPEN ──► SEALED ──► READY ◄─► RUNNING ──► DRAINING ──► FREE
//              │         ├──► FREE      every image failed before the group was run
//              │         └──► DRAINING  the same, except for images of workers left behind
//              └──► FREE                a single worker's slot: backends that are not async
//
// A slot with an image of a worker that was left behind (job.h) stays in DRAINING: its
// `unfinished` never becomes 0.

enum conv_slot_state {
    CONV_SLOT_FREE,
    CONV_SLOT_OPEN,     // takes images
    CONV_SLOT_SEALED,   // takes no more; workers still decode into it
    CONV_SLOT_READY,    // in the queue for the streams
    CONV_SLOT_RUNNING,  // a stream thread has it
    CONV_SLOT_DRAINING, // has been run; its images are encoded, read again or reported
};

struct conv_pool_buffer {
    uint8_t *data;
    size_t bytes;
    bool busy; // a slot has it
    bool pin_tried;
    struct conv_backend *pinned_by; // NULL: plain memory
};

struct conv_slot {
    enum conv_slot_state state; // changed by conv_slot_move only
    struct conv_group group;
    struct conv_pool_buffer *in, *out; // the group's h_in and h_out; NULL where it has none
    uint64_t touched_at;               // an image was placed or decoded; conv_clock_ns
    uint64_t sealed_at;                // it became READY
    size_t longest;                    // bytes of the longest stream that it has for the device
    size_t metadata;                   // bytes that its images carry from input to output
    size_t reserved_out;               // bytes that it may still acquire for h_out
    int decoding;                      // images whose decoder still writes
    int unfinished;                    // images not yet encoded, failed or dropped
    struct conv_job *jobs;             // decoded images
    struct conv_slot *next;            // in the queue for the streams
};

// True for the transitions above.
bool conv_slot_may_move(enum conv_slot_state from, enum conv_slot_state to);

// Asserts that the transition is allowed.
void conv_slot_move(struct conv_slot *slot, enum conv_slot_state state);

// --- the pool ------------------------------------------------------------------------------------

struct conv_pool {
    // Set by the caller of conv_pool_open.
    const struct conv_device_ops *ops; // pins and unpins buffers
    size_t limit;                      // bytes that all buffers and metadata may take together
    // Bytes that a buffer takes the first time that it is needed. Less where `limit` or `keep` does
    // not leave that much.
    size_t usual_bytes;
    size_t keep; // bytes that a buffer may keep from slot to slot; SIZE_MAX: any number
    bool codes;  // a device decodes or encodes, so groups need a table of images

    struct conv_slot *slots;
    int count;  // of slots; the last ones may be without tables until conv_pool_add_slots
    int made;   // slots that have tables
    int usable; // slots that may be in use
    struct conv_pool_buffer *buffers; // two for each slot
    size_t used;                      // bytes of all buffers
    size_t reserved;                  // bytes of all slots' `reserved_out` and `metadata`
};

// `count`: of slots; `most`: that conv_pool_add_slots may make of them. CONV_ERR_MEMORY without
// memory for the slots; conv_pool_close is due then, too.
enum conv_status conv_pool_open(struct conv_pool *pool, int count, int most, struct conv_err *err);
void conv_pool_close(struct conv_pool *pool); // half-built is fine

// Makes more slots usable, up to the most, or as many as there is memory for. Returns how many.
// conv_pool_take_back_slots is for those that were lent for a while.
int conv_pool_add_slots(struct conv_pool *pool, int more);
void conv_pool_take_back_slots(struct conv_pool *pool, int count);

// The needs of a group with its first image.
struct conv_pool_need {
    struct conv_group_room room; // of its first image
    size_t metadata;             // bytes that the image carries from input to output
    bool device_coded;           // both ways: it gets h_in only, and h_out is reserved
};

// True if the pool could never have that much.
bool conv_pool_is_too_much(const struct conv_pool *pool, const struct conv_pool_need *need);

// An open slot without images that has what is needed; the only one if there is no other way.
// *slot is NULL with CONV_OK if it has to wait for others to be released; CONV_ERR_LIMIT if waiting
// would not help, CONV_ERR_MEMORY if the system has no more.
enum conv_status conv_pool_acquire(struct conv_pool *pool, const struct conv_pool_need *need,
                                   struct conv_slot **slot, struct conv_err *err);
// True if there is room for the metadata of another image in a slot in use; the metadata then
// counts as used.
bool conv_pool_has_room_for_metadata(struct conv_pool *pool, size_t bytes);
void conv_pool_add_metadata(struct conv_pool *pool, struct conv_slot *slot, size_t bytes);

// Memory that an image takes without a slot. False if it has to wait until slots are released.
bool conv_pool_reserve(struct conv_pool *pool, size_t bytes);
void conv_pool_unreserve(struct conv_pool *pool, size_t bytes);

// The slot is FREE again.
void conv_pool_release(struct conv_pool *pool, struct conv_slot *slot);

// Detaches the memory of the buffers of a slot, which is about to be released, that are larger than
// `keep`. Returns how many of the two; the caller frees them without the lock.
int conv_pool_shed(struct conv_pool *pool, struct conv_slot *slot, struct conv_pool_buffer shed[2]);

// For a group that a device both decodes and encodes: release h_in; acquire h_out, which was
// reserved, with `bytes`.
void conv_pool_release_in(struct conv_pool *pool, struct conv_slot *slot);
enum conv_status conv_pool_acquire_out(struct conv_pool *pool, struct conv_slot *slot, size_t bytes,
                                       struct conv_err *err);

// Makes the backend pin the slot's memory if that has not been tried. Called without the lock by
// the thread that is about to hand the group to that backend: it takes milliseconds, once in a
// buffer's life.
void conv_pool_pin(const struct conv_pool *pool, struct conv_slot *slot,
                   struct conv_backend *backend);

// Detaches the memory of a free buffer, so that the caller can free it without the lock; false if
// none is left.
bool conv_pool_detach(struct conv_pool *pool, struct conv_pool_buffer *buffer);
// Returns detached memory to the system. Called without the lock.
void conv_pool_free_buffer(const struct conv_pool *pool, const struct conv_pool_buffer *buffer);
