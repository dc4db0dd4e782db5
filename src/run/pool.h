// SPDX-License-Identifier: MIT
// Staging memory: slots that each hold one group, and buffers for their two sides. A buffer gets
// its memory when it is first needed, so that a short run does not pay for buffers that it never
// fills, and keeps it to the end. All buffers, and the metadata that images carry, stay within a
// limit. An image larger than a buffer makes a buffer grow; when the limit leaves no room for that,
// free buffers give their memory back. The scheduler's lock guards it, except where a function says
// that it is called without.
#ifndef CONV_RUN_POOL_H
#define CONV_RUN_POOL_H

#include "run/slot.h"

struct conv_pool {
    const struct conv_backend_ops *ops;
    struct conv_slot *slots;
    int count;  // of slots; the last ones may be without tables until conv_pool_add_slots
    int made;   // slots that have tables
    int usable; // slots that may be in use
    int lent;   // further slots that may be in use: conv_pool_lend_slots
    struct conv_pool_buffer *buffers; // two for each slot
    size_t usual_bytes, keep, limit;  // conv_pool_config
    bool codes;
    size_t used;     // bytes of all buffers
    size_t reserved; // bytes of all slots' `reserved_out` and `metadata`
};

struct conv_pool_config {
    const struct conv_backend_ops *ops; // pins and unpins buffers
    int count;                          // of slots
    int most;                           // that conv_pool_add_slots may make of them; 0: `count`
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

// Makes more slots usable, up to the most, or as many as there is memory for.
void conv_pool_add_slots(struct conv_pool *pool, int more);

// Lets `more` further slots be used, or as many as there are: returns how many.
// conv_pool_take_back_slots ends that.
int conv_pool_lend_slots(struct conv_pool *pool, int more);
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

#endif
