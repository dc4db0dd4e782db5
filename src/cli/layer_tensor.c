// SPDX-License-Identifier: MIT
// conv layer WEIGHTS INPUT.npy OUTPUT.npy: streamed, in constant memory.
#include "cli/layer_command.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/standard.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "cli/run_inputs.h"
#include "cli/signals.h"
#include "engine/operation.h"
#include "io/files/paths.h"
#include "report/report.h"
#include "report/terminal.h"
#include "tensor/element.h"

struct tensor_run {
    const struct conv_options *options;
    const char *input, *output;
    const struct conv_layer_setup *setup;
    enum conv_element element; // of the operation's input
    struct conv_tensor_reader reader;
    struct conv_tensor_writer writer;
    struct conv_layer_shapes shapes;
    struct conv_layer_target target;
    struct conv_operation operation;
    size_t in_elements, out_bytes; // of one image
    bool converts;                 // to float32, from anything but float32 and 8 bits
    float divisor;                 // of integers
    const char *kernel;            // of a layer, or the name of the bank
    struct conv_operation_flow_use use;
    char device[32];
    struct conv_run_report report;
    struct conv_trace_track **tracks; // of the workers
    atomic_uint_fast64_t ns[CONV_STAGE_COUNT];
    struct conv_progress progress;
    struct conv_report_total total; // images of the tensor
    struct conv_totals done;        // so far, for `progress`
};

// --- which files may be read and written ---------------------------------------------------------

// True if `path` is the same regular file as the output.
static bool would_overwrite(const char *output, const char *path)
{
    struct conv_paths_identity in, out;
    return conv_paths_identify(&in, path) && in.exists && S_ISREG(in.info.st_mode) &&
           conv_paths_identify(&out, output) && conv_paths_is_same(&in, &out);
}

// CONV_ERR_USAGE if the output would overwrite a file that is read, or the options do not allow it.
static enum conv_status check_files(const struct conv_options *options, const char *input,
                                    const char *output, struct conv_err *err)
{
    struct conv_own_files_use use = {options->operands[0], &input, 1, output};
    enum conv_status status = conv_own_files_check(options, &use, err);
    if (status)
        return status;
    if (options->outputs.resume_path)
        return conv_err_usage(
            err, "--resume is for many outputs, and %s is one; use --skip-existing or --update",
            output);
    const char *const read[][2] = {{input, "input"},
                                   {options->operands[0], "weights"},
                                   {options->filter.settings.bias, "bias"}};
    for (int i = 0; i < 3 && !conv_paths_is_standard(output); i++)
        if (read[i][0] && would_overwrite(output, read[i][0]))
            return conv_err_usage(err, "%s: the output would overwrite the %s", read[i][0],
                                  read[i][1]);
    return conv_places_check_standard(options, output, "tensor", err);
}

// Why --skip-existing or --update skips the output; NULL if it is to be written.
static const char *skip_reason(const struct conv_output_options *outputs, const char *input,
                               const char *output)
{
    struct stat in, out;
    if (conv_paths_is_standard(output) || stat(output, &out) != 0 || !S_ISREG(out.st_mode))
        return NULL;
    if (outputs->skip_existing)
        return CONV_SINK_EXISTS;
    if (!outputs->update || stat(input, &in) != 0)
        return NULL;
    return conv_paths_is_older(&out, &in) ? NULL : CONV_SINK_UP_TO_DATE;
}

// --- the input -----------------------------------------------------------------------------------

// 8-bit and float16 samples are converted with the layer, all others before.
static enum conv_status choose_input(struct tensor_run *run, struct conv_err *err)
{
    const struct conv_npy *npy = &run->reader.npy;
    bool is_integer = npy->element == CONV_ELEMENT_U8 || npy->element == CONV_ELEMENT_U16;
    float divisor = conv_layer_setup_divisor(run->options, npy->element, false);
    if (!is_integer && conv_options_given(run->options, "range"))
        return conv_err_usage(err, "--range scales integers, but %s has floats", run->input);
    if (run->options->filter.blend.gray)
        return conv_err_usage(
            err, "--gray is for images, and %s is a tensor: its channels are computed as they are",
            run->input);
    run->converts = npy->is_double || npy->element == CONV_ELEMENT_U16;
    run->element = run->converts ? CONV_ELEMENT_F32 : npy->element;
    run->divisor = divisor;
    return CONV_OK;
}

