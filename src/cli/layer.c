// SPDX-License-Identifier: MIT
// conv layer WEIGHTS INPUT... OUTPUT: a convolution layer over a tensor or over images.
#include "cli/layer_command.h"

#include <string.h>

#include "base/parallel.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "cli/run_inputs.h"
#include "cli/signals.h"

// Decides by the first bytes of a regular file, and by the name of any other file. Standard input
// is a tensor.
static bool is_tensor(const char *path)
{
    char head[6];
    return conv_paths_is_standard(path) || (conv_paths_head(path, head, sizeof head) == sizeof head
                                                ? memcmp(head, "\x93NUMPY", sizeof head) == 0
                                                : conv_paths_is_npy(path));
}

static enum conv_status check_operands(const struct conv_options *options,
                                       const struct conv_places *places, struct conv_err *err)
{
    int least = options->inputs.files_from ? 0 : 1;
    if (options->operand_count > 0 && places->input_count >= least)
        return CONV_OK;
    if (options->operand_count > 0 && !places->last_is_output)
        return conv_err_usage(err, "the input is missing: conv layer WEIGHTS %s INPUT...",
                              options->outputs.beside ? "--beside" : "--output OUTPUT");
    static const char *const missing[] = {"weights, input and output are", "input and output are",
                                          "the output is"};
    return conv_err_usage(err, "%s missing: conv layer WEIGHTS %s OUTPUT",
                          missing[options->operand_count < 2 ? options->operand_count : 2],
                          options->inputs.files_from ? "[INPUT]" : "INPUT...");
}

// --- images --------------------------------------------------------------------------------------

// Bytes of a PNG file per pixel, for photographs.
#define BYTES_PER_PIXEL 1.5

bool conv_layer_images_choice(const struct conv_options *options,
                              const struct conv_layer_setup *setup,
                              struct conv_workload_choice *choice)
{
    const struct conv_layer *layer = &setup->layer;
    double per_pixel = setup->bank.map_count ? 2 * conv_bank_cost(&setup->bank)
                                             : 2.0 * layer->maps * (double)conv_layer_taps(layer) /
                                                   layer->stride_y / layer->stride_x;
    double bytes = conv_layer_setup_much(&options->machine) / per_pixel * BYTES_PER_PIXEL;
    *choice = (struct conv_workload_choice){.cost = bytes, .name = 1638};
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        choice->plain[f].byte = choice->others[f].byte = 1;
    return !options->machine.device_text;
}

enum conv_status conv_layer_images_open(struct conv_layer_images *images,
                                        struct conv_device *device,
                                        const struct conv_options *options,
                                        const struct conv_layer_setup *setup,
                                        const struct conv_run_inputs *inputs,
                                        const atomic_int *stop, struct conv_err *err)
{
    struct conv_layer_stage *stage = &images->stage;
    float divisor = conv_layer_setup_divisor(options, CONV_ELEMENT_U8, true);
    double much = 2 * conv_layer_setup_much(&options->machine);
    enum conv_status status = conv_layer_setup_choose(
        &images->target, &options->machine, inputs->work == CONV_WORKLOAD_LARGE ? much : 0, err);
    if (!status)
        status = conv_layer_setup_operation(&stage->of_bytes, &images->target, options, setup,
                                            CONV_ELEMENT_U8, divisor, err);
    if (!status)
        status = conv_layer_setup_operation(&stage->of_floats, &images->target, options, setup,
                                            CONV_ELEMENT_F32, 1, err);
    if (status)
        return status;
    stage->pool = setup->pool;
    stage->gray = options->filter.blend.gray || setup->bank.map_count;
    stage->to_255 =
        conv_options_given(options, "range") && options->filter.layer.range == CONV_LAYER_RANGE_255;
    stage->collect = inputs->collects ? &images->collect : NULL;
    images->collect = (struct conv_layer_collect){
        .path = inputs->places.output,
        .element = conv_operation_output(&stage->of_bytes),
        .no_save = options->outputs.no_save || options->outputs.dry_run,
        .fsync = options->outputs.fsync,
        .stop = stop,
        .watch = conv_signals_watch,
        .writer = {.force = options->outputs.force},
    };
    // Each worker has images of its own.
    *device = (struct conv_device){.ops = &conv_device_cpu, .count = 1, .layer = stage};
    conv_operation_describe(&stage->of_bytes, device->name, sizeof device->name);
    return CONV_OK;
}

