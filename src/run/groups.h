// SPDX-License-Identifier: MIT
// Groups of images for an async backend: how an image gets into one, and out of it again.
#ifndef CONV_RUN_GROUPS_H
#define CONV_RUN_GROUPS_H

#include "run/scheduler.h"

// Measurements for the decode policy: a worker has decoded the image; a stream has run the group,
// and the device has decoded it or not.
void conv_groups_note_decoded(struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock);
void conv_groups_note_run(struct conv_scheduler *s, struct conv_slot *slot, bool decoded)
    CONV_NEEDS(s->lock);

// Gives an image that has been read its place in a group: true with job->slot set, or false if it
// has to wait. *status is the reason if it can never get one.
bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, enum conv_status *status)
    CONV_NEEDS(s->lock);

// As conv_groups_place, but false if a worker is to decode the image.
bool conv_groups_place_for_device(struct conv_scheduler *s, struct conv_job *job,
                                  enum conv_status *status) CONV_NEEDS(s->lock);

// An open group that no worker decodes into. NULL if there is none.
struct conv_slot *conv_groups_find_idle(const struct conv_scheduler *s) CONV_NEEDS(s->lock);

// The open group takes no more images; once the last one is decoded it goes to the streams.
void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);

// A worker has finished decoding an image of the group, which is or was open. Called after the job
// has been added to slot->jobs, or taken out of the slot.
void conv_groups_end_decode(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);

// The queue of groups for the streams; a thread that takes one runs it or puts it back. NULL if it
// is empty.
void conv_groups_put_ready(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);
struct conv_slot *conv_groups_take_ready(struct conv_scheduler *s) CONV_NEEDS(s->lock);

// A thread runs a group that it has taken, slots[0]: takes up to `most` - 1 further ones that can
// run together with it, if no other thread waits for groups. Links their groups and slots, and
// returns how many it has. After the run conv_groups_end_together is due with that number.
int conv_groups_take_together(struct conv_scheduler *s, struct conv_slot *slots[], int most)
    CONV_NEEDS(s->lock);
void conv_groups_end_together(struct conv_scheduler *s, int count) CONV_NEEDS(s->lock);

// True once all images have gone to the streams; only images that a device could not decode may
// still come back.
bool conv_groups_are_over(const struct conv_scheduler *s) CONV_NEEDS(s->lock);

// Takes a filtered image out of its slot, which is released with the last one.
void conv_groups_leave(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

#endif
