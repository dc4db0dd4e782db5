// SPDX-License-Identifier: MIT
// --resume: from options to io/files/journal.h.
#ifndef CONV_CLI_RUN_JOURNAL_H
#define CONV_CLI_RUN_JOURNAL_H

#include <stdatomic.h>

#include "cli/settings_text.h"
#include "io/files/journal.h"

// Opens the journal of --resume, or with --in-place one in memory, for outputs of these settings,
// and reports damaged lines. Errors as conv_journal_open.
enum conv_status conv_run_journal_open(struct conv_journal **journal,
                                       const struct conv_settings *settings, atomic_int *stop,
                                       struct conv_err *err);

#endif
