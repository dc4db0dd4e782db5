// SPDX-License-Identifier: MIT
#include "report/samples.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- failures ------------------------------------------------------------------------------------

static bool is_digit(char c)
{
    return isdigit((unsigned char)c) != 0;
}

// True if the texts are equal but for their numbers; "N" is any number. *differs: a number did.
static bool has_same_form(const char *a, const char *b, bool *differs)
{
    *differs = false;
    while (*a && *b) {
        bool any = *a == 'N' && is_digit(*b);
        if (any || (is_digit(*a) && is_digit(*b))) {
            const char *from_a = a, *from_b = b;
            a += any ? 1 : strspn(a, "0123456789");
            b += strspn(b, "0123456789");
            *differs |= any || a - from_a != b - from_b ||
                        memcmp(from_a, from_b, (size_t)(a - from_a)) != 0;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

// Numbers become "N", in place.
static void hide_numbers(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        size_t digits = strspn(from, "0123456789");
        *to++ = digits > 0 ? 'N' : *from;
        from += digits > 0 ? digits : 1;
    }
    *to = 0;
}

static void add_failure(struct conv_samples *samples, const struct conv_record *record)
{
    int i = 0;
    bool differs = false;
    while (i < samples->reason_count &&
           !has_same_form(samples->reasons[i].text, record->reason, &differs))
        i++;
    if (i == CONV_SAMPLES_MOST_REASONS) {
        samples->other_failures++;
        return;
    }
    struct conv_sample_reason *reason = &samples->reasons[i];
    if (i == samples->reason_count) {
        char *text = strdup(record->reason);
        if (!text) {
            samples->other_failures++;
            return;
        }
        *reason = (struct conv_sample_reason){.text = text};
        samples->reason_count++;
        differs = false;
    }
    if (differs && !reason->differs)
        hide_numbers(reason->text);
    reason->differs |= differs;
    reason->count++;
    if (reason->name_count < CONV_SAMPLES_MOST_NAMES) {
        reason->names[reason->name_count] = strdup(record->input);
        reason->name_count += reason->names[reason->name_count] != NULL;
    }
}

// --- times ---------------------------------------------------------------------------------------

double conv_samples_bin_start(int bin)
{
    return 1000 * exp2(bin / 16.0);
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double conv_samples_quantile(const struct conv_samples *samples, double share)
{
    uint64_t below = 0, sorted[CONV_SAMPLES_EXACT];
    if (samples->timed > 0 && samples->timed <= CONV_SAMPLES_EXACT) {
        size_t count = (size_t)samples->timed, rank = (size_t)ceil(share * (double)count);
        memcpy(sorted, samples->exact, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare_times);
        return (double)sorted[rank > 0 ? rank - 1 : 0];
    }
    double slowest = samples->slow_count ? (double)samples->slowest[0].total : 0;
    for (int i = 0; i < CONV_SAMPLES_BINS; i++) {
        below += samples->times[i];
        double middle = conv_samples_bin_start(i) * exp2(1 / 32.0);
        if (below > 0 && (double)below >= share * (double)samples->timed)
            return slowest > 0 && middle > slowest ? slowest : middle;
    }
    return 0;
}

static void add_time(struct conv_samples *samples, const struct conv_record *record)
{
    uint64_t total = 0;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        total += record->ns[s];
    double bin = total > 1000 ? floor(16 * log2((double)total / 1000)) : 0;
    samples->times[bin < CONV_SAMPLES_BINS ? (int)bin : CONV_SAMPLES_BINS - 1]++;
    if (samples->timed < CONV_SAMPLES_EXACT)
        samples->exact[samples->timed] = total;
    samples->timed++;
    int at = samples->slow_count;
    while (at > 0 && samples->slowest[at - 1].total < total)
        at--;
    if (at == CONV_SAMPLES_MOST_SLOWEST)
        return;
    struct conv_sample_slow slow = {.input = strdup(record->input),
                                    .width = record->width,
                                    .height = record->height,
                                    .total = total};
    if (!slow.input)
        return;
    memcpy(slow.ns, record->ns, sizeof slow.ns);
    if (samples->slow_count == CONV_SAMPLES_MOST_SLOWEST)
        free(samples->slowest[--samples->slow_count].input);
    memmove(samples->slowest + at + 1, samples->slowest + at,
            (size_t)(samples->slow_count++ - at) * sizeof slow);
    samples->slowest[at] = slow;
}

// --- pairs ---------------------------------------------------------------------------------------

static void free_pair(struct conv_sample_pair *pair)
{
    free(pair->input);
    free(pair->output);
}

// The images with the lowest numbers are kept, in whatever order they were finished.
static void add_pair(struct conv_samples *samples, const struct conv_record *record)
{
    int at = samples->pair_count;
    while (at > 0 && samples->pairs[at - 1].number > record->number)
        at--;
    if (at == CONV_SAMPLES_MOST_PAIRS)
        return;
    struct conv_sample_pair pair = {
        .input = strdup(record->input), .output = strdup(record->output), .number = record->number};
    if (!pair.input || !pair.output) {
        free_pair(&pair);
        return;
    }
    if (samples->pair_count == CONV_SAMPLES_MOST_PAIRS)
        free_pair(&samples->pairs[--samples->pair_count]);
    memmove(samples->pairs + at + 1, samples->pairs + at,
            (size_t)(samples->pair_count++ - at) * sizeof pair);
    samples->pairs[at] = pair;
}

// -------------------------------------------------------------------------------------------------

void conv_samples_add(struct conv_samples *samples, const struct conv_record *record)
{
    if (record->outcome == CONV_OUTCOME_FAILED)
        add_failure(samples, record);
    if (record->outcome != CONV_OUTCOME_DONE)
        return;
    add_time(samples, record);
    if (record->are_files && record->output)
        add_pair(samples, record);
}

void conv_samples_warn(struct conv_samples *samples, const char *text)
{
    if (!samples->warning)
        samples->warning = strdup(text);
}

void conv_samples_free(struct conv_samples *samples)
{
    free(samples->warning);
    for (int i = 0; i < samples->reason_count; i++) {
        free(samples->reasons[i].text);
        for (int n = 0; n < samples->reasons[i].name_count; n++)
            free(samples->reasons[i].names[n]);
    }
    for (int i = 0; i < samples->slow_count; i++)
        free(samples->slowest[i].input);
    for (int i = 0; i < samples->pair_count; i++)
        free_pair(&samples->pairs[i]);
    *samples = (struct conv_samples){0};
}
