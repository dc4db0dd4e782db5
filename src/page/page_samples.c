// SPDX-License-Identifier: MIT
// The page's part about single images of a run: failures by reason, times of images, the slowest of
// them.
#include <string.h>

#include "page/page_internal.h"

#define MOST_BARS 24 // of the histogram

// Writes a time with its unit, for example "250 ms".
static void describe_time(char *text, size_t size, double ns)
{
    if (ns < 1e6)
        snprintf(text, size, "%.3g µs", ns / 1e3);
    else if (ns < 1e9)
        snprintf(text, size, "%.3g ms", ns / 1e6);
    else
        snprintf(text, size, "%.3g s", ns / 1e9);
}

// --- times ---------------------------------------------------------------------------------------

void conv_page_bind_samples(struct conv_template *filled, struct conv_page_state *state)
{
    const struct conv_samples *samples = state->page->samples;
    int first = -1, last = 0;
    for (int i = 0; i < CONV_SAMPLES_BINS; i++)
        if (samples->times[i] > 0) {
            first = first < 0 ? i : first;
            last = i;
        }
    state->first_bar = first;
    state->bar_bins = 1;
    while ((last - first) / state->bar_bins + 1 > MOST_BARS)
        state->bar_bins *= 2;
    state->bars = first < 0 ? 0 : (last - first) / state->bar_bins + 1;
    double slowest = samples->slow_count ? (double)samples->slowest[0].total : 0;
    describe_time(state->median, sizeof state->median, conv_samples_quantile(samples, 0.5));
    describe_time(state->late, sizeof state->late, conv_samples_quantile(samples, 0.95));
    describe_time(state->slowest, sizeof state->slowest, slowest);
    conv_template_text(filled, "time_median", state->median);
    conv_template_text(filled, "time_95", state->late);
    conv_template_text(filled, "time_slowest", state->slowest);
    conv_template_number(filled, "other_count", (double)samples->other_failures, 0);
}

static uint64_t bar_count(const struct conv_page_state *state, int bar)
{
    uint64_t count = 0;
    int from = state->first_bar + bar * state->bar_bins;
    for (int i = from; i < from + state->bar_bins && i < CONV_SAMPLES_BINS; i++)
        count += state->page->samples->times[i];
    return count;
}

static bool next_bar(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    uint64_t most = 1, count = bar_count(state, index);
    char from[24], to[24];
    if (index >= state->bars)
        return false;
    for (int i = 0; i < state->bars; i++)
        most = bar_count(state, i) > most ? bar_count(state, i) : most;
    int bin = state->first_bar + index * state->bar_bins;
    describe_time(from, sizeof from, conv_samples_bin_start(bin));
    describe_time(to, sizeof to, conv_samples_bin_start(bin + state->bar_bins));
    snprintf(state->bar_range, sizeof state->bar_range, "%s to %s", from, to);
    snprintf(state->bar_from, sizeof state->bar_from, "%s", from);
    conv_template_text(filled, "bar_range", state->bar_range);
    conv_template_text(filled, "bar_from", state->bar_from);
    conv_template_number(filled, "bar_count", (double)count, 0);
    conv_template_number(filled, "bar_height", 100 * (double)count / (double)most, 1);
    state->bar = index;
    return true;
}

// --- the slowest ---------------------------------------------------------------------------------

static bool next_slow(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    const struct conv_samples *samples = state->page->samples;
    if (index >= samples->slow_count)
        return false;
    const struct conv_sample_slow *slow = &samples->slowest[index];
    int stage = 0;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        stage = slow->ns[s] > slow->ns[stage] ? s : stage;
    describe_time(state->slow_time, sizeof state->slow_time, (double)slow->total);
    conv_template_text(filled, "slow_name", slow->input);
    conv_template_number(filled, "slow_width", slow->width, 0);
    conv_template_number(filled, "slow_height", slow->height, 0);
    conv_template_text(filled, "slow_time", state->slow_time);
    conv_template_text(filled, "slow_stage", conv_page_stage_label((enum conv_stage)stage));
    conv_template_number(filled, "slow_share",
                         slow->total ? 100 * (double)slow->ns[stage] / (double)slow->total : 0, 0);
    return true;
}

// --- failures ------------------------------------------------------------------------------------

// The reason with the `rank`-th highest count; of equal ones, the first to occur.
static const struct conv_sample_reason *find_reason(const struct conv_samples *samples, int rank)
{
    for (int i = 0; i < samples->reason_count; i++) {
        int above = 0;
        for (int j = 0; j < samples->reason_count; j++)
            above += samples->reasons[j].count > samples->reasons[i].count ||
                     (samples->reasons[j].count == samples->reasons[i].count && j < i);
        if (above == rank)
            return &samples->reasons[i];
    }
    return NULL;
}

static bool next_reason(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    state->reason = find_reason(state->page->samples, index);
    if (!state->reason)
        return false;
    conv_template_text(filled, "reason", state->reason->text);
    conv_template_number(filled, "reason_count", (double)state->reason->count, 0);
    conv_template_number(filled, "reason_rest",
                         (double)state->reason->count - state->reason->name_count, 0);
    return true;
}

static bool next_name(struct conv_template *filled, int index)
{
    const struct conv_page_state *state = filled->context;
    if (index >= state->reason->name_count)
        return false;
    conv_template_text(filled, "failure_name", state->reason->names[index]);
    return true;
}

// -------------------------------------------------------------------------------------------------

bool conv_page_next_sample(struct conv_template *filled, const char *list, int index)
{
    const struct conv_page_state *state = filled->context;
    const struct conv_samples *samples = state->page->samples;
    if (!samples)
        return false;
    if (strcmp(list, "reasons") == 0)
        return next_reason(filled, index);
    if (strcmp(list, "failure_names") == 0)
        return next_name(filled, index);
    if (strcmp(list, "more_names") == 0)
        return index == 0 && state->reason->count > (uint64_t)state->reason->name_count;
    if (strcmp(list, "other_reasons") == 0)
        return index == 0 && samples->other_failures > 0;
    if (strcmp(list, "times") == 0)
        return index == 0 && samples->timed > 1;
    if (strcmp(list, "time_bars") == 0 || strcmp(list, "time_lines") == 0)
        return next_bar(filled, index);
    if (strcmp(list, "bar_labelled") == 0) // not near the right edge, beyond which it would extend
        return index == 0 &&
               state->bar % (state->bars > 12  ? 6
                             : state->bars > 4 ? 3
                                               : 1) ==
                   0 &&
               5 * state->bar <= 4 * state->bars;
    if (strcmp(list, "slow") == 0)
        return next_slow(filled, index);
    if (strcmp(list, "slow_sized") == 0) // whose size is bound
        return index == 0 && samples->slowest[0].width > 0;
    return false;
}
