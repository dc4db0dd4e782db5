// SPDX-License-Identifier: MIT
// The results of `conv bench layers` as text, JSON, CSV, chart and page.
#include <errno.h>
#include <stdlib.h>

#include "bench/bench_layers.h"
#include "report/json.h"

static const char *const places[CONV_BENCH_LAYERS_PLACES] = {"cpu", "cpu_all", "cuda"};

static double us_per_image(const struct conv_bench_layers_line *line)
{
    return 1e3 * line->ms / (double)line->images;
}

// "1->12, 64x64, 5x5"
static void describe(const struct conv_bench_layers_data *data, const char *to, const char *times,
                     char *text, size_t size)
{
    const struct conv_layer *layer = &data->layer;
    snprintf(text, size, "%d%s%d, %d%s%d, %d%s%d", layer->channels, to, layer->maps,
             data->shape.height, times, data->shape.width, layer->kernel_height, times,
             layer->kernel_width);
}

// --- text ----------------------------------------------------------------------------------------

static void print_head(const struct conv_bench_layers_data *data, const char *name,
                       const struct conv_bench_layers_table *table, bool first)
{
    char text[96];
    describe(data, "->", "x", text, sizeof text);
    printf("%s%s%s%s%s, batch of %lld, float32\n", first ? "" : "\n", text, name ? " (" : "",
           name ? name : "", name ? ")" : "", (long long)data->shape.images);
    for (int p = 0; p < CONV_BENCH_LAYERS_PLACES; p++)
        if (*table->machine[p] && table->copy_gb_per_s[p] > 0)
            printf("%s: copy %.1f GB/s, multiply-adds in registers %.3g TFLOP/s\n",
                   table->machine[p], table->copy_gb_per_s[p], table->fma_tflop_per_s[p]);
    if (first)
        puts("ms: the median of all runs, and the fastest and the slowest; caches are cold. Bytes, "
             "FP32: share of the speed of\na copy of the same bytes, and of multiply-adds in "
             "registers. Error: the largest, over 2^-24 * sum |w * x|.");
    printf("%-34s %6s %9s %9s %9s %4s %9s %8s %7s %7s %8s %5s %7s  %s\n", "kernel", "images", "ms",
           "min", "max", "runs", "us/image", "TFLOP/s", "bytes", "FP32", "error", "bits", "step",
           "what it is");
}

static void print_line(const struct conv_bench_layers_table *table,
                       const struct conv_bench_layers_line *line)
{
    char name[64], step[16] = "";
    if (line->where == CONV_BENCH_LAYERS_ALL_CORES)
        snprintf(name, sizeof name, "%s, %d cores", line->name, table->threads);
    else
        snprintf(name, sizeof name, "%s%s", line->kind == CONV_BENCH_SHAPE ? "  " : "", line->name);
    if (*line->skipped) {
        printf("%-34s skipped: ", name);
        conv_report_print_path(stdout, line->skipped);
        putchar('\n');
        return;
    }
    if (line->step > 0)
        snprintf(step, sizeof step, "%.2fx", line->step);
    printf("%-34s %6lld %9.4f %9.4f %9.4f %4d %9.3f %8.3f %5.1f %% %5.1f %% %8.2f %5s %7s  %s%s\n",
           name, (long long)line->images, line->ms, line->ms_min, line->ms_max, line->runs,
           us_per_image(line), line->tflop_per_s, 100 * line->byte_share, 100 * line->flop_share,
           line->error, line->same_bits ? "same" : "-", step,
           line->kind == CONV_BENCH_COMPETITOR ? "competitor: " : "", line->summary);
}

// --- for programs --------------------------------------------------------------------------------

