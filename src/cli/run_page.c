// SPDX-License-Identifier: MIT
#include "cli/run_page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "cli/signals.h"
#include "report/json.h"

enum conv_status conv_run_page_open(struct conv_page *page,
                                    const struct conv_report_options *report, struct conv_err *err)
{
    *page = (struct conv_page){
        .path = report->html_path,
        .command = report->command_line,
        .stall = conv_signals_stall(),
    };
    if (!report->html_path)
        return CONV_OK;
    page->file = fopen(report->html_path, "we");
    if (page->file)
        return CONV_OK;
    conv_err_errno(err, errno, "--html %s", report->html_path);
    return err->status = CONV_ERR_USAGE;
}

void conv_run_page_describe(struct conv_page *page, const struct conv_options *options,
                            const struct conv_device *device, const struct conv_filter *filters,
                            int filter_count)
{
    conv_page_describe(page, &(struct conv_page_setting){
                                 .filters = filters,
                                 .filter_count = filter_count,
                                 .border = options->filter.border,
                                 .border_value = options->filter.border_value,
                                 .names = device->names,
                                 .ordinals = device->ordinals,
                                 .backends = device->backends,
                                 .device_count = device->count,
                                 .ops = device->ops,
                                 .fallback_ops = device->fallback_ops,
                                 .fallback = device->fallback,
                                 .limits = options->machine.limits,
                             });
}

void conv_run_page_describe_images(struct conv_page *page,
                                   const struct conv_output_options *outputs,
                                   const struct conv_totals *totals)
{
    time_t start = time(NULL) - (time_t)totals->seconds;
    char text[40];
    struct tm local;
    if (localtime_r(&start, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &local))
        conv_page_fact(page, "started", "%s", text);
    conv_page_fact(page, "images", "%g Mpix, %.4g MB read, %.4g MB written",
                   (double)(totals->pixels / 10000) / 100, (double)totals->bytes_in / 1e6,
                   outputs->no_save ? 0 : (double)totals->bytes_out / 1e6);
}

// "96 images filtered with emboss in 0.92 s, 15 failed"
static void write_title(struct conv_page *page, const char *verb,
                        const struct conv_report_config *config, const struct conv_totals *totals,
                        int stop)
{
    char failed[48] = "";
    uint64_t count = config->dry_run ? totals->planned : totals->done;
    if (totals->failed)
        snprintf(failed, sizeof failed, ", %" PRIu64 " failed", totals->failed);
    if (config->dry_run)
        conv_page_title(page, "Dry run: %" PRIu64 " %s would be %s %.160s%s", count,
                        count == 1 ? "image" : "images", verb, config->filters, failed);
    else
        conv_page_title(page, "%s%" PRIu64 " %s %s %.160s in %.*f s%s",
                        stop > 0 ? "Interrupted: " : "", count, count == 1 ? "image" : "images",
                        verb, config->filters, totals->seconds < 100 ? 2 : 0, totals->seconds,
                        failed);
}

enum conv_status conv_run_page_write(struct conv_page *page, const char *verb,
                                     const struct conv_report_config *config,
                                     const struct conv_totals *totals, int stop, int code,
                                     struct conv_err *err)
{
    write_title(page, verb, config, totals, stop);
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    conv_json_summary(memory, config, totals, code);
    if (fclose(memory) != 0 || !record) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    if (page->samples)
        page->note = page->samples->warning;
    if (stop > 0)
        page->note = "A signal ended the run: this is what was done until then.";
    page->config = config;
    enum conv_status status = conv_page_finish(page, record, err);
    free(record);
    return status;
}
