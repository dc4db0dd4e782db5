// SPDX-License-Identifier: MIT
// What a page about a run shows beside figures: the first pictures that failed, a few to look at,
// and the first warning.
#ifndef CONV_REPORT_PAGE_SAMPLES_H
#define CONV_REPORT_PAGE_SAMPLES_H

#define CONV_KEPT_MOST_FAILURES 100
#define CONV_KEPT_MOST_PAIRS 3

struct conv_record;

struct conv_kept_failure {
    char *input, *reason;
};

struct conv_kept_pair {
    char *input, *output;
};

struct conv_kept { // {0} is empty
    struct conv_kept_failure failures[CONV_KEPT_MOST_FAILURES];
    int failure_count;
    struct conv_kept_pair pairs[CONV_KEPT_MOST_PAIRS];
    int pair_count;
    char *warning; // NULL: there was none
};

// Keeps a copy of the record's texts if there is room for it. Without memory it is not kept.
void conv_kept_add(struct conv_kept *kept, const struct conv_record *record);
// Keeps a copy of the first warning.
void conv_kept_warn(struct conv_kept *kept, const char *text);
void conv_kept_free(struct conv_kept *kept);

#endif
