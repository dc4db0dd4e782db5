// SPDX-License-Identifier: MIT
// From operands to the images of a run and the places of their results: the operands, the files
// that the run itself writes, the selection of images, and all of it together.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "cli/options.h"
#include "io/files/paths.h"
#include "io/sink.h"
#include "io/walk/walk.h"
#include "run/workload.h"

// --- operands: places.c --------------------------------------------------------------------------

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

// Names with ranges of numbers, 'shards-{000000..000127}.tar', that no shell has expanded: the
// inputs after expansion.
struct conv_operand_ranges {
    char **names;
    int count;
    bool any; // at least one had a range
};

// Expands each name that has a range as bash does, unless there is a file of that name. Numbers
// have as many digits as the longer end of their range if it begins with 0. CONV_ERR_USAGE if there
// are more than a million, CONV_ERR_MEMORY. To be freed in any case.
enum conv_status conv_operand_ranges_expand(struct conv_operand_ranges *ranges,
                                            const char *const *names, int count,
                                            struct conv_err *err);
void conv_operand_ranges_free(struct conv_operand_ranges *ranges); // {0} is fine

// --- own files: own_files.c ----------------------------------------------------------------------

// The files that a run writes besides its outputs: --resume, --report, --trace, --html. None of
// them may be a file that the run reads, or the same file as another of them, under any name.

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

// --- the images: image_selection.c ---------------------------------------------------------------

// The images of a run, selected from the walk over its inputs: all of them, in the order of the
// file system or sorted, the first few, or a random sample; and their number. One thread at a time.

struct conv_selection {
    struct conv_walk_config config;
    struct conv_walk *walk;
    struct conv_source *source; // the walk's
    struct conv_report_total total;
    // A second walk that counts ahead of the run.
    struct conv_walk *counter;
    pthread_t thread;
    bool is_counting;
    atomic_bool ends;
};

// Opens the walk. Reads all names now if the options ask for an order or a sample, or if results
// appear in the folders that are walked; with `sorts` in any case, except for a list. Keeps the
// strings of *config, and the selection must not be moved. CONV_ERR_USAGE, CONV_ERR_MEMORY. To be
// closed also after a failure; {0} is fine.
enum conv_status conv_selection_open(struct conv_selection *selection,
                                     const struct conv_walk_config *config,
                                     const struct conv_options *options, bool sorts,
                                     struct conv_err *err);
void conv_selection_close(struct conv_selection *selection);

// Begins to count the images, for selection->total. If it cannot, the total stays unknown.
void conv_selection_count_ahead(struct conv_selection *selection);

// After a signal, when the run is over: counts the images that are left, for 0.1 s at most.
// `over`: the number of images that are not left; *known: false if there may be more.
uint64_t conv_selection_count_rest(struct conv_selection *selection, uint64_t over, bool *known);

// Decides for --shard whether archives are divided as a whole, and makes the plan of the run's
// shard: config->whole and config->plan, which is *plan, NULL without --shard. Lists all inputs if
// shards are balanced by size; ends early once *stop is non-zero. CONV_ERR_USAGE if --shard-of
// makes no sense, or inputs would have to be read twice and cannot. CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_selection_plan_shard(struct conv_shard_plan **plan,
                                           const struct conv_options *options,
                                           struct conv_walk_config *config, atomic_int *stop,
                                           struct conv_err *err);

// After the walk was opened: CONV_ERR_USAGE if an archive can be read only once, and the plan has
// to list its members; or if all tasks of --shard auto would write the same archive.
enum conv_status conv_selection_check_shard(const struct conv_input_options *inputs, bool whole,
                                            const char *output, struct conv_walk *walk,
                                            struct conv_err *err);

// To be called before the report is closed: reports the images of all shards together, as this run
// has listed them. If shards are divided by name, they are known only after the walk has ended.
// `plan` may be NULL.
void conv_selection_report_shard(const struct conv_input_options *inputs,
                                 const struct conv_shard_plan *plan, const struct conv_walk *walk,
                                 struct conv_report *report);

// True if the run had nothing to do only because no image is in its shard, which is then printed.
bool conv_selection_is_shard_empty(const struct conv_options *options,
                                   const struct conv_walk *walk);

// --- all of it: run_inputs.c ---------------------------------------------------------------------

struct conv_run_inputs {
    struct conv_shard_plan *plan; // of --shard, or NULL
    struct conv_selection selection;
    struct conv_operand_ranges ranges; // the input operands, expanded
    struct conv_places places;
    const char *advice;           // what continues the run after a signal; NULL: as the options say
    bool collects;                // all results of a layer go into one file, in a stable order
    uint64_t expected;            // lower bound on the images; 0: unknown
    enum conv_workload_kind work; // as far as it was measured
};

// Splits the operands into inputs and output, checks them against each other and against the files
// that the run itself writes, and opens the walk. `choice`: as which the work counts; NULL: it is
// not measured. CONV_ERR_USAGE if the operands make no sense. To be closed also after a failure.
enum conv_status conv_run_inputs_open(struct conv_run_inputs *inputs,
                                      const struct conv_options *options,
                                      const struct conv_workload_choice *choice, atomic_int *stop,
                                      struct conv_err *err);
void conv_run_inputs_close(struct conv_run_inputs *inputs); // {0} is fine

// With --skip-existing, --update or --resume, archives that are done are skipped as a whole.
// `journal` is that of --resume, else NULL. CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_run_inputs_skip(const struct conv_output_options *outputs,
                                      struct conv_selection *selection,
                                      struct conv_journal *journal, struct conv_err *err);

// Opens the sink for the outputs of the walk, last before the first image: it creates the output
// folder, and the run's own files, whose identities are kept in `own_files`, were opened before, so
// that no output replaces one. `output` NULL: next to or in the inputs. `journal` may be NULL.
enum conv_status conv_run_inputs_open_sink(struct conv_sink **sink,
                                           const struct conv_options *options,
                                           struct conv_selection *selection, const char *output,
                                           struct conv_journal *journal,
                                           struct conv_paths_id own_files[CONV_OWN_FILES_MOST],
                                           const atomic_int *stop, struct conv_err *err);

// When the run is over: has the report say what a signal left, what the walk passed over, and which
// images all shards have. If there was no image, and the run has not `failed`, says so on stderr,
// and which other files were found instead. Returns the exit code, from what the images did.
int conv_run_inputs_finish(struct conv_run_inputs *inputs, const struct conv_options *options,
                           struct conv_report *report, int stop, bool failed);
