// SPDX-License-Identifier: MIT
// Shared by merge.c and merge_write.c.
#ifndef CONV_REPORT_MERGE_INTERNAL_H
#define CONV_REPORT_MERGE_INTERNAL_H

#include <sys/types.h>

#include "report/merge.h"
#include "report/merge_line.h"
#include "report/record.h"

// One report, of one run.
struct conv_merge_report {
    const char *path;
    dev_t device;
    ino_t inode;
    int shard;        // -1: the run is no shard
    bool is_finished; // the run came to its end
    double seconds;
    struct conv_record_listing listing;
};

struct conv_merge {
    struct conv_merge_report *reports;
    int count, capacity;
    int shards;                      // 0: none so far
    struct conv_merge_report **last; // the last report of each shard; NULL: none
    bool *finished;                  // shards of which any run came to its end
    char filter[4096];               // of all reports
    struct conv_merge_table images;
    struct conv_merge_totals totals;
};

#endif
