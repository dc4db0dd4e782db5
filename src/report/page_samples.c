// SPDX-License-Identifier: MIT
#include "report/page_samples.h"

#include <stdlib.h>
#include <string.h>

#include "report/report.h"

static bool is_file(const char *path)
{
    return path && strcmp(path, "-") != 0;
}

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

void conv_page_samples_add(struct conv_page_samples *kept, const struct conv_record *record)
{
    if (record->outcome == CONV_OUTCOME_FAILED &&
        kept->failure_count < CONV_PAGE_SAMPLES_MOST_FAILURES) {
        struct conv_sample_failure *failure = &kept->failures[kept->failure_count];
        kept->failure_count +=
            copy_two(&failure->input, &failure->reason, record->input, record->reason);
    }
    if (record->outcome == CONV_OUTCOME_DONE && kept->pair_count < CONV_PAGE_SAMPLES_MOST_PAIRS &&
        is_file(record->input) && is_file(record->output)) {
        struct conv_sample_pair *pair = &kept->pairs[kept->pair_count];
        kept->pair_count += copy_two(&pair->input, &pair->output, record->input, record->output);
    }
}

void conv_page_samples_warn(struct conv_page_samples *kept, const char *text)
{
    if (!kept->warning)
        kept->warning = strdup(text);
}

void conv_page_samples_free(struct conv_page_samples *kept)
{
    free(kept->warning);
    for (int i = 0; i < kept->failure_count; i++) {
        free(kept->failures[i].input);
        free(kept->failures[i].reason);
    }
    for (int i = 0; i < kept->pair_count; i++) {
        free(kept->pairs[i].input);
        free(kept->pairs[i].output);
    }
    *kept = (struct conv_page_samples){0};
}
