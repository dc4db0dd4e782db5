// SPDX-License-Identifier: MIT
#include "page/page.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/features.h"
#include "base/standard.h"
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
        if (!strstr(kernels, name))
            conv_text_add(kernels, sizeof kernels, ", ", "%s", name);
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

// --- timelines -----------------------------------------------------------------------------------
// One row per thread and engine. Rows with few slices have each of them, the others the share of
// each stage by bin of time. The size is bounded, however long the run and however many the rows.

#define MOST_ROWS 64
#define MOST_CELLS 8192   // rows times bins; a cell takes 14 bytes or more
#define MOST_SLICES 12288 // 2,000 images on workers; a slice takes 10 to 20 bytes, and its name

struct row {
    const char *name;
    struct conv_timeline *bins;
    const struct conv_slices *slices;
    bool is_listed; // its slices are written
};

struct chart {
    struct row rows[MOST_ROWS];
    int count, hidden;
};

// Streams first, also those that were opened later than the workers. Tracks without a slice are
// skipped.
static void find_rows(struct chart *chart, const struct conv_trace *trace)
{
    struct row row = {0};
    for (int of_streams = 1; of_streams >= 0; of_streams--)
        for (int track = 0; conv_trace_timeline(trace, track, &row.name, &row.bins, &row.slices);
             track++) {
            if ((strstr(row.name, "stream ") != NULL) != of_streams ||
                (row.slices->count == 0 && !row.slices->overflowed))
                continue;
            if (chart->count < MOST_ROWS)
                chart->rows[chart->count++] = row;
            else
                chart->hidden++;
        }
}

static int last_used(const struct conv_timeline *bins)
{
    for (int b = CONV_TIMELINE_BINS; b > 0; b--)
        for (int s = 0; s < CONV_STAGE_COUNT; s++)
            if (bins->ns[b - 1][s] > 0)
                return b;
    return 0;
}

// Slices are listed for the rows that fit into what is left of the page's share; rows with fewer
// slices come first.
static void choose_listed(struct chart *chart, int most)
{
    for (;;) {
        struct row *least = NULL;
        for (int i = 0; i < chart->count; i++) {
            struct row *row = &chart->rows[i];
            if (!row->is_listed && !row->slices->overflowed &&
                (!least || row->slices->count < least->slices->count))
                least = row;
        }
        if (!least || least->slices->count > most)
            return;
        least->is_listed = true;
        most -= least->slices->count;
    }
}

// "names":["a.png",...],"slices":[...]: for each slice the µs since the start of the slice before,
// its duration in µs, its stage, and the number of its name.
static void write_slices(FILE *file, const struct conv_slices *slices)
{
    fputs(",\"names\":[", file);
    for (int i = 0; i < slices->count; i++) {
        if (i > 0 && slices->list[i].text == slices->list[i - 1].text)
            continue;
        fputs(i > 0 ? "," : "", file);
        conv_json_string(file, conv_slices_name(slices, slices->list[i].text));
    }
    fputs("],\"slices\":[", file);
    int name = -1;
    int64_t before = 0;
    for (int i = 0; i < slices->count; i++) {
        const struct conv_slice *slice = &slices->list[i];
        int64_t start = (int64_t)(slice->start / 1000);
        name += i == 0 || slice->text != slices->list[i - 1].text;
        fprintf(file, "%s%" PRId64 ",%" PRIu64 ",%d,%d", i > 0 ? "," : "", start - before,
                (slice->end - slice->start + 500) / 1000, slice->stage, name);
        before = start;
    }
    fputc(']', file);
}

// "bins":[...]: for each bin the percent of it that each stage took.
static void write_bins(FILE *file, const struct conv_timeline *bins, int count, int merge)
{
    uint64_t all = bins->width * (uint64_t)merge;
    for (int b = 0; b < count; b++)
        for (int s = 0; s < CONV_STAGE_COUNT; s++) {
            uint64_t ns = 0;
            for (int i = b * merge; i < (b + 1) * merge && i < CONV_TIMELINE_BINS; i++)
                ns += bins->ns[i][s];
            fprintf(file, "%s%d", b + s ? "," : ",\"bins\":[", (int)((ns * 100 + all / 2) / all));
        }
    fputc(']', file);
}

// All rows get bins of one width; the last used one is where the chart ends. False if there is
// nothing to show, and then nothing is written.
static bool write_timelines(FILE *file, const struct conv_page *page)
{
    struct chart charts[CONV_PAGE_MOST_TIMELINES] = {0};
    int last = 0, most_rows = 0, merge = 1;
    uint64_t width = 0;
    for (int t = 0; t < page->timeline_count; t++) {
        find_rows(&charts[t], page->timelines[t].trace);
        choose_listed(&charts[t], MOST_SLICES / page->timeline_count);
        most_rows = charts[t].count > most_rows ? charts[t].count : most_rows;
        for (int i = 0; i < charts[t].count; i++)
            width = charts[t].rows[i].bins->width > width ? charts[t].rows[i].bins->width : width;
    }
    for (int t = 0; t < page->timeline_count; t++)
        for (int i = 0; i < charts[t].count; i++) {
            conv_timeline_widen(charts[t].rows[i].bins, width);
            int used = last_used(charts[t].rows[i].bins);
            last = used > last ? used : last;
        }
    while (page->timeline_count * most_rows * ((last + merge - 1) / merge) > MOST_CELLS)
        merge *= 2;
    int bins = (last + merge - 1) / merge;
    for (int t = 0; t < page->timeline_count && last > 0; t++) {
        fprintf(file, "%c{\"span\":%" PRIu64 ",\"hidden\":%d", t ? ',' : '[',
                width * (uint64_t)(bins * merge) / 1000, charts[t].hidden);
        conv_json_member(file, "title", page->timelines[t].title);
        fputs(",\"rows\":[", file);
        for (int i = 0; i < charts[t].count; i++) {
            const struct row *row = &charts[t].rows[i];
            fputs(i ? ",\n{\"name\":" : "{\"name\":", file);
            conv_json_string(file, row->name);
            if (row->is_listed)
                write_slices(file, row->slices);
            else
                write_bins(file, row->bins, bins, merge);
            fputc('}', file);
        }
        fputs("]}", file);
    }
    if (last > 0)
        fputc(']', file);
    return last > 0;
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

static void write_data(FILE *file, const struct conv_page *page)
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
    if (!write_timelines(file, page))
        fputs("[]", file);
    fputs(",\"record\":", file);
}

// The viewer has a mark for each of its parts and for the data: "{{css}}".
static void write_page(FILE *file, const struct conv_page *page,
                       void (*record)(const void *context, FILE *stream), const void *context)
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
        else {
            write_data(file, page);
            record(context, file);
            fputc('}', file);
        }
        text = strstr(mark, "}}") + 2;
    }
    fputs(text, file);
}

enum conv_status conv_page_finish(struct conv_page *page,
                                  void (*record)(const void *context, FILE *stream),
                                  const void *context, struct conv_err *err)
{
    bool bad = page->facts && fclose(page->facts) != 0;
    page->facts = NULL;
    if (bad) // glibc's fclose() does not report a memory stream that ran out of memory
        return conv_err_memory(err, "no memory for the page");
    FILE *file = page->file;
    struct conv_stall *stall = conv_stall_of(page->stall, file);
    page->file = NULL;
    conv_stall_begin(stall);
    write_page(file, page, record, context);
    enum conv_status status = conv_standard_close(file, "the page ", page->path, err);
    conv_stall_end(stall);
    return status;
}
