// SPDX-License-Identifier: MIT
// Records of members of archives that are not complete yet: what is in an archive is done when the
// archive is. One thread at a time.
#ifndef CONV_REPORT_HELD_H
#define CONV_REPORT_HELD_H

#include "report/record.h"

struct conv_held_record; // a copy of a record, with its strings

// The records of one archive.
struct conv_held_archive {
    int archive; // record.archive
    struct conv_totals totals;
    struct conv_held_record *first, **end;
    struct conv_held_archive *next;
};

struct conv_held { // {0} is empty
    struct conv_held_archive *first;
};

// Counts the record as one of its archive, and keeps a copy if `whole`, some 300 bytes. False
// without memory: nothing was done.
bool conv_held_add(struct conv_held *held, const struct conv_record *record, uint64_t elapsed,
                   bool whole);

// Takes an archive out, to be freed by the caller; NULL if it holds nothing.
struct conv_held_archive *conv_held_take(struct conv_held *held, int archive);

// Calls `use` for each copy, in order, and frees them and the archive. NULL is fine.
void conv_held_release(struct conv_held_archive *archive,
                       void (*use)(void *user, struct conv_record *record), void *user);

// Adds what a record adds. `elapsed`: ns since the run began.
void conv_held_count(struct conv_totals *totals, const struct conv_record *record,
                     uint64_t elapsed);

// Adds what conv_held_count has counted in *more.
void conv_held_sum(struct conv_totals *totals, const struct conv_totals *more);

#endif
