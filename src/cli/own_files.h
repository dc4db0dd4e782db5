// SPDX-License-Identifier: MIT
// The files that a run writes besides its outputs: --resume, --report, --trace, --html. None of
// them may be a file that the run reads, or the same file as another of them, under any name.
#ifndef CONV_CLI_OWN_FILES_H
#define CONV_CLI_OWN_FILES_H

#include "cli/options.h"
#include "io/files/paths.h"

// At most: --resume, --report, --trace, --html.
#define CONV_OWN_FILES_MOST 4

// The other files on the command line.
struct conv_own_files_use {
    const char *filters; // as typed; names among them are ignored
    const char *const *inputs;
    int input_count;
    const char *output; // NULL: none
};

// CONV_ERR_USAGE if one of them is an image, the list of --files-from, a file of a filter, weights,
// an input, an output or another one of them; or would be an input or an output by its name and
// folder. To be called before any of them is opened.
enum conv_status conv_own_files_check(const struct conv_options *options,
                                      const struct conv_own_files_use *use, struct conv_err *err);

// After they were opened: their identities, so that no output replaces one. Returns their number.
int conv_own_files_find(struct conv_paths_id ids[CONV_OWN_FILES_MOST],
                        const struct conv_options *options);

#endif
