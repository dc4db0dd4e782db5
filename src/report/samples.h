// SPDX-License-Identifier: MIT
// The single images of a run that a page shows, in constant memory: failures grouped by reason, the
// slowest images, how long images took, the first pairs of input and output, the first warning.
#pragma once

#include "report/record.h"

#define CONV_SAMPLES_MOST_REASONS 24
#define CONV_SAMPLES_MOST_NAMES 5 // of a reason
#define CONV_SAMPLES_MOST_PAIRS 3
#define CONV_SAMPLES_MOST_SLOWEST 10
#define CONV_SAMPLES_EXACT 4096 // images whose times are kept one by one
// Of more images: times from 1 us on, 16 bins per octave: 2^24 us are 17 s; a bin is 4.4 % wide.
#define CONV_SAMPLES_BINS (16 * 24)

// Failures whose reasons differ in their numbers only.
struct conv_sample_reason {
    char *text;   // with "N" for numbers that differ
    bool differs; // some number did
    uint64_t count;
    char *names[CONV_SAMPLES_MOST_NAMES]; // of the first inputs
    int name_count;
};

struct conv_sample_slow {
    char *input;
    int width, height;
    uint64_t total, ns[CONV_STAGE_COUNT]; // total: of the stages
};

struct conv_sample_pair {
    char *input, *output;
    uint64_t number; // of the record; 0: none
};

struct conv_samples { // {0} is empty
    struct conv_sample_reason reasons[CONV_SAMPLES_MOST_REASONS];
    int reason_count;
    uint64_t other_failures; // of reasons beyond the most

    struct conv_sample_slow slowest[CONV_SAMPLES_MOST_SLOWEST]; // the slowest first
    int slow_count;
    uint64_t times[CONV_SAMPLES_BINS]; // images per bin of time
    uint64_t timed;
    uint64_t exact[CONV_SAMPLES_EXACT]; // of the first images

    struct conv_sample_pair pairs[CONV_SAMPLES_MOST_PAIRS]; // in the order of the source
    int pair_count;
    char *warning; // NULL: there was none
};

// Counts the record, and copies its texts if they are among those to show. Out of memory: skips it.
void conv_samples_add(struct conv_samples *samples, const struct conv_record *record);
void conv_samples_warn(struct conv_samples *samples, const char *text);
void conv_samples_free(struct conv_samples *samples);

// The time, in ns, that a share of 0 to 1 of the images did not exceed: exact for up to
// CONV_SAMPLES_EXACT images, otherwise to the width of a bin; never above that of the slowest. 0
// without images.
double conv_samples_quantile(const struct conv_samples *samples, double share);
// Where a bin begins, in ns.
double conv_samples_bin_start(int bin);
