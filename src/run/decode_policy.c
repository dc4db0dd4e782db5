// SPDX-License-Identifier: MIT
#include "run/decode_policy.h"

// The initial guess: about what a photograph of 768 x 512 takes on an H200.
#define FIRST_LATENCY_NS 70e6
#define FIRST_LONGEST 700e3

// A byte of a file takes a worker as long as this many bytes of samples. Cores of a Xeon decode
// PNG (icons, photographs and screenshots) in 0.5 to 0.6 ns per byte of this sum, JPEG in 0.9 to 1;
// the least of it is the initial guess.
#define FILE_WEIGHT 8
#define FIRST_WORK_NS 0.5

// In which a device decodes a byte of the samples of one part of an image: workload.c.
#define SERIAL_NS 2.5

// The fraction (1/LATE) of the run's time that a device may add if the number of images left is
// unknown.
#define LATE 20

// A latency older than this multiple of itself falls back to the initial guess: at most a tenth of
// the time goes to trying again.
#define TRUSTED 10

// Weight in the averages of a group that was faster than they are.
#define NEWEST 0.25

void conv_decode_policy_init(struct conv_decode_policy *policy, int workers, uint64_t start)
{
    *policy = (struct conv_decode_policy){
        .workers = workers,
        .start = start,
        .latency_ns = FIRST_LATENCY_NS,
        .longest = FIRST_LONGEST,
    };
}

double conv_decode_policy_work(size_t samples, size_t bytes)
{
    return (double)samples + FILE_WEIGHT * (double)bytes;
}

void conv_decode_policy_note_worker(struct conv_decode_policy *policy, double work, uint64_t ns)
{
    policy->worker_ns += ns;
    policy->worker_work += work;
    policy->worker_count++;
}

void conv_decode_policy_offer(struct conv_decode_policy *policy, double work)
{
    if (policy->first_work == 0)
        policy->first_work = work;
}

// What decoding takes a worker: for an image, and for a unit of work.
static double image_ns(const struct conv_decode_policy *policy)
{
    return policy->worker_count > 0 ? (double)policy->worker_ns / (double)policy->worker_count
                                    : policy->first_work * FIRST_WORK_NS;
}

void conv_decode_policy_note_streams(struct conv_decode_policy *policy, int streams, bool open,
                                     uint64_t now)
{
    bool pending = streams > 0 && !open;
    if (policy->is_pending && !pending)
        policy->available_since = now;
    policy->is_pending = pending;
    policy->streams = streams;
}

// A higher latency counts in full at once, a lower one with the weight NEWEST.
void conv_decode_policy_note_device(struct conv_decode_policy *policy, int images, uint64_t since,
                                    size_t longest, uint64_t now)
{
    uint64_t ns = now - (since > policy->available_since ? since : policy->available_since);
    bool slower = (double)ns > policy->latency_ns;
    double newest = slower || !policy->measured ? 1 : NEWEST;
    policy->measured = true;
    policy->measured_at = now;
    policy->failures = 0;
    policy->device_count += (uint64_t)images;
    policy->latency_ns += newest * ((double)ns - policy->latency_ns);
    policy->longest += newest * ((double)longest - policy->longest);
    if (policy->longest < 1)
        policy->longest = 1;
}

void conv_decode_policy_note_failure(struct conv_decode_policy *policy)
{
    policy->failures++;
}

// Groups that wait for streams: as many as workers prepare in a few milliseconds. Each takes pinned
// memory, whereas a group that a stream runs takes none until its results are complete.
#define MOST_WAITING 8

// Groups that devices may have at once.
static int most_groups(const struct conv_decode_policy *policy)
{
    int waiting = policy->streams < MOST_WAITING ? policy->streams : MOST_WAITING;
    int most = policy->streams ? policy->streams + waiting + 4 - policy->failures : 0;
    if (!policy->measured && !policy->device_required && most > 1)
        most = 1;
    return most;
}

bool conv_decode_policy_may_begin(const struct conv_decode_policy *policy)
{
    return policy->in_flight < most_groups(policy);
}

// The time that decoding an image takes a worker away from other work; 0 if it does not matter.
static uint64_t cost_of_help(const struct conv_decode_policy *policy)
{
    bool costs = policy->device_required && most_groups(policy) > 0;
    return costs ? (uint64_t)image_ns(policy) : 0;
}

bool conv_decode_policy_may_decode_on_cpu(struct conv_decode_policy *policy)
{
    uint64_t cost = cost_of_help(policy);
    // While no device is open, groups that wait for one get no more images.
    if (cost > 0 && (policy->is_pending || policy->idle_ns < cost))
        return false;
    policy->idle_ns -= cost;
    return true;
}

uint64_t conv_decode_policy_wait_limit_ns(const struct conv_decode_policy *policy)
{
    uint64_t cost = policy->is_pending ? 0 : cost_of_help(policy);
    return cost > 0 ? cost : UINT64_MAX;
}

// Idle time is kept for at most one image per worker: older idle time says nothing about the
// present.
void conv_decode_policy_note_idle(struct conv_decode_policy *policy, uint64_t ns)
{
    uint64_t most = cost_of_help(policy) * (uint64_t)policy->workers;
    if (policy->is_pending)
        return;
    policy->idle_ns = policy->idle_ns + ns < most ? policy->idle_ns + ns : most;
}

bool conv_decode_policy_is_device_faster(const struct conv_decode_policy *policy, size_t samples,
                                         int parts, double work)
{
    double room = (double)policy->stream_bytes * policy->streams;
    double at_once = room / (double)samples; // images
    double device_ns = SERIAL_NS * (double)samples / at_once / parts;
    double work_ns =
        policy->worker_count > 0 ? (double)policy->worker_ns / policy->worker_work : FIRST_WORK_NS;
    double worker_ns = work * work_ns / policy->workers;
    return device_ns < worker_ns;
}

bool conv_decode_policy_is_worthwhile(const struct conv_decode_policy *policy, size_t bytes,
                                      uint64_t left, uint64_t now)
{
    // The time per image of all workers together.
    double worker_ns = image_ns(policy) / policy->workers;
    // A stream is decoded serially: one that is longer makes its whole group take longer.
    double longer = (double)bytes / policy->longest;
    double latency_ns = policy->latency_ns;
    if (latency_ns > FIRST_LATENCY_NS && policy->in_flight == 0 &&
        (double)(now - policy->measured_at) > TRUSTED * latency_ns)
        latency_ns = FIRST_LATENCY_NS;
    latency_ns *= longer > 1 ? longer : 1;
    double saved = (double)policy->device_count * worker_ns;
    double unnoticed = saved + (double)(now - policy->start) / LATE;
    double workers_need = (double)left * worker_ns;
    return latency_ns < (workers_need > unnoticed ? workers_need : unnoticed);
}
