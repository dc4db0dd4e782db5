// SPDX-License-Identifier: MIT
#include "cli/run_journal.h"

enum conv_status conv_run_journal_open(struct conv_journal **journal,
                                       const struct conv_settings *settings, atomic_int *stop,
                                       struct conv_err *err)
{
    const struct conv_options *options = settings->options;
    struct conv_journal_config config = {
        .path = options->resume_path,
        .in_place = options->in_place,
        .preserve = options->preserve,
        .read_only = options->dry_run || options->no_save,
        .fsync = options->fsync,
        .stop = stop,
    };
    enum conv_status status = conv_settings_digest(&config.settings, settings, err);
    if (!status)
        status = conv_journal_open(journal, &config, err);
    if (status)
        return status;
    size_t damaged = conv_journal_damaged(*journal);
    if (damaged && !options->quiet)
        fprintf(stderr,
                "conv: the journal has %zu damaged line%s; those images are processed again\n",
                damaged, damaged == 1 ? "" : "s");
    return CONV_OK;
}
