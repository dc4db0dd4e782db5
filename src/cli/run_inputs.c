// SPDX-License-Identifier: MIT
#include "cli/run_inputs.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/signals.h"
#include "io/files/formats.h"
#include "io/files/paths.h"
#include "report/json.h"

// Of a first image that is read before it is filtered, to see whether others follow: a share of the
// memory limit, as for members of archives, and at most some bytes.
#define AHEAD_SHARE 4
#define AHEAD_MOST ((size_t)256 << 20)

static bool is_standard(const char *path)
{
    return path && conv_paths_is_standard(path);
}

// Refuses a terminal as the output or an input.
static enum conv_status check_terminal(const struct conv_output_options *outputs,
                                       const char *const *inputs, int count, struct conv_err *err)
{
    for (int i = 0; i < count && !outputs->dry_run; i++)
        if (is_standard(inputs[i]) && isatty(STDIN_FILENO))
            return conv_err_usage(err, "an image is not read from a terminal; redirect standard "
                                       "input, or name an input file");
    return CONV_OK;
}

// With --batch and --watch all inputs are folders.
static enum conv_status check_batch(const struct conv_input_options *selected,
                                    const char *const *inputs, int count, struct conv_err *err)
{
    for (int i = 0; i < count && selected->watch; i++)
        if (!conv_paths_is_folder(inputs[i]))
            return conv_err_usage(err, "--watch takes folders; %s is %s", inputs[i],
                                  conv_paths_exists(inputs[i]) ? "a file" : "not there");
    for (int i = 0; i < count && selected->batch; i++)
        if (!conv_paths_is_folder(inputs[i]))
            return conv_err_usage(err, "--batch takes folders; %s is %s", inputs[i],
                                  conv_paths_exists(inputs[i]) ? "a file: omit --batch"
                                                               : "not there");
    return CONV_OK;
}

// The name of a single output determines its format, to which other options have to fit.
static enum conv_status check_format(const struct conv_options *options, const char *output,
                                     struct conv_err *err)
{
    const struct conv_format *format = conv_formats_of_name(output);
    char what[PATH_MAX + 16];
    if (!format || options->outputs.to)
        return CONV_OK;
    snprintf(what, sizeof what, "the output %s", output);
    return conv_options_check_format(options, format, what, err);
}

static void measure_work(struct conv_run_inputs *inputs, const struct conv_options *options,
                         const struct conv_walk_config *config,
                         const struct conv_workload_choice *choice)
{
    struct conv_walk_config again = *config;
    struct conv_workload workload;
    struct conv_walk *walk;
    struct conv_err err;
    bool images;
    again.limit = options->inputs.limit ? options->inputs.limit : options->inputs.sample;
    again.archives.enabled = conv_walk_allows_another(inputs->selection.walk, &images);
    if (!images || !conv_walk_is_repeatable(&again) || conv_walk_open(&walk, &again, &err))
        return;
    conv_workload_measure(&workload, conv_walk_source(walk), choice);
    conv_walk_close(walk);
    if (!options->outputs.skip_existing && !options->outputs.update &&
        !options->outputs.resume_path)
        inputs->expected = workload.images; // each will be processed
    inputs->work = workload.kind;
}

enum conv_status conv_run_inputs_skip(const struct conv_output_options *outputs,
                                      struct conv_selection *selection,
                                      struct conv_journal *journal, struct conv_err *err)
{
    bool asked = outputs->skip_existing || outputs->update || outputs->resume_path;
    if (!asked || conv_walk_shape(selection->walk)->sink != CONV_SINK_ARCHIVE)
        return CONV_OK;
    enum conv_archive_done which = outputs->skip_existing ? CONV_ARCHIVE_EXISTS
                                   : outputs->update      ? CONV_ARCHIVE_IS_NEWER
                                                          : CONV_ARCHIVE_IS_NOTED;
    return conv_walk_skip(selection->walk, which, journal, err);
}

