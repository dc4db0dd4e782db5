// SPDX-License-Identifier: MIT
// conv layer WEIGHTS INPUT.npy OUTPUT.npy: streamed, in constant memory.
#include "cli/layer_command.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "backend/layer_flow.h"
#include "base/clock.h"
#include "base/stall.h"
#include "cli/commands.h"
#include "cli/hints.h"
#include "cli/own_files.h"
#include "cli/signals.h"
#include "io/operands.h"
#include "io/paths.h"
#include "report/report.h"
#include "tensor/convert.h"

struct tensor_run {
    const struct conv_options *options;
    const char *input, *output;
    struct conv_layer layer; // with the input's type
    struct conv_tensor_reader reader;
    struct conv_tensor_writer writer;
    struct conv_tensor_shape out_shape;
    struct conv_layer_target target;
    struct conv_layer_context *context;
    int64_t images;
    int height, width;
    size_t in_elements, out_bytes; // of one image
    bool converts;                 // to float32, from anything but float32 and 8 bits
    float divisor;                 // of 16-bit samples
};

// --- shapes --------------------------------------------------------------------------------------

static enum conv_status fit_shapes(struct tensor_run *run, const struct conv_layer_setup *setup,
                                   struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE], weights[CONV_TENSOR_TEXT_SIZE];
    const struct conv_tensor_shape *shape = &run->reader.npy.shape;
    const struct conv_layer *layer = &run->layer;
    int axes = shape->axes;
    conv_tensor_shape_text(text, shape);
    conv_tensor_shape_text(weights, &setup->weights.shape);
    const int64_t *side = shape->side + axes - 3;
    if (axes < 3 || axes > 4 || side[0] != layer->channels)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s does not fit weights of shape %s; expected (images, %d, "
                            "height, width) or (%d, height, width)",
                            run->input, text, weights, layer->channels, layer->channels);
    int64_t tall = side[1] + layer->pad_top + layer->pad_bottom;
    int64_t wide = side[2] + layer->pad_left + layer->pad_right;
    if (side[1] < 1 || side[2] < 1 || tall > INT_MAX || wide > INT_MAX ||
        tall < layer->kernel_height || wide < layer->kernel_width)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s does not fit weights of shape %s; expected planes of at "
                            "least %d x %d samples, padding included",
                            run->input, text, weights, layer->kernel_height, layer->kernel_width);
    run->images = axes == 4 ? shape->side[0] : 1;
    run->height = (int)side[1];
    run->width = (int)side[2];
    run->out_shape = *shape;
    int64_t *out = run->out_shape.side + axes - 3;
    out[0] = layer->maps;
    out[1] = conv_layer_out_height(layer, run->height);
    out[2] = conv_layer_out_width(layer, run->width);
    uint64_t bytes;
    return conv_tensor_shape_bytes(&run->out_shape, conv_element_size(layer->output), &bytes)
               ? CONV_OK
               : conv_err_set(err, CONV_ERR_LIMIT, "the result would have shape %s",
                              conv_tensor_shape_text(text, &run->out_shape));
}

// 8-bit samples are converted by the kernel, all others before it.
static enum conv_status choose_input(struct tensor_run *run, struct conv_err *err)
{
    const struct conv_npy *npy = &run->reader.npy;
    bool is_integer = npy->element == CONV_ELEMENT_U8 || npy->element == CONV_ELEMENT_U16;
    float divisor = conv_layer_setup_divisor(run->options, npy->element, false);
    if (!is_integer && conv_options_given(run->options, "range"))
        return conv_err_set(err, CONV_ERR_USAGE, "--range scales integers, but %s has floats",
                            run->input);
    run->layer.input = npy->element == CONV_ELEMENT_U8 ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32;
    run->layer.input_divisor = npy->element == CONV_ELEMENT_U8 ? divisor : 1;
    run->converts =
        npy->is_double || npy->element == CONV_ELEMENT_U16 || npy->element == CONV_ELEMENT_F16;
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
    if (run->options->no_save)
        return CONV_OK;
    return conv_tensor_writer_write(&run->writer, (uint64_t)first * run->out_bytes, src,
                                    (size_t)count * run->out_bytes, err);
}

// --- the run -------------------------------------------------------------------------------------

