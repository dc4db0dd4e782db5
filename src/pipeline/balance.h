// SPDX-License-Identifier: MIT
// Whether a picture is better decoded by a device than by a worker, from what has been measured so
// far in this run.
//
// A device decodes thousands of pictures at once, each slowly: a group of them is long on its way
// however few it holds. Workers decode a picture at a time, each quickly. So whoever is free takes
// the next picture, which is good for both as long as the device is done before the workers would
// have decoded all that is left by themselves. Towards the end of a run that is no longer so, and
// the last pictures are the workers'. Where nobody knows how much is left, the device may be as
// late as what it has saved so far, and a twentieth of the run's time.
//
// No locks: whoever shares it guards it.
#ifndef CONV_PIPELINE_BALANCE_H
#define CONV_PIPELINE_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_balance {
    int workers;
    uint64_t start;        // of the run, on conv_clock_ns's clock
    uint64_t worker_ns;    // that workers have decoded for
    uint64_t worker_count; // the pictures that took
    uint64_t device_count; // pictures that devices have decoded
    bool measured;         // a device has decoded a group: what follows is not a guess any more
    double latency_ns;     // of a device's group, lately
    double longest;        // bytes of the longest stream of such a group
    int lanes, failures;   // of all devices; groups in vain since the last that was not
    int in_flight;         // groups for devices to decode, open ones included
};

void conv_balance_init(struct conv_balance *balance, int workers, uint64_t start);

// A worker has decoded a picture in so many ns.
void conv_balance_note_worker(struct conv_balance *balance, uint64_t ns);

// A device has decoded `pictures` of a group in so many ns from when it was handed over; its
// longest stream had so many bytes.
void conv_balance_note_device(struct conv_balance *balance, int pictures, uint64_t ns,
                              size_t longest);
// It had no room for a group, or was lost with it: all was in vain.
void conv_balance_note_failure(struct conv_balance *balance);

// True if a device may begin another group. One is tried first; then every other lane may have one
// waiting for it. A worker that finds no place for a picture decodes it: workers that have files to
// read and to write find one, and leave decoding to the device. One less for each group that has
// failed of late.
bool conv_balance_may_begin(const struct conv_balance *balance);

// True if a device is to decode a picture with a stream of `bytes`, the time being `now`; `left`
// pictures at least are to be decoded yet, this one included.
bool conv_balance_pays(const struct conv_balance *balance, size_t bytes, uint64_t left,
                       uint64_t now);

#endif
