// SPDX-License-Identifier: MIT
#include "bench/bench_table.h"

#include <string.h>

#include "base/stat.h"
#include "report/json.h"
#include "report/report.h"

static const char *const kinds[] = {"copy", "rung", "shape", "rival"};

double conv_bench_table_rate(const struct conv_bench_table *table, double ms)
{
    return table->pixels * 3 * 2 * (table->depth / 8) / ms / 1e6;
}

static double pixel_rate(const struct conv_bench_table *table, double ms)
{
    return table->pixels / ms / 1e3;
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
                                        const char *name, const char *summary, bool on_cuda)
{
    if (table->count == CONV_BENCH_MOST_LINES - 2) // two are for the copies
        table->count--; // the table of variants would have to double first
    struct conv_bench_line *line = &table->lines[table->count++];
    *line = (struct conv_bench_line){
        .kind = kind, .name = name, .summary = summary, .on_cuda = on_cuda};
    return line;
}

void conv_bench_table_leave_out(struct conv_bench_table *table, enum conv_bench_kind kind,
                                const char *name, bool on_cuda, const char *reason)
{
    struct conv_bench_line *line = add_line(table, kind, name, "", on_cuda);
    // Reasons are short: a path is in none of them.
    snprintf(line->left_out, sizeof line->left_out, "%.*s", (int)sizeof line->left_out - 1, reason);
}

void conv_bench_table_add_copy(struct conv_bench_table *table, bool on_cuda, uint64_t ns)
{
    struct conv_bench_copies *copies = &table->copies[on_cuda];
    if (copies->count < CONV_BENCH_MOST_COPIES)
        copies->ns[copies->count++] = (double)ns;
}

void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, bool on_cuda, double *ns, int runs)
{
    double *base = &table->step_base[on_cuda];
    struct conv_bench_line *line = add_line(table, kind, name, summary, on_cuda);
    set_times(line, ns, runs);
    if (kind == CONV_BENCH_RUNG) {
        line->step = *base > 0 ? *base / line->ms : 0;
        *base = line->ms;
    }
}

// Above the first line that was measured there; the new line's place, or NULL: there was no copy.
static struct conv_bench_line *insert_copy(struct conv_bench_table *table, bool on_cuda)
{
    struct conv_bench_copies *copies = &table->copies[on_cuda];
    int at = 0;
    while (at < table->count && (table->lines[at].on_cuda != on_cuda || *table->lines[at].left_out))
        at++;
    if (copies->count == 0 || at == table->count)
        return NULL;
    struct conv_bench_line *line = &table->lines[at];
    memmove(line + 1, line, (size_t)(table->count++ - at) * sizeof *line);
    *line = (struct conv_bench_line){
        .kind = CONV_BENCH_COPY,
        .name = on_cuda ? "device copy" : "memcpy",
        .summary = "the same bytes, copied",
        .on_cuda = on_cuda,
    };
    set_times(line, copies->ns, copies->count);
    return line;
}

void conv_bench_table_finish(struct conv_bench_table *table)
{
    for (int on_cuda = 0; on_cuda < 2; on_cuda++) {
        const struct conv_bench_line *copy = insert_copy(table, on_cuda);
        for (int i = 0; copy && i < table->count; i++) {
            struct conv_bench_line *line = &table->lines[i];
            if (line->on_cuda == on_cuda && !*line->left_out)
                line->share = copy->ms / line->ms;
        }
    }
}

// --- text ----------------------------------------------------------------------------------------

static void print_head(const struct conv_bench_table *table)
{
    conv_report_print_path(stdout, table->filter);
    printf(", %s border, %d %s", table->border, table->images,
           table->images == 1 ? "image" : "images");
    if (table->width)
        printf(" of %dx%d", table->width, table->height);
    else
        printf(" from 1x1 to 4000x3000");
    printf(", 3 planes of %d bits, in one launch\n", table->depth);
    if (*table->cpu)
        printf("CPU:  %s\n", table->cpu);
    if (*table->cuda)
        printf("CUDA: %s\n", table->cuda);
    puts("ms: the median of all runs, and the fastest and the slowest; caches are cold. Of a copy: "
         "share of the copy's\nspeed in this table, the median of runs in turn with those of all "
         "kernels.");
    printf("%-22s %10s %10s %10s %5s %8s %8s %10s %8s  %s\n", "kernel", "ms", "min", "max", "runs",
           "Mpix/s", "GB/s", "of a copy", "step", "what it is");
}

