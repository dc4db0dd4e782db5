// SPDX-License-Identifier: MIT
#include "bench/bench_table.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "bench/bench.h"
#include "report/json.h"

const char *conv_bench_table_kind(enum conv_bench_kind kind)
{
    static const char *const kinds[] = {"copy", "variant", "shape", "competitor"};
    return kinds[kind];
}

const char *conv_bench_table_place(enum conv_bench_where where)
{
    return where == CONV_BENCH_CUDA ? "cuda" : "cpu";
}

// --- lines ---------------------------------------------------------------------------------------

struct conv_bench_line *conv_bench_table_add(struct conv_bench_table *table,
                                             enum conv_bench_kind kind, const char *name,
                                             const char *summary, enum conv_bench_where where)
{
    if (table->count == CONV_BENCH_MOST_LINES - CONV_BENCH_PLACES) // those are for copies
        table->count--; // the table of variants would have to double first
    struct conv_bench_line *line = &table->lines[table->count++];
    *line = (struct conv_bench_line){.kind = kind, .name = name, .where = where, .step = NAN};
    snprintf(line->summary, sizeof line->summary, "%s", summary);
    return line;
}

void conv_bench_table_skip(struct conv_bench_table *table, enum conv_bench_kind kind,
                           const char *name, enum conv_bench_where where, const char *reason)
{
    struct conv_bench_line *line = conv_bench_table_add(table, kind, name, "", where);
    // Reasons are short: none contains a path.
    snprintf(line->skipped, sizeof line->skipped, "%.*s", (int)sizeof line->skipped - 1, reason);
}

static void set_times(struct conv_bench_line *line, double *ns, int runs,
                      const struct conv_bench_amount *amount)
{
    struct conv_stat stat = conv_stat_sort(ns, runs);
    line->runs = runs;
    line->images = amount->images;
    line->ms = stat.median / 1e6;
    line->ms_min = stat.min / 1e6;
    line->ms_max = stat.max / 1e6;
    line->ms_p25 = stat.p25 / 1e6;
    line->ms_p75 = stat.p75 / 1e6;
    line->us_per_image = stat.median / 1e3 / amount->images;
    line->mpix_per_s = amount->pixels / stat.median * 1e3;
    line->gb_per_s = amount->bytes / stat.median;
    line->tflop_per_s = amount->flops / stat.median / 1e3;
}

void conv_bench_table_set(struct conv_bench_table *table, double *ns, int runs,
                          const struct conv_bench_amount *amount)
{
    struct conv_bench_line *line = &table->lines[table->count - 1];
    double *last_ms = &table->places[line->where].last_ms;
    set_times(line, ns, runs, amount);
    if (line->kind == CONV_BENCH_VARIANT) {
        double ms = line->ms / line->images;
        line->step = *last_ms > 0 ? *last_ms / ms : NAN;
        *last_ms = ms;
    }
}

// --- yardsticks ----------------------------------------------------------------------------------

void conv_bench_table_add_copy(struct conv_bench_table *table, enum conv_bench_where where,
                               double ns, const struct conv_bench_amount *amount)
{
    struct conv_bench_yardsticks *at = &table->places[where];
    at->copied = *amount;
    if (at->copy_count < CONV_BENCH_MOST_COPIES)
        at->copy_ns[at->copy_count++] = ns > 0 ? ns : 1;
}

void conv_bench_table_add_fma(struct conv_bench_table *table, enum conv_bench_where where,
                              double tflop_per_s)
{
    struct conv_bench_yardsticks *at = &table->places[where];
    if (at->fma_count < CONV_BENCH_MOST_COPIES)
        at->fma_tflop_per_s[at->fma_count++] = tflop_per_s;
}

// Inserts a line above the first one that was measured at the place.
static void insert_copy(struct conv_bench_table *table, enum conv_bench_where where)
{
    struct conv_bench_yardsticks *from = &table->places[where];
    int at = 0;
    while (at < table->count && (table->lines[at].where != where || *table->lines[at].skipped))
        at++;
    if (at == table->count)
        return;
    struct conv_bench_line *line = &table->lines[at];
    memmove(line + 1, line, (size_t)(table->count++ - at) * sizeof *line);
    *line = (struct conv_bench_line){
        .kind = CONV_BENCH_COPY,
        .name = where == CONV_BENCH_CUDA ? "device copy" : "memcpy",
        .summary = "the same bytes, copied",
        .where = where,
        .step = NAN,
    };
    set_times(line, from->copy_ns, from->copy_count, &from->copied);
}

