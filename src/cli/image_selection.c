// SPDX-License-Identifier: MIT
// Which images of the inputs are processed, how many they are, and the part that a shard takes.
#include "cli/run_inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "io/files/paths.h"

// Time to count the remaining images after a signal; a name takes about a microsecond.
#define COUNT_NS 100000000u

// With fewer descriptors than this the run needs all of them for itself.
#define LEAST_DESCRIPTORS 256

static void set_total(struct conv_selection *selection, uint64_t images)
{
    atomic_store(&selection->total.images, images);
    atomic_store(&selection->total.is_complete, true);
}

// True if all names are read before the first image.
static bool reads_ahead(const struct conv_options *options, bool sorts)
{
    if (options->inputs.watch) // has no end
        return false;
    if (options->inputs.files_from) // its order is the user's
        return options->inputs.sample > 0;
    // If results appear in a folder that is being listed, the listing may include some of them.
    return sorts || options->inputs.sample > 0 || options->inputs.limit > 0 ||
           options->outputs.dry_run || options->report.verbose || options->outputs.beside;
}

enum conv_status conv_selection_open(struct conv_selection *selection,
                                     const struct conv_walk_config *config,
                                     const struct conv_options *options, bool sorts,
                                     struct conv_err *err)
{
    *selection = (struct conv_selection){.config = *config};
    selection->config.limit = options->inputs.limit;
    enum conv_status status = conv_walk_open(&selection->walk, &selection->config, err);
    if (status)
        return status;
    selection->source = conv_walk_source(selection->walk);
    // Members of archives keep their order, and could not be read later by their names alone.
    if (!conv_walk_reads_archives(selection->walk) && reads_ahead(options, sorts)) {
        struct conv_walk_order order = {
            .keeps_order = options->inputs.files_from,
            .sample = options->inputs.sample,
            .seed = options->inputs.seed,
            .stop = config->stop,
        };
        status = conv_walk_sort(selection->walk, &order, err);
        if (!status)
            set_total(selection, conv_walk_known(selection->walk, options->inputs.limit));
    } else if (!conv_walk_shape(selection->walk)->any_folder) {
        set_total(selection, (uint64_t)config->operands.input_count);
    }
    return status;
}

static void *count(void *data)
{
    struct conv_selection *selection = data;
    struct conv_source *source = conv_walk_source(selection->counter);
    struct conv_item item;
    struct conv_err err;
    while (!atomic_load(&selection->ends)) {
        enum conv_source_step step = conv_source_next(source, &item, &err);
        if (step == CONV_SOURCE_END)
            break;
        if (step != CONV_SOURCE_ITEM || !item.is_copy)
            atomic_fetch_add(&selection->total.images, 1);
    }
    if (!atomic_load(&selection->ends))
        atomic_store(&selection->total.is_complete, true);
    return NULL;
}

void conv_selection_count_ahead(struct conv_selection *selection)
{
    struct rlimit files;
    struct conv_err err;
    bool images, again = conv_walk_allows_another(selection->walk, &images) &&
                         !conv_walk_reads_archives(selection->walk);
    bool enough = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= LEAST_DESCRIPTORS;
    if (atomic_load(&selection->total.is_complete) || !enough || !again ||
        selection->config.watch || !conv_walk_is_repeatable(&selection->config) ||
        conv_walk_open(&selection->counter, &selection->config, &err))
        return;
    selection->is_counting = pthread_create(&selection->thread, NULL, count, selection) == 0;
}

static void end_counting(struct conv_selection *selection)
{
    atomic_store(&selection->ends, true);
    if (selection->is_counting)
        pthread_join(selection->thread, NULL);
    selection->is_counting = false;
    conv_walk_close(selection->counter);
    selection->counter = NULL;
}

uint64_t conv_selection_count_rest(struct conv_selection *selection, uint64_t over, bool *known)
{
    struct conv_item item = {0};
    struct conv_err err;
    uint64_t end = conv_clock_ns() + COUNT_NS;
    enum conv_source_step step = CONV_SOURCE_ITEM;
    end_counting(selection);
    *known = atomic_load(&selection->total.is_complete);
    uint64_t found = atomic_load(&selection->total.images);
    if (!*known) {
        while (step != CONV_SOURCE_END && !selection->config.operands.files_from &&
               conv_clock_ns() < end) {
            step = conv_source_next(selection->source, &item, &err);
            conv_item_release(&item);
        }
        uint64_t taken = conv_walk_count(selection->walk).items;
        found = taken > found ? taken : found;
        *known = step == CONV_SOURCE_END;
    }
    return found > over ? found - over : 0;
}

void conv_selection_close(struct conv_selection *selection)
{
    end_counting(selection);
    conv_walk_close(selection->walk);
}

// --- shards --------------------------------------------------------------------------------------

// Looks at all inputs but a pipe on standard input, which can be looked into only once.
static enum conv_status find_archives(struct conv_archive_operands *found,
                                      const struct conv_walk_config *config, atomic_int *stop,
                                      struct conv_err *err)
{
    struct conv_operands operands = config->operands;
    bool again = !conv_walk_plan_has_pipe(config);
    const char **inputs = calloc((size_t)operands.input_count + 1, sizeof *inputs);
    *found = (struct conv_archive_operands){.standard.fd = -1};
    if (!inputs)
        return conv_err_memory(err, "no memory for %d inputs", operands.input_count);
    int count = 0;
    for (int i = 0; i < operands.input_count; i++)
        if (again || !conv_paths_is_standard(operands.inputs[i]))
            inputs[count++] = operands.inputs[i];
    operands.inputs = inputs;
    operands.input_count = count;
    enum conv_status status =
        conv_archive_operands_open(found, &config->archives, &operands, stop, err);
    free(inputs);
    return status;
}

