// SPDX-License-Identifier: MIT
#include "page/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/features.h"
#include "report/json.h"

#define PAGE_TEXT(name, text) static const char name[] = text;
#include "page_texts.h"
#undef PAGE_TEXT

void conv_page_close(struct conv_page *page)
{
    for (int i = 0; i < page->pair_count; i++) {
        free(page->pairs[i].before);
        free(page->pairs[i].after);
    }
    page->pair_count = 0;
    if (page->facts)
        fclose(page->facts);
    free(page->facts_text);
    if (page->file)
        fclose(page->file);
    page->file = page->facts = NULL;
    page->facts_text = NULL;
}

// --- facts ---------------------------------------------------------------------------------------

void conv_page_title(struct conv_page *page, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(page->title, sizeof page->title, format, arguments);
    va_end(arguments);
}

void conv_page_fact(struct conv_page *page, const char *label, const char *format, ...)
{
    char value[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (page->facts)
        fputc(',', page->facts);
    else if (!(page->facts = open_memstream(&page->facts_text, &page->facts_size)))
        return;
    fputc('[', page->facts);
    conv_json_string(page->facts, label);
    fputc(',', page->facts);
    conv_json_string(page->facts, value);
    fputc(']', page->facts);
}

void conv_page_device(struct conv_page *page, const struct conv_device_ops *ops, const char *name,
                      int ordinal)
{
    struct conv_device_info info[CONV_BACKEND_MOST_DEVICES];
    int known = 0;
    if (ops->place != CONV_ON_CPU && ordinal < CONV_BACKEND_MOST_DEVICES &&
        ops->devices(info, ordinal + 1, &known, NULL) == CONV_OK && ordinal < known)
        conv_page_fact(page, "device", "%s, %s", name, info[ordinal].name);
    else
        conv_page_fact(page, "device", "%s", name);
}

void conv_page_machine(struct conv_page *page, const struct conv_limits *limits)
{
    int cores = limits->cores;
    char model[96];
    struct utsname system;
    bool known = uname(&system) == 0;
    conv_cpu_model(model, sizeof model);
    if (known)
        conv_page_fact(page, "host", "%s", system.nodename);
    conv_page_fact(page, "processor", "%s, %d %s for this run", model, cores,
                   cores == 1 ? "core" : "cores");
    conv_page_fact(page, "memory", "%.0f GiB", (double)limits->memory / (1 << 30));
    if (known)
        conv_page_fact(page, "system", "%s %s", system.sysname, system.release);
}

static void describe_kernels(struct conv_page *page, const struct conv_page_setting *setting)
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
    conv_page_fact(page, "kernel at 8 bits", "%s", kernels);
}

void conv_page_describe(struct conv_page *page, const struct conv_page_setting *setting)
{
    page->filters = setting->filters;
    page->filter_count = setting->filter_count;
    if (setting->border == CONV_BORDER_CONSTANT)
        conv_page_fact(page, "border", "constant, %d", setting->border_value);
    else
        conv_page_fact(page, "border", "%s", conv_filter_border_name(setting->border));
    for (int d = 0; d < setting->device_count; d++) {
        if (setting->backends[d])
            conv_page_device(page, setting->ops, setting->names[d], setting->ordinals[d]);
        else
            conv_page_fact(page, "device", "%s, which did not start in time", setting->names[d]);
    }
    if (setting->device_count > 0)
        describe_kernels(page, setting);
    conv_page_machine(page, setting->limits);
}

// --- the data ------------------------------------------------------------------------------------

static void write_filters(FILE *file, const struct conv_page *page)
{
    fputs(",\"filters\":[", file);
    for (int i = 0; i < page->filter_count; i++) {
        const struct conv_filter *filter = &page->filters[i];
        fprintf(file, "%s{\"width\":%d,\"height\":%d,\"scale\":%g,\"offset\":%g,\"magnitude\":%s",
                i ? "," : "", filter->width, filter->height, filter->scale, filter->offset,
                filter->magnitude ? "true" : "false");
        conv_json_member(file, "name", filter->name);
        for (int c = 0; c < filter->width * filter->height; c++)
            fprintf(file, "%s%.5g", c ? "," : ",\"coef\":[", filter->coef[c]);
        fputs("]}", file);
    }
    fputc(']', file);
}

static void write_failures(FILE *file, const struct conv_samples *samples)
{
    fprintf(file, ",\"other_failures\":%" PRIu64 ",\"failures\":[", samples->other_failures);
    for (int i = 0; i < samples->reason_count; i++) {
        const struct conv_sample_reason *reason = &samples->reasons[i];
        fprintf(file, "%s{\"count\":%" PRIu64, i ? "," : "", reason->count);
        conv_json_member(file, "reason", reason->text);
        fputs(",\"names\":[", file);
        for (int n = 0; n < reason->name_count; n++) {
            fputs(n ? "," : "", file);
            conv_json_string(file, reason->names[n]);
        }
        fputs("]}", file);
    }
    fputc(']', file);
}

