// SPDX-License-Identifier: MIT
// The results of `conv bench layers` as text, JSON, CSV, chart and page.
#include "bench/bench_layers.h"

#include <math.h>

#include "report/json.h"

#define AT(figure) offsetof(struct conv_bench_line, figure)

static const struct conv_bench_column columns[] = {
    {"images", 6, 0, "", "images", 0, 0, AT(images)},
    {NULL, 0, 0, "", "runs", 0, 0, AT(runs)},
    {"ms", 9, 4, "", "ms", 6, 6, AT(ms)},
    {"min", 9, 4, "", "ms_min", 6, 6, AT(ms_min)},
    {"max", 9, 4, "", "ms_max", 6, 6, AT(ms_max)},
    {NULL, 0, 0, "", "ms_p25", 6, 6, AT(ms_p25)},
    {NULL, 0, 0, "", "ms_p75", 6, 6, AT(ms_p75)},
    {"runs", 4, 0, "", NULL, 0, 0, AT(runs)},
    {"us/image", 9, 3, "", "us_per_image", 6, 6, AT(us_per_image)},
    {"TFLOP/s", 8, 3, "", "tflop_per_s", 6, 6, AT(tflop_per_s)},
    {NULL, 0, 0, "", "gb_per_s", 6, 6, AT(gb_per_s)},
    {"bytes", 7, 1, " %", "share_of_copy", 6, 6, AT(share)},
    {"FP32", 7, 1, " %", "share_of_fma", 6, 6, AT(fma_share)},
    {"error", 8, 2, "", "error", 4, 4, AT(error)},
    {"bits", 5, -1, "", "same_bits", 0, 0, AT(same_bits)},
    {"step", 7, 2, "x", "step", 4, 4, AT(step)},
};
const struct conv_bench_form conv_bench_layers_form = {
    .name_width = 34,
    .columns = columns,
    .count = sizeof columns / sizeof columns[0],
    .with_threads = true,
};

static const char *const places[CONV_BENCH_PLACES] = {"cpu", "cpu_all", "cuda"};

void conv_bench_layers_describe(const struct conv_bench_layers_data *data, const char *to,
                                const char *times, char *text, size_t size)
{
    const struct conv_layer *layer = &data->layer;
    const struct {
        const char *name;
        int y, x, usual;
    } steps[] = {
        {"stride", layer->stride_y, layer->stride_x, 1},
        {"dilation", layer->dilation_y, layer->dilation_x, 1},
        {"padding", layer->pad_top, layer->pad_left, 0},
        {"groups", layer->groups, layer->groups, 1},
    };
    snprintf(text, size, "%d%s%d, %d%s%d, %d%s%d", layer->channels, to, layer->maps,
             data->shape.height, times, data->shape.width, layer->kernel_height, times,
             layer->kernel_width);
    for (int i = 0; i < 4; i++) {
        if (steps[i].y != steps[i].usual || steps[i].x != steps[i].usual)
            conv_text_add(text, size, ", ", "%s %d", steps[i].name, steps[i].y);
        if (steps[i].x != steps[i].y)
            conv_text_add(text, size, times, "%d", steps[i].x);
    }
}

// --- text ----------------------------------------------------------------------------------------

static void print_head(const struct conv_bench_layers_data *data, const char *name,
                       const struct conv_bench_table *table, bool first)
{
    char text[160];
    conv_bench_layers_describe(data, "->", "x", text, sizeof text);
    printf("%s%s%s%s%s, batch of %lld, float32\n", first ? "" : "\n", text, name ? " (" : "",
           name ? name : "", name ? ")" : "", (long long)data->shape.images);
    for (int p = 0; p < CONV_BENCH_PLACES; p++) {
        const struct conv_bench_yardsticks *at = &table->places[p];
        if (*at->machine && at->copy_gb_per_s > 0)
            printf("%s: copy %.1f GB/s, multiply-adds in registers %.3g TFLOP/s\n", at->machine,
                   at->copy_gb_per_s, at->fma_rate);
    }
    if (first)
        puts("ms: the median of all runs, and the fastest and the slowest; caches are cold. Bytes, "
             "FP32: share of the speed of\na copy of the same bytes, and of multiply-adds in "
             "registers. Error: the largest, over 2^-24 * sum |w * x|.");
}

// --- for programs --------------------------------------------------------------------------------

// What is measured and what is found.
struct result {
    const struct conv_bench_layers_data *data;
    const char *name;
    const struct conv_bench_table *table;
};

