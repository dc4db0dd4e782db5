// SPDX-License-Identifier: MIT
#include "bench/bench_kernels_print.h"

#include <stdlib.h>

#include "report/json.h"

static void print_head(const struct conv_bench_options *options,
                       const struct conv_bench_workload *workload)
{
    char images[80];
    conv_bench_workload_describe(workload, "x", true, images, sizeof images);
    conv_report_print_path(stdout, options->filter_text);
    printf(", %s border, %s, 3 planes of %d bits, in one launch\n",
           conv_filter_border_name(options->border), images, workload->depth);
}

static void print_json(const struct conv_bench_options *options,
                       const struct conv_bench_workload *workload,
                       const struct conv_bench_table *table, FILE *stream)
{
    char members[160];
    snprintf(members, sizeof members,
             ",\"width\":%d,\"height\":%d,\"images\":%d,\"planes\":3,\"depth\":%d,\"pixels\":%.0f",
             workload->width, workload->height, workload->images, workload->depth,
             workload->pixels);
    fputs("{\"type\":\"bench-kernels\",\"version\":\"" CONV_VERSION "\"", stream);
    conv_json_member(stream, "filter", options->filter_text);
    conv_json_member(stream, "border", conv_filter_border_name(options->border));
    conv_bench_table_print_json(table, members, stream);
    fputs("}\n", stream);
}

// --- the page ------------------------------------------------------------------------------------

// One object, or an array of several.
static char *make_record(const struct conv_bench_options *options,
                         const struct conv_bench_result *results, int count)
{
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return NULL;
    for (int i = 0; i < count; i++) {
        if (count > 1)
            putc(i == 0 ? '[' : ',', memory);
        print_json(options, &results[i].workload, &results[i].table, memory);
    }
    if (count > 1)
        putc(']', memory);
    if (fclose(memory) != 0) {
        free(record);
        return NULL;
    }
    return record;
}

enum conv_status conv_bench_kernels_page(const struct conv_bench_options *options,
                                         const struct conv_bench_result *results, int count,
                                         struct conv_err *err)
{
    struct conv_page *page = options->page;
    const struct conv_bench_place *places = results[0].table.places;
    const char *where = places[*places[CONV_ON_CUDA].machine ? CONV_ON_CUDA : CONV_ON_CPU].machine;
    for (int w = 0; w < count; w++) {
        char images[80];
        conv_bench_workload_describe(&results[w].workload, "×", false, images, sizeof images);
        conv_page_fact(page, "images", "%s", images);
    }
    page->kind = "conv bench kernels";
    conv_page_title(page, "Kernel ladder: %.100s on %s", options->filter_text, where);
    conv_page_fact(page, "samples", "3 planes of %d bits", results[0].workload.depth);
    conv_page_describe(page, &(struct conv_page_setting){
                                 .filters = options->filters,
                                 .filter_count = options->filter_count,
                                 .border = options->border,
                                 .border_value = options->border_value,
                                 .limits = options->limits,
                             });
    char *record = make_record(options, results, count);
    enum conv_status status = conv_page_finish(page, record, err);
    free(record);
    return status;
}

// -------------------------------------------------------------------------------------------------

void conv_bench_kernels_print(const struct conv_bench_options *options,
                              const struct conv_bench_result *result, bool failed)
{
    const struct conv_bench_table *table = &result->table;
    if (options->format == CONV_BENCH_TEXT && table->count > 0) {
        print_head(options, &result->workload);
        conv_bench_table_print(table);
        fflush(stdout);
    }
    if (!failed && options->format == CONV_BENCH_JSON)
        print_json(options, &result->workload, table, stdout);
    if (!failed && options->format == CONV_BENCH_CSV)
        conv_bench_table_print_csv(table);
}
