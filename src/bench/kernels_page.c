// SPDX-License-Identifier: MIT
// From the ladder's table to its page.
#include "bench/kernels_page.h"

#include <errno.h>
#include <stdlib.h>

static struct conv_page_kernel make_line(const struct conv_bench_table *table,
                                         const struct conv_bench_line *line)
{
    static const char *const kinds[] = {"copy", "rung", "shape", "rival"};
    struct conv_page_kernel kernel = {
        .name = line->name,
        .summary = *line->left_out ? line->left_out : line->summary,
        .kind = kinds[line->kind],
        .on_cuda = line->on_cuda,
    };
    if (!*line->left_out) {
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

enum conv_status conv_kernels_page_write(struct conv_page_job *job,
                                         const struct conv_bench_table *table,
                                         const struct conv_filter *filters, int filter_count,
                                         struct conv_err *err)
{
    struct conv_page *page = &job->page;
    struct conv_page_kernel kernels[CONV_BENCH_MOST_LINES];
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    conv_bench_table_print_json(table, memory);
    if (fclose(memory) != 0) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    for (int i = 0; i < table->count; i++)
        kernels[i] = make_line(table, &table->lines[i]);
    page->kind = "conv bench kernels";
    page->title = table->filter;
    page->kernels = kernels;
    page->kernel_count = table->count;
    page->cpu = table->cpu;
    page->cuda = table->cuda;
    if (table->width)
        conv_page_fact(job, "images", "%d of %d×%d", table->images, table->width, table->height);
    else
        conv_page_fact(job, "images", "%d from 1×1 to 4000×3000", table->images);
    conv_page_fact(job, "samples", "3 planes of %d bits", table->depth);
    conv_page_describe(job, NULL, filters, filter_count);
    enum conv_status status = conv_page_finish(job, record, err);
    free(record);
    return status;
}
