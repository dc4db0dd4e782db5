// SPDX-License-Identifier: MIT
// Memory that threads take shares of. A share that does not fit has to wait, except that one share
// at a time may exceed the limit. So a thread that has a share and needs a larger one gets it
// eventually, and so does a share that is larger than the whole budget.
//
// Where the memory of the whole run is limited, images in flight reserve what they need from
// decoding to encoding; shares and reservations together stay within `total`. Only a single image
// that needs more exceeds it, while no other is in flight.
//
// Any thread may call any function.
#ifndef CONV_RUN_BUDGET_H
#define CONV_RUN_BUDGET_H

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
    const struct conv_share *beyond; // the share that may exceed the limit; or NULL
};

// 0, or an error number.
int conv_budget_init(struct conv_budget *budget, size_t limit, size_t total);
void conv_budget_destroy(struct conv_budget *budget);

// Enlarge the share to `bytes` in total; it is never made smaller. If that does not fit, `try`
// returns false and `grow` waits. A share belongs to one thread at a time. A NULL budget has no
// limit.
bool conv_budget_try(struct conv_budget *budget, struct conv_share *share, size_t bytes);
void conv_budget_grow(struct conv_budget *budget, struct conv_share *share, size_t bytes);
void conv_budget_release(struct conv_budget *budget, struct conv_share *share);

// Reserves memory for an image in flight. False if it has to wait until images or shares are
// released; that never happens while nothing is reserved.
bool conv_budget_reserve(struct conv_budget *budget, size_t bytes);
void conv_budget_unreserve(struct conv_budget *budget, size_t bytes);

#endif
