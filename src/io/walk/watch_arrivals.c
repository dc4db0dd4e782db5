// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/walk/watch_internal.h"

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
        free(arrivals->heap[i].path);
    free(arrivals->heap);
    free(arrivals->last);
    *arrivals = (struct conv_watch_arrivals){0};
}

static bool is_before(const struct conv_watch_arrival *a, const struct conv_watch_arrival *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

// Takes the path over.
static enum conv_status push(struct conv_watch_arrivals *arrivals,
                             const struct conv_watch_arrival *arrival, struct conv_err *err)
{
    if (!arrivals->last)
        arrivals->last = calloc(PLACES, sizeof *arrivals->last);
    if (arrivals->last && arrivals->count == arrivals->capacity) {
        size_t capacity = arrivals->capacity ? 2 * arrivals->capacity : 64;
        void *heap = realloc(arrivals->heap, capacity * sizeof *arrivals->heap);
        arrivals->heap = heap ? heap : arrivals->heap;
        arrivals->capacity = heap ? capacity : arrivals->capacity;
    }
    if (!arrivals->last || arrivals->count == arrivals->capacity) {
        free(arrival->path);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu arrivals",
                            arrivals->count + 1);
    }
    size_t at = arrivals->count++;
    for (; at > 0 && is_before(arrival, &arrivals->heap[(at - 1) / 2]); at = (at - 1) / 2)
        arrivals->heap[at] = arrivals->heap[(at - 1) / 2];
    arrivals->heap[at] = *arrival;
    return CONV_OK;
}

static struct conv_watch_arrival pop(struct conv_watch_arrivals *arrivals)
{
    struct conv_watch_arrival *heap = arrivals->heap, first = heap[0];
    size_t count = --arrivals->count, at = 0;
    for (size_t next; (next = 2 * at + 1) < count; at = next) {
        next += next + 1 < count && is_before(&heap[next + 1], &heap[next]);
        if (!is_before(&heap[next], &heap[count]))
            break;
        heap[at] = heap[next];
    }
    heap[at] = heap[count];
    arrivals->fresh -= first.waited_ns == 0;
    return first;
}

enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals,
                                         const struct conv_watch_arrival *arrival,
                                         struct conv_err *err)
{
    struct conv_watch_arrival copy = *arrival;
    copy.path = strdup(arrival->path);
    if (!copy.path)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a name");
    copy.due_ns = conv_clock_ns() + CONV_WATCH_SETTLE_NS;
    copy.digest = digest_of(copy.path);
    copy.number = ++arrivals->next_number;
    enum conv_status status = push(arrivals, &copy, err);
    if (!status) {
        arrivals->fresh++;
        arrivals->last[copy.digest % PLACES].digest = copy.digest;
        arrivals->last[copy.digest % PLACES].number = copy.number;
    }
    return status;
}

enum conv_status conv_watch_arrivals_postpone(struct conv_watch_arrivals *arrivals,
                                              struct conv_watch_arrival *arrival, uint64_t wait_ns,
                                              struct conv_err *err)
{
    arrival->due_ns = conv_clock_ns() + wait_ns;
    arrival->waited_ns += wait_ns;
    return push(arrivals, arrival, err);
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

bool conv_watch_arrivals_take(struct conv_watch_arrivals *arrivals,
                              struct conv_watch_arrival *arrival, uint64_t *wait_ns)
{
    uint64_t now = conv_clock_ns();
    while (arrivals->count > 0 && is_replaced(arrivals, &arrivals->heap[0])) {
        free(arrivals->heap[0].path);
        (void)pop(arrivals);
    }
    *wait_ns = arrivals->count == 0             ? UINT64_MAX
               : arrivals->heap[0].due_ns > now ? arrivals->heap[0].due_ns - now
                                                : 0;
    if (*wait_ns == 0)
        *arrival = pop(arrivals);
    return *wait_ns == 0;
}