// True if --format may state the format of an input: standard input or a pipe.
static bool reads_stream(const struct conv_places *places)
{
    struct stat info;
    for (int i = 0; i < places->input_count; i++)
        if (is_standard(places->inputs[i]) || (stat(places->inputs[i], &info) == 0 &&
                                               !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
            return true;
    return false;
}

// --format must have an effect, and must not contradict the name of an output archive.
static enum conv_status check_format_text(const struct conv_output_options *outputs,
                                          const struct conv_places *places, struct conv_walk *walk,
                                          struct conv_err *err)
{
    const char *text = outputs->format_text;
    if (!text)
        return CONV_OK;
    bool to_archive = conv_walk_shape(walk)->sink == CONV_SINK_ARCHIVE;
    bool files = strcmp(text, "files") == 0;
    if (!conv_walk_reads_archives(walk) && (files || !to_archive))
        return conv_err_usage(err, "--format %s: no input is an archive%s", text,
                              files ? "" : ", nor is the output; --to says the format of images");
    int count = 0;
    const struct conv_archive_target *targets = to_archive ? conv_walk_targets(walk, &count) : NULL;
    for (int i = 0; i < count; i++) {
        const struct conv_archive_format *named = conv_archive_of_path(targets[i].path);
        if (named && (files || (named != conv_archive_of_name(text) && !reads_stream(places))))
            return conv_err_usage(err, "--format %s contradicts the name of the output, %s", text,
                                  targets[i].path);
    }
    return CONV_OK;
}

// Checks that concern archives as outputs only.
static enum conv_status check_archives(const struct conv_options *options, const char *output,
                                       const struct conv_walk *walk, struct conv_err *err)
{
    const struct conv_output_options *outputs = &options->outputs;
    bool writes = conv_walk_shape(walk)->sink == CONV_SINK_ARCHIVE;
    bool reads = conv_walk_reads_archives(walk);
    if (options->command == CONV_COMMAND_LAYER && writes)
        return conv_err_usage(err,
                              "results are .npy files, not members of an archive: name a folder, "
                              "or a .npy file for all, instead of %s",
                              output);
    const struct {
        bool applies;
        const char *text;
    } refusals[] = {
        {reads && options->inputs.sample > 0, "--sample is for files, not for members of archives"},
        {reads && outputs->beside, "--beside is for files, not for members of archives"},
        {writes && outputs->backup, "--backup is for files, not for an archive"},
        {writes && outputs->preserve, "--preserve is for files, not for an archive: members of "
                                      "another one keep mode and time anyway"},
        {!writes && outputs->on_error == CONV_ON_ERROR_COPY,
         "--on-error copy is for archives as outputs; the others are files"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (refusals[i].applies)
            return conv_err_usage(err, "%s", refusals[i].text);
    return CONV_OK;
}

static enum conv_status parse_format(struct conv_archive_settings *archives,
                                     const struct conv_options *options, struct conv_err *err)
{
    const char *text = options->outputs.format_text;
    bool layer = options->command == CONV_COMMAND_LAYER;
    bool copies = options->outputs.on_error == CONV_ON_ERROR_COPY; // what is too large as well
    size_t ahead = conv_options_mem_limit(&options->machine, false) / AHEAD_SHARE;
    *archives = (struct conv_archive_settings){
        .enabled = true,
        .images_only = options->outputs.images_only || layer,
        .first_frame = options->inputs.first_frame,
        .most_ahead = ahead < AHEAD_MOST ? ahead : AHEAD_MOST,
        .max_pixels = copies ? 0 : options->inputs.max_pixels,
        .as_files = layer || (text && strcmp(text, "files") == 0),
    };
    if (!text || archives->as_files)
        return CONV_OK;
    archives->format = conv_archive_of_name(text);
    return archives->format
               ? CONV_OK
               : conv_err_usage(
                     err,
                     "--format %s: no such format of archives (tar, zip, tar.gz, tar.zst, tar.xz, "
                     "tar.bz2, 7z or files); --to says the format of images",
                     text);
}

static enum conv_status check_operands(const struct conv_options *options,
                                       const struct conv_places *places, struct conv_err *err)
{
    int least = options->inputs.files_from ? 0 : 1;
    const char *filter = options->operands[0];
    if (places->input_count >= least)
        return CONV_OK;
    if (!places->last_is_output)
        return conv_err_usage(err, "the input is missing: conv %s %s INPUT...", filter,
                              options->outputs.in_place ? "--in-place"
                              : options->outputs.beside ? "--beside --suffix TEXT"
                                                        : "--output FOLDER");
    return conv_err_usage(err, "%s missing: conv %s %sOUTPUT (see conv -h)",
                          places->output ? "the output is" : "input and output are", filter,
                          options->inputs.files_from ? "[INPUT] " : "INPUT... ");
}

// Checks what can be checked before anything is opened. Fills in the places.
static enum conv_status check_places(struct conv_run_inputs *inputs,
                                     const struct conv_options *options, struct conv_err *err)
{
    struct conv_places *places = &inputs->places;
    bool layer = options->command == CONV_COMMAND_LAYER; // which has checked the operands
    conv_places_split(places, options);
    enum conv_status status = layer ? CONV_OK : check_operands(options, places, err);
    if (!status)
        status =
            conv_operand_ranges_expand(&inputs->ranges, places->inputs, places->input_count, err);
    if (status)
        return status;
    places->inputs = (const char *const *)inputs->ranges.names;
    places->input_count = inputs->ranges.count;
    struct conv_own_files_use use = {options->operands[0], places->inputs, places->input_count,
                                     places->output};
    status = conv_own_files_check(options, &use, err);
    if (!status)
        status =
            conv_places_check_standard(options, places->output, layer ? "tensor" : "image", err);
    if (!status)
        status = check_terminal(&options->outputs, places->inputs, places->input_count, err);
    return status ? status
                  : check_batch(&options->inputs, places->inputs, places->input_count, err);
}

// The results of a layer for several images go into one file if that is what the output names.
static enum conv_status check_collected(struct conv_run_inputs *inputs,
                                        const struct conv_options *options, struct conv_err *err)
{
    const struct conv_places *places = &inputs->places;
    const char *output = places->output, *end = output ? strrchr(output, '.') : NULL;
    bool any = options->inputs.files_from || places->input_count > 1;
    for (int i = 0; i < places->input_count; i++)
        any = any || conv_paths_is_folder(places->inputs[i]) ||
              conv_archive_of_path(places->inputs[i]);
    inputs->collects = options->command == CONV_COMMAND_LAYER && any && end && end > output &&
                       strcmp(end, ".npy") == 0;
    if (inputs->collects && conv_paths_is_folder(output))
        return conv_err_usage(err, "the output %s is a folder", output);
    if (inputs->collects && (options->outputs.update || options->outputs.resume_path))
        return conv_err_usage(err, "--%s compares files; %s is one file for all images",
                              options->outputs.update ? "update" : "resume", output);
    return CONV_OK;
}

static enum conv_status check_suffix(const struct conv_output_options *outputs,
                                     const struct conv_operands_shape *shape, struct conv_err *err)
{
    bool folder = shape->sink == CONV_SINK_FOLDER || shape->sink == CONV_SINK_NONE;
    if (!outputs->suffix || folder)
        return CONV_OK;
    return conv_err_usage(
        err, "--suffix is for results in a folder or with --beside; the output has a name already");
}

// On a terminal: an image or archive that the last operand names may be an input whose output was
// forgotten.
static enum conv_status ask(const struct conv_run_inputs *inputs,
                            const struct conv_options *options, atomic_int *stop,
                            struct conv_err *err)
{
    const struct conv_output_options *outputs = &options->outputs;
    const char *output = inputs->places.output;
    char answer[64];
    bool is_known = output && (conv_formats_of_name(output) || conv_archive_of_path(output));
    if (!inputs->places.existing.inode || !is_known || outputs->force || outputs->backup ||
        outputs->skip_existing || outputs->update || outputs->resume_path || outputs->dry_run ||
        outputs->no_save || options->report.quiet || !isatty(STDIN_FILENO) ||
        !isatty(STDERR_FILENO))
        return CONV_OK;
    fputs("conv: replace ", stderr);
    conv_text_terminal(stderr, output);
    fputs("? [y/N] ", stderr);
    bool waited = conv_paths_wait_readable(STDIN_FILENO, stop);
    ssize_t got = waited ? read(STDIN_FILENO, answer, sizeof answer) : 0;
    return got > 0 && (answer[0] == 'y' || answer[0] == 'Y')
               ? CONV_OK
               : conv_err_set(err, CONV_ERR_CANCELLED, "%s stays as it is", output);
}

// An output folder below the input is not walked. What is in it may be originals as well as
// results, or results of other shards.
static enum conv_status check_below(const struct conv_operands_shape *shape, const char *output,
                                    const struct conv_options *options, struct conv_err *err)
{
    const struct conv_output_options *outputs = &options->outputs;
    if (!shape->below[0] || shape->sink != CONV_SINK_FOLDER || outputs->force || outputs->backup ||
        outputs->skip_existing || outputs->update || outputs->resume_path || outputs->dry_run ||
        outputs->no_save || options->inputs.shard_text)
        return CONV_OK;
    DIR *dir = opendir(output);
    int entries = 0;
    while (dir && entries <= 2 && readdir(dir)) // two are "." and ".."
        entries++;
    if (dir)
        closedir(dir);
    return entries <= 2 ? CONV_OK
                        : conv_err_usage(err,
                                         "%s lies inside the input and is not empty: its images "
                                         "are not filtered, and may be replaced (--force allows "
                                         "that; --skip-existing, --update and --backup keep them)",
                                         output);
}

// Checks that depend on what the walk has found.
static enum conv_status check_walk(struct conv_run_inputs *inputs,
                                   const struct conv_options *options, bool whole, atomic_int *stop,
                                   struct conv_err *err)
{
    struct conv_walk *walk = inputs->selection.walk;
    const struct conv_operands_shape *shape = conv_walk_shape(walk);
    const char *output = inputs->places.output;
    enum conv_status status = check_suffix(&options->outputs, shape, err);
    if (!status && shape->sink == CONV_SINK_FILE)
        status = check_format(options, output, err);
    if (!status && (shape->sink == CONV_SINK_FILE || shape->sink == CONV_SINK_ARCHIVE))
        status = ask(inputs, options, stop, err);
    if (!status)
        status = check_below(shape, output, options, err);
    if (!status)
        status = check_archives(options, output, walk, err);
    if (!status)
        status = check_format_text(&options->outputs, &inputs->places, walk, err);
    return status ? status : conv_selection_check_shard(&options->inputs, whole, output, walk, err);
}

enum conv_status conv_run_inputs_open(struct conv_run_inputs *inputs,
                                      const struct conv_options *options,
                                      const struct conv_workload_choice *choice, atomic_int *stop,
                                      struct conv_err *err)
{
    struct conv_walk_config config;
    *inputs = (struct conv_run_inputs){.work = CONV_WORKLOAD_UNKNOWN};
    enum conv_status status = check_places(inputs, options, err);
    if (!status)
        status = check_collected(inputs, options, err);
    if (status)
        return status;
    conv_places_fill_walk(&inputs->places, options, &config);
    config.operands.npy =
        options->command == CONV_COMMAND_LAYER || options->outputs.type == CONV_OUTPUT_F32;
    config.operands.format = options->outputs.to;
    if (inputs->collects)
        config.operands.output = NULL;
    config.stop = stop;
    status = parse_format(&config.archives, options, err);
    config.archives.several = inputs->ranges.any;
    if (!status)
        status = conv_selection_plan_shard(&inputs->plan, options, &config, stop, err);
    struct conv_walk_config watching = config;
    watching.watch = options->inputs.watch;
    if (!status)
        status = conv_selection_open(&inputs->selection, &watching, options, inputs->collects, err);
    if (!status)
        status = check_walk(inputs, options, config.whole, stop, err);
    if (!status && choice)
        measure_work(inputs, options, &config, choice);
    if (options->inputs.watch)
        inputs->expected = 0;
    return status;
}

void conv_run_inputs_close(struct conv_run_inputs *inputs)
{
    conv_selection_close(&inputs->selection);
    conv_operand_ranges_free(&inputs->ranges);
    conv_shard_plan_close(inputs->plan);
}

static void print_none(const struct conv_options *options, const struct conv_walk_passed *passed)
{
    struct conv_places places;
    conv_places_split(&places, options);
    if (options->inputs.files_from) {
        bool standard = is_standard(options->inputs.files_from);
        fputs("conv: the list ", stderr);
        conv_text_terminal(stderr, standard ? "on standard input" : options->inputs.files_from);
        fputs(" is empty\n", stderr);
        return;
    }
    fprintf(stderr, "conv: no %s", conv_formats_read);
    const char *lead = " in ";
    for (int i = 0; i < places.input_count; i++, lead = ", ") {
        fputs(lead, stderr);
        conv_text_terminal(stderr, places.inputs[i]);
    }
    if (options->inputs.include.count)
        fprintf(stderr, " matches --include%s",
                options->inputs.exclude.count ? " but not --exclude" : "");
    else if (options->inputs.exclude.count)
        fputs(" passes --exclude", stderr);
    if (passed->ignored)
        fprintf(stderr, " (%" PRIu64 " ignored: ._*, .thumb* or @eaDir; --no-ignore takes them)",
                passed->ignored);
    if (passed->folders)
        fprintf(stderr, " (%" PRIu64 " %s not entered; --recursive does)", passed->folders,
                passed->folders == 1 ? "folder was" : "folders were");
    if (passed->others) {
        fprintf(stderr, " (%" PRIu64 " other %s, e.g. ", passed->others,
                passed->others == 1 ? "file" : "files");
        conv_text_terminal(stderr, passed->other);
        const char *format = conv_format_of_name(passed->other);
        if (format && !conv_formats_of_name(passed->other))
            fprintf(stderr, "; %s converts %s", conv_formats_converter(format), format);
        fputc(')', stderr);
    }
    fputc('\n', stderr);
}

// What the walk passed over: files and folders of other programs, images of other formats, folders
// that are not entered.
static void report_passed(const struct conv_walk_passed *of, struct conv_record_passed *passed)
{
    *passed = (struct conv_record_passed){
        .ignored = of->ignored, .images = of->images, .folders = of->folders};
    for (int i = 0; i < of->format_count; i++)
        conv_text_add(passed->formats, sizeof passed->formats, ", ", "%s", of->formats[i]);
}

static void count_rest(const struct conv_output_options *outputs, const char *advice,
                       struct conv_selection *selection, const struct conv_totals *totals,
                       struct conv_report_rest *rest)
{
    uint64_t over = totals->done + totals->failed + totals->skipped + totals->planned;
    bool resumes = outputs->skip_existing || outputs->update || outputs->resume_path;
    rest->images = conv_selection_count_rest(selection, over, &rest->known);
    int archives = 0;
    (void)conv_walk_targets(selection->walk, &archives);
    rest->advice = archives > 1    ? "complete archives stay; --skip-existing continues"
                   : archives == 1 ? "an archive that is not complete is not kept"
                   : rest->known && rest->images == 0        ? NULL
                   : rest->known && rest->images + over == 1 ? NULL // one image: begun anew
                   : resumes                                 ? "the same command continues"
                   : advice                                  ? advice
                   : outputs->in_place || outputs->no_save   ? NULL
                                                             : "--skip-existing continues";
}

int conv_run_inputs_finish(struct conv_run_inputs *inputs, const struct conv_options *options,
                           struct conv_report *report, int stop, bool failed)
{
    struct conv_selection *selection = &inputs->selection;
    struct conv_totals *totals = conv_report_totals(report);
    struct conv_report_rest rest = {0};
    int code = conv_errors_exit_code(totals, stop);
    if (options->inputs.watch && (stop > 0 || code == CONV_EXIT_NOTHING)) {
        // A watch is always ended by a signal.
        code = totals->failed ? CONV_EXIT_SOME_FAILED : CONV_EXIT_OK;
    } else if (stop > 0) {
        if (!inputs->collects) // nothing was written
            count_rest(&options->outputs, inputs->advice, selection, totals, &rest);
        conv_report_interrupted(report, &rest);
    } else if (code == CONV_EXIT_NOTHING && !failed) {
        conv_stall_begin(conv_signals_stall());
        if (conv_selection_is_shard_empty(options, selection->walk))
            code = CONV_EXIT_OK;
        else
            print_none(options, conv_walk_count(selection->walk).passed);
        conv_stall_end(conv_signals_stall());
    }
    report_passed(conv_walk_count(selection->walk).passed, &totals->passed);
    conv_selection_report_shard(&options->inputs, inputs->plan, selection->walk, report);
    return code;
}

enum conv_status conv_run_inputs_open_sink(struct conv_sink **sink,
                                           const struct conv_options *options,
                                           struct conv_selection *selection, const char *output,
                                           struct conv_journal *journal,
                                           struct conv_paths_id own_files[CONV_OWN_FILES_MOST],
                                           const atomic_int *stop, struct conv_err *err)
{
    bool is_image = false, writes = !options->outputs.dry_run && !options->outputs.no_save;
    struct conv_sink_config config = {
        .writes = writes,
        .path = output ? output : "", // next to the inputs: outputs have their paths
        .workers = options->machine.jobs,
        .preserve = options->outputs.preserve,
        .force = options->outputs.force,
        .backup = options->outputs.backup,
        .fsync = options->outputs.fsync,
        .journal = journal,
        .own_files = own_files,
        .own_file_count = conv_own_files_find(own_files, options),
        .stop = stop,
        .copies = options->outputs.on_error == CONV_ON_ERROR_COPY,
        .is_partial =
            options->outputs.images_only || options->inputs.limit > 0 || options->inputs.shard_text,
        .is_endless = options->inputs.watch,
    };
    conv_walk_describe_outputs(selection->walk, &config);
    enum conv_status status = conv_sink_open(sink, &config, err);
    conv_signals_watch(*sink);
    if (!status && writes && config.kind == CONV_SINK_FOLDER && output &&
        !conv_paths_is_folder(output)) {
        is_image = options->inputs.watch; // sooner or later
        if (!is_image)
            status = conv_walk_peek(selection->walk, &is_image, err);
    }
    return is_image ? conv_paths_make_folder(output, err) : status;
}
