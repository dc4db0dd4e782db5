// SPDX-License-Identifier: MIT
#include "bench/bench_kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/json.h"

#define AT(figure) offsetof(struct conv_bench_line, figure)

static const struct conv_bench_column columns[] = {
    {NULL, 0, 0, "", "runs", 0, 0, AT(runs)},
    {"ms", 10, 3, "", "ms", 6, 6, AT(ms)},
    {"min", 10, 3, "", "ms_min", 6, 6, AT(ms_min)},
    {"max", 10, 3, "", "ms_max", 6, 6, AT(ms_max)},
    {NULL, 0, 0, "", "ms_p25", 6, 6, AT(ms_p25)},
    {NULL, 0, 0, "", "ms_p75", 6, 6, AT(ms_p75)},
    {"runs", 5, 0, "", NULL, 0, 0, AT(runs)},
    {"Mpix/s", 8, 0, "", "mpix_per_s", 6, 3, AT(mpix_per_s)},
    {"GB/s", 8, 2, "", "gb_per_s", 8, 4, AT(gb_per_s)},
    {"of a copy", 10, 1, " %", "share_of_copy", 6, 6, AT(share)},
    {"step", 8, 2, "x", "step", 4, 4, AT(step)},
};
const struct conv_bench_form conv_bench_kernels_form = {
    .name_width = 22,
    .columns = columns,
    .count = sizeof columns / sizeof columns[0],
    .with_copy = true,
};

static void print_head(const struct conv_bench_options *options,
                       const struct conv_bench_result *result)
{
    static const char *const labels[CONV_BENCH_PLACES] = {"CPU: ", "", "CUDA:"};
    char images[80];
    conv_bench_workload_describe(&result->workload, "x", true, images, sizeof images);
    conv_text_terminal(stdout, options->choice->bench.filter);
    printf(", %s border, %s, 3 planes of %d bits, in one launch\n",
           conv_filter_border_name(options->choice->filter.border), images, result->workload.depth);
    for (int p = 0; p < CONV_BENCH_PLACES; p++)
        if (*result->table.places[p].machine)
            printf("%s %s\n", labels[p], result->table.places[p].machine);
    puts("ms: the median of all runs, and the fastest and the slowest; caches are cold. Of a copy: "
         "share of the copy's\nspeed in this table, the median of runs in turn with those of all "
         "kernels.");
}

static void print_json(const struct conv_bench_options *options,
                       const struct conv_bench_result *result, FILE *stream)
{
    const struct conv_bench_workload *workload = &result->workload;
    const struct conv_bench_table *table = &result->table;
    fputs("{\"type\":\"bench-kernels\",\"version\":\"" CONV_VERSION "\"", stream);
    conv_json_member(stream, "filter", options->choice->bench.filter);
    conv_json_member(stream, "border", conv_filter_border_name(options->choice->filter.border));
    conv_json_member(stream, "cpu", table->places[CONV_BENCH_ONE_CORE].machine);
    conv_json_member(stream, "cuda", table->places[CONV_BENCH_CUDA].machine);
    if (table->compared)
        conv_json_member(stream, "compared_with", table->compared);
    fprintf(stream,
            ",\"width\":%d,\"height\":%d,\"images\":%d,\"planes\":3,\"depth\":%d,\"pixels\":%.0f",
            workload->width, workload->height, workload->images, workload->depth, workload->pixels);
    conv_bench_table_print_json(table, stream);
    fputs("}\n", stream);
}

// --- the page ------------------------------------------------------------------------------------

struct record {
    const struct conv_bench_options *options;
    const struct conv_bench_result *results;
    int count;
};

// One object, or an array of several.
static void print_record(const void *context, FILE *stream)
{
    const struct record *record = context;
    for (int i = 0; i < record->count; i++) {
        if (record->count > 1)
            putc(i == 0 ? '[' : ',', stream);
        print_json(record->options, &record->results[i], stream);
    }
    if (record->count > 1)
        putc(']', stream);
}

enum conv_status conv_bench_kernels_page(const struct conv_bench_options *options,
                                         const struct conv_bench_result *results, int count,
                                         struct conv_err *err)
{
    struct conv_page *page = options->page;
    const struct conv_bench_yardsticks *places = results[0].table.places;
    bool on_cuda = *places[CONV_BENCH_CUDA].machine;
    const char *where = places[on_cuda ? CONV_BENCH_CUDA : CONV_BENCH_ONE_CORE].machine;
    struct record record = {options, results, count};
    for (int w = 0; w < count; w++) {
        char images[80];
        conv_bench_workload_describe(&results[w].workload, "×", false, images, sizeof images);
        conv_page_fact(page, "images", "%s", images);
    }
    page->kind = "conv bench kernels";
    conv_page_title(page, "Kernel ladder: %.100s on %s", options->choice->bench.filter, where);
    conv_page_fact(page, "samples", "3 planes of %d bits", results[0].workload.depth);
    conv_page_describe(page, &(struct conv_page_setting){
                                 .filters = options->filters,
                                 .filter_count = options->filter_count,
                                 .border = options->choice->filter.border,
                                 .border_value = options->choice->filter.border_value,
                                 .limits = options->choice->machine.limits,
                             });
    return conv_page_finish(page, print_record, &record, err);
}

// -------------------------------------------------------------------------------------------------

