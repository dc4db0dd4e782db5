// SPDX-License-Identifier: MIT
#include "cli/layer_command.h"

#include "cli/errors.h"
#include "cli/run_page.h"
#include "cli/shards.h"
#include "cli/signals.h"

enum conv_status conv_layer_report_prepare(struct conv_layer_report *report,
                                           const struct conv_options *options,
                                           const struct conv_layer_setup *setup,
                                           struct conv_err *err)
{
    report->options = options;
    report->setup = setup;
    conv_stall_begin(conv_signals_stall()); // opening a pipe may wait
    enum conv_status status = conv_run_page_open(&report->page, &options->report, err);
    if (!status && (options->report.trace_path || options->report.html_path))
        status = conv_trace_open(&report->trace, options->report.trace_path, report->page.file,
                                 conv_signals_stall(), err);
    conv_stall_end(conv_signals_stall());
    return status;
}

enum conv_status conv_layer_report_open(struct conv_layer_report *report,
                                        const struct conv_operation *operation, bool single,
                                        uint64_t start_ns, struct conv_err *err)
{
    const struct conv_options *options = report->options;
    snprintf(report->device, sizeof report->device, "cpu");
    if (operation && (operation->layer || operation->bank))
        conv_operation_describe(operation, report->device, sizeof report->device);
    report->config = (struct conv_report_config){
        .quiet = options->report.quiet,
        .verbose = options->report.verbose,
        .dry_run = options->outputs.dry_run,
        .single = single,
        .json = options->report.json,
        .json_path = options->report.path,
        .progress = report->draws_progress ? CONV_NEVER : options->report.progress,
        .total = report->total,
        .explain = conv_errors_explain,
        .filters = options->operands[0],
        .device = report->device,
        .jobs = options->machine.jobs,
        .cores = options->machine.limits->cores,
        .samples = report->page.file ? &report->samples : NULL,
        .shard = conv_shards_record(&options->inputs),
        .start_ns = start_ns,
        .stall = conv_signals_stall(),
    };
    conv_stall_begin(conv_signals_stall());
    enum conv_status status = conv_report_open(&report->report, &report->config, err);
    conv_stall_end(conv_signals_stall());
    return status;
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
    conv_page_fact(page, "layer", "%d channels to %d maps, kernels of %d × %d, stride %d",
                   layer->channels, layer->maps, layer->kernel_height, layer->kernel_width,
                   layer->stride);
    if (padding > 0) {
        conv_page_fact(page, "padding", "top %d, bottom %d, left %d, right %d", layer->pad_top,
                       layer->pad_bottom, layer->pad_left, layer->pad_right);
        describe_border(page, layer);
    }
    conv_page_fact(page, "activation", "%s", conv_layer_activations[layer->activation]);
    conv_page_fact(page, "precision", "%s", conv_layer_precisions[layer->precision]);
}

static void describe(struct conv_layer_report *report, const struct conv_layer_target *target,
                     const char *kernel)
{
    const struct conv_options *options = report->options;
    const struct conv_bank *bank = &report->setup->bank;
    struct conv_page *page = &report->page;
    conv_run_page_describe_images(page, &options->outputs, &report->totals);
    if (bank->map_count) {
        conv_page_fact(page, "filter bank", "%s, %d filters, %d maps", bank->name,
                       bank->filter_count, bank->map_count);
        if (options->filter.layer.pool)
            conv_page_fact(page, "pooling", "%s", options->filter.layer.pool);
        describe_border(page, &report->setup->layer);
    } else {
        describe_layer(page, &report->setup->layer);
    }
    conv_page_device(page, options->machine.backends[target->place], report->device,
                     target->device);
    if (kernel)
        conv_page_fact(page, "kernel", "%s", kernel);
    conv_page_machine(page, options->machine.limits);
    conv_page_fact(page, "workers", "%d", options->machine.jobs);
}

static enum conv_status write_page(struct conv_layer_report *report,
                                   const struct conv_layer_target *target, const char *kernel,
                                   int stop, int code, struct conv_err *err)
{
    struct conv_page *page = &report->page;
    page->kind = report->options->outputs.dry_run ? "conv layer, a dry run" : "conv layer, a run";
    page->timelines[0].trace = report->trace;
    page->timeline_count = 1;
    page->samples = &report->samples;
    describe(report, target, kernel);
    return conv_run_page_write(&report->page, "passed through", &report->config, &report->totals,
                               stop, code, err);
}

enum conv_status conv_layer_report_finish(struct conv_layer_report *report,
                                          const struct conv_layer_target *target,
                                          const char *kernel, int stop, int code,
                                          struct conv_err *err)
{
    struct conv_err later;
    enum conv_status status = conv_report_close(report->report, code, &report->totals, err);
    report->report = NULL;
    enum conv_status traced = conv_trace_finish(report->trace, status ? &later : err);
    status = status ? status : traced;
    enum conv_status paged = CONV_OK;
    if (report->page.file)
        paged = write_page(report, target, kernel, stop, code, status ? &later : err);
    return status ? status : paged;
}

void conv_layer_report_close(struct conv_layer_report *report)
{
    conv_page_close(&report->page);
    conv_trace_free(report->trace);
    conv_samples_free(&report->samples);
}
