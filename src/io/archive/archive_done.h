// SPDX-License-Identifier: MIT
// Which output archives need not be written again. An archive appears whole or not at all, so it is
// skipped, or written again, as a whole.
#ifndef CONV_ARCHIVE_ARCHIVE_DONE_H
#define CONV_ARCHIVE_ARCHIVE_DONE_H

#include "io/archive/archive_operands.h"

struct conv_journal;

// The rule: outputs that exist, that are as new as all of their inputs, or that the journal lists.
enum conv_archive_done { CONV_ARCHIVE_EXISTS, CONV_ARCHIVE_IS_NEWER, CONV_ARCHIVE_IS_NOTED };

// Sets `done` of each such target, and for CONV_ARCHIVE_IS_NOTED `origins` of all. CONV_ERR_USAGE
// if an input, being a folder, a list or a pipe, has no time to compare (all but
// CONV_ARCHIVE_EXISTS). CONV_ERR_MEMORY. If an input does not exist, its target is not done.
enum conv_status conv_archive_done_find(struct conv_archive_operands *archives,
                                        const struct conv_operands *operands,
                                        enum conv_archive_done which, struct conv_journal *journal,
                                        struct conv_err *err);

// Adds a line per input to the journal for a target whose bytes are all written and which has no
// name yet; `out` describes its file. CONV_ERR_IO.
enum conv_status conv_archive_done_note(struct conv_journal *journal,
                                        const struct conv_archive_target *target,
                                        const struct stat *out, struct conv_err *err);

#endif
