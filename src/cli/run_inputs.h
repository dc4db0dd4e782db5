// SPDX-License-Identifier: MIT
// The operands of a run: the images that they refer to, and the message if there are none.
#ifndef CONV_CLI_RUN_INPUTS_H
#define CONV_CLI_RUN_INPUTS_H

#include <stdatomic.h>

#include "cli/own_files.h"
#include "cli/places.h"
#include "cli/selection.h"
#include "io/sink.h"
#include "report/report.h"
#include "run/workload.h"

struct conv_run_inputs {
    struct conv_shard_plan *plan;      // of --shard, or NULL; closed by the caller as well
    struct conv_selection selection;   // closed with conv_run_inputs_close, also after a failure
    struct conv_operand_ranges ranges; // the input operands, expanded
    struct conv_places places;
    uint64_t expected;            // lower bound on the images; 0: unknown
    enum conv_workload_kind work; // as far as the choice of the device depends on it
};

// Splits the operands into inputs and output, checks them against each other and against the files
// that the run itself writes, and opens the walk. CONV_ERR_USAGE if the operands make no sense.
enum conv_status conv_run_inputs_open(struct conv_run_inputs *inputs,
                                      const struct conv_options *options, atomic_int *stop,
                                      struct conv_err *err);

// With --skip-existing, --update or --resume, archives that are done are skipped as a whole.
// `journal` is that of --resume, else NULL. CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_run_inputs_skip(const struct conv_output_options *outputs,
                                      struct conv_selection *selection,
                                      struct conv_journal *journal, struct conv_err *err);

// {0} is fine.
void conv_run_inputs_close(struct conv_run_inputs *inputs);

// Has the report say what the walk passed over: files and folders of other programs, images of
// other formats, folders that are not entered.
void conv_run_inputs_report_passed(const struct conv_walk *walk, struct conv_report *report);

// Opens the sink for the outputs of the walk, last before the first image: it creates the output
// folder, and the run's own files, whose identities are kept in `own_files`, were opened before, so
// that no output replaces one. `output` NULL: next to or in the inputs. `journal` may be NULL.
enum conv_status conv_run_inputs_open_sink(struct conv_sink **sink,
                                           const struct conv_options *options,
                                           struct conv_selection *selection, const char *output,
                                           struct conv_journal *journal,
                                           struct conv_paths_id own_files[CONV_OWN_FILES_MOST],
                                           const atomic_int *stop, struct conv_err *err);

// The exit code, from what the images did. After a signal the report says so; with counts_rest the
// images that are left are counted, for 0.1 s at most. If there was no image, and the run has not
// `failed`, says so on stderr, and which other files were found instead.
int conv_run_inputs_exit_code(const struct conv_options *options, struct conv_selection *selection,
                              struct conv_report *report, int stop, bool failed, bool counts_rest);

#endif
