// SPDX-License-Identifier: MIT
#include "cli/run_page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/features.h"
#include "base/limits.h"

// --- the files -----------------------------------------------------------------------------------

enum conv_status conv_page_open(struct conv_page_job *job, const struct conv_options *options,
                                struct conv_err *err)
{
    *job = (struct conv_page_job){.options = options};
    if (!options->html_path)
        return CONV_OK;
    job->file = fopen(options->html_path, "we");
    if (job->file)
        return CONV_OK;
    conv_err_errno(err, errno, "--html %s", options->html_path);
    return err->status = CONV_ERR_USAGE;
}

void conv_page_close(struct conv_page_job *job)
{
    for (int i = 0; i < job->page.pair_count; i++) {
        free(job->pairs[i].before);
        free(job->pairs[i].after);
    }
    job->page.pair_count = 0;
    if (job->file)
        fclose(job->file);
    job->file = NULL;
}

// --- facts ---------------------------------------------------------------------------------------

void conv_page_fact(struct conv_page_job *job, const char *label, const char *format, ...)
{
    struct conv_page *page = &job->page;
    if (page->fact_count == CONV_PAGE_MOST_FACTS)
        return;
    struct conv_page_fact *fact = &job->facts[page->fact_count++];
    snprintf(fact->label, sizeof fact->label, "%s", label);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
    page->facts = job->facts;
}

// "cuda:0, NVIDIA H200"
static void describe_device(struct conv_page_job *job, const struct conv_device *device, int d)
{
    struct conv_device_info info[CONV_BACKEND_MOST_DEVICES];
    const char *name = device->names[d];
    int ordinal = device->ordinals[d], known = 0;
    if (!device->backends[d])
        conv_page_fact(job, "device", "%s, which was not there in time", name);
    else if (device->ops->place != CONV_ON_CPU && ordinal < CONV_BACKEND_MOST_DEVICES &&
             device->ops->devices(info, ordinal + 1, &known, NULL) == CONV_OK && ordinal < known)
        conv_page_fact(job, "device", "%s, %s", name, info[ordinal].name);
    else
        conv_page_fact(job, "device", "%s", name);
}

static void describe_kernels(struct conv_page_job *job, const struct conv_device *device,
                             int filter_count)
{
    bool spare = !device->backends[0]; // a device that was not there had no kernel run
    const struct conv_backend_ops *ops = spare ? device->spare_ops : device->ops;
    const struct conv_backend *backend = spare ? device->spare : device->backends[0];
    char kernels[480] = "";
    for (int i = 0; i < filter_count; i++) {
        const char *name = ops->variant(backend, i, 8);
        size_t used = strlen(kernels);
        if (i == 0 || !strstr(kernels, name))
            snprintf(kernels + used, sizeof kernels - used, "%s%s", i ? ", " : "", name);
    }
    conv_page_fact(job, "kernel at 8 bits", "%s", kernels);
}

void conv_page_describe(struct conv_page_job *job, const struct conv_device *device,
                        const struct conv_filter *filters, int filter_count)
{
    const struct conv_options *options = job->options;
    struct conv_page *page = &job->page;
    for (int i = 0; i < filter_count; i++)
        job->filters[i] = (struct conv_page_filter){
            .name = filters[i].name,
            .width = filters[i].width,
            .height = filters[i].height,
            .coef = filters[i].coef,
            .scale = filters[i].scale,
            .offset = filters[i].offset,
        };
    page->filters = job->filters;
    page->filter_count = filter_count;
    if (options->border == CONV_BORDER_CONSTANT)
        conv_page_fact(job, "border", "constant, %d", options->border_value);
    else
        conv_page_fact(job, "border", "%s", conv_filter_border_name(options->border));
    for (int d = 0; device && d < device->count; d++)
        describe_device(job, device, d);
    if (device)
        describe_kernels(job, device, filter_count);
    char model[96];
    struct utsname system;
    conv_cpu_model(model, sizeof model);
    conv_page_fact(job, "processor", "%s, %d %s for this run", model, conv_cpu_count(),
                   conv_cpu_count() == 1 ? "core" : "cores");
    conv_page_fact(job, "memory", "%.0f GiB", (double)conv_limits_at_start()->memory / (1 << 30));
    if (uname(&system) == 0)
        conv_page_fact(job, "system", "%s %s", system.sysname, system.release);
}

enum conv_status conv_page_finish(struct conv_page_job *job, const char *record,
                                  struct conv_err *err)
{
    struct conv_page *page = &job->page;
    if (!record) // glibc's fclose() does not tell that a memory stream had no memory at its end
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the page");
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(page->when, sizeof page->when, "%Y-%m-%d %H:%M", &local);
    page->command = job->options->command_line;
    page->record = record;
    FILE *file = job->file;
    job->file = NULL;
    return conv_page_write(page, file, job->options->html_path, err);
}