static void print_json(const void *context, FILE *stream)
{
    const struct result *result = context;
    const struct conv_bench_layers_data *data = result->data;
    const struct conv_layer *layer = &data->layer;
    struct conv_bench_amount amount = conv_bench_layers_amount(data, data->shape.images);
    fputs("{\"type\":\"bench-layers\",\"version\":\"" CONV_VERSION "\"", stream);
    conv_json_member(stream, "layer", result->name);
    fprintf(stream,
            ",\"batch\":%lld,\"channels\":%d,\"height\":%d,\"width\":%d,\"maps\":%d,"
            "\"kernel_height\":%d,\"kernel_width\":%d,\"stride\":[%d,%d],\"dilation\":[%d,%d],"
            "\"padding\":[%d,%d,%d,%d],\"groups\":%d,\"flops\":%.0f,\"bytes\":%.0f",
            (long long)data->shape.images, layer->channels, data->shape.height, data->shape.width,
            layer->maps, layer->kernel_height, layer->kernel_width, layer->stride_y,
            layer->stride_x, layer->dilation_y, layer->dilation_x, layer->pad_top,
            layer->pad_bottom, layer->pad_left, layer->pad_right, layer->groups, amount.flops,
            amount.bytes);
    for (int p = 0; p < CONV_BENCH_PLACES; p++) {
        const struct conv_bench_yardsticks *at = &result->table->places[p];
        conv_json_member(stream, places[p], *at->machine ? at->machine : NULL);
        fprintf(stream, ",\"%s_copy_gb_per_s\":%.6f,\"%s_fma_tflop_per_s\":%.6f", places[p],
                at->copy_gb_per_s, places[p], at->fma_rate);
    }
    conv_bench_table_print_json(result->table, stream);
    fputs("}\n", stream);
}

static void print_csv(const struct conv_bench_layers_data *data,
                      const struct conv_bench_table *table, bool first)
{
    const struct conv_layer *layer = &data->layer;
    char before[128];
    snprintf(before, sizeof before, "%lld,%d,%d,%d,%d,%d,%d,", (long long)data->shape.images,
             layer->channels, data->shape.height, data->shape.width, layer->maps,
             layer->kernel_height, layer->kernel_width);
    conv_bench_table_print_csv(
        table, first ? "batch,channels,height,width,maps,kernel_height,kernel_width," : NULL,
        before);
}

// --- a bar chart in SVG --------------------------------------------------------------------------

// A panel per place with a bar per line, below the two limits of every layer. Bars and limits are
// lengths in percent of the panel's width; colours follow the reader's light or dark background.
#define HEAD 60
#define PANEL 56 // its title and the gap below it
#define STEP 24

static const char svg_head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"944\" height=\"%d\" role=\"img\">\n"
    "<title>conv bench layers</title>\n<style>\n"
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:17px;font-weight:600}\n"
    ".small{font-size:11px;fill:#59636e}.end{text-anchor:end}.panel{font-weight:600}\n"
    ".page{fill:#fff}.limit{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:5 4}\n"
    ".variant{fill:#0969da}.shape{fill:#80b4ee}.competitor{fill:#bc4c00}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}"
    ".limit{stroke:#d29922}\n.variant{fill:#4493f8}.shape{fill:#2a5590}.competitor{fill:#f0883e}}\n"
    "</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n"
    "<text class=\"title\" x=\"20\" y=\"28\">%s, batch of %lld</text>\n"
    "<text class=\"small\" x=\"20\" y=\"48\">TFLOP/s; cold caches; × over the variant above; "
    "dashed: as fast as a copy of the same bytes, and multiply-adds in registers</text>\n";

static void print_escaped(const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '&')
            printf("&#%d;", *text);
        else
            putchar(*text);
}

static bool is_bar(const struct conv_bench_line *line, int place)
{
    return (int)line->where == place && !*line->skipped;
}

static void print_bar(const struct conv_bench_line *line, double percent, int y)
{
    printf("<text class=\"end%s\" x=\"-8\" y=\"%d\">",
           line->kind == CONV_BENCH_SHAPE ? " small" : "", y + 16);
    print_escaped(line->name);
    printf("</text>\n<rect class=\"%s\" y=\"%d\" width=\"%.2f%%\" height=\"16\" rx=\"2\"><title>",
           conv_bench_table_kind(line->kind), y + 4, percent);
    print_escaped(line->summary);
    printf("; %d runs of %.3g to %.3g ms</title></rect>\n<text class=\"small\" x=\"%.2f%%\" "
           "dx=\"6\" y=\"%d\">%.3g ms, %.3g TFLOP/s, %.0f %% of a copy",
           (int)line->runs, line->ms_min, line->ms_max, percent, y + 16, line->ms,
           line->tflop_per_s, 100 * line->share);
    if (line->step > 0)
        printf(", %.2f×", line->step);
    puts("</text>");
}

