// SPDX-License-Identifier: MIT
// conv bench kernels | layers | streams INPUT... | codec INPUT...: from options to bench/bench.h.
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_kernels.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/layer_command.h"
#include "cli/run.h"
#include "cli/run_inputs.h"
#include "cli/signals.h"

struct command {
    struct conv_options options; // as they take effect
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_device device;
    struct conv_page page;
    struct conv_bench_compare *compare; // of --compare, or NULL
    struct conv_bench_options bench;
};

// --- shared by all commands ----------------------------------------------------------------------

static void fill_common(struct command *command)
{
    const struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    int progress = options->report.progress;
    bench->choice = options;
    bench->filters = command->filters;
    bench->format = options->report.json ? CONV_BENCH_JSON
                    : options->bench.csv ? CONV_BENCH_CSV
                    : options->bench.svg ? CONV_BENCH_SVG
                                         : CONV_BENCH_TEXT;
    bench->page = &command->page;
    bench->device = &command->device;
    bench->show_progress =
        !options->report.quiet &&
        (progress == (int)CONV_ALWAYS || (progress == (int)CONV_AUTO && isatty(STDERR_FILENO)));
}

// The options of the commands that read a folder.
static void fill_folder(struct command *command)
{
    const struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    conv_places_fill_reading_walk(&options->inputs, &options->operands[1],
                                  options->operand_count - 1, &bench->walk);
    bench->mem_limit = conv_options_mem_limit(&options->machine, true);
    bench->group_bytes = conv_options_group_bytes(&options->machine, false);
}

static enum conv_status parse_chain(struct command *command, struct conv_err *err)
{
    return conv_commands_parse_chain(&command->options, command->options.bench.filter,
                                     command->filters, &command->bench.filter_count, err);
}

// --- kernels -------------------------------------------------------------------------------------

static enum conv_status find_variant(struct command *command, struct conv_err *err)
{
    const char *name = command->options.machine.variant;
    if (!name)
        return CONV_OK;
    command->bench.variant = conv_bench_kernels_find(name);
    if (command->bench.variant)
        return CONV_OK;
    int ordinal;
    const struct conv_device_ops *ops =
        conv_engine_parse(command->options.machine.backends, name, strcspn(name, "_"), &ordinal);
    enum conv_status status =
        ops && !ops->built
            ? conv_err_set(err, CONV_ERR_DEVICE, "%s: this conv was built without %s", name,
                           ops->title)
            : conv_err_usage(err, "%s: unknown variant (conv bench kernels lists them)", name);
    return conv_err_hint(err, CONV_HINT_VARIANT, 0, status);
}

// Where to measure. A GPU that cannot be used is an error only if it was requested. A variant that
// --device excludes, or whose GPU is missing, must not turn into a measurement of something else.
// `variant`: one was requested, which runs on CUDA devices if `on_cuda`.
static enum conv_status choose_places(struct command *command, bool variant, bool on_cuda,
                                      struct conv_err *err)
{
    struct conv_bench_options *bench = &command->bench;
    struct conv_device_list list;
    enum conv_status status = conv_device_parse_one(&command->options.machine, &list, err);
    if (status)
        return status;
    if (variant && list.choice == (on_cuda ? CONV_DEVICE_CPU : CONV_DEVICE_GPU))
        return conv_err_advise(
            err, CONV_ERR_USAGE, CONV_HINT_VARIANT, "%s cannot be combined with the device %.64s",
            command->options.machine.variant, command->options.machine.device_text);
    enum conv_device_choice choice = variant && !on_cuda ? CONV_DEVICE_CPU : list.choice;
    bench->ordinal = list.ordinals[0];
    bench->on_cpu = choice != CONV_DEVICE_GPU;
    if (choice == CONV_DEVICE_CPU)
        return CONV_OK;
    struct conv_device_info info[CONV_BACKEND_MOST_DEVICES];
    struct conv_err reason = {0};
    int count = 0;
    status = list.gpu->devices(info, CONV_BACKEND_MOST_DEVICES, &count, &reason);
    if (!status && (bench->ordinal >= count || bench->ordinal >= CONV_BACKEND_MOST_DEVICES))
        status = conv_err_set(&reason, CONV_ERR_DEVICE, "no %s device %d", list.gpu->title,
                              bench->ordinal);
    if (!status)
        status = list.gpu->read_memory(&info[bench->ordinal], bench->ordinal, &reason);
    bench->on_cuda = !status;
    if (!status)
        bench->gpu = info[bench->ordinal];
    if (status && (choice == CONV_DEVICE_GPU || variant))
        return conv_err_set(err, status, "%s", reason.text);
    if (status && !command->options.report.quiet)
        conv_report_say("%s; measuring the CPU alone", reason.text);
    return CONV_OK;
}

