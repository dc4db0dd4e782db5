// SPDX-License-Identifier: MIT
#include "pipeline/decode_policy.h"

// Until a device has shown its own: about what a photograph of 768 x 512 takes on an H200.
#define FIRST_LATENCY_NS 70e6
#define FIRST_LONGEST 700e3

// The part of the run's time that a device may add to it where nobody knows what is left.
#define LATE 20

// After so many times itself without a newer one, a measured latency is no better than the first
// guess: a tenth of the time goes to trying again, at most.
#define BELIEVED 10

// Share of a group in the averages that is faster than they are.
#define NEWEST 0.25

void conv_decode_policy_init(struct conv_decode_policy *balance, int workers, uint64_t start)
{
    *balance = (struct conv_decode_policy){
        .workers = workers,
        .start = start,
        .latency_ns = FIRST_LATENCY_NS,
        .longest = FIRST_LONGEST,
    };
}

void conv_decode_policy_note_worker(struct conv_decode_policy *balance, uint64_t ns)
{
    balance->worker_ns += ns;
    balance->worker_count++;
}

void conv_decode_policy_note_streams(struct conv_decode_policy *balance, int streams, bool there,
                                     uint64_t now)
{
    bool awaited = streams > 0 && !there;
    if (balance->awaited && !awaited)
        balance->there_since = now;
    balance->awaited = awaited;
    balance->streams = streams;
}

// A device that turns out slower is believed at once, one that turns out faster by and by.
void conv_decode_policy_note_device(struct conv_decode_policy *balance, int images, uint64_t since,
                                    size_t longest, uint64_t now)
{
    uint64_t ns = now - (since > balance->there_since ? since : balance->there_since);
    bool slower = (double)ns > balance->latency_ns;
    double newest = slower || !balance->measured ? 1 : NEWEST;
    balance->measured = true;
    balance->measured_at = now;
    balance->failures = 0;
    balance->device_count += (uint64_t)images;
    balance->latency_ns += newest * ((double)ns - balance->latency_ns);
    balance->longest += newest * ((double)longest - balance->longest);
    if (balance->longest < 1)
        balance->longest = 1;
}

void conv_decode_policy_note_failure(struct conv_decode_policy *balance)
{
    balance->failures++;
}

// Groups that devices may have at once.
static int most_groups(const struct conv_decode_policy *balance)
{
    int most = balance->streams ? 2 * balance->streams + 4 - balance->failures : 0;
    if (!balance->measured && !balance->sure && most > 1)
        most = 1;
    return most;
}

bool conv_decode_policy_may_begin(const struct conv_decode_policy *balance)
{
    return balance->in_flight < most_groups(balance);
}

// What a worker's decoding of an image takes from other work; 0 if it takes nothing.
static uint64_t cost_of_help(const struct conv_decode_policy *balance)
{
    bool costs = balance->sure && balance->worker_count > 0 && most_groups(balance) > 0;
    return costs ? balance->worker_ns / balance->worker_count : 0;
}

bool conv_decode_policy_may_decode_on_cpu(struct conv_decode_policy *balance)
{
    uint64_t cost = cost_of_help(balance);
    // What waits for a device to wake up anyway need not be made larger meanwhile.
    if (cost > 0 && (balance->awaited || balance->idle_ns < cost))
        return false;
    balance->idle_ns -= cost;
    return true;
}

uint64_t conv_decode_policy_wait_limit_ns(const struct conv_decode_policy *balance)
{
    uint64_t cost = balance->awaited ? 0 : cost_of_help(balance);
    return cost > 0 ? cost : UINT64_MAX;
}

// Time that was idle long ago is no reason to be busy now: it is kept for an image a worker.
void conv_decode_policy_note_idle(struct conv_decode_policy *balance, uint64_t ns)
{
    uint64_t most = cost_of_help(balance) * (uint64_t)balance->workers;
    if (balance->awaited)
        return;
    balance->idle_ns = balance->idle_ns + ns < most ? balance->idle_ns + ns : most;
}

bool conv_decode_policy_is_worthwhile(const struct conv_decode_policy *balance, size_t bytes,
                                      uint64_t left, uint64_t now)
{
    if (balance->worker_count == 0)
        return false; // nothing to compare with
    // All workers together, for one image.
    double worker_ns =
        (double)balance->worker_ns / (double)balance->worker_count / (double)balance->workers;
    // A stream is decoded from its start to its end: a longer one keeps its group waiting.
    double longer = (double)bytes / balance->longest;
    double latency_ns = balance->latency_ns;
    if (latency_ns > FIRST_LATENCY_NS && balance->in_flight == 0 &&
        (double)(now - balance->measured_at) > BELIEVED * latency_ns)
        latency_ns = FIRST_LATENCY_NS;
    latency_ns *= longer > 1 ? longer : 1;
    double saved = (double)balance->device_count * worker_ns;
    double unnoticed = saved + (double)(now - balance->start) / LATE;
    double workers_need = (double)left * worker_ns;
    return latency_ns < (workers_need > unnoticed ? workers_need : unnoticed);
}
