// SPDX-License-Identifier: MIT
// --resume: from options to io/journal.h.
#ifndef CONV_CLI_RUN_JOURNAL_H
#define CONV_CLI_RUN_JOURNAL_H

#include <stdatomic.h>

#include "base/hash.h"
#include "cli/options.h"
#include "io/journal.h"

// Adds a number to a digest of settings.
static inline void conv_run_journal_hash(struct conv_digest *digest, int64_t number)
{
    conv_hash_add(digest, &number, sizeof number);
}

// Opens the journal of --resume, or with --in-place one in memory, for outputs of `settings`, and
// reports damaged lines. Errors as conv_journal_open.
enum conv_status conv_run_journal_open(struct conv_journal **journal,
                                       const struct conv_options *options,
                                       const struct conv_digest *settings, atomic_int *stop,
                                       struct conv_err *err);

#endif