static enum conv_status bench_kernels(struct command *command, struct conv_err *err)
{
    const struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    enum conv_status status = find_variant(command, err);
    if (!status)
        status = parse_chain(command, err);
    struct conv_own_files_use use = {options->bench.filter, &options->bench.compare_path,
                                     options->bench.compare_path != NULL, NULL};
    if (!status)
        status = conv_own_files_check(options, &use, err);
    if (!status && options->bench.compare_path)
        status = conv_bench_compare_open(&command->compare, options->bench.compare_path, err);
    if (!status)
        status = choose_places(command, bench->variant,
                               bench->variant && bench->variant->place == CONV_ON_CUDA, err);
    if (!status)
        status = conv_run_report_open_page(&command->page, &options->report, err);
    if (status)
        return status;
    bench->depth = 8 << options->bench.depth;
    bench->compare = command->compare;
    return conv_bench_kernels(bench, err);
}

// --- layers --------------------------------------------------------------------------------------

static enum conv_status find_layer_variant(struct command *command, struct conv_err *err)
{
    const char *name = command->options.machine.variant;
    command->bench.layer_chosen = name && strcmp(name, "auto") == 0;
    if (!name || command->bench.layer_chosen)
        return CONV_OK;
    command->bench.layer_variant = conv_bench_layers_find(name);
    if (command->bench.layer_variant)
        return CONV_OK;
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_VARIANT,
                           "%s: unknown variant (conv bench layers lists them)", name);
}

static enum conv_status bench_layers(struct command *command, struct conv_err *err)
{
    const struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    const struct conv_layer_variant *variant;
    if ((options->report.html_path || options->bench.svg) && !options->bench.layer.batch)
        return conv_err_usage(err, "--%s needs one batch: --shape BATCHxCHANNELSxHEIGHTxWIDTH",
                              options->bench.svg ? "svg" : "html");
    enum conv_status status = find_layer_variant(command, err);
    if (!status)
        status = conv_layer_setup_geometry(&bench->geometry, options, err);
    variant = bench->layer_variant;
    struct conv_own_files_use use = {.filters = ""};
    if (!status)
        status = conv_own_files_check(options, &use, err);
    if (!status)
        status = choose_places(command, variant, variant && variant->place == CONV_ON_CUDA, err);
    if (!status)
        status = conv_run_report_open_page(&command->page, &options->report, err);
    if (status)
        return status;
    bench->jobs = options->machine.jobs_given ? options->machine.jobs : 1;
    if (options->bench.network)
        return conv_bench_networks(bench, err);
    bench->any_precision = !conv_options_given(options, "precision");
    return conv_bench_layers(bench, err);
}

// --- streams -------------------------------------------------------------------------------------

static enum conv_status run_images(void *context, int jobs, int streams, struct conv_source *source,
                                   struct conv_report *report, struct conv_trace *trace,
                                   struct conv_err *err)
{
    struct command *command = context;
    command->options.machine.jobs = jobs;
    command->options.machine.streams = streams;
    return conv_run_images(&command->options, &command->device, source, NULL, 0, report, trace,
                           command->bench.stop, err);
}

