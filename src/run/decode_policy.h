// SPDX-License-Identifier: MIT
// Decides whether a device or a worker decodes an image, from measurements of this run.
//
// A device decodes thousands of images at once, each slowly: a group takes long, however few images
// it holds. Workers decode one image at a time, each quickly. An image goes to a device as long as
// the device is done before the workers alone would have decoded all that is left. Towards the end
// of a run that is no longer the case, so workers decode the last images. If the number of images
// left is unknown, the device may finish later by the time that it has saved so far plus a
// twentieth of the run's time.
//
// A device's memory limits the bytes of decoded images that it has at once, so it decodes few large
// images at once: workers decode those, unless the device decodes many parts of an image at once.
//
// The scheduler's lock guards it. All times are conv_clock_ns.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_decode_policy {
    int workers;
    uint64_t start;           // of the run
    uint64_t worker_ns;       // in which workers have decoded
    uint64_t worker_count;    // images that they have decoded
    double worker_work;       // of these images, conv_decode_policy_work
    double first_work;        // of the first image, for a guess until workers have decoded one
    size_t stream_bytes;      // of decoded images that a stream of a device has room for
    uint64_t device_count;    // images that devices have decoded
    bool measured;            // a device has decoded a group; until then what follows is a guess
    uint64_t measured_at;     // when it last did
    double latency_ns;        // of a device's group, recent ones weighing most
    double longest;           // bytes of the longest stream of such a group
    bool device_required;     // all groups need a device because it encodes
    bool is_pending;          // no device is open yet
    uint64_t available_since; // when the first one opened
    int streams;              // of all devices
    int failures;             // groups that devices failed to decode since the last success
    int in_flight;            // groups for devices to decode, open ones included
    uint64_t idle_ns;         // in which workers have waited for room in a group, not yet spent
};

// `workers`: threads that decode; `start`: of the run.
void conv_decode_policy_init(struct conv_decode_policy *policy, int workers, uint64_t start);

// What the time of a worker for an image depends on, about: bytes of decoded samples, and of its
// file.
double conv_decode_policy_work(size_t samples, size_t bytes);

// An image that a device could decode, with that much work for a worker. A folder of large JPEGs
// was not to begin with one for each worker: the device had nothing to do for 140 ms.
void conv_decode_policy_offer(struct conv_decode_policy *policy, double work);

// A worker has decoded an image of that much work in `ns`.
void conv_decode_policy_note_worker(struct conv_decode_policy *policy, double work, uint64_t ns);

// The streams that all devices have or will have, and whether one of the devices is open.
void conv_decode_policy_note_streams(struct conv_decode_policy *policy, int streams, bool open,
                                     uint64_t now);

// A device has decoded `images` of a group that was handed over at `since` and whose longest stream
// has `longest` bytes. The time until devices were open does not count.
void conv_decode_policy_note_device(struct conv_decode_policy *policy, int images, uint64_t since,
                                    size_t longest, uint64_t now);
// The device had no room for a group, or was lost while running it.
void conv_decode_policy_note_failure(struct conv_decode_policy *policy);

// True if a device may begin another group: each stream may have one waiting, eight at most, and
// four more are filled or drained. At first only one group is allowed, unless a device is required;
// each recent failure reduces the number by one.
bool conv_decode_policy_may_begin(const struct conv_decode_policy *policy);

// If a device may not: true if a worker is to decode an image instead of waiting. Decoding takes a
// worker tens of times as long as forwarding the stream, time that reading and writing may need. If
// a device is required anyway, workers therefore decode only in measured idle time.
bool conv_decode_policy_may_decode_on_cpu(struct conv_decode_policy *policy);
void conv_decode_policy_note_idle(struct conv_decode_policy *policy, uint64_t ns);
// After a wait of this length, the idle time pays for an image; UINT64_MAX if it does not matter.
uint64_t conv_decode_policy_wait_limit_ns(const struct conv_decode_policy *policy);

// True if all devices together decode many images like this one in less time than all workers.
// `samples`: its bytes; `parts`: conv_format_device; `work`: conv_decode_policy_work.
bool conv_decode_policy_is_device_faster(const struct conv_decode_policy *policy, size_t samples,
                                         int parts, double work);

// True if a device is to decode an image with a stream of `bytes` at the time `now`; `left` is an
// estimate of the images to be decoded yet, this one included. A measured latency is used for a
// limited time only; otherwise a single delayed group would keep the device from ever being
// measured again.
bool conv_decode_policy_is_worthwhile(const struct conv_decode_policy *policy, size_t bytes,
                                      uint64_t left, uint64_t now);