static void print_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    char name[40], step[16] = "";
    snprintf(name, sizeof name, "%s%s", line->kind == CONV_BENCH_SHAPE ? "  " : "", line->name);
    if (*line->left_out) {
        printf("%-22s left out: ", name);
        conv_report_print_path(stdout, line->left_out);
        putchar('\n');
        return;
    }
    if (line->step > 0)
        snprintf(step, sizeof step, "%.2fx", line->step);
    printf("%-22s %10.3f %10.3f %10.3f %5d %8.0f %8.2f %8.1f %% %8s  %s%s\n", name, line->ms,
           line->ms_min, line->ms_max, line->runs, pixel_rate(table, line->ms),
           conv_bench_table_rate(table, line->ms), 100 * line->share, step,
           line->kind == CONV_BENCH_RIVAL ? "RIVAL: " : "", line->summary);
}

void conv_bench_table_print(const struct conv_bench_table *table)
{
    print_head(table);
    for (int i = 0; i < table->count; i++)
        print_line(table, &table->lines[i]);
}

// --- for programs --------------------------------------------------------------------------------

static void print_member(FILE *stream, const char *name, const char *text)
{
    fprintf(stream, ",\"%s\":", name);
    conv_json_string(stream, text);
}

static void print_json_line(FILE *stream, const struct conv_bench_table *table,
                            const struct conv_bench_line *line)
{
    fputs("{\"name\":", stream);
    conv_json_string(stream, line->name);
    print_member(stream, "kind", kinds[line->kind]);
    print_member(stream, "where", line->on_cuda ? "cuda" : "cpu");
    print_member(stream, "summary", line->summary);
    if (*line->left_out) {
        print_member(stream, "left_out", line->left_out);
    } else {
        fprintf(stream,
                ",\"runs\":%d,\"ms\":%.6f,\"ms_min\":%.6f,\"ms_max\":%.6f,"
                "\"ms_p25\":%.6f,\"ms_p75\":%.6f,\"mpix_per_s\":%.6f,\"gb_per_s\":%.8f,\"share_of_"
                "copy\":%.6f,\"step\":",
                line->runs, line->ms, line->ms_min, line->ms_max, line->ms_p25, line->ms_p75,
                pixel_rate(table, line->ms), conv_bench_table_rate(table, line->ms), line->share);
        if (line->step > 0)
            fprintf(stream, "%.4f", line->step);
        else
            fputs("null", stream);
    }
    fputc('}', stream);
}

void conv_bench_table_print_json(const struct conv_bench_table *table, FILE *stream)
{
    fputs("{\"type\":\"bench-kernels\",\"version\":\"" CONV_VERSION "\"", stream);
    print_member(stream, "filter", table->filter);
    print_member(stream, "border", table->border);
    print_member(stream, "cpu", table->cpu);
    print_member(stream, "cuda", table->cuda);
    fprintf(stream,
            ",\"width\":%d,\"height\":%d,\"images\":%d,\"planes\":3,\"depth\":%d,\"pixels\":%.0f,"
            "\"rows\":[\n",
            table->width, table->height, table->images, table->depth, table->pixels);
    for (int i = 0; i < table->count; i++) {
        print_json_line(stream, table, &table->lines[i]);
        fputs(i + 1 < table->count ? ",\n" : "\n", stream);
    }
    fputs("]}\n", stream);
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
    puts("name,kind,where,runs,ms,ms_min,ms_max,ms_p25,ms_p75,mpix_per_s,gb_per_s,"
         "share_of_copy,step,summary,left_out");
    for (int i = 0; i < table->count; i++) {
        const struct conv_bench_line *line = &table->lines[i];
        printf("%s,%s,%s,", line->name, kinds[line->kind], line->on_cuda ? "cuda" : "cpu");
        if (*line->left_out)
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
        print_csv_text(line->left_out);
        putchar('\n');
    }
}