// Times of images in ns: of each bin with images where it begins, where it ends and their number.
static void write_times(FILE *file, const struct conv_samples *samples)
{
    fprintf(file, ",\"times\":{\"median\":%.0f,\"most\":%.0f,\"bins\":[",
            conv_samples_quantile(samples, 0.5), conv_samples_quantile(samples, 0.95));
    const char *comma = "";
    for (int i = 0; i < CONV_SAMPLES_BINS; i++) {
        if (samples->times[i] == 0)
            continue;
        fprintf(file, "%s[%d,%.0f,%" PRIu64 "]", comma, i, conv_samples_bin_start(i),
                samples->times[i]);
        comma = ",";
    }
    fputs("],\"slowest\":[", file);
    for (int i = 0; i < samples->slow_count; i++) {
        const struct conv_sample_slow *slow = &samples->slowest[i];
        fprintf(file, "%s{\"width\":%d,\"height\":%d,\"total\":%" PRIu64 ",\"ns\":[", i ? "," : "",
                slow->width, slow->height, slow->total);
        for (int s = 0; s < CONV_STAGE_COUNT; s++)
            fprintf(file, "%s%" PRIu64, s ? "," : "", slow->ns[s]);
        fputc(']', file);
        conv_json_member(file, "name", slow->input);
        fputc('}', file);
    }
    fputs("]}", file);
}

// RFC 4648.
static void write_base64(FILE *file, const char *name, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fprintf(file, ",\"%s\":\"", name);
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t bits = (uint32_t)data[i] << 16;
        if (left > 1)
            bits |= (uint32_t)data[i + 1] << 8;
        if (left > 2)
            bits |= data[i + 2];
        fputc(digits[bits >> 18], file);
        fputc(digits[bits >> 12 & 63], file);
        fputc(left > 1 ? digits[bits >> 6 & 63] : '=', file);
        fputc(left > 2 ? digits[bits & 63] : '=', file);
    }
    fputc('"', file);
}

static void write_pairs(FILE *file, const struct conv_page *page)
{
    fputs(",\"pairs\":[", file);
    for (int i = 0; i < page->pair_count; i++) {
        const struct conv_page_pair *pair = &page->pairs[i];
        fprintf(file, "%s{\"width\":%d,\"height\":%d,\"crop\":[%d,%d,%d,%d]", i ? "," : "",
                pair->width, pair->height, pair->crop_width, pair->crop_height, pair->crop_x,
                pair->crop_y);
        conv_json_member(file, "name", pair->name);
        write_base64(file, "before", pair->before, pair->before_size);
        write_base64(file, "after", pair->after, pair->after_size);
        fputc('}', file);
    }
    fputc(']', file);
}

static void write_data(FILE *file, const struct conv_page *page, const char *record)
{
    const struct conv_report_config *config = page->config;
    time_t now = time(NULL);
    struct tm local;
    char when[32] = "";
    if (localtime_r(&now, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    fputs("{\"version\":\"" CONV_VERSION "\"", file);
    conv_json_member(file, "when", when);
    conv_json_member(file, "kind", page->kind);
    conv_json_member(file, "title", page->title);
    conv_json_member(file, "command", page->command);
    conv_json_member(file, "note", page->note);
    fprintf(file, ",\"facts\":[%s]", page->facts_text ? page->facts_text : "");
    write_filters(file, page);
    if (config) {
        fprintf(file, ",\"workers\":%d,\"streams\":%d,\"devices\":%d,\"async\":%s", config->jobs,
                config->streams, config->device_count, config->device_async ? "true" : "false");
        conv_json_member(file, "device", config->device);
    }
    if (page->samples) {
        write_failures(file, page->samples);
        write_times(file, page->samples);
    }
    write_pairs(file, page);
    fputs(",\"timelines\":", file);
    if (!conv_page_write_timelines(page, file))
        fputs("[]", file);
    fprintf(file, ",\"record\":%s}", record);
}

// The viewer has a mark for each of its parts and for the data: "{{css}}".
static void write_page(FILE *file, const struct conv_page *page, const char *record)
{
    const char *text = page_html, *mark;
    while ((mark = strstr(text, "{{"))) {
        fwrite(text, 1, (size_t)(mark - text), file);
        if (strncmp(mark, "{{css}}", 7) == 0)
            fputs(page_css, file);
        else if (strncmp(mark, "{{js}}", 6) == 0)
            fputs(page_js, file);
        else if (strncmp(mark, "{{version}}", 11) == 0)
            fputs(CONV_VERSION, file);
        else
            write_data(file, page, record);
        text = strstr(mark, "}}") + 2;
    }
    fputs(text, file);
}

enum conv_status conv_page_finish(struct conv_page *page, const char *record, struct conv_err *err)
{
    bool bad = !record || (page->facts && fclose(page->facts) != 0);
    if (record)
        page->facts = NULL;
    if (bad) // glibc's fclose() does not report a memory stream that ran out of memory
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the page");
    FILE *file = page->file;
    struct conv_stall *stall = conv_stall_of(page->stall, file);
    page->file = NULL;
    conv_stall_begin(stall);
    write_page(file, page, record);
    errno = 0;
    bad = ferror(file) != 0;
    bad |= fclose(file) != 0;
    conv_stall_end(stall);
    return bad ? conv_err_errno(err, errno, "cannot write the page to %s", page->path) : CONV_OK;
}