static void print_json_line(FILE *stream, const struct conv_bench_layers_table *table,
                            const struct conv_bench_layers_line *line)
{
    bool cuda = line->where == CONV_BENCH_LAYERS_CUDA;
    fputs("{\"name\":", stream);
    conv_json_string(stream, line->name);
    conv_json_member(stream, "kind", conv_bench_table_kind(line->kind));
    conv_json_member(stream, "where", cuda ? "cuda" : "cpu");
    if (!cuda)
        fprintf(stream, ",\"threads\":%d",
                line->where == CONV_BENCH_LAYERS_ALL_CORES ? table->threads : 1);
    conv_json_member(stream, "summary", line->summary);
    if (!*line->skipped)
        conv_json_member(stream, "precision", conv_layer_precisions[line->precision]);
    if (*line->skipped) {
        conv_json_member(stream, "skipped", line->skipped);
    } else {
        fprintf(stream,
                ",\"images\":%lld,\"runs\":%d,\"ms\":%.6f,\"ms_min\":%.6f,\"ms_max\":%.6f,"
                "\"ms_p25\":%.6f,\"ms_p75\":%.6f,\"us_per_image\":%.6f,\"tflop_per_s\":%.6f,"
                "\"gb_per_s\":%.6f,\"share_of_copy\":%.6f,\"share_of_fma\":%.6f,\"error\":%.4f,"
                "\"same_bits\":%s,\"step\":",
                (long long)line->images, line->runs, line->ms, line->ms_min, line->ms_max,
                line->ms_p25, line->ms_p75, us_per_image(line), line->tflop_per_s, line->gb_per_s,
                line->byte_share, line->flop_share, line->error,
                line->same_bits ? "true" : "false");
        if (line->step > 0)
            fprintf(stream, "%.4f", line->step);
        else
            fputs("null", stream);
    }
    fputc('}', stream);
}

static void print_json(const struct conv_bench_layers_data *data, const char *name,
                       const struct conv_bench_layers_table *table, FILE *stream)
{
    const struct conv_layer *layer = &data->layer;
    fputs("{\"type\":\"bench-layers\",\"version\":\"" CONV_VERSION "\"", stream);
    conv_json_member(stream, "layer", name);
    fprintf(stream,
            ",\"batch\":%lld,\"channels\":%d,\"height\":%d,\"width\":%d,\"maps\":%d,"
            "\"kernel_height\":%d,\"kernel_width\":%d,\"flops\":%.0f,\"bytes\":%.0f",
            (long long)data->shape.images, layer->channels, data->shape.height, data->shape.width,
            layer->maps, layer->kernel_height, layer->kernel_width,
            conv_bench_layers_flops(data, (double)data->shape.images),
            conv_bench_layers_bytes(data, (double)data->shape.images));
    for (int p = 0; p < CONV_BENCH_LAYERS_PLACES; p++) {
        conv_json_member(stream, places[p], *table->machine[p] ? table->machine[p] : NULL);
        fprintf(stream, ",\"%s_copy_gb_per_s\":%.6f,\"%s_fma_tflop_per_s\":%.6f", places[p],
                table->copy_gb_per_s[p], places[p], table->fma_tflop_per_s[p]);
    }
    fputs(",\"rows\":[", stream);
    for (int i = 0; i < table->count; i++) {
        print_json_line(stream, table, &table->lines[i]);
        fputs(i + 1 < table->count ? "," : "", stream);
    }
    fputs("]}\n", stream);
}

static void print_csv(const struct conv_bench_layers_data *data,
                      const struct conv_bench_layers_table *table, bool first)
{
    const struct conv_layer *layer = &data->layer;
    if (first)
        puts("batch,channels,height,width,maps,kernel_height,kernel_width,name,kind,where,threads,"
             "images,runs,ms,ms_min,ms_max,ms_p25,ms_p75,us_per_image,tflop_per_s,gb_per_s,"
             "share_of_copy,share_of_fma,error,same_bits,step,skipped");
    for (int i = 0; i < table->count; i++) {
        const struct conv_bench_layers_line *line = &table->lines[i];
        bool cuda = line->where == CONV_BENCH_LAYERS_CUDA;
        printf("%lld,%d,%d,%d,%d,%d,%d,%s,%s,%s,%d,", (long long)data->shape.images,
               layer->channels, data->shape.height, data->shape.width, layer->maps,
               layer->kernel_height, layer->kernel_width, line->name,
               conv_bench_table_kind(line->kind), cuda ? "cuda" : "cpu",
               cuda                                         ? 0
               : line->where == CONV_BENCH_LAYERS_ALL_CORES ? table->threads
                                                            : 1);
        if (*line->skipped) {
            fputs(",,,,,,,,,,,,,,,\"", stdout);
            for (const char *c = line->skipped; *c; c++)
                fputs(*c == '"' ? "\"\"" : (char[]){*c, 0}, stdout);
            puts("\"");
            continue;
        }
        printf("%lld,%d,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.4f,%d,",
               (long long)line->images, line->runs, line->ms, line->ms_min, line->ms_max,
               line->ms_p25, line->ms_p75, us_per_image(line), line->tflop_per_s, line->gb_per_s,
               line->byte_share, line->flop_share, line->error, line->same_bits);
        if (line->step > 0)
            printf("%.4f", line->step);
        puts(",");
    }
}