void conv_bench_kernels_print(const struct conv_bench_options *options,
                              const struct conv_bench_result *result, bool failed)
{
    const struct conv_bench_table *table = &result->table;
    if (options->format == CONV_BENCH_TEXT && table->count > 0) {
        print_head(options, result);
        conv_bench_table_print(table);
    }
    if (!failed && options->format == CONV_BENCH_JSON)
        print_json(options, result, stdout);
    if (!failed && options->format == CONV_BENCH_CSV)
        conv_bench_table_print_csv(table, "", "");
}

// --- an earlier result ---------------------------------------------------------------------------

#define MOST_BYTES ((size_t)16 << 20) // a result has some 20 KB

struct conv_bench_compare {
    const char *path;
    char *text; // results, one after the other or in an array
};

// --- reading -------------------------------------------------------------------------------------

// The result that begins at or after `at`; NULL: there is none.
static const char *find_result(const char *at)
{
    while (at) {
        char type[32];
        struct conv_json_value value;
        at += strspn(at, " \t\r\n[],");
        if (!*at)
            return NULL;
        if (*at == '{' && conv_json_skip(at) && conv_json_read(&value, at, "type") &&
            conv_json_text(&value, type, sizeof type) && strcmp(type, "bench-kernels") == 0)
            return at;
        at = conv_json_skip(at);
    }
    return NULL;
}

static enum conv_status read_text(struct conv_bench_compare *compare, FILE *file,
                                  struct conv_err *err)
{
    size_t size = fread(compare->text, 1, MOST_BYTES, file);
    if (ferror(file)) {
        conv_err_errno(err, errno, "cannot read %s", compare->path);
        return err->status = CONV_ERR_USAGE;
    }
    if (size == MOST_BYTES)
        return conv_err_usage(err, "%s is too large for a result of conv bench kernels",
                              compare->path);
    compare->text[size] = 0;
    if (strlen(compare->text) != size || !find_result(compare->text))
        return conv_err_usage(err, "%s is not JSON output of conv bench kernels", compare->path);
    return CONV_OK;
}

enum conv_status conv_bench_compare_open(struct conv_bench_compare **out, const char *path,
                                         struct conv_err *err)
{
    struct conv_bench_compare *compare = calloc(1, sizeof *compare);
    if (compare)
        compare->text = malloc(MOST_BYTES + 1);
    *out = compare;
    if (!compare || !compare->text)
        return conv_err_memory(err, "no memory to read %s", path);
    compare->path = path;
    FILE *file = fopen(path, "re");
    if (!file) {
        conv_err_errno(err, errno, "cannot read %s", path);
        return err->status = CONV_ERR_USAGE;
    }
    enum conv_status status = read_text(compare, file, err);
    fclose(file);
    return status;
}

void conv_bench_compare_close(struct conv_bench_compare *compare)
{
    if (!compare)
        return;
    free(compare->text);
    free(compare);
}

// --- comparing -----------------------------------------------------------------------------------

static bool has_text(const char *object, const char *name, const char *text)
{
    struct conv_json_value value;
    char found[512];
    return conv_json_read(&value, object, name) && conv_json_text(&value, found, sizeof found) &&
           strcmp(found, text) == 0;
}

static double read_number(const char *object, const char *name)
{
    struct conv_json_value value;
    double number = 0;
    return conv_json_read(&value, object, name) && conv_json_number(&value, &number) ? number : 0;
}

// The result of the same filter, border and workload, or NULL.
static const char *find_same(const struct conv_bench_compare *compare,
                             const struct conv_bench_options *options,
                             const struct conv_bench_workload *workload)
{
    const char *at = find_result(compare->text);
    while (at &&
           !(has_text(at, "filter", options->choice->bench.filter) &&
             has_text(at, "border", conv_filter_border_name(options->choice->filter.border)) &&
             read_number(at, "width") == workload->width &&
             read_number(at, "height") == workload->height &&
             read_number(at, "images") == workload->images &&
             read_number(at, "depth") == workload->depth))
        at = find_result(conv_json_skip(at));
    return at;
}

enum conv_status conv_bench_compare_check(const struct conv_bench_compare *compare,
                                          const struct conv_bench_options *options,
                                          const struct conv_bench_workload *workload,
                                          struct conv_err *err)
{
    return find_same(compare, options, workload)
               ? CONV_OK
               : conv_err_usage(err,
                                "%s has results of another filter, border, image size or depth",
                                compare->path);
}

static void fill_line(struct conv_bench_line *line, const char *row)
{
    double ms = read_number(row, "ms");
    if (ms <= 0 || !has_text(row, "name", line->name) ||
        !has_text(row, "where", conv_bench_table_place(line->where)))
        return;
    line->old_ms = ms;
    line->old_p25 = read_number(row, "ms_p25");
    line->old_p75 = read_number(row, "ms_p75");
}

void conv_bench_compare_fill(const struct conv_bench_compare *compare,
                             const struct conv_bench_options *options,
                             const struct conv_bench_workload *workload,
                             struct conv_bench_table *table)
{
    const char *result = find_same(compare, options, workload);
    struct conv_json_value rows;
    if (!result || !conv_json_read(&rows, result, "rows") || *rows.text != '[')
        return;
    table->compared = compare->path;
    const char *at = rows.text + 1, *end = rows.text + rows.size;
    while (at && at < end) {
        at += strspn(at, " \t\r\n,");
        if (*at != '{')
            return;
        for (int i = 0; i < table->count; i++)
            fill_line(&table->lines[i], at);
        at = conv_json_skip(at);
    }
}
