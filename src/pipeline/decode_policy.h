// SPDX-License-Identifier: MIT
// Whether an image is better decoded by a device than by a worker, from what has been measured so
// far in this run.
//
// A device decodes thousands of images at once, each slowly: a group of them is long on its way
// however few it holds. Workers decode an image at a time, each quickly. So whoever is free takes
// the next image, which is good for both as long as the device is done before the workers would
// have decoded all that is left by themselves. Towards the end of a run that is no longer so, and
// the last images are the workers'. Where nobody knows how much is left, the device may be as
// late as what it has saved so far, and a twentieth of the run's time.
//
// No locks: whoever shares it guards it.
#ifndef CONV_PIPELINE_DECODE_POLICY_H
#define CONV_PIPELINE_DECODE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_decode_policy {
    int workers;
    uint64_t start;        // of the run, on conv_clock_ns's clock
    uint64_t worker_ns;    // that workers have decoded for
    uint64_t worker_count; // the images that took
    uint64_t device_count; // images that devices have decoded
    bool measured;         // a device has decoded a group: what follows is not a guess any more
    uint64_t measured_at;  // when that was last
    double latency_ns;     // of a device's group, lately
    double longest;        // bytes of the longest stream of such a group
    bool sure;             // every group goes through a device, whoever decodes it
    bool awaited;          // none is there yet
    uint64_t there_since;  // when that ended
    int streams, failures; // of all devices; groups in vain since the last that was not
    int in_flight;         // groups for devices to decode, open ones included
    uint64_t idle_ns;      // that workers have waited for room in one, and not made up for
};

void conv_decode_policy_init(struct conv_decode_policy *balance, int workers, uint64_t start);

// A worker has decoded an image in so many ns.
void conv_decode_policy_note_worker(struct conv_decode_policy *balance, uint64_t ns);

// The streams that all devices have or will have, and whether one of them is there yet.
void conv_decode_policy_note_streams(struct conv_decode_policy *balance, int streams, bool there,
                                     uint64_t now);

// A device has decoded `images` of a group that was handed over at `since`; its longest stream
// had so many bytes. The time in which devices woke up is not the group's.
void conv_decode_policy_note_device(struct conv_decode_policy *balance, int images, uint64_t since,
                                    size_t longest, uint64_t now);
// It had no room for a group, or was lost with it: all was in vain.
void conv_decode_policy_note_failure(struct conv_decode_policy *balance);

// True if a device may begin another group: every stream may have one waiting for it, and four are
// being filled or drained. One is tried first, unless it is sure that the device has to be there
// for all of them. One less for each group that has failed of late.
bool conv_decode_policy_may_begin(const struct conv_decode_policy *balance);

// Where it may not: true if a worker is to decode an image instead of waiting. Decoding takes him
// tens of times as long as passing an image on to a device, and the time may be missing at what
// nobody else can do, reading and writing. So, if every group goes through a device, it is spent at
// the rate at which workers turn out to be idle.
bool conv_decode_policy_may_decode_on_cpu(struct conv_decode_policy *balance);
void conv_decode_policy_note_idle(struct conv_decode_policy *balance, uint64_t ns);
// After waiting for so long, all the time that an image takes is there.
uint64_t conv_decode_policy_wait_limit_ns(const struct conv_decode_policy *balance);

// What was measured is not believed for ever, or one group that something held up would keep a
// device from showing that it is faster: after a while without another, another is tried.
//
// True if a device is to decode an image with a stream of `bytes`, the time being `now`; `left`
// images at least are to be decoded yet, this one included.
bool conv_decode_policy_is_worthwhile(const struct conv_decode_policy *balance, size_t bytes,
                                      uint64_t left, uint64_t now);

#endif