// --- reading and writing -------------------------------------------------------------------------

#define PART 4096 // elements that are converted at a time

static enum conv_status read_images(void *user, int64_t first, int64_t count, void *dst,
                                    struct conv_err *err)
{
    struct tensor_run *run = user;
    const struct conv_npy *npy = &run->reader.npy;
    uint64_t at = (uint64_t)first * run->in_elements, end = at + (uint64_t)count * run->in_elements;
    enum conv_status status = CONV_OK;
    if (!run->converts) {
        status = conv_tensor_reader_read(&run->reader, at, (size_t)(end - at), dst, err);
        if (!status && npy->is_swapped)
            conv_npy_convert(npy, dst, dst, (size_t)(end - at));
    }
    for (float *to = dst; run->converts && at < end && !status;) {
        uint64_t part[PART]; // of up to 8 bytes
        size_t size = end - at < PART ? (size_t)(end - at) : PART;
        status = conv_tensor_reader_read(&run->reader, at, size, part, err);
        if (status)
            break;
        conv_npy_convert(npy, part, part, size);
        conv_tensor_to_float(to, npy->element, part, size, run->divisor);
        to += size;
        at += size;
    }
    return status;
}

static enum conv_status write_images(void *user, int64_t first, int64_t count, const void *src,
                                     struct conv_err *err)
{
    struct tensor_run *run = user;
    if (run->options->outputs.no_save)
        return CONV_OK;
    return conv_tensor_writer_write(&run->writer, (uint64_t)first * run->out_bytes, src,
                                    (size_t)count * run->out_bytes, err);
}

static void count_images(void *user, int64_t images)
{
    struct tensor_run *run = user;
    run->done.done += (uint64_t)images;
    run->done.pixels +=
        (uint64_t)images * (uint64_t)run->shapes.height * (uint64_t)run->shapes.width;
    conv_stall_begin(conv_stall_of(conv_signals_stall(), stderr));
    conv_progress_update(&run->progress, &run->done);
    conv_stall_end(conv_stall_of(conv_signals_stall(), stderr));
}

static void note_step(void *user, int worker, enum conv_operation_flow_step step, uint64_t start,
                      uint64_t end, int64_t images)
{
    static const enum conv_stage stages[] = {
        [CONV_OPERATION_FLOW_READ] = CONV_STAGE_READ,
        [CONV_OPERATION_FLOW_RUN] = CONV_STAGE_KERNEL,
        [CONV_OPERATION_FLOW_WRITE] = CONV_STAGE_WRITE,
    };
    struct tensor_run *run = user;
    struct conv_trace_item item = {
        .images = (int)images,
        .bytes = (size_t)images * (step == CONV_OPERATION_FLOW_WRITE ? run->use.out : run->use.in),
    };
    conv_trace_slice(run->tracks[worker], stages[step], start, end, &item);
    atomic_fetch_add(&run->ns[stages[step]], end - start);
}

// --- the run -------------------------------------------------------------------------------------

static struct conv_operation_flow make_flow(struct tensor_run *run, const atomic_int *stop)
{
    const struct conv_options *options = run->options;
    return (struct conv_operation_flow){
        .operation = run->operation,
        .images = run->shapes.images,
        .height = run->shapes.height,
        .width = run->shapes.width,
        .jobs = options->machine.jobs,
        .mem_limit = conv_options_mem_limit(&options->machine, run->target.place != CONV_ON_CPU),
        .read = read_images,
        .write = write_images,
        .ordered_read = !run->reader.is_regular,
        .ordered_write = run->writer.file.is_stream,
        .user = run,
        .progress = count_images,
        .timed = note_step,
        .stop = stop,
    };
}

static enum conv_status name_kernel(struct tensor_run *run, struct conv_err *err)
{
    struct conv_layer_way way;
    struct conv_layer_shape shape = {run->use.chunk, run->shapes.height, run->shapes.width};
    run->kernel = run->options->operands[0];
    if (run->operation.bank)
        return CONV_OK;
    enum conv_status status =
        conv_layer_context_way(run->operation.layer, &shape, false, &way, err);
    if (!status)
        run->kernel = way.variant->name;
    if (!status && *way.note && run->options->report.verbose)
        conv_report_say("%s", way.note);
    return status;
}