// --- a bar chart in SVG
// ----------------------------------------------------------------------------

// One panel per place, one bar per line, beside the two limits of every layer. tools/bench chart
// draws several layers.

// In units of the chart.
#define WIDTH 944
#define LEFT 206 // where names end
#define BARS 480 // the longest bar
#define STEP 24
#define THICK 16
#define HEAD 64
#define PANEL 70 // title and axis

// The colours follow the reader's light or dark background.
static const char style[] =
    "<style>\n"
    "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\n"
    ".title{font-size:17px;font-weight:600}.panel{font-weight:600}\n"
    ".small{font-size:11px;fill:#59636e}.end{text-anchor:end}\n"
    ".page{fill:#ffffff}.limit{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:5 4}\n"
    ".variant{fill:#0969da}.shape{fill:#80b4ee}.competitor{fill:#bc4c00}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.limit{stroke:#d29922}\n"
    ".variant{fill:#4493f8}.shape{fill:#2a5590}.competitor{fill:#f0883e}}\n"
    "</style>\n";

static void print_text(const char *text)
{
    for (; *text; text++)
        if (*text == '<')
            fputs("&lt;", stdout);
        else if (*text == '&')
            fputs("&amp;", stdout);
        else
            putchar(*text);
}

static int count_bars(const struct conv_bench_layers_table *table, int where)
{
    int count = 0;
    for (int i = 0; i < table->count; i++)
        count += (int)table->lines[i].where == where && !*table->lines[i].skipped;
    return count;
}

static void print_bar(const struct conv_bench_layers_line *line, double top, int y)
{
    double length = BARS * line->tflop_per_s / top;
    printf("<text class=\"end%s\" x=\"%d\" y=\"%d\">",
           line->kind == CONV_BENCH_SHAPE ? " small" : "", LEFT - 8, y + THICK - 4);
    print_text(line->name);
    printf("</text>\n<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\">"
           "<title>",
           conv_bench_table_kind(line->kind), LEFT, y, length < 1 ? 1 : length, THICK);
    print_text(line->summary);
    printf("; %d runs of %.3g to %.3g ms</title></rect>\n", line->runs, line->ms_min, line->ms_max);
    printf("<text class=\"small\" x=\"%.1f\" y=\"%d\">%.3g ms, %.3g TFLOP/s, %.0f %% of a copy",
           LEFT + length + 6, y + THICK - 4, line->ms, line->tflop_per_s, 100 * line->byte_share);
    if (line->step > 0)
        printf(", %.2f×", line->step);
    puts("</text>");
}

// Returns the height of the panel.
static int print_panel(const struct conv_bench_layers_data *data,
                       const struct conv_bench_layers_table *table, int where, int y)
{
    double bytes = conv_bench_layers_bytes(data, (double)data->shape.images);
    double flops = conv_bench_layers_flops(data, (double)data->shape.images), top = 0;
    double limits[2] = {table->copy_gb_per_s[where] * flops / bytes / 1e3,
                        table->fma_tflop_per_s[where]};
    int bars = count_bars(table, where), at = y + 28;
    for (int i = 0; i < 2; i++)
        top = limits[i] > top ? limits[i] : top;
    for (int i = 0; i < table->count; i++)
        if ((int)table->lines[i].where == where && table->lines[i].tflop_per_s > top)
            top = table->lines[i].tflop_per_s;
    printf("<text class=\"panel\" x=\"20\" y=\"%d\">", y + 16);
    print_text(table->machine[where]);
    puts("</text>");
    for (int i = 0; i < table->count; i++)
        if ((int)table->lines[i].where == where && !*table->lines[i].skipped) {
            print_bar(&table->lines[i], top, at + (STEP - THICK) / 2);
            at += STEP;
        }
    for (int i = 0; i < 2; i++)
        printf("<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
               LEFT + BARS * limits[i] / top, y + 28, LEFT + BARS * limits[i] / top, at);
    return bars * STEP + PANEL;
}

