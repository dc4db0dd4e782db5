// SPDX-License-Identifier: MIT
#include "io/walk/watch_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

#define PLACES 4096 // of the table of last events: as many as arrive in one settling time, and more

static uint64_t digest_of(const char *path)
{
    struct conv_digest digest = {0};
    conv_hash_add(&digest, path, strlen(path));
    return digest.word[0];
}

void conv_watch_arrivals_free(struct conv_watch_arrivals *arrivals)
{
    for (size_t i = 0; i < arrivals->count; i++)
        free(arrivals->queue[(arrivals->first + i) & (arrivals->capacity - 1)].path);
    for (size_t i = 0; i < arrivals->later_count; i++)
        free(arrivals->later[i].path);
    free(arrivals->later);
    free(arrivals->queue);
    free(arrivals->last);
    *arrivals = (struct conv_watch_arrivals){0};
}

static enum conv_status grow(struct conv_watch_arrivals *arrivals, struct conv_err *err)
{
    if (!arrivals->last)
        arrivals->last = calloc(PLACES, sizeof *arrivals->last);
    size_t capacity = arrivals->capacity ? 2 * arrivals->capacity : 64;
    struct conv_watch_arrival *queue = malloc(capacity * sizeof *queue);
    if (!queue || !arrivals->last) {
        free(queue);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu arrivals", capacity);
    }
    for (size_t i = 0; i < arrivals->count; i++)
        queue[i] = arrivals->queue[(arrivals->first + i) & (arrivals->capacity - 1)];
    free(arrivals->queue);
    arrivals->queue = queue;
    arrivals->capacity = capacity;
    arrivals->first = 0;
    return CONV_OK;
}

enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals,
                                         const struct conv_watch_arrival *arrival, uint64_t now_ns,
                                         struct conv_err *err)
{
    if (arrivals->count == arrivals->capacity) {
        enum conv_status status = grow(arrivals, err);
        if (status)
            return status;
    }
    struct conv_watch_arrival copy = *arrival;
    copy.path = strdup(arrival->path);
    if (!copy.path)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a name");
    copy.due_ns = now_ns + CONV_WATCH_SETTLE_NS;
    copy.digest = digest_of(copy.path);
    copy.number = ++arrivals->next_number;
    size_t at = (arrivals->first + arrivals->count++) & (arrivals->capacity - 1);
    arrivals->queue[at] = copy;
    arrivals->last[copy.digest % PLACES].digest = copy.digest;
    arrivals->last[copy.digest % PLACES].number = copy.number;
    return CONV_OK;
}

enum conv_status conv_watch_arrivals_postpone(struct conv_watch_arrivals *arrivals,
                                              const struct conv_watch_arrival *arrival,
                                              uint64_t wait_ns, uint64_t now_ns,
                                              struct conv_err *err)
{
    if (arrivals->later_count == arrivals->later_capacity) {
        size_t capacity = arrivals->later_capacity ? 2 * arrivals->later_capacity : 64;
        void *later = realloc(arrivals->later, capacity * sizeof *arrivals->later);
        if (!later) {
            free(arrival->path);
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu arrivals", capacity);
        }
        arrivals->later = later;
        arrivals->later_capacity = capacity;
    }
    struct conv_watch_arrival *put = &arrivals->later[arrivals->later_count++];
    *put = *arrival;
    put->due_ns = now_ns + wait_ns;
    put->waited_ns += wait_ns;
    return CONV_OK;
}

void conv_watch_arrivals_remove(struct conv_watch_arrivals *arrivals, const char *path)
{
    uint64_t digest = digest_of(path);
    if (arrivals->last && arrivals->last[digest % PLACES].digest == digest)
        arrivals->last[digest % PLACES].number = 0;
}

static bool is_replaced(const struct conv_watch_arrivals *arrivals,
                        const struct conv_watch_arrival *arrival)
{
    size_t place = arrival->digest % PLACES;
    return arrivals->last[place].digest == arrival->digest &&
           arrivals->last[place].number != arrival->number;
}

// The first arrival that is to be handed out, or NULL.
static struct conv_watch_arrival *first(struct conv_watch_arrivals *arrivals)
{
    while (arrivals->count > 0) {
        struct conv_watch_arrival *arrival = &arrivals->queue[arrivals->first];
        if (!is_replaced(arrivals, arrival))
            return arrival;
        free(arrival->path);
        arrivals->first = (arrivals->first + 1) & (arrivals->capacity - 1);
        arrivals->count--;
    }
    return NULL;
}

// The postponed arrival that is due first, or NULL. Those that were replaced are dropped.
static struct conv_watch_arrival *first_later(struct conv_watch_arrivals *arrivals)
{
    struct conv_watch_arrival *found = NULL;
    for (size_t i = 0; i < arrivals->later_count;) {
        struct conv_watch_arrival *arrival = &arrivals->later[i];
        if (is_replaced(arrivals, arrival)) {
            free(arrival->path);
            *arrival = arrivals->later[--arrivals->later_count];
            continue;
        }
        if (!found || arrival->due_ns < found->due_ns)
            found = arrival;
        i++;
    }
    return found;
}

bool conv_watch_arrivals_take(struct conv_watch_arrivals *arrivals, uint64_t now_ns,
                              struct conv_watch_arrival *arrival)
{
    struct conv_watch_arrival *queued = first(arrivals), *later = first_later(arrivals);
    if (queued && queued->due_ns <= now_ns) {
        *arrival = *queued;
        arrivals->first = (arrivals->first + 1) & (arrivals->capacity - 1);
        arrivals->count--;
        return true;
    }
    if (!later || later->due_ns > now_ns)
        return false;
    *arrival = *later;
    *later = arrivals->later[--arrivals->later_count];
    return true;
}

uint64_t conv_watch_arrivals_wait_ns(struct conv_watch_arrivals *arrivals, uint64_t now_ns)
{
    const struct conv_watch_arrival *queued = first(arrivals), *later = first_later(arrivals);
    uint64_t due = queued ? queued->due_ns : UINT64_MAX;
    due = later && later->due_ns < due ? later->due_ns : due;
    return due == UINT64_MAX ? due : due > now_ns ? due - now_ns : 0;
}
