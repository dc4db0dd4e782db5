// SPDX-License-Identifier: MIT
#include "bench/bench_table.h"

#include <string.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "report/json.h"
#include "report/report.h"

const char *conv_bench_table_kind(enum conv_bench_kind kind)
{
    static const char *const kinds[] = {"copy", "variant", "shape", "competitor"};
    return kinds[kind];
}

const char *conv_bench_table_place(enum conv_place place)
{
    return place == CONV_ON_CUDA ? "cuda" : "cpu";
}

double conv_bench_table_rate(const struct conv_bench_table *table, double ms)
{
    return table->bytes / ms / 1e6;
}

static double pixel_rate(const struct conv_bench_table *table, double ms)
{
    return table->pixels / ms / 1e3;
}

const char *conv_bench_table_change(const struct conv_bench_line *line)
{
    if (line->old_ms <= 0 || *line->skipped)
        return NULL;
    double ratio = line->ms / line->old_ms;
    if (line->ms_p75 < line->old_p25 && ratio < 0.98)
        return "faster";
    return line->ms_p25 > line->old_p75 && ratio > 1.02 ? "slower" : "same";
}

// --- lines ---------------------------------------------------------------------------------------

static void set_times(struct conv_bench_line *line, double *ns, int runs)
{
    struct conv_stat stat = conv_stat_sort(ns, runs);
    line->runs = runs;
    line->ms = stat.median / 1e6;
    line->ms_min = stat.min / 1e6;
    line->ms_max = stat.max / 1e6;
    line->ms_p25 = stat.p25 / 1e6;
    line->ms_p75 = stat.p75 / 1e6;
}

static struct conv_bench_line *add_line(struct conv_bench_table *table, enum conv_bench_kind kind,
                                        const char *name, const char *summary,
                                        enum conv_place place)
{
    if (table->count == CONV_BENCH_MOST_LINES - CONV_BENCH_MOST_PLACES) // those are for copies
        table->count--; // the table of variants would have to double first
    struct conv_bench_line *line = &table->lines[table->count++];
    *line =
        (struct conv_bench_line){.kind = kind, .name = name, .summary = summary, .place = place};
    return line;
}

void conv_bench_table_skip(struct conv_bench_table *table, enum conv_bench_kind kind,
                           const char *name, enum conv_place place, const char *reason)
{
    struct conv_bench_line *line = add_line(table, kind, name, "", place);
    // Reasons are short: none contains a path.
    snprintf(line->skipped, sizeof line->skipped, "%.*s", (int)sizeof line->skipped - 1, reason);
}

void conv_bench_table_add_copy(struct conv_bench_table *table, enum conv_place place, double ns)
{
    struct conv_bench_place *at = &table->places[place];
    if (at->copy_count < CONV_BENCH_MOST_COPIES)
        at->copy_ns[at->copy_count++] = ns;
}

void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, enum conv_place place, double *ns,
                          int runs)
{
    double *last_ms = &table->places[place].last_ms;
    struct conv_bench_line *line = add_line(table, kind, name, summary, place);
    set_times(line, ns, runs);
    if (kind == CONV_BENCH_VARIANT) {
        line->step = *last_ms > 0 ? *last_ms / line->ms : 0;
        *last_ms = line->ms;
    }
}

// Inserts a line above the first one that was measured at the place, and returns it; NULL: there
// was no copy.
static struct conv_bench_line *insert_copy(struct conv_bench_table *table, enum conv_place place)
{
    struct conv_bench_place *from = &table->places[place];
    int at = 0;
    while (at < table->count && (table->lines[at].place != place || *table->lines[at].skipped))
        at++;
    if (from->copy_count == 0 || at == table->count)
        return NULL;
    struct conv_bench_line *line = &table->lines[at];
    memmove(line + 1, line, (size_t)(table->count++ - at) * sizeof *line);
    *line = (struct conv_bench_line){
        .kind = CONV_BENCH_COPY,
        .name = place == CONV_ON_CUDA ? "device copy" : "memcpy",
        .summary = "the same bytes, copied",
        .place = place,
    };
    set_times(line, from->copy_ns, from->copy_count);
    return line;
}

void conv_bench_table_finish(struct conv_bench_table *table)
{
    for (int p = 0; p < CONV_BENCH_MOST_PLACES; p++) {
        const struct conv_bench_line *copy = insert_copy(table, (enum conv_place)p);
        for (int i = 0; copy && i < table->count; i++) {
            struct conv_bench_line *line = &table->lines[i];
            if (line->place == copy->place && !*line->skipped)
                line->share = copy->ms / line->ms;
        }
    }
}

// --- text ----------------------------------------------------------------------------------------

static void print_head(const struct conv_bench_table *table)
{
    static const char *const labels[CONV_BENCH_MOST_PLACES] = {"CPU: ", "CUDA:"};
    for (int p = 0; p < CONV_BENCH_MOST_PLACES; p++)
        if (*table->places[p].machine)
            printf("%s %s\n", labels[p], table->places[p].machine);
    puts("ms: the median of all runs, and the fastest and the slowest; caches are cold. Of a copy: "
         "share of the copy's\nspeed in this table, the median of runs in turn with those of all "
         "kernels.");
    printf("%-22s %10s %10s %10s %5s", "kernel", "ms", "min", "max", "runs");
    printf(" %8s %8s %10s %8s", "Mpix/s", "GB/s", "of a copy", "step");
    if (table->compared)
        printf(" %10s %8s %-6s", "before", "speed-up", "change");
    puts("  what it is");
}

