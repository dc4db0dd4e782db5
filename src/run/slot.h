// SPDX-License-Identifier: MIT
// A slot: staging memory with one group of images, from the first that is placed to the last that
// is encoded. The scheduler's lock guards it, except for the group's samples, which belong to the
// workers that decode into it, then to the stream that runs it, then to the workers that encode.
//
//   FREE ──► OPEN ──► SEALED ──► READY ◄─► RUNNING ──► DRAINING ──► FREE
//              │         ├──► FREE      every image failed before the group was run
//              │         └──► DRAINING  the same, except for images of workers left behind
//              └──► FREE                a single worker's slot: backends that are not async
//
// A slot with an image of a worker that was left behind (phase.h) stays in DRAINING: its
// `unfinished` never becomes 0.
#ifndef CONV_RUN_SLOT_H
#define CONV_RUN_SLOT_H

#include "engine/backend.h"

struct conv_job;

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

#endif
