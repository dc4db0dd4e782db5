// SPDX-License-Identifier: MIT
// The table as a bar chart in SVG: a panel for the CPU and one for the GPU, a bar a line from the
// ladder's foot to its top, beside the copy that they are compared with. Colours follow the
// reader's light or dark background.
#include "bench/bench_table.h"

#include <errno.h>
#include <stdio.h>

#include "report/text.h"

#define WIDTH 944
#define LEFT 206 // names end here, bars begin
#define BARS 480 // pixels of the longest bar
#define STEP 24  // from a bar to the next
#define THICK 16 // of a bar
#define PANEL 70 // a panel's heading and foot
#define HEAD 64  // title
#define TICKS 5

static const char style[] =
    "<style>\n"
    "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\n"
    ".title{font-size:17px;font-weight:600}.panel{font-weight:600}\n"
    ".small{font-size:11px;fill:#59636e}.end{text-anchor:end}.middle{text-anchor:middle}\n"
    ".value{paint-order:stroke;stroke:#ffffff;stroke-width:3px}\n"
    ".page{fill:#ffffff}.grid{stroke:#d1d9e0;stroke-width:1}\n"
    ".limit{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:5 4}\n"
    ".spread{stroke:#1f2328;stroke-width:1.5}\n"
    ".copy{fill:#bf8700}.rung{fill:#0969da}.shape{fill:#80b4ee}.rival{fill:#bc4c00}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.value{stroke:#0d1117}.grid{stroke:#"
    "3d444d}\n"
    ".limit{stroke:#d29922}.spread{stroke:#e6edf3}.copy{fill:#d29922}.rung{fill:#4493f8}.shape{"
    "fill:#2a5590}\n"
    ".rival{fill:#f0883e}}\n"
    "</style>\n";

static const char *const classes[] = {"copy", "rung", "shape", "rival"};

static bool is_shown(const struct conv_bench_line *line, bool on_cuda)
{
    return line->on_cuda == on_cuda && !*line->left_out;
}

// Round steps of 1, 2 or 5 that cut `top` into about TICKS parts.
static double tick_step(double top)
{
    double step = 1e-6;
    while (step * TICKS < top) {
        if (step * 2 * TICKS >= top)
            return step * 2;
        if (step * 5 * TICKS >= top)
            return step * 5;
        step *= 10;
    }
    return step;
}

static void draw_scale(FILE *file, double top, int y, int height)
{
    double step = tick_step(top);
    for (double at = 0; at <= top * 1.001; at += step) {
        double x = LEFT + BARS * at / top;
        fprintf(file, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x, y,
                x, y + height);
        fprintf(file, "<text class=\"small middle\" x=\"%.1f\" y=\"%d\">%g</text>\n", x,
                y + height + 14, at);
    }
    fprintf(file, "<text class=\"small\" x=\"%d\" y=\"%d\">GB/s, read and written</text>\n",
            LEFT + BARS + 24, y + height + 14);
}

static double rate_length(const struct conv_bench_table *table, double ms, double top)
{
    return BARS * conv_bench_table_rate(table, ms) / top;
}

static void draw_bar(FILE *file, const struct conv_bench_table *table,
                     const struct conv_bench_line *line, double top, int y)
{
    double length = rate_length(table, line->ms, top);
    double slow = rate_length(table, line->ms_p75, top);
    double fast = rate_length(table, line->ms_p25, top);
    const char *kind = classes[line->kind];
    fprintf(file, "<text class=\"end%s\" x=\"%d\" y=\"%d\">",
            line->kind == CONV_BENCH_SHAPE ? " small" : "", LEFT - 8, y + THICK - 4);
    conv_text_html(file, line->name);
    fputs(line->kind == CONV_BENCH_RIVAL ? " (rival)</text>\n" : "</text>\n", file);
    fprintf(file,
            "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>",
            kind, LEFT, y, length > 1 ? length : 1, THICK);
    conv_text_html(file, line->summary);
    fprintf(file, "; %d runs of %.3g to %.3g ms", line->runs, line->ms_min, line->ms_max);
    fprintf(file,
            "</title></rect>\n<line class=\"spread\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
            "y2=\"%.1f\"/>\n",
            LEFT + slow, y + THICK / 2.0, LEFT + fast, y + THICK / 2.0);
}

