// SPDX-License-Identifier: MIT
// Decides which operands are inputs and where results go.
#ifndef CONV_CLI_PLACES_H
#define CONV_CLI_PLACES_H

#include "cli/options.h"
#include "io/files/paths.h"
#include "io/walk/operands.h"
#include "io/walk/walk.h"

struct conv_places {
    const char *const *inputs; // belongs to the options
    int input_count;           // 0 or less: operands are missing
    const char *output; // "-" for all names of standard output; NULL: next to or in the inputs
    bool last_is_output;
    struct conv_paths_id existing; // the file that the last operand names, {0} if there is none
};

// For a command whose first operand is a filter or weights.
void conv_places_split(struct conv_places *places, const struct conv_options *options);

// True if the last operand named a file, and now names another one: easily the last of several
// inputs, if the output was forgotten.
bool conv_places_was_replaced(const struct conv_places *places);

// Sets the walk over the inputs by --output, --beside, --suffix, --include and the like.
void conv_places_fill_walk(const struct conv_places *places, const struct conv_options *options,
                           struct conv_walk_config *config);

// Sets up the walk of a command that writes no images, from --recursive, --include and the like.
void conv_places_fill_reading_walk(const struct conv_input_options *selected,
                                   const char *const *inputs, int input_count,
                                   struct conv_walk_config *config);

// CONV_ERR_USAGE if the output is standard output, and `what` (an "image") cannot go there: it is a
// terminal, or messages or the lines of --json go there.
enum conv_status conv_places_check_standard(const struct conv_options *options, const char *output,
                                            const char *what, struct conv_err *err);

// After the walk was opened: CONV_ERR_USAGE for --suffix if there is one output with a name.
enum conv_status conv_places_check(const struct conv_output_options *outputs,
                                   const struct conv_operands_shape *shape, struct conv_err *err);

// --- ranges --------------------------------------------------------------------------------------

// Names with ranges of numbers, 'shards-{000000..000127}.tar', that no shell has expanded: the
// inputs after expansion.
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
