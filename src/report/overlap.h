// SPDX-License-Identifier: MIT
// How long a device's engines (copy in, kernel, copy out) were busy, alone and together, over all
// streams: a sweep over intervals. Its memory is bounded: old intervals are counted and dropped.
#ifndef CONV_REPORT_OVERLAP_H
#define CONV_REPORT_OVERLAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum conv_engine {
    CONV_ENGINE_COPY_IN,
    CONV_ENGINE_KERNEL,
    CONV_ENGINE_COPY_OUT,
    CONV_ENGINE_COUNT
};

struct conv_overlap_times {
    uint64_t engine[CONV_ENGINE_COUNT]; // ns with work of at least one stream
    uint64_t two, three;                // ns with at least two, with all three busy
};

struct conv_overlap;

// CONV_ERR_MEMORY; *overlap is then NULL.
enum conv_status conv_overlap_open(struct conv_overlap **overlap, struct conv_err *err);
void conv_overlap_close(struct conv_overlap *overlap); // NULL is fine

// Adds an interval of work, on one clock for all. Intervals may come in any order as long as none
// comes after more than about ten thousand that began later.
void conv_overlap_add(struct conv_overlap *overlap, enum conv_engine engine, uint64_t start,
                      uint64_t end);

// Everything added so far.
void conv_overlap_read(struct conv_overlap *overlap, struct conv_overlap_times *times);

#endif
