// SPDX-License-Identifier: MIT
// What the files of the page share: page.c (what was done), page_samples.c (failures, times of
// images), page_charts.c (stages, streams, kernels), page_timeline.c, page_pairs.c (images).
#ifndef CONV_PAGE_PAGE_INTERNAL_H
#define CONV_PAGE_PAGE_INTERNAL_H

#include "page/page.h"
#include "page/template.h"

// The current positions in the template's lists, and the texts that their values point to.
struct conv_page_state {
    const struct conv_page *page;
    struct conv_figures figures; // of the run
    char workers[32], streams[32], cores[32];

    const struct conv_page_filter *filter;
    int row; // of its matrix
    char terms[96], number[32];

    const struct conv_figures *shown; // whose stages are listed
    char line[32];
    int ladder;
    int place;
    char panel[256], rows[16], lede[320];

    const struct conv_sample_reason *reason; // of failures
    int first_bar, bar_bins, bars, bar;      // of the histogram: bins, bins per bar, bars
    char median[24], late[24], slowest[24];  // times of images
    char bar_range[64], bar_from[24], slow_time[24];

    bool timeline;
    int timeline_shown;
    bool is_listed[CONV_PAGE_MOST_TIMELINES][64]; // rows whose slices are data
    int coarse_rows;                              // others
    uint64_t bin_width;                           // ns
    uint64_t span;                                // ns that the timeline shows
    int merge;                                    // bins drawn as one
    int bins;                                     // drawn
    int hidden_rows;
    const struct conv_timeline *bin; // of the row
    uint64_t tick;                   // ns from one to the next
    char tick_text[32], span_text[64], span_us[24];

    const struct conv_page_pair *pair;
};

// CONV_STAGE_COPY_IN: "copy in"
const char *conv_page_stage_label(enum conv_stage stage);

// Bind the values that the template needs; the timeline's is false if there is nothing to show.
void conv_page_bind_figures(struct conv_template *filled, const struct conv_figures *figures);
void conv_page_bind_copies(struct conv_template *filled, const struct conv_page_copies *copies);
void conv_page_bind_samples(struct conv_template *filled, struct conv_page_state *state);
bool conv_page_prepare_timeline(struct conv_template *filled, struct conv_page_state *state);

// Each returns false if it does not know the list, or if the list has no such item.
bool conv_page_next_chart(struct conv_template *filled, const char *list, int index);
bool conv_page_next_timeline(struct conv_template *filled, const char *list, int index);
bool conv_page_next_sample(struct conv_template *filled, const char *list, int index);
bool conv_page_next_pair(struct conv_template *filled, const char *list, int index);

#endif
