// SPDX-License-Identifier: MIT
// What a page about a run shows beside figures: the first images that failed, a few to look at,
// and the first warning.
#ifndef CONV_REPORT_PAGE_SAMPLES_H
#define CONV_REPORT_PAGE_SAMPLES_H

#define CONV_PAGE_SAMPLES_MOST_FAILURES 100
#define CONV_PAGE_SAMPLES_MOST_PAIRS 3

struct conv_record;

struct conv_sample_failure {
    char *input, *reason;
};

struct conv_sample_pair {
    char *input, *output;
};

struct conv_page_samples { // {0} is empty
    struct conv_sample_failure failures[CONV_PAGE_SAMPLES_MOST_FAILURES];
    int failure_count;
    struct conv_sample_pair pairs[CONV_PAGE_SAMPLES_MOST_PAIRS];
    int pair_count;
    char *warning; // NULL: there was none
};

// Keeps a copy of the record's texts if there is room for it. Without memory it is not kept.
void conv_page_samples_add(struct conv_page_samples *kept, const struct conv_record *record);
// Keeps a copy of the first warning.
void conv_page_samples_warn(struct conv_page_samples *kept, const char *text);
void conv_page_samples_free(struct conv_page_samples *kept);

#endif
