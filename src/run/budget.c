// SPDX-License-Identifier: MIT
#include "run/budget.h"

#include <stdint.h>

int conv_budget_init(struct conv_budget *budget, size_t limit, size_t total)
{
    budget->limit = limit;
    budget->total = total;
    budget->used = budget->reserved = 0;
    budget->beyond = NULL;
    int errnum = pthread_mutex_init(&budget->lock, NULL);
    return errnum ? errnum : pthread_cond_init(&budget->freed, NULL);
}

void conv_budget_destroy(struct conv_budget *budget)
{
    pthread_cond_destroy(&budget->freed);
    pthread_mutex_destroy(&budget->lock);
}

// With the lock.
static bool has_room(const struct conv_budget *budget, size_t more)
{
    size_t taken;
    return !__builtin_add_overflow(budget->used, budget->reserved, &taken) &&
           taken <= budget->total && more <= budget->total - taken;
}

// With the lock.
static bool take(struct conv_budget *budget, struct conv_share *share, size_t bytes)
{
    if (bytes <= share->bytes)
        return true;
    size_t more = bytes - share->bytes;
    bool room = has_room(budget, more);
    bool fits = room && budget->used <= budget->limit && more <= budget->limit - budget->used;
    if (!fits && budget->beyond && budget->beyond != share)
        return false;
    if (!room && budget->reserved > 0)
        return false; // images in flight end by themselves, and then there is room
    if (!fits && budget->total != SIZE_MAX && share->bytes == 0 && budget->used > 0)
        return false; // a file in memory does not help the images in flight to end
    if (!fits)
        budget->beyond = share;
    budget->used += more;
    share->bytes = bytes;
    return true;
}

bool conv_budget_try(struct conv_budget *budget, struct conv_share *share, size_t bytes)
{
    if (!budget)
        return true;
    pthread_mutex_lock(&budget->lock);
    bool taken = take(budget, share, bytes);
    pthread_mutex_unlock(&budget->lock);
    return taken;
}

void conv_budget_grow(struct conv_budget *budget, struct conv_share *share, size_t bytes)
{
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    while (!take(budget, share, bytes))
        pthread_cond_wait(&budget->freed, &budget->lock);
    pthread_mutex_unlock(&budget->lock);
}

void conv_budget_release(struct conv_budget *budget, struct conv_share *share)
{
    if (!budget || share->bytes == 0)
        return;
    pthread_mutex_lock(&budget->lock);
    budget->used -= share->bytes;
    share->bytes = 0;
    if (budget->beyond == share)
        budget->beyond = NULL;
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}

bool conv_budget_reserve(struct conv_budget *budget, size_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    bool granted = budget->reserved == 0 || has_room(budget, bytes);
    if (granted)
        budget->reserved += bytes;
    pthread_mutex_unlock(&budget->lock);
    return granted;
}

void conv_budget_unreserve(struct conv_budget *budget, size_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    budget->reserved -= bytes;
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}
