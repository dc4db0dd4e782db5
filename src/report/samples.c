// SPDX-License-Identifier: MIT
#include "report/samples.h"

#include <stdlib.h>
#include <string.h>

// Both or none.
static bool copy_two(char **a, char **b, const char *from_a, const char *from_b)
{
    *a = strdup(from_a);
    *b = strdup(from_b);
    if (*a && *b)
        return true;
    free(*a);
    free(*b);
    return false;
}

void conv_samples_add(struct conv_samples *samples, const struct conv_record *record)
{
    if (record->outcome == CONV_OUTCOME_FAILED &&
        samples->failure_count < CONV_SAMPLES_MOST_FAILURES) {
        struct conv_sample_failure *failure = &samples->failures[samples->failure_count];
        samples->failure_count +=
            copy_two(&failure->input, &failure->reason, record->input, record->reason);
    }
    if (record->outcome == CONV_OUTCOME_DONE && samples->pair_count < CONV_SAMPLES_MOST_PAIRS &&
        record->are_files && record->output) {
        struct conv_sample_pair *pair = &samples->pairs[samples->pair_count];
        samples->pair_count += copy_two(&pair->input, &pair->output, record->input, record->output);
    }
}

void conv_samples_warn(struct conv_samples *samples, const char *text)
{
    if (!samples->warning)
        samples->warning = strdup(text);
}

void conv_samples_free(struct conv_samples *samples)
{
    free(samples->warning);
    for (int i = 0; i < samples->failure_count; i++) {
        free(samples->failures[i].input);
        free(samples->failures[i].reason);
    }
    for (int i = 0; i < samples->pair_count; i++) {
        free(samples->pairs[i].input);
        free(samples->pairs[i].output);
    }
    *samples = (struct conv_samples){0};
}
