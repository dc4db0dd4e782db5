// SPDX-License-Identifier: MIT
// The results of `conv bench layers` as a bar chart in SVG: one panel per place, one bar per line,
// beside the two limits of every layer. tools/bench chart draws several layers.
#include "bench/bench_layers.h"

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

void conv_bench_layers_print_svg(const struct conv_bench_layers_data *data, const char *title,
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
