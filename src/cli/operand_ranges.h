// SPDX-License-Identifier: MIT
// Names with ranges of numbers, 'shards-{000000..000127}.tar', that no shell has expanded.
#ifndef CONV_CLI_OPERAND_RANGES_H
#define CONV_CLI_OPERAND_RANGES_H

#include <stdbool.h>

#include "base/err.h"

// The inputs after expansion.
struct conv_operand_ranges {
    const char **names; // those without a range are the caller's
    int count;
    bool any;    // at least one had a range
    char **made; // malloc'ed ones among `names`
    int made_count;
};

// Expands each name that has a range as bash does, unless there is a file of that name. Numbers
// have as many digits as the longer end of their range if it begins with 0. CONV_ERR_USAGE if there
// are more than a million, CONV_ERR_MEMORY. To be freed in any case.
enum conv_status conv_operand_ranges_expand(struct conv_operand_ranges *ranges,
                                            const char *const *names, int count,
                                            struct conv_err *err);
void conv_operand_ranges_free(struct conv_operand_ranges *ranges); // {0} is fine

#endif
