// SPDX-License-Identifier: MIT
#include "page/page_job.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/features.h"

void conv_page_job_close(struct conv_page_job *job)
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

void conv_page_job_fact(struct conv_page_job *job, const char *label, const char *format, ...)
{
    struct conv_page *page = &job->page;
    if (page->fact_count == CONV_PAGE_JOB_MOST_FACTS)
        return;
    struct conv_page_fact *fact = &job->facts[page->fact_count++];
    snprintf(fact->label, sizeof fact->label, "%s", label);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
    page->facts = job->facts;
}

void conv_page_job_title(struct conv_page_job *job, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(job->page.title, sizeof job->page.title, format, arguments);
    va_end(arguments);
}

void conv_page_job_device(struct conv_page_job *job, const struct conv_device_ops *ops,
                          const char *name, int ordinal)
{
    struct conv_device_info info[CONV_BACKEND_MOST_DEVICES];
    int known = 0;
    if (ops->place != CONV_ON_CPU && ordinal < CONV_BACKEND_MOST_DEVICES &&
        ops->devices(info, ordinal + 1, &known, NULL) == CONV_OK && ordinal < known)
        conv_page_job_fact(job, "device", "%s, %s", name, info[ordinal].name);
    else
        conv_page_job_fact(job, "device", "%s", name);
}

void conv_page_job_machine(struct conv_page_job *job, const struct conv_limits *limits)
{
    int cores = limits->cores;
    char model[96];
    struct utsname system;
    bool known = uname(&system) == 0;
    conv_cpu_model(model, sizeof model);
    if (known)
        conv_page_job_fact(job, "host", "%s", system.nodename);
    conv_page_job_fact(job, "processor", "%s, %d %s for this run", model, cores,
                       cores == 1 ? "core" : "cores");
    conv_page_job_fact(job, "memory", "%.0f GiB", (double)limits->memory / (1 << 30));
    if (known)
        conv_page_job_fact(job, "system", "%s %s", system.sysname, system.release);
}

static void describe_kernels(struct conv_page_job *job, const struct conv_page_setting *setting)
{
    bool fallback = !setting->backends[0]; // a device that did not open ran no kernel
    const struct conv_device_ops *ops = fallback ? setting->fallback_ops : setting->ops;
    const struct conv_backend *backend = fallback ? setting->fallback : setting->backends[0];
    char kernels[480] = "";
    for (int i = 0; i < setting->filter_count; i++) {
        const char *name = ops->variant(backend, i, 8);
        size_t used = strlen(kernels);
        if (i == 0 || !strstr(kernels, name))
            snprintf(kernels + used, sizeof kernels - used, "%s%s", i ? ", " : "", name);
    }
    conv_page_job_fact(job, "kernel at 8 bits", "%s", kernels);
}

void conv_page_job_describe(struct conv_page_job *job, const struct conv_page_setting *setting)
{
    struct conv_page *page = &job->page;
    const struct conv_filter *filters = setting->filters;
    for (int i = 0; i < setting->filter_count; i++)
        job->filters[i] = (struct conv_page_filter){
            .name = filters[i].name,
            .width = filters[i].width,
            .height = filters[i].height,
            .coef = filters[i].coef,
            .scale = filters[i].scale,
            .offset = filters[i].offset,
            .magnitude = filters[i].magnitude,
        };
    page->filters = job->filters;
    page->filter_count = setting->filter_count;
    if (setting->border == CONV_BORDER_CONSTANT)
        conv_page_job_fact(job, "border", "constant, %d", setting->border_value);
    else
        conv_page_job_fact(job, "border", "%s", conv_filter_border_name(setting->border));
    for (int d = 0; d < setting->device_count; d++) {
        if (setting->backends[d])
            conv_page_job_device(job, setting->ops, setting->names[d], setting->ordinals[d]);
        else
            conv_page_job_fact(job, "device", "%s, which did not start in time", setting->names[d]);
    }
    if (setting->device_count > 0)
        describe_kernels(job, setting);
    conv_page_job_machine(job, setting->limits);
}

enum conv_status conv_page_job_finish(struct conv_page_job *job, const char *record,
                                      struct conv_err *err)
{
    struct conv_page *page = &job->page;
    if (!record) // glibc's fclose() does not report a memory stream that ran out of memory
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the page");
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(page->when, sizeof page->when, "%Y-%m-%d %H:%M", &local);
    page->command = job->command;
    page->record = record;
    FILE *file = job->file;
    job->file = NULL;
    return conv_page_write(page, file, job->path, err);
}