static void print_svg(const struct conv_bench_layers_data *data,
                      const struct conv_bench_table *table)
{
    struct conv_bench_amount amount = conv_bench_layers_amount(data, data->shape.images);
    double limits[CONV_BENCH_PLACES][2], top[CONV_BENCH_PLACES]; // TFLOP/s
    char title[160];
    int height = HEAD, y = HEAD;
    for (int p = 0; p < CONV_BENCH_PLACES; p++) {
        limits[p][0] = table->places[p].copy_gb_per_s * amount.flops / amount.bytes / 1e3;
        limits[p][1] = table->places[p].fma_rate;
        top[p] = fmax(limits[p][0], limits[p][1]);
        for (int i = 0; i < table->count; i++)
            if (is_bar(&table->lines[i], p)) {
                top[p] = fmax(top[p], table->lines[i].tflop_per_s);
                height += STEP;
            }
        height += top[p] > 0 ? PANEL : 0;
    }
    conv_bench_layers_describe(data, "→", "×", title, sizeof title);
    printf(svg_head, height, title, (long long)data->shape.images);
    for (int p = 0; p < CONV_BENCH_PLACES; p++) {
        int at = 24; // within the panel
        if (top[p] <= 0)
            continue;
        printf("<svg x=\"206\" y=\"%d\" width=\"480\" overflow=\"visible\">\n"
               "<text class=\"panel\" x=\"-186\" y=\"16\">",
               y);
        print_escaped(table->places[p].machine);
        puts("</text>");
        for (int i = 0; i < table->count; i++)
            if (is_bar(&table->lines[i], p)) {
                print_bar(&table->lines[i], 100 * table->lines[i].tflop_per_s / top[p], at);
                at += STEP;
            }
        for (int i = 0; i < 2; i++)
            printf("<line class=\"limit\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"24\" y2=\"%d\"/>\n",
                   100 * limits[p][i] / top[p], 100 * limits[p][i] / top[p], at);
        puts("</svg>");
        y += at - 24 + PANEL;
    }
    puts("</svg>");
}

// --- the page ------------------------------------------------------------------------------------

static enum conv_status write_page(const struct conv_bench_options *options,
                                   const struct result *result, struct conv_err *err)
{
    struct conv_page *page = options->page;
    const struct conv_bench_yardsticks *at = result->table->places;
    int64_t images = result->data->shape.images;
    char title[160];
    const char *where = "";
    for (int p = 0; p < CONV_BENCH_PLACES; p++)
        where = *at[p].machine ? at[p].machine : where;
    conv_bench_layers_describe(result->data, "→", "×", title, sizeof title);
    page->kind = "conv bench layers";
    conv_page_title(page, "Kernel ladder: layer %s on %.120s", title, where);
    conv_page_fact(page, "batch", "%lld image%s", (long long)images, images == 1 ? "" : "s");
    for (int p = 0; p < CONV_BENCH_PLACES; p++)
        if (*at[p].machine && at[p].copy_gb_per_s > 0)
            conv_page_fact(page, "limits", "%s: copy %.1f GB/s, multiply-adds %.3g TFLOP/s",
                           at[p].machine, at[p].copy_gb_per_s, at[p].fma_rate);
    conv_page_machine(page, options->choice->machine.limits);
    return conv_page_finish(page, print_json, result, err);
}

// -------------------------------------------------------------------------------------------------

enum conv_status conv_bench_layers_print(const struct conv_bench_options *options,
                                         const struct conv_bench_layers_data *data,
                                         const char *name, const struct conv_bench_table *table,
                                         bool first, enum conv_status status, struct conv_err *err)
{
    if (options->format == CONV_BENCH_TEXT && table->count > 0) {
        print_head(data, name, table, first);
        conv_bench_table_print(table);
    }
    const struct result result = {data, name, table};
    if (status)
        return status;
    if (options->format == CONV_BENCH_JSON)
        print_json(&result, stdout);
    if (options->format == CONV_BENCH_CSV)
        print_csv(data, table, first);
    if (options->format == CONV_BENCH_SVG)
        print_svg(data, table);
    return options->page->file ? write_page(options, &result, err) : CONV_OK;
}