static double share_of(double rate, double whole)
{
    return whole > 0 ? rate / whole : 0;
}

void conv_bench_table_finish(struct conv_bench_table *table)
{
    for (int p = 0; p < CONV_BENCH_PLACES; p++) {
        struct conv_bench_yardsticks *at = &table->places[p];
        if (at->copy_count == 0)
            continue;
        at->copy_gb_per_s = at->copied.bytes / conv_stat_median(at->copy_ns, at->copy_count);
        if (at->fma_count > 0)
            at->fma_rate = conv_stat_median(at->fma_tflop_per_s, at->fma_count);
        if (table->form->with_copy)
            insert_copy(table, (enum conv_bench_where)p);
    }
    for (int i = 0; i < table->count; i++) {
        struct conv_bench_line *line = &table->lines[i];
        line->share = share_of(line->gb_per_s, table->places[line->where].copy_gb_per_s);
        line->fma_share = share_of(line->tflop_per_s, table->places[line->where].fma_rate);
    }
}

// --- text ----------------------------------------------------------------------------------------

// How the line differs from the earlier benchmark: "faster" or "slower" if the middle halves of the
// runs do not overlap and the medians are 2 % apart, else "same". NULL: the line is not in both.
static const char *change_of(const struct conv_bench_line *line)
{
    if (line->old_ms <= 0 || *line->skipped)
        return NULL;
    double ratio = line->ms / line->old_ms;
    if (line->ms_p75 < line->old_p25 && ratio < 0.98)
        return "faster";
    return line->ms_p25 > line->old_p75 && ratio > 1.02 ? "slower" : "same";
}

static double value_of(const struct conv_bench_line *line, const struct conv_bench_column *column)
{
    double value;
    memcpy(&value, (const char *)line + column->at, sizeof value);
    return value;
}

static void print_figure(const struct conv_bench_column *column, double value)
{
    int width = column->width - (int)strlen(column->unit);
    if (isnan(value))
        printf(" %*s", column->width, "");
    else if (column->digits < 0)
        printf(" %*s", column->width, value > 0 ? "same" : "-");
    else
        printf(" %*.*f%s", width, column->digits, *column->unit == ' ' ? 100 * value : value,
               column->unit);
}

static void print_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    char name[64];
    const char *change = change_of(line);
    if (line->where == CONV_BENCH_ALL_CORES)
        snprintf(name, sizeof name, "%s, %d cores", line->name, table->threads);
    else
        snprintf(name, sizeof name, "%s%s", line->kind == CONV_BENCH_SHAPE ? "  " : "", line->name);
    printf("%-*s", table->form->name_width, name);
    if (*line->skipped) {
        fputs(" skipped: ", stdout);
        conv_text_terminal(stdout, line->skipped);
        putchar('\n');
        return;
    }
    for (int c = 0; c < table->form->count; c++)
        if (table->form->columns[c].title)
            print_figure(&table->form->columns[c], value_of(line, &table->form->columns[c]));
    if (change)
        printf(" %10.3f %7.2fx %-6s", line->old_ms, line->old_ms / line->ms, change);
    else if (table->compared)
        printf(" %10s %8s %-6s", "", "", "");
    printf("  %s%s\n", line->kind == CONV_BENCH_COMPETITOR ? "competitor: " : "", line->summary);
}

void conv_bench_table_print(const struct conv_bench_table *table)
{
    printf("%-*s", table->form->name_width, "kernel");
    for (int c = 0; c < table->form->count; c++)
        if (table->form->columns[c].title)
            printf(" %*s", table->form->columns[c].width, table->form->columns[c].title);
    if (table->compared)
        printf(" %10s %8s %-6s", "before", "speed-up", "change");
    puts("  what it is");
    for (int i = 0; i < table->count; i++)
        print_line(table, &table->lines[i]);
    fflush(stdout);
}

// --- for programs --------------------------------------------------------------------------------

static int threads_of(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    return line->where == CONV_BENCH_CUDA       ? 0
           : line->where == CONV_BENCH_ONE_CORE ? 1
                                                : table->threads;
}

