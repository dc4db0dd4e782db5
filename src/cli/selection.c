// SPDX-License-Identifier: MIT
#include "cli/run_inputs.h"

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
