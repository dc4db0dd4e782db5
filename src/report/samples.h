// SPDX-License-Identifier: MIT
// Copies of what single images of a run reported, for a page: the first failures, the first pairs
// of input and output, the first warning.
#ifndef CONV_REPORT_SAMPLES_H
#define CONV_REPORT_SAMPLES_H

#include "report/record.h"

#define CONV_SAMPLES_MOST_FAILURES 100
#define CONV_SAMPLES_MOST_PAIRS 3

struct conv_sample_failure {
    char *input, *reason;
};

struct conv_sample_pair {
    char *input, *output;
};

struct conv_samples { // {0} is empty
    struct conv_sample_failure failures[CONV_SAMPLES_MOST_FAILURES];
    int failure_count;
    struct conv_sample_pair pairs[CONV_SAMPLES_MOST_PAIRS];
    int pair_count;
    char *warning; // NULL: there was none
};

// Copies the record's texts if it is among the first of its kind. Out of memory: skips it.
void conv_samples_add(struct conv_samples *samples, const struct conv_record *record);
void conv_samples_warn(struct conv_samples *samples, const char *text);
void conv_samples_free(struct conv_samples *samples);

#endif