static enum conv_status check_files(const struct tensor_run *run, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_own_files_use use = {options->operands[0], options->operands + 1, 1, run->output};
    struct conv_paths_identity in, out;
    enum conv_status status = conv_own_files_check(options, &use, err);
    bool to_standard = conv_operands_is_standard(run->output);
    if (status)
        return status;
    if (!to_standard && conv_paths_identify(&in, run->input) && in.exists &&
        conv_paths_identify(&out, run->output) && conv_paths_is_same(&in, &out) &&
        S_ISREG(in.info.st_mode))
        return conv_err_set(err, CONV_ERR_USAGE, "%s: the output would overwrite the input",
                            run->input);
    if (to_standard && options->json)
        return conv_err_set(
            err, CONV_ERR_USAGE,
            "--json and the tensor cannot both go to standard output; use --report");
    bool writes = !options->dry_run && !options->no_save;
    if (to_standard && writes && isatty(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "a tensor is not written to a terminal; redirect standard output, or "
                            "name an output file");
    return CONV_OK;
}

static double count_flops(const struct tensor_run *run)
{
    const struct conv_layer *layer = &run->layer;
    const int64_t *out = run->out_shape.side + run->out_shape.axes - 3;
    return 2.0 * (double)run->images * (double)out[0] * (double)out[1] * (double)out[2] *
           layer->channels * layer->kernel_height * layer->kernel_width;
}

static struct conv_layer_flow make_flow(struct tensor_run *run, const atomic_int *stop)
{
    const struct conv_options *options = run->options;
    return (struct conv_layer_flow){
        .context = run->context,
        .images = run->images,
        .height = run->height,
        .width = run->width,
        .jobs = options->jobs,
        .mem_limit =
            conv_options_mem_limit(options, conv_layer_context_place(run->context) != CONV_ON_CPU),
        .read = read_images,
        .write = write_images,
        .ordered_read = !run->reader.is_regular,
        .ordered_write = run->writer.is_ordered,
        .user = run,
        .stop = stop,
    };
}

// The context, and what the kernel would be.
static enum conv_status open_context(struct tensor_run *run, struct conv_layer_flow_use *use,
                                     const atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    const struct conv_layer_variant *variant;
    enum conv_status status = conv_layer_setup_choose(&run->target, options, count_flops(run), err);
    if (!status)
        status = conv_layer_setup_context(&run->context, &run->target, options, &run->layer, err);
    if (status)
        return status;
    struct conv_layer_flow flow = make_flow(run, stop);
    status = conv_layer_flow_plan(use, &flow, err);
    struct conv_layer_shape shape = {use->chunk, run->height, run->width};
    if (!status)
        status = conv_layer_context_variant(run->context, &shape, &variant, err);
    if (!status && options->verbose) {
        char in[CONV_TENSOR_TEXT_SIZE], out[CONV_TENSOR_TEXT_SIZE];
        conv_report_say("%s %s -> %s %s: %s, %d worker%s, %lld image%s at a time", run->input,
                        conv_tensor_shape_text(in, &run->reader.npy.shape), run->output,
                        conv_tensor_shape_text(out, &run->out_shape), variant->name, use->workers,
                        use->workers == 1 ? "" : "s", (long long)use->chunk,
                        use->chunk == 1 ? "" : "s");
    }
    return status;
}

static enum conv_status open_input(struct tensor_run *run, const struct conv_layer_setup *setup,
                                   atomic_int *stop, struct conv_err *err)
{
    run->layer = setup->layer;
    conv_stall_begin(conv_signals_stall()); // opening a pipe waits for its writer
    enum conv_status status = conv_tensor_reader_open(&run->reader, run->input, stop, err);
    conv_stall_end(conv_signals_stall());
    if (!status)
        status = choose_input(run, err);
    return status ? status : fit_shapes(run, setup, err);
}

static enum conv_status compute(struct tensor_run *run, atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    enum conv_status status = CONV_OK;
    if (!options->no_save) {
        status = conv_tensor_writer_open(&run->writer, run->output, run->layer.output,
                                         &run->out_shape, false, stop, err);
        conv_signals_watch(status ? NULL : &run->writer.sink);
    }
    struct conv_layer_flow flow = make_flow(run, stop);
    if (!status)
        status = conv_layer_flow_run(&flow, err);
    if (!status)
        status = conv_tensor_reader_finish(&run->reader, err);
    conv_signals_watch(NULL);
    enum conv_status closed =
        conv_tensor_writer_close(&run->writer, !status, options->fsync, status ? NULL : err);
    return status ? status : closed;
}

// A reason to do nothing; NULL: there is none.
static const char *skip_reason(const struct tensor_run *run)
{
    struct stat in, out;
    if (conv_operands_is_standard(run->output) || stat(run->output, &out) != 0 ||
        !S_ISREG(out.st_mode))
        return NULL;
    if (run->options->skip_existing)
        return "the output exists";
    if (!run->options->update || stat(run->input, &in) != 0)
        return NULL;
    bool newer = out.st_mtim.tv_sec != in.st_mtim.tv_sec
                     ? out.st_mtim.tv_sec > in.st_mtim.tv_sec
                     : out.st_mtim.tv_nsec >= in.st_mtim.tv_nsec;
    return newer ? "the output is up to date" : NULL;
}

// Everything up to the result; fills in the record.
static enum conv_status run_record(struct tensor_run *run, const struct conv_layer_setup *setup,
                                   struct conv_record *record, char device[32], atomic_int *stop,
                                   struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_layer_flow_use use = {0};
    record->reason = skip_reason(run);
    if (record->reason) {
        record->outcome = CONV_OUTCOME_SKIPPED;
        return CONV_OK;
    }
    enum conv_status status = open_input(run, setup, stop, err);
    if (!status)
        status = open_context(run, &use, stop, err);
    if (status)
        return status;
    conv_layer_context_describe(run->context, device, 32);
    run->in_elements = use.in / conv_element_size(run->layer.input);
    run->out_bytes = use.out;
    record->width = run->width;
    record->height = run->height;
    record->channels = run->layer.channels;
    record->depth = 8 * (int)run->reader.npy.file_element;
    record->bytes_in = run->reader.npy.header + (size_t)run->reader.npy.data;
    if (options->dry_run) {
        record->outcome = CONV_OUTCOME_PLANNED;
        record->reason = conv_paths_exists(run->output) ? "replaces the output" : "new";
        return CONV_OK;
    }
    uint64_t start = conv_clock_ns();
    status = compute(run, stop, err);
    record->ns[CONV_STAGE_KERNEL] = conv_clock_ns() - start;
    record->bytes_out = options->no_save ? 0 : run->writer.header + (size_t)run->images * use.out;
    return status;
}

// True if the failure is the input's or the output's, so that it belongs to the record.
static bool is_of_files(enum conv_status status)
{
    return status == CONV_ERR_IO || status == CONV_ERR_FORMAT || status == CONV_ERR_UNSUPPORTED ||
           status == CONV_ERR_LIMIT || status == CONV_ERR_MEMORY;
}

static enum conv_status print_record(const struct tensor_run *run, const struct conv_record *record,
                                     const char *device, uint64_t start, int code,
                                     struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_report *report;
    struct conv_report_config config = {
        .quiet = options->quiet,
        .dry_run = options->dry_run,
        .single = true,
        .json = options->json,
        .json_path = options->report_path,
        .progress = CONV_NEVER,
        .explain = conv_hints_explain,
        .filters = options->operands[0],
        .device = device,
        .jobs = options->jobs,
        .cores = options->limits->cores,
        .start_ns = start,
        .stall = conv_signals_stall(),
    };
    enum conv_status status = conv_report_open(&report, &config, err);
    if (status)
        return status;
    conv_report_file(report, record);
    return conv_report_close(report, code, NULL, err);
}

enum conv_status conv_layer_run_tensor(const struct conv_options *options,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err)
{
    char device[32] = "cpu";
    uint64_t start = conv_clock_ns();
    struct tensor_run run = {
        .options = options,
        .input = options->operands[1],
        .output = options->operands[2],
        .reader = {.fd = -1},
        .writer = {.fd = -1},
    };
    struct conv_record record = {
        .input = run.input,
        .output = run.output,
        .title = conv_operands_is_standard(run.input) ? "standard input" : NULL,
        .are_files = true,
    };
    struct conv_err reason = {0};
    *code = CONV_EXIT_OK;
    enum conv_status status = check_files(&run, &reason);
    if (!status)
        status = run_record(&run, setup, &record, device, stop, &reason);
    if (is_of_files(status) && atomic_load(stop) == 0) {
        record.outcome = CONV_OUTCOME_FAILED;
        record.reason = reason.text;
        record.err = &reason;
        *code = CONV_EXIT_SOME_FAILED;
        status = CONV_OK;
    }
    if (!status)
        status = print_record(&run, &record, device, start, *code, &reason);
    if (status)
        *err = reason;
    conv_tensor_reader_close(&run.reader);
    conv_layer_context_close(run.context);
    return status;
}
