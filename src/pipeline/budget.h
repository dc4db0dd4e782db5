// SPDX-License-Identifier: MIT
// Memory that many threads take from, each for something of its own. What does not fit has to wait,
// but for one share at a time, which may go beyond: so whoever holds something and needs more to
// get on gets it in the end, and a share larger than the whole budget as well.
//
// Where the memory of the whole run is limited, images in work reserve what they need from decoding
// to encoding, and shares and reservations together stay within `total`. Only a single image that
// needs more goes beyond, while no other is in work.
#ifndef CONV_PIPELINE_BUDGET_H
#define CONV_PIPELINE_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct conv_share {
    size_t bytes;
};

struct conv_budget {
    size_t limit;         // of all shares
    size_t total;         // of shares and reservations; SIZE_MAX: any number
    pthread_mutex_t lock; // guards all below
    pthread_cond_t freed;
    size_t used;
    size_t reserved;
    const struct conv_share *beyond; // that one
};

// 0, or an error number.
int conv_budget_init(struct conv_budget *budget, size_t limit, size_t total);
void conv_budget_destroy(struct conv_budget *budget);

// Any thread. A share belongs to one thread at a time; `bytes` is what it is to be in all. A NULL
// budget has no limit.
bool conv_budget_try(struct conv_budget *budget, struct conv_share *share, size_t bytes);
void conv_budget_grow(struct conv_budget *budget, struct conv_share *share, size_t bytes); // waits
void conv_budget_release(struct conv_budget *budget, struct conv_share *share);

// Reserves memory for an image in work. False if it has to wait for images or shares to be
// released; never while nothing is reserved.
bool conv_budget_reserve(struct conv_budget *budget, size_t bytes);
void conv_budget_unreserve(struct conv_budget *budget, size_t bytes);

#endif
