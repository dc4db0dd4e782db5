// SPDX-License-Identifier: MIT
#include "bench/bench_compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/json.h"

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
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s is too large for a result of conv bench kernels", compare->path);
    compare->text[size] = 0;
    if (strlen(compare->text) != size || !find_result(compare->text))
        return conv_err_set(err, CONV_ERR_USAGE, "%s is not JSON output of conv bench kernels",
                            compare->path);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to read %s", path);
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
    while (at && !(has_text(at, "filter", options->filter_text) &&
                   has_text(at, "border", conv_filter_border_name(options->border)) &&
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
               : conv_err_set(err, CONV_ERR_USAGE,
                              "%s has results of another filter, border, image size or depth",
                              compare->path);
}

static void fill_line(struct conv_bench_line *line, const char *row)
{
    double ms = read_number(row, "ms");
    if (ms <= 0 || !has_text(row, "name", line->name) ||
        !has_text(row, "where", conv_bench_table_place(line->place)))
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