static void print_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    char name[40], step[16] = "", speed_up[24] = "", before[24] = "";
    const char *change = conv_bench_table_change(line);
    snprintf(name, sizeof name, "%s%s", line->kind == CONV_BENCH_SHAPE ? "  " : "", line->name);
    if (*line->skipped) {
        printf("%-22s skipped: ", name);
        conv_report_print_path(stdout, line->skipped);
        putchar('\n');
        return;
    }
    if (line->step > 0)
        snprintf(step, sizeof step, "%.2fx", line->step);
    printf("%-22s %10.3f %10.3f %10.3f %5d", name, line->ms, line->ms_min, line->ms_max,
           line->runs);
    printf(" %8.0f", pixel_rate(table, line->ms));
    printf(" %8.2f %8.1f %% %8s", conv_bench_table_rate(table, line->ms), 100 * line->share, step);
    if (change) {
        snprintf(before, sizeof before, "%.3f", line->old_ms);
        snprintf(speed_up, sizeof speed_up, "%.2fx", line->old_ms / line->ms);
    }
    if (table->compared)
        printf(" %10s %8s %-6s", before, speed_up, change ? change : "");
    printf("  %s%s\n", line->kind == CONV_BENCH_COMPETITOR ? "competitor: " : "", line->summary);
}

void conv_bench_table_print(const struct conv_bench_table *table)
{
    print_head(table);
    for (int i = 0; i < table->count; i++)
        print_line(table, &table->lines[i]);
}

// --- for programs --------------------------------------------------------------------------------

static void print_json_line(FILE *stream, const struct conv_bench_table *table,
                            const struct conv_bench_line *line)
{
    fputs("{\"name\":", stream);
    conv_json_string(stream, line->name);
    conv_json_member(stream, "kind", conv_bench_table_kind(line->kind));
    conv_json_member(stream, "where", conv_bench_table_place(line->place));
    conv_json_member(stream, "summary", line->summary);
    if (*line->skipped) {
        conv_json_member(stream, "skipped", line->skipped);
    } else {
        fprintf(stream,
                ",\"runs\":%d,\"ms\":%.6f,\"ms_min\":%.6f,\"ms_max\":%.6f,"
                "\"ms_p25\":%.6f,\"ms_p75\":%.6f",
                line->runs, line->ms, line->ms_min, line->ms_max, line->ms_p25, line->ms_p75);
        fprintf(stream, ",\"mpix_per_s\":%.6f,\"gb_per_s\":%.8f,\"share_of_copy\":%.6f,\"step\":",
                pixel_rate(table, line->ms), conv_bench_table_rate(table, line->ms), line->share);
        if (line->step > 0)
            fprintf(stream, "%.4f", line->step);
        else
            fputs("null", stream);
    }
    if (conv_bench_table_change(line)) {
        fprintf(stream, ",\"old_ms\":%.6f,\"speed_up\":%.6f", line->old_ms,
                line->old_ms / line->ms);
        conv_json_member(stream, "change", conv_bench_table_change(line));
    }
    fputc('}', stream);
}

void conv_bench_table_print_json(const struct conv_bench_table *table, const char *members,
                                 FILE *stream)
{
    for (int p = 0; p < CONV_BENCH_MOST_PLACES; p++)
        conv_json_member(stream, conv_bench_table_place((enum conv_place)p),
                         table->places[p].machine);
    if (table->compared)
        conv_json_member(stream, "compared_with", table->compared);
    fprintf(stream, "%s,\"rows\":[\n", members);
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

void conv_bench_table_print_csv(const struct conv_bench_table *table)
{
    fputs("name,kind,where,runs,ms,ms_min,ms_max,ms_p25,ms_p75,mpix_per_s,gb_per_s,"
          "share_of_copy,step,summary,skipped",
          stdout);
    puts(table->compared ? ",old_ms,speed_up,change" : "");
    for (int i = 0; i < table->count; i++) {
        const struct conv_bench_line *line = &table->lines[i];
        printf("%s,%s,%s,", line->name, conv_bench_table_kind(line->kind),
               conv_bench_table_place(line->place));
        if (*line->skipped)
            fputs(",,,,,,,,,", stdout);
        else
            printf("%d,%.6f,%.6f,%.6f,%.6f,%.6f,%.3f,%.4f,%.6f,", line->runs, line->ms,
                   line->ms_min, line->ms_max, line->ms_p25, line->ms_p75,
                   pixel_rate(table, line->ms), conv_bench_table_rate(table, line->ms),
                   line->share);
        if (line->step > 0)
            printf("%.4f", line->step);
        putchar(',');
        print_csv_text(line->summary);
        putchar(',');
        print_csv_text(line->skipped);
        const char *change = conv_bench_table_change(line);
        if (change)
            printf(",%.6f,%.6f,%s", line->old_ms, line->old_ms / line->ms, change);
        else if (table->compared)
            fputs(",,,", stdout);
        putchar('\n');
    }
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