// Opens the operation and plans the resources that it will use.
static enum conv_status open_operation(struct tensor_run *run, const atomic_int *stop,
                                       struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_operation_flow_use *use = &run->use;
    enum conv_status status =
        conv_layer_setup_choose(&run->target, &options->machine, run->shapes.flops, err);
    if (!status)
        status = conv_layer_setup_operation(&run->operation, &run->target, options, run->setup,
                                            run->element, run->converts ? 1 : run->divisor, err);
    if (status)
        return status;
    struct conv_operation_flow flow = make_flow(run, stop);
    status = conv_operation_flow_plan(use, &flow, err);
    if (!status)
        status = name_kernel(run, err);
    if (!status && options->report.verbose) {
        char in[CONV_TENSOR_TEXT_SIZE], out[CONV_TENSOR_TEXT_SIZE];
        conv_report_say("%s %s -> %s %s: %s, %d worker%s, %lld %s%s at a time", run->input,
                        conv_tensor_shape_text(in, &run->reader.npy.shape), run->output,
                        conv_tensor_shape_text(out, &run->shapes.out), run->kernel, use->workers,
                        use->workers == 1 ? "" : "s", (long long)use->chunk,
                        run->operation.bank ? "plane" : "image", use->chunk == 1 ? "" : "s");
    }
    return status;
}

static enum conv_status open_input(struct tensor_run *run, atomic_int *stop, struct conv_err *err)
{
    conv_stall_begin(conv_signals_stall()); // opening a pipe waits for its writer
    enum conv_status status = conv_tensor_reader_open(&run->reader, run->input, stop, err);
    conv_stall_end(conv_signals_stall());
    if (!status)
        status = choose_input(run, err);
    return status ? status
                  : conv_layer_shapes_fit(&run->shapes, run->setup, run->input,
                                          &run->reader.npy.shape, err);
}

static enum conv_status compute(struct tensor_run *run, atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    enum conv_status status = CONV_OK;
    if (!options->outputs.no_save) {
        run->writer.force = options->outputs.force;
        status = conv_tensor_writer_open(&run->writer, run->output, run->setup->layer.output,
                                         &run->shapes.out, false, stop, err);
        conv_signals_watch(status ? NULL : &run->writer.sink);
    }
    struct conv_operation_flow flow = make_flow(run, stop);
    atomic_store(&run->total.images, (uint64_t)run->shapes.images);
    atomic_store(&run->total.is_complete, true);
    conv_progress_init(&run->progress,
                       conv_progress_is_wanted(options->report.progress, options->report.quiet),
                       &run->total);
    if (!status)
        status = conv_operation_flow_run(&flow, err);
    conv_progress_clear(&run->progress);
    if (!status)
        status = conv_tensor_reader_finish(&run->reader, err);
    conv_signals_watch(NULL);
    enum conv_status closed = conv_tensor_writer_close(&run->writer, !status,
                                                       options->outputs.fsync, status ? NULL : err);
    return status ? status : closed;
}

// Everything before the result; fills in the record.
static enum conv_status plan_record(struct tensor_run *run, struct conv_record *record,
                                    atomic_int *stop, struct conv_err *err)
{
    record->reason = skip_reason(&run->options->outputs, run->input, run->output);
    if (record->reason) {
        record->outcome = CONV_OUTCOME_SKIPPED;
        return CONV_OK;
    }
    enum conv_status status = open_input(run, stop, err);
    if (!status)
        status = open_operation(run, stop, err);
    if (status)
        return status;
    const struct conv_tensor_shape *shape = &run->reader.npy.shape;
    run->in_elements = run->use.in / conv_element_size(run->element);
    run->out_bytes = run->use.out;
    record->width = run->shapes.width;
    record->height = run->shapes.height;
    record->channels = run->operation.layer ? run->operation.layer->layer.channels
                       : shape->axes > 2    ? (int)shape->side[shape->axes - 3]
                                            : 1;
    record->depth = 8 * (int)run->reader.npy.file_element;
    record->bytes_in = run->reader.npy.header + (size_t)run->reader.npy.data;
    if (run->options->outputs.dry_run) {
        record->outcome = CONV_OUTCOME_PLANNED;
        record->reason = conv_paths_exists(run->output) ? "replaces the output" : "new";
    }
    return CONV_OK;
}

