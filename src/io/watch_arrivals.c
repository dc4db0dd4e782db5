// SPDX-License-Identifier: MIT
#include "io/watch_arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

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

enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals, const char *path,
                                         int root, uint64_t now_ns, struct conv_err *err)
{
    if (arrivals->count == arrivals->capacity) {
        enum conv_status status = grow(arrivals, err);
        if (status)
            return status;
    }
    char *copy = strdup(path);
    if (!copy)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a name");
    uint64_t digest = digest_of(path), number = ++arrivals->next_number;
    size_t at = (arrivals->first + arrivals->count++) & (arrivals->capacity - 1);
    arrivals->queue[at] =
        (struct conv_watch_arrival){copy, root, now_ns + CONV_WATCH_SETTLE_NS, digest, number};
    arrivals->last[digest % PLACES].digest = digest;
    arrivals->last[digest % PLACES].number = number;
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

bool conv_watch_arrivals_take(struct conv_watch_arrivals *arrivals, uint64_t now_ns,
                              struct conv_watch_arrival *arrival)
{
    if (conv_watch_arrivals_wait_ns(arrivals, now_ns) > 0)
        return false;
    *arrival = arrivals->queue[arrivals->first];
    arrivals->first = (arrivals->first + 1) & (arrivals->capacity - 1);
    arrivals->count--;
    return true;
}

uint64_t conv_watch_arrivals_wait_ns(struct conv_watch_arrivals *arrivals, uint64_t now_ns)
{
    const struct conv_watch_arrival *arrival = first(arrivals);
    return !arrival ? UINT64_MAX : arrival->due_ns > now_ns ? arrival->due_ns - now_ns : 0;
}