static void print_json_figure(FILE *stream, const struct conv_bench_column *column, double value)
{
    fprintf(stream, ",\"%s\":", column->name);
    if (isnan(value))
        fputs("null", stream);
    else if (column->digits < 0)
        fputs(value > 0 ? "true" : "false", stream);
    else
        fprintf(stream, "%.*f", column->json_digits, value);
}

static void print_json_line(FILE *stream, const struct conv_bench_table *table,
                            const struct conv_bench_line *line)
{
    const struct conv_bench_form *form = table->form;
    fputs("{\"name\":", stream);
    conv_json_string(stream, line->name);
    conv_json_member(stream, "kind", conv_bench_table_kind(line->kind));
    conv_json_member(stream, "where", conv_bench_table_place(line->where));
    if (form->with_threads && line->where != CONV_BENCH_CUDA)
        fprintf(stream, ",\"threads\":%d", threads_of(table, line));
    conv_json_member(stream, "summary", line->summary);
    if (line->precision)
        conv_json_member(stream, "precision", line->precision);
    if (*line->skipped)
        conv_json_member(stream, "skipped", line->skipped);
    for (int c = 0; c < form->count && !*line->skipped; c++)
        if (form->columns[c].name)
            print_json_figure(stream, &form->columns[c], value_of(line, &form->columns[c]));
    if (change_of(line)) {
        fprintf(stream, ",\"old_ms\":%.6f,\"speed_up\":%.6f", line->old_ms,
                line->old_ms / line->ms);
        conv_json_member(stream, "change", change_of(line));
    }
    fputc('}', stream);
}

void conv_bench_table_print_json(const struct conv_bench_table *table, FILE *stream)
{
    fputs(",\"rows\":[\n", stream);
    for (int i = 0; i < table->count; i++) {
        print_json_line(stream, table, &table->lines[i]);
        fputs(i + 1 < table->count ? ",\n" : "\n", stream);
    }
    fputs("]", stream);
}

static void print_csv_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    const struct conv_bench_form *form = table->form;
    const char *change = change_of(line);
    printf("%s,%s,%s,", line->name, conv_bench_table_kind(line->kind),
           conv_bench_table_place(line->where));
    if (form->with_threads)
        printf("%d,", threads_of(table, line));
    for (int c = 0; c < form->count; c++) {
        double value = value_of(line, &form->columns[c]);
        if (!form->columns[c].name)
            continue;
        if (!*line->skipped && !isnan(value))
            printf("%.*f", form->columns[c].csv_digits, value);
        putchar(',');
    }
    if (form->with_copy) {
        print_csv_text(line->summary);
        putchar(',');
    }
    if (form->with_copy || *line->skipped)
        print_csv_text(line->skipped);
    if (change)
        printf(",%.6f,%.6f,%s", line->old_ms, line->old_ms / line->ms, change);
    else if (table->compared)
        fputs(",,,", stdout);
    putchar('\n');
}

void conv_bench_table_print_csv(const struct conv_bench_table *table, const char *heading,
                                const char *before)
{
    const struct conv_bench_form *form = table->form;
    if (heading) {
        printf("%sname,kind,where,%s", heading, form->with_threads ? "threads," : "");
        for (int c = 0; c < form->count; c++)
            if (form->columns[c].name)
                printf("%s,", form->columns[c].name);
        printf("%sskipped%s\n", form->with_copy ? "summary," : "",
               table->compared ? ",old_ms,speed_up,change" : "");
    }
    for (int i = 0; i < table->count; i++) {
        fputs(before, stdout);
        print_csv_line(table, &table->lines[i]);
    }
}

// --- for all benchmarks --------------------------------------------------------------------------

void conv_bench_describe_machine(const struct conv_bench_options *options, int cores, char *name)
{
    char model[64];
    conv_cpu_model(model, sizeof model);
    if (cores == 0)
        snprintf(name, CONV_BENCH_MACHINE, "%s", options->gpu.name);
    else if (cores == 1)
        snprintf(name, CONV_BENCH_MACHINE, "one core of %s", model);
    else
        snprintf(name, CONV_BENCH_MACHINE, "%d cores of %s", cores, model);
}

void conv_bench_progress(bool shown, const char *name)
{
    if (!shown)
        return;
    fputs("\r\033[K", stderr);
    if (name)
        fprintf(stderr, "measuring %s", name);
    fflush(stderr);
}
