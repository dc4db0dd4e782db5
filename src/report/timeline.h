// SPDX-License-Identifier: MIT
// One track of a timeline in constant memory: bins of time with the share of each stage, and the
// slices themselves while they are few enough for a page to draw each of them. One thread at a
// time.
#ifndef CONV_REPORT_TIMELINE_H
#define CONV_REPORT_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/record.h"

#define CONV_TIMELINE_BINS 512

struct conv_timeline {
    uint64_t width; // of a bin, ns
    uint64_t ns[CONV_TIMELINE_BINS][CONV_STAGE_COUNT];
};

// No time in any bin.
void conv_timeline_init(struct conv_timeline *timeline);
// `start` and `end` are ns since the start of the timeline; end >= start.
void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end);
// Doubles the width of the bins until it is at least `width`, so that tracks can be compared.
void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width);

#define CONV_SLICES_MOST 6144
#define CONV_SLICES_MOST_TEXT ((size_t)128 << 10)
#define CONV_SLICES_NAME 48 // bytes of a name that are kept: its end

struct conv_slice {
    uint64_t start, end; // ns since the start of the timeline
    uint32_t text;       // offset of its name
    uint8_t stage;
};

struct conv_slices { // {0} is empty
    struct conv_slice *list;
    int count;
    char *text; // names, each with its 0
    size_t text_size, text_room, room;
    bool overflowed; // there were more than the most, or no memory: the list is empty
};

// Adds a slice; `name` is copied, its end only if it is long. Beyond the most the list is emptied.
void conv_slices_add(struct conv_slices *slices, int stage, uint64_t start, uint64_t end,
                     const char *name);
void conv_slices_free(struct conv_slices *slices);

#endif
