// SPDX-License-Identifier: MIT
#include "bench/bench_kernels_print.h"

#include <errno.h>
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

static struct conv_page_kernel make_line(const struct conv_bench_table *table,
                                         const struct conv_bench_line *line)
{
    struct conv_page_kernel kernel = {
        .name = line->name,
        .summary = *line->skipped ? line->skipped : line->summary,
        .kind = conv_bench_table_kind(line->kind),
        .on_cuda = line->place == CONV_ON_CUDA,
    };
    if (!*line->skipped) {
        kernel.ms = line->ms;
        kernel.gb_per_s = conv_bench_table_rate(table, line->ms);
        kernel.ms_min = line->ms_min;
        kernel.ms_max = line->ms_max;
        kernel.runs = line->runs;
        kernel.share_of_copy = line->share;
        kernel.step = line->step;
    }
    return kernel;
}

static enum conv_status write_page(const struct conv_bench_options *options,
                                   const struct conv_bench_workload *workload,
                                   const struct conv_bench_table *table, struct conv_err *err)
{
    struct conv_page_job *job = options->page;
    struct conv_page *page = &job->page;
    struct conv_page_kernel kernels[CONV_BENCH_MOST_LINES];
    char *record = NULL, images[80];
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    print_json(options, workload, table, memory);
    if (fclose(memory) != 0) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    for (int i = 0; i < table->count; i++)
        kernels[i] = make_line(table, &table->lines[i]);
    page->kind = "conv bench kernels";
    page->title = options->filter_text;
    page->kernels = kernels;
    page->kernel_count = table->count;
    page->cpu = table->places[CONV_ON_CPU].machine;
    page->cuda = table->places[CONV_ON_CUDA].machine;
    conv_bench_workload_describe(workload, "×", false, images, sizeof images);
    conv_page_job_fact(job, "images", "%s", images);
    conv_page_job_fact(job, "samples", "3 planes of %d bits", workload->depth);
    conv_page_job_describe(job, &(struct conv_page_setting){
                                    .filters = options->filters,
                                    .filter_count = options->filter_count,
                                    .border = options->border,
                                    .border_value = options->border_value,
                                    .limits = options->limits,
                                });
    enum conv_status status = conv_page_job_finish(job, record, err);
    free(record);
    return status;
}

// -------------------------------------------------------------------------------------------------

enum conv_status conv_bench_kernels_print(const struct conv_bench_options *options,
                                          const struct conv_bench_workload *workload,
                                          const struct conv_bench_table *table,
                                          enum conv_status status, struct conv_err *err)
{
    if (options->format == CONV_BENCH_TEXT && table->count > 0) {
        print_head(options, workload);
        conv_bench_table_print(table);
        fflush(stdout);
    }
    if (status)
        return status;
    if (options->format == CONV_BENCH_JSON)
        print_json(options, workload, table, stdout);
    if (options->format == CONV_BENCH_CSV)
        conv_bench_table_print_csv(table);
    return options->page->file ? write_page(options, workload, table, err) : CONV_OK;
}