static enum conv_status run_record(struct tensor_run *run, struct conv_record *record,
                                   atomic_int *stop, struct conv_err *err)
{
    run->tracks = calloc((size_t)run->use.workers, sizeof(struct conv_trace_track *));
    if (!run->tracks)
        return conv_err_workers(err, run->use.workers);
    for (int i = 0; i < run->use.workers; i++)
        run->tracks[i] = conv_trace_add_track(run->report.trace, "worker", i, "");
    enum conv_status status = compute(run, stop, err);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        record->ns[s] = atomic_load(&run->ns[s]);
    if (!run->options->outputs.no_save)
        record->bytes_out = run->writer.header + (size_t)run->shapes.images * run->use.out;
    return status;
}

// Records a failure of the input or the output as that of the image.
static enum conv_status note_failure(struct conv_record *record, enum conv_status status,
                                     const struct conv_err *reason, const atomic_int *stop)
{
    if (status == CONV_OK || status == CONV_ERR_USAGE || status == CONV_ERR_DEVICE ||
        status == CONV_ERR_CANCELLED || atomic_load(stop) != 0)
        return status;
    record->outcome = CONV_OUTCOME_FAILED;
    record->reason = reason->text;
    record->err = reason;
    return CONV_OK;
}

static enum conv_status open_report(struct tensor_run *run, uint64_t start, struct conv_err *err)
{
    snprintf(run->device, sizeof run->device, "cpu");
    if (run->operation.layer || run->operation.bank)
        conv_operation_describe(&run->operation, run->device, sizeof run->device);
    run->report.config = (struct conv_report_config){
        .single = true,
        .progress = CONV_NEVER, // count_images draws it
        .device = run->device,
        .start_ns = start,
    };
    return conv_run_report_open(&run->report, run->options, err);
}

// Reports the record, and a failure of anything else. Returns the exit code.
static int finish(struct tensor_run *run, const struct conv_record *record, int stop,
                  const struct conv_err *failure)
{
    struct conv_run_report *report = &run->report;
    int code = stop > 0                                 ? CONV_EXIT_SIGNAL + stop
               : record->outcome == CONV_OUTCOME_FAILED ? CONV_EXIT_SOME_FAILED
                                                        : CONV_EXIT_OK;
    if (!failure)
        conv_report_file(report->report, record);
    conv_run_report_finish(report, stop, code, failure);
    if (report->page.file) {
        conv_run_report_describe_images(report);
        conv_layer_describe(report, run->setup, &run->target, run->kernel);
    }
    return conv_run_report_end(report);
}

int conv_layer_tensor_run(const struct conv_options *options, const struct conv_places *places,
                          const struct conv_layer_setup *setup)
{
    uint64_t start = conv_clock_ns();
    struct tensor_run run = {
        .options = options,
        .input = places->inputs[0],
        .output = places->output,
        .setup = setup,
        .reader = {.fd = -1},
        .writer.file.fd = -1,
    };
    struct conv_record record = {
        .input = run.input,
        .output = run.output,
        .title = conv_paths_is_standard(run.input) ? "standard input" : NULL,
        .are_files = true,
    };
    struct conv_err err = {0};
    atomic_int *stop = conv_signals_install();
    conv_descriptors_raise();
    conv_signals_begin_work(); // a layer of one image may take long
    enum conv_status status = check_files(options, run.input, run.output, &err);
    if (!status)
        status = note_failure(&record, plan_record(&run, &record, stop, &err), &err, stop);
    if (!status)
        status = open_report(&run, start, &err);
    if (!status && record.outcome == CONV_OUTCOME_DONE)
        status = note_failure(&record, run_record(&run, &record, stop, &err), &err, stop);
    conv_signals_end_work();
    int signal = atomic_load(stop), code = CONV_EXIT_SIGNAL + signal;
    if (run.report.report)
        code = finish(&run, &record, signal, status ? &err : NULL);
    else if (signal <= 0 || status != CONV_ERR_CANCELLED)
        code = conv_errors_fail(&err);
    conv_tensor_reader_close(&run.reader);
    conv_operation_close(&run.operation);
    conv_run_report_close(&run.report);
    free(run.tracks);
    return code;
}
