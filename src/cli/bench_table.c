// SPDX-License-Identifier: MIT
#include "cli/bench_table.h"

#include "report/json.h"

static const char *const kinds[] = {"copy", "rung", "shape", "rival"};

double conv_bench_table_rate(const struct conv_bench_table *table, double ms)
{
    return table->pixels * 3 * 2 * (table->depth / 8) / ms / 1e6;
}

static double pixel_rate(const struct conv_bench_table *table, double ms)
{
    return table->pixels / ms / 1e3;
}

// --- text ----------------------------------------------------------------------------------------

void conv_bench_table_print_head(const struct conv_bench_table *table)
{
    printf("%s, %s border, %d %s", table->filter, table->border, table->pictures,
           table->pictures == 1 ? "picture" : "pictures");
    if (table->width)
        printf(" of %dx%d", table->width, table->height);
    else
        printf(" from 1x1 to 4000x3000");
    printf(", 3 planes of %d bits, in one launch\n", table->depth);
    if (*table->cpu)
        printf("CPU:  %s\n", table->cpu);
    if (*table->cuda)
        printf("CUDA: %s\n", table->cuda);
    printf("%-22s %10s %10s %9s %10s %8s  %s\n", "kernel", "ms", "Mpix/s", "GB/s", "of a copy",
           "step", "what it is");
}

static void print_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    char name[40], step[16] = "";
    snprintf(name, sizeof name, "%s%s", line->kind == CONV_BENCH_SHAPE ? "  " : "", line->name);
    if (*line->left_out) {
        printf("%-22s left out: %s\n", name, line->left_out);
        return;
    }
    if (line->step > 0)
        snprintf(step, sizeof step, "%.2fx", line->step);
    printf("%-22s %10.3f %10.0f %9.2f %8.1f %% %8s  %s%s\n", name, line->ms,
           pixel_rate(table, line->ms), conv_bench_table_rate(table, line->ms),
           100 * line->copy_ms / line->ms, step, line->kind == CONV_BENCH_RIVAL ? "RIVAL: " : "",
           line->summary);
    fflush(stdout);
}

// --- lines ---------------------------------------------------------------------------------------

static struct conv_bench_line *add_line(struct conv_bench_table *table, enum conv_bench_kind kind,
                                        const char *name, const char *summary, bool on_cuda)
{
    if (table->count == CONV_BENCH_MOST_LINES)
        table->count--; // the table of variants would have to double first
    struct conv_bench_line *line = &table->lines[table->count++];
    *line = (struct conv_bench_line){
        .kind = kind, .name = name, .summary = summary, .on_cuda = on_cuda};
    return line;
}

static void show_line(const struct conv_bench_table *table, const struct conv_bench_line *line)
{
    if (table->live)
        print_line(table, line);
}

void conv_bench_table_leave_out(struct conv_bench_table *table, enum conv_bench_kind kind,
                                const char *name, bool on_cuda, const char *reason)
{
    struct conv_bench_line *line = add_line(table, kind, name, "", on_cuda);
    // Reasons are short: a path is in none of them.
    snprintf(line->left_out, sizeof line->left_out, "%.*s", (int)sizeof line->left_out - 1, reason);
    show_line(table, line);
}

void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, bool on_cuda, uint64_t ns,
                          uint64_t copy_ns)
{
    double *base = &table->step_base[on_cuda], ms = (double)ns / 1e6, copy = (double)copy_ns / 1e6;
    struct conv_bench_line *line;
    if (*base == 0) {
        line = add_line(table, CONV_BENCH_COPY, on_cuda ? "device copy" : "memcpy",
                        "the same bytes, copied", on_cuda);
        line->ms = line->copy_ms = copy;
        show_line(table, line);
    }
    line = add_line(table, kind, name, summary, on_cuda);
    line->ms = ms;
    line->copy_ms = copy;
    if (kind == CONV_BENCH_RUNG) {
        line->step = *base > 0 ? *base / ms : 0;
        *base = ms;
    }
    show_line(table, line);
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
                ",\"ms\":%.6f,\"mpix_per_s\":%.6f,\"gb_per_s\":%.8f,\"copy_ms\":%.6f,"
                "\"share_of_copy\":%.4f,\"step\":",
                line->ms, pixel_rate(table, line->ms), conv_bench_table_rate(table, line->ms),
                line->copy_ms, line->copy_ms / line->ms);
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
            ",\"width\":%d,\"height\":%d,\"pictures\":%d,\"planes\":3,\"depth\":%d,\"pixels\":%.0f,"
            "\"rows\":[\n",
            table->width, table->height, table->pictures, table->depth, table->pixels);
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
    puts("name,kind,where,ms,mpix_per_s,gb_per_s,copy_ms,share_of_copy,step,summary,left_out");
    for (int i = 0; i < table->count; i++) {
        const struct conv_bench_line *line = &table->lines[i];
        printf("%s,%s,%s,", line->name, kinds[line->kind], line->on_cuda ? "cuda" : "cpu");
        if (*line->left_out)
            fputs(",,,,,,", stdout);
        else
            printf("%.6f,%.3f,%.4f,%.6f,%.4f,", line->ms, pixel_rate(table, line->ms),
                   conv_bench_table_rate(table, line->ms), line->copy_ms, line->copy_ms / line->ms);
        if (!*line->left_out && line->step > 0)
            printf("%.4f", line->step);
        if (!*line->left_out)
            putchar(',');
        print_csv_text(line->summary);
        putchar(',');
        print_csv_text(line->left_out);
        putchar('\n');
    }
}
