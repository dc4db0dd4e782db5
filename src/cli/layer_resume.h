// SPDX-License-Identifier: MIT
// --resume of conv layer.
#ifndef CONV_CLI_LAYER_RESUME_H
#define CONV_CLI_LAYER_RESUME_H

#include "cli/layer_setup.h"
#include "cli/run_journal.h"

// Opens the journal of --resume for outputs of this layer or bank. Another layer or bank, or other
// options that change results, make its entries stale. Errors as conv_journal_open.
enum conv_status conv_layer_resume_open(struct conv_journal **journal,
                                        const struct conv_options *options,
                                        const struct conv_layer_setup *setup, atomic_int *stop,
                                        struct conv_err *err);

#endif