// Members of an archive that comes through a pipe cannot be listed before they are read.
static enum conv_status check_stream(const struct conv_input_options *inputs, bool whole,
                                     struct conv_err *err)
{
    if (whole || inputs->shard.by == CONV_SHARD_BY_NAME)
        return CONV_OK;
    return conv_err_usage(err,
                          "--shard balances the sizes of all members first, but an archive that "
                          "comes through a pipe can be read only once; use --shard-by name");
}

// *whole: archives are divided as a whole.
static enum conv_status divide(bool *whole, const struct conv_options *options,
                               const struct conv_walk_config *config, atomic_int *stop,
                               struct conv_err *err)
{
    struct conv_archive_operands found;
    const struct conv_operands *operands = &config->operands;
    if (operands->in_place)
        return CONV_OK;
    bool asked = conv_options_given(options, "shard-of");
    enum conv_status status = find_archives(&found, config, stop, err);
    int count = found.count;
    bool is_stream = found.has_stream;
    conv_archive_operands_close(&found);
    if (status)
        return status;
    *whole = asked ? options->inputs.shard_of == CONV_SHARD_OF_ARCHIVES
                   : operands->input_count > 1 || config->archives.several;
    if (asked && count == 0 && operands->input_count == 1 &&
        !conv_paths_is_standard(operands->inputs[0]))
        return conv_err_usage(err, "--shard-of is for archives; %s is not an archive",
                              operands->inputs[0]);
    return is_stream ? check_stream(&options->inputs, *whole, err) : CONV_OK;
}

// The plan of *config, with config->whole.
static enum conv_status make_plan(struct conv_shard_plan **plan,
                                  const struct conv_input_options *inputs,
                                  const struct conv_walk_config *config, const atomic_int *stop,
                                  struct conv_err *err)
{
    bool balanced = inputs->shard.by == CONV_SHARD_BY_BYTES;
    if (balanced && !conv_walk_is_repeatable(config))
        return conv_err_usage(err,
                              "--shard balances the sizes of all images first, but --files-from %s "
                              "can be read only once; use a file, or --shard-by name",
                              inputs->files_from);
    enum conv_status status = conv_shard_plan_open(plan, &inputs->shard, err);
    return status || !balanced ? status : conv_walk_plan_fill(*plan, config, stop, err);
}

enum conv_status conv_selection_plan_shard(struct conv_shard_plan **plan,
                                           const struct conv_options *options,
                                           struct conv_walk_config *config, atomic_int *stop,
                                           struct conv_err *err)
{
    if (!options->inputs.shard_text)
        return CONV_OK;
    enum conv_status status = divide(&config->whole, options, config, stop, err);
    if (!status)
        status = make_plan(plan, &options->inputs, config, stop, err);
    config->plan = *plan;
    return status;
}

enum conv_status conv_selection_check_shard(const struct conv_input_options *inputs, bool whole,
                                            const char *output, struct conv_walk *walk,
                                            struct conv_err *err)
{
    int count;
    bool images;
    const struct conv_archive_target *targets = conv_walk_targets(walk, &count);
    if (!inputs->shard_text)
        return CONV_OK;
    if (conv_walk_reads_archives(walk) && !conv_walk_allows_another(walk, &images) &&
        check_stream(inputs, whole, err))
        return err->status;
    if (count == 0 || conv_paths_is_standard(output))
        return CONV_OK;
    bool each = strcmp(targets[0].path, output) != 0;
    if (strcmp(inputs->shard_text, "auto") != 0 || inputs->shard.count == 1 ||
        inputs->shard_in_output || (each && whole))
        return CONV_OK;
    return conv_err_usage(err,
                          "%s would be one archive of all %d tasks; put {shard} into %s, which "
                          "stands for the number of the task",
                          targets[0].path, inputs->shard.count,
                          each ? "the name of the folder" : "its name");
}

void conv_selection_report_shard(const struct conv_input_options *inputs,
                                 const struct conv_shard_plan *plan, const struct conv_walk *walk,
                                 struct conv_report *report)
{
    struct conv_walk_count count = conv_walk_count(walk);
    struct conv_record_listing listing = {.images = count.listed};
    struct conv_digest digest = count.names;
    if (plan && inputs->shard.by == CONV_SHARD_BY_BYTES)
        conv_shard_plan_list(plan, &listing.images, &digest); // by which images were distributed
    else if (!plan || !count.is_complete)
        return;
    snprintf(listing.digest, sizeof listing.digest, "%016" PRIx64 "%016" PRIx64, digest.word[0],
             digest.word[1]);
    conv_report_totals(report)->listing = listing;
}

bool conv_selection_is_shard_empty(const struct conv_options *options, const struct conv_walk *walk)
{
    struct conv_walk_count count = conv_walk_count(walk);
    if (!options->inputs.shard_text || count.listed == 0)
        return false;
    if (!options->report.quiet)
        fprintf(stderr, "conv: shard %d/%d has none of the %" PRIu64 " %s%s\n",
                options->inputs.shard.index, options->inputs.shard.count, count.listed,
                count.are_archives ? "input" : "image", count.listed == 1 ? "" : "s");
    return true;
}
