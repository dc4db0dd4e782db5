// SPDX-License-Identifier: MIT
// The settings that decide a result as one canonical text, from which the journal's digest comes.
// Settings that give the same bytes have the same text, however they were spelled, as far as the
// parser knows. The table of options says which ones decide; what has its default is not printed,
// so that a text stays the same when options are added.
#ifndef CONV_CLI_SETTINGS_H
#define CONV_CLI_SETTINGS_H

#include <stdatomic.h>

#include "base/digest.h"
#include "cli/layer_command.h"
#include "cli/options.h"
#include "io/files/journal.h"

struct conv_settings {
    const struct conv_options *options; // as given
    const struct conv_filter *filters;
    int filter_count;
    const struct conv_layer_setup *layer; // of conv layer, instead of filters; or NULL
    // Outputs are archives: what decides their members is printed as well.
    bool members;
    const char *const *inputs; // whose members one archive gets, in this order
    int input_count;           // 0: each archive has the members of one input
};

// One setting per line; to be freed. CONV_ERR_MEMORY.
enum conv_status conv_settings_text(char **text, const struct conv_settings *settings,
                                    struct conv_err *err);

// Opens the journal of --resume, or with --in-place one in memory, for outputs of these settings,
// and reports damaged lines. Errors as conv_journal_open.
enum conv_status conv_settings_open_journal(struct conv_journal **journal,
                                            const struct conv_settings *settings, atomic_int *stop,
                                            struct conv_err *err);

#endif