static enum conv_status bench_streams(struct command *command, struct conv_err *err)
{
    struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    bench->stop = conv_signals_install();
    bench->stall = conv_signals_stall();
    conv_signals_begin_work();
    conv_stall_begin(bench->stall); // a filter may be read from a pipe
    options->outputs.no_save = options->inputs.first_frame = true;
    // Streams are compared, so the coders stay the same, even if another one would be faster.
    if (options->machine.decode_on == CONV_CODER_AUTO)
        options->machine.decode_on = CONV_CODER_CPU;
    if (options->machine.encode_on == CONV_CODER_AUTO)
        options->machine.encode_on = CONV_CODER_CPU;
    if (options->operand_count < 2)
        return conv_err_usage(err, "conv bench streams takes images, folders or archives");
    for (int i = 1; i < options->operand_count; i++)
        if (conv_paths_is_standard(options->operands[i]))
            return conv_err_usage(err, "conv bench streams reads its images several times: "
                                       "standard input cannot be one of them");
    struct conv_own_files_use use = {options->bench.filter, &options->operands[1],
                                     options->operand_count - 1, NULL};
    enum conv_status status = conv_own_files_check(options, &use, err);
    if (!status)
        status = parse_chain(command, err);
    if (!status)
        status = conv_device_open(&command->device, options, command->filters, bench->filter_count,
                                  false, CONV_WORKLOAD_LARGE, bench->stop, err);
    if (!status)
        status = conv_run_report_open_page(&command->page, &options->report, err);
    if (status)
        return status;
    if (!command->device.ops->async && !options->machine.device_text && !options->report.quiet)
        conv_report_say("no GPU is used: comparing workers of the CPU instead of streams");
    fill_folder(command);
    bench->jobs = options->machine.jobs;
    bench->usual_streams =
        conv_options_streams(&options->machine, command->device.decode_on != CONV_CODER_CPU);
    bench->run = run_images;
    bench->run_context = command;
    bench->explain = conv_errors_explain;
    return conv_bench_streams(bench, err);
}

// --- codec ---------------------------------------------------------------------------------------

static enum conv_status bench_codec(struct command *command, struct conv_err *err)
{
    static const struct conv_filter identity = {.width = 1, .height = 1, .scale = 1, .coef = {1}};
    const struct conv_options *options = &command->options;
    struct conv_bench_options *bench = &command->bench;
    struct conv_device_list list;
    if (options->operand_count < 2)
        return conv_err_usage(err, "conv bench codec takes PNGs, folders or archives");
    enum conv_status status = conv_device_parse_one(&options->machine, &list, err);
    bench->on_device = !status && list.choice == CONV_DEVICE_GPU;
    if (!status && bench->on_device)
        status = conv_device_open(&command->device, options, &identity, 1, false,
                                  CONV_WORKLOAD_LARGE, NULL, err);
    if (!status && !bench->on_device && options->machine.jobs_given)
        status = parse_chain(command, err);
    if (status)
        return status;
    fill_folder(command);
    bench->jobs = options->machine.jobs_given ? options->machine.jobs : 0;
    return conv_bench_codec(bench, err);
}

// -------------------------------------------------------------------------------------------------

int conv_bench_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    enum conv_status status;
    struct command *command = calloc(1, sizeof *command);
    if (!command) {
        conv_err_memory(&err, "no memory for the benchmark");
        return conv_errors_fail(&err);
    }
    command->options = *options;
    fill_common(command);
    conv_commands_say_note(&options->report);
    bool kernels = options->command == CONV_COMMAND_BENCH_KERNELS;
    bool layers = options->command == CONV_COMMAND_BENCH_LAYERS;
    if ((kernels || layers) && options->operand_count != 1)
        status = conv_err_usage(&err, "conv bench %s takes no operands, but '%s' was given",
                                kernels ? "kernels" : "layers", options->operands[1]);
    else if (kernels)
        status = bench_kernels(command, &err);
    else if (layers)
        status = bench_layers(command, &err);
    else if (options->command == CONV_COMMAND_BENCH_STREAMS)
        status = bench_streams(command, &err);
    else if (options->command == CONV_COMMAND_BENCH_CODEC)
        status = bench_codec(command, &err);
    else
        status = conv_err_usage(
            &err, "conv bench takes: kernels | layers | streams INPUT... | codec INPUT...");
    conv_bench_compare_close(command->compare);
    conv_page_close(&command->page);
    conv_device_close(&command->device);
    int signal = command->bench.stop ? atomic_load(command->bench.stop) : 0;
    free(command);
    int code = status && signal <= 0 ? conv_errors_fail(&err) : conv_errors_flush();
    return signal > 0 ? CONV_EXIT_SIGNAL + signal : code;
}