void conv_layer_images_close(struct conv_layer_images *images)
{
    conv_operation_close(&images->stage.of_bytes);
    conv_operation_close(&images->stage.of_floats);
}

bool conv_layer_images_exist(const struct conv_run_inputs *inputs,
                             const struct conv_options *options, struct conv_report *report)
{
    const struct conv_places *places = &inputs->places;
    struct conv_record record = {
        .input = places->input_count > 0 ? places->inputs[0] : options->inputs.files_from,
        .output = places->output,
        .outcome = CONV_OUTCOME_SKIPPED,
        .reason = CONV_SINK_EXISTS,
    };
    if (!inputs->collects || !options->outputs.skip_existing || !conv_paths_exists(places->output))
        return false;
    conv_report_file(report, &record);
    return true;
}

enum conv_status conv_layer_images_finish(struct conv_layer_images *images, enum conv_status status,
                                          atomic_int *stop, struct conv_err *err)
{
    if (!status && images->stage.collect && conv_cancel_is_asked(stop))
        status = conv_err_cancelled(err);
    enum conv_status closed =
        conv_layer_collect_close(&images->collect, !status, status ? NULL : err);
    return status ? status : closed;
}

// --- the page ------------------------------------------------------------------------------------

static void describe_border(struct conv_page *page, const struct conv_layer *layer)
{
    if (layer->border == CONV_BORDER_CONSTANT)
        conv_page_fact(page, "border", "constant, %g", (double)layer->border_value);
    else
        conv_page_fact(page, "border", "%s", conv_filter_border_name(layer->border));
}

static void describe_layer(struct conv_page *page, const struct conv_layer *layer)
{
    int padding = layer->pad_top + layer->pad_bottom + layer->pad_left + layer->pad_right;
    conv_page_fact(page, "layer",
                   "%d channels to %d maps, kernels of %d × %d, stride %d × %d, dilation %d × %d, "
                   "groups %d",
                   layer->channels, layer->maps, layer->kernel_height, layer->kernel_width,
                   layer->stride_y, layer->stride_x, layer->dilation_y, layer->dilation_x,
                   layer->groups);
    if (layer->same)
        conv_page_fact(page, "padding", "%s",
                       layer->same == CONV_LAYER_SAME_UPPER ? "same_upper" : "same_lower");
    else if (padding > 0)
        conv_page_fact(page, "padding", "top %d, bottom %d, left %d, right %d", layer->pad_top,
                       layer->pad_bottom, layer->pad_left, layer->pad_right);
    if (layer->same || padding > 0)
        describe_border(page, layer);
    conv_page_fact(page, "activation", "%s", conv_layer_activations[layer->activation]);
    conv_page_fact(page, "precision", "%s", conv_layer_precisions[layer->precision]);
}

void conv_layer_describe(struct conv_run_report *report, const struct conv_layer_setup *setup,
                         const struct conv_layer_target *target, const char *kernel)
{
    const struct conv_options *options = report->options;
    const struct conv_bank *bank = &setup->bank;
    struct conv_page *page = &report->page;
    if (bank->map_count) {
        conv_page_fact(page, "filter bank", "%s, %d filters, %d maps", bank->name,
                       bank->filter_count, bank->map_count);
        if (options->filter.layer.pool)
            conv_page_fact(page, "pooling", "%s", options->filter.layer.pool);
        describe_border(page, &setup->layer);
    } else {
        describe_layer(page, &setup->layer);
    }
    conv_page_device(page, options->machine.backends[target->place], report->config.device,
                     target->device);
    if (kernel)
        conv_page_fact(page, "kernel", "%s", kernel);
    conv_page_machine(page, options->machine.limits);
    conv_page_fact(page, "workers", "%d", options->machine.jobs);
}

// --- the command ---------------------------------------------------------------------------------

int conv_layer_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    struct conv_layer_setup setup = {0};
    struct conv_places places;
    conv_places_split(&places, options);
    enum conv_status status = check_operands(options, &places, &err);
    // Before the handlers are installed: reading weights from a pipe without a writer then ends at
    // the first signal.
    if (!status)
        status = conv_layer_setup_open(&setup, options, &err);
    bool tensor = !status && places.input_count == 1 && places.output &&
                  !options->inputs.files_from && is_tensor(places.inputs[0]);
    int code = status   ? conv_errors_fail(&err)
               : tensor ? conv_layer_tensor_run(options, &places, &setup)
                        : conv_run_layer(options, &setup);
    conv_layer_setup_close(&setup);
    return code;
}
