// SPDX-License-Identifier: MIT
// Files that have arrived and are about to be handed out, in order of arrival. A file waits until
// nothing has happened to it for a while: programs that write a file in several steps, or write it
// and then rename it, cause one hand-out, not several. One thread at a time.
#ifndef CONV_WALK_WATCH_ARRIVALS_H
#define CONV_WALK_WATCH_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONV_WATCH_SETTLE_NS 10000000u // of the 50 ms that may pass from close to output

struct conv_watch_arrival {
    char *path; // malloc'ed
    int root;   // the caller's
    // The caller's, too: a program has closed it after writing, or given it its name; it is to be
    // read even if it is not new; how long it has waited since it was looked at.
    bool is_closed, is_asked_for;
    uint64_t waited_ns;
    uint64_t due_ns;
    uint64_t digest, number;
};

// {0} is empty.
struct conv_watch_arrivals {
    struct conv_watch_arrival *queue; // ring
    size_t first, count, capacity;    // capacity: a power of two, or 0
    struct conv_watch_arrival *later; // looked at too early; in no order
    size_t later_count, later_capacity;
    struct {
        uint64_t digest, number; // of the last event of a name; number 0: removed
    } * last;                    // by digest; a name displaces another one with the same place
    uint64_t next_number;
};

void conv_watch_arrivals_free(struct conv_watch_arrivals *arrivals); // leaves {0}

// Something has happened to arrival->path, which is copied. It replaces an earlier arrival of that
// name. CONV_ERR_MEMORY.
enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals,
                                         const struct conv_watch_arrival *arrival, uint64_t now_ns,
                                         struct conv_err *err);

// Puts back an arrival that was taken, unless an event has replaced it, to be taken again after
// `wait_ns`. Its path belongs to the arrivals again. CONV_ERR_MEMORY loses it.
enum conv_status conv_watch_arrivals_postpone(struct conv_watch_arrivals *arrivals,
                                              const struct conv_watch_arrival *arrival,
                                              uint64_t wait_ns, uint64_t now_ns,
                                              struct conv_err *err);

// `path` is gone: it is not handed out any more. Best effort, as replacing is: if two names share a
// place in the table, one of them may be handed out although it is gone, or handed out twice.
void conv_watch_arrivals_remove(struct conv_watch_arrivals *arrivals, const char *path);

// Takes the first arrival that is due; its path then belongs to the caller. False if there is none.
bool conv_watch_arrivals_take(struct conv_watch_arrivals *arrivals, uint64_t now_ns,
                              struct conv_watch_arrival *arrival);

// Time until `take` succeeds, 0: at once; UINT64_MAX: nothing has arrived.
uint64_t conv_watch_arrivals_wait_ns(struct conv_watch_arrivals *arrivals, uint64_t now_ns);

#endif