static void print_svg(const struct conv_bench_layers_data *data, const char *title,
                      const struct conv_bench_layers_table *table)
{
    int height = HEAD, y = HEAD;
    for (int where = 0; where < CONV_BENCH_LAYERS_PLACES; where++)
        if (count_bars(table, where) > 0)
            height += count_bars(table, where) * STEP + PANEL;
    printf(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>conv bench layers</title>\n%s"
        "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n"
        "<text class=\"title\" x=\"20\" y=\"28\">%s, batch of %lld</text>\n"
        "<text class=\"small\" x=\"20\" y=\"48\">TFLOP/s; cold caches; × over the variant above; "
        "dashed: as fast as a copy of the same bytes, and multiply-adds in registers</text>\n",
        WIDTH, height, WIDTH, height, style, WIDTH, height, title, (long long)data->shape.images);
    for (int where = 0; where < CONV_BENCH_LAYERS_PLACES; where++)
        if (count_bars(table, where) > 0)
            y += print_panel(data, table, where, y);
    puts("</svg>");
}

// --- the page ------------------------------------------------------------------------------------

static enum conv_status write_page(const struct conv_bench_options *options,
                                   const struct conv_bench_layers_data *data, const char *name,
                                   const struct conv_bench_layers_table *table,
                                   struct conv_err *err)
{
    struct conv_page *page = options->page;
    char title[96];
    const char *where = "";
    for (int p = 0; p < CONV_BENCH_LAYERS_PLACES; p++)
        where = *table->machine[p] ? table->machine[p] : where;
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    print_json(data, name, table, memory);
    if (fclose(memory) != 0) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    describe(data, "→", "×", title, sizeof title);
    page->kind = "conv bench layers";
    conv_page_title(page, "Kernel ladder: layer %s on %.120s", title, where);
    conv_page_fact(page, "batch", "%lld image%s", (long long)data->shape.images,
                   data->shape.images == 1 ? "" : "s");
    for (int p = 0; p < CONV_BENCH_LAYERS_PLACES; p++)
        if (*table->machine[p] && table->copy_gb_per_s[p] > 0)
            conv_page_fact(page, "limits", "%s: copy %.1f GB/s, multiply-adds %.3g TFLOP/s",
                           table->machine[p], table->copy_gb_per_s[p], table->fma_tflop_per_s[p]);
    conv_page_machine(page, options->limits);
    enum conv_status status = conv_page_finish(page, record, err);
    free(record);
    return status;
}

// -------------------------------------------------------------------------------------------------

enum conv_status conv_bench_layers_print(const struct conv_bench_options *options,
                                         const struct conv_bench_layers_data *data,
                                         const char *name,
                                         const struct conv_bench_layers_table *table, bool first,
                                         enum conv_status status, struct conv_err *err)
{
    if (options->format == CONV_BENCH_TEXT && table->count > 0) {
        print_head(data, name, table, first);
        for (int i = 0; i < table->count; i++)
            print_line(table, &table->lines[i]);
        fflush(stdout);
    }
    if (status)
        return status;
    if (options->format == CONV_BENCH_JSON)
        print_json(data, name, table, stdout);
    if (options->format == CONV_BENCH_CSV)
        print_csv(data, table, first);
    if (options->format == CONV_BENCH_SVG) {
        char title[96];
        describe(data, "→", "×", title, sizeof title);
        print_svg(data, title, table);
    }
    return options->page->file ? write_page(options, data, name, table, err) : CONV_OK;
}
