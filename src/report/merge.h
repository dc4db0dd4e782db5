// SPDX-License-Identifier: MIT
// Adds up the reports of several runs, as JSON Lines, into what they did together. The runs may be
// the shards of a job, some of them repeated after they were killed.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct conv_merge;

struct conv_merge_totals {
    int reports;
    int shards;                                      // of the job; 0: the runs are not shards
    uint64_t done, failed, skipped, planned, copied; // images, by their best outcome in any run
    uint64_t pixels, bytes_in, bytes_out;            // of all runs
    uint64_t replaced;       // files, by outputs of runs that came to their end
    double seconds, longest; // of all those runs, of one of them
    uint64_t repeated;       // images that two runs of one shard have processed
    uint64_t overlaps;       // images in several shards
    char overlap[256];       // the beginning of the name of one
    uint64_t unreported; // images of the job that are in no report, although no shard is missing
    bool is_mixed;       // shards have divided different sets of images
    uint64_t damaged;    // lines that are not records
};

enum conv_merge_shard { CONV_MERGE_FINISHED, CONV_MERGE_UNFINISHED, CONV_MERGE_MISSING };

// CONV_ERR_MEMORY. One thread at a time.
enum conv_status conv_merge_open(struct conv_merge **merge, struct conv_err *err);
void conv_merge_close(struct conv_merge *merge); // NULL is fine

// Reads a report. Keeps the string. A report without a summary, or an empty one, counts as that of
// a killed run. CONV_ERR_USAGE if it cannot be read or is not a report, was added before, or
// belongs to another job: with other filters or another number of shards. CONV_ERR_IO,
// CONV_ERR_MEMORY (some 50 bytes per image).
enum conv_status conv_merge_add(struct conv_merge *merge, const char *path, struct conv_err *err);

// To be called after the last report, before the functions below.
void conv_merge_count(struct conv_merge *merge, struct conv_merge_totals *totals);
enum conv_merge_shard conv_merge_shard_state(const struct conv_merge *merge, int shard);

// The path of the next report of a run that is not a shard and did not finish, from number *at on,
// which is advanced; NULL after the last.
const char *conv_merge_next_unfinished(const struct conv_merge *merge, int *at);

// Writes one record per image, the best of all runs: as JSON Lines between a begin record and a
// summary (with `exit_code`) if `stream` is not NULL, and to `failed`, which may be NULL, the
// failed ones. Reads the reports again. CONV_ERR_IO, also if one has changed.
enum conv_status conv_merge_write(struct conv_merge *merge, FILE *stream, int exit_code,
                                  void (*failed)(const char *input, const char *reason),
                                  struct conv_err *err);