// Beside its bar, over the line at 100 %.
static void draw_value(FILE *file, const struct conv_bench_table *table,
                       const struct conv_bench_line *line, double top, int y)
{
    fprintf(file, "<text class=\"small value\" x=\"%.1f\" y=\"%d\">%.4g GB/s, %.3g ms",
            LEFT + rate_length(table, line->ms_p25, top) + 6, y + THICK - 4,
            conv_bench_table_rate(table, line->ms), line->ms);
    if (line->kind != CONV_BENCH_COPY)
        fprintf(file, ", %.0f %% of a copy", 100 * line->share);
    if (line->step > 0)
        fprintf(file, ", %.2f×", line->step);
    fputs("</text>\n", file);
}

// Draws from `y` on and returns where it ends.
static int draw_panel(FILE *file, const struct conv_bench_table *table, bool on_cuda, int y)
{
    double top = 0, limit = 0;
    int shown = 0;
    for (int i = 0; i < table->count; i++) {
        const struct conv_bench_line *line = &table->lines[i];
        if (!is_shown(line, on_cuda))
            continue;
        double fast = conv_bench_table_rate(table, line->ms_p25);
        top = fast > top ? fast : top;
        if (line->kind == CONV_BENCH_COPY)
            limit = conv_bench_table_rate(table, line->ms);
        shown++;
    }
    if (shown == 0)
        return y;
    fprintf(file, "<text class=\"panel\" x=\"20\" y=\"%d\">", y + 16);
    conv_text_html(file, on_cuda ? table->cuda : table->cpu);
    fputs("</text>\n", file);
    y += 28;
    draw_scale(file, top, y, shown * STEP);
    for (int pass = 0; pass < 2; pass++) {
        int bar = y + (STEP - THICK) / 2;
        for (int i = 0; i < table->count; i++) {
            if (!is_shown(&table->lines[i], on_cuda))
                continue;
            (pass ? draw_value : draw_bar)(file, table, &table->lines[i], top, bar);
            bar += STEP;
        }
        if (pass == 0 && limit > 0)
            fprintf(file, "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
                    LEFT + BARS * limit / top, y, LEFT + BARS * limit / top, y + shown * STEP);
    }
    return y + shown * STEP + PANEL - 28;
}

static void draw(FILE *file, const struct conv_bench_table *table)
{
    int shown[2] = {0, 0};
    for (int i = 0; i < table->count; i++)
        shown[table->lines[i].on_cuda] += !*table->lines[i].left_out;
    int height =
        HEAD + (shown[0] ? shown[0] * STEP + PANEL : 0) + (shown[1] ? shown[1] * STEP + PANEL : 0);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>conv bench kernels</title>\n%s"
            "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
            WIDTH, height, WIDTH, height, style, WIDTH, height);
    fputs("<text class=\"title\" x=\"20\" y=\"28\">conv bench kernels: ", file);
    conv_text_html(file, table->filter);
    fputs("</text>\n<text class=\"small\" x=\"20\" y=\"48\">", file);
    fprintf(file, "%d %s", table->images, table->images == 1 ? "image" : "images");
    if (table->width)
        fprintf(file, " of %d×%d", table->width, table->height);
    else
        fputs(" of mixed sizes", file);
    fprintf(file,
            ", 3 planes of %d bits, %s border; cold caches; step (×) over the rung above; black "
            "line: the middle half of the runs",
            table->depth, table->border);
    fputs("</text>\n", file);
    int y = draw_panel(file, table, false, HEAD);
    draw_panel(file, table, true, y);
    fputs("</svg>\n", file);
}

enum conv_status conv_bench_table_draw(const struct conv_bench_table *table, const char *path,
                                       struct conv_err *err)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return conv_err_errno(err, errno, "cannot write %s", path);
    draw(file, table);
    bool bad = ferror(file) != 0;
    errno = 0;
    if (fclose(file) != 0 || bad)
        return conv_err_errno(err, errno, "cannot write %s", path);
    return CONV_OK;
}
