// SPDX-License-Identifier: MIT
// The page of `conv bench kernels`: one panel per workload and place, whose figures have keys into
// the record.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/bench_kernels_print.h"

static struct conv_bench_result make_result(int width, bool with_cuda)
{
    struct conv_bench_result result = {
        .workload = {.width = width, .height = 100, .images = 3, .depth = 8, .pixels = 1e6},
        .table = {.bytes = 6e6, .pixels = 1e6},
    };
    for (enum conv_place place = CONV_ON_CPU; place <= CONV_ON_CUDA; place++) {
        double ns[] = {2e6, 1e6, 3e6};
        if (place == CONV_ON_CUDA && !with_cuda)
            break;
        snprintf(result.table.places[place].machine, sizeof result.table.places[place].machine,
                 "machine %d", (int)place);
        conv_bench_table_add_copy(&result.table, place, 1e6);
        conv_bench_table_add(&result.table, CONV_BENCH_VARIANT, "some_kernel", "summary", place, ns,
                             3);
    }
    conv_bench_table_finish(&result.table);
    return result;
}

// The text of the page, to be freed.
static char *write_page(const struct conv_bench_result *results, int count)
{
    const struct conv_filter filter = {.name = "f", .width = 1, .height = 1, .scale = 1};
    char *text = NULL;
    size_t size = 0;
    struct conv_page_job job = {
        .path = "p", .command = "conv", .file = open_memstream(&text, &size)};
    const struct conv_limits limits = {.memory = 1 << 30, .cores = 2};
    struct conv_bench_options options = {
        .filter_text = "f", .filters = &filter, .filter_count = 1, .limits = &limits, .page = &job};
    struct conv_err err = {0};
    assert_non_null(job.file);
    assert_int_equal(conv_bench_kernels_page(&options, results, count, &err), CONV_OK);
    return text;
}

static void one_workload_has_its_own_record(void **state)
{
    (void)state;
    struct conv_bench_result result = make_result(200, false);
    char *text = write_page(&result, 1);
    assert_non_null(strstr(text, ">machine 0</h2>"));
    assert_null(strstr(text, "machine 1"));
    assert_non_null(strstr(text, "data-key=\"rows.1.ms\">2.000<"));
    assert_non_null(strstr(text, ">{\"type\":\"bench-kernels\""));
    free(text);
}

static void several_workloads_have_a_panel_per_place(void **state)
{
    (void)state;
    struct conv_bench_result results[] = {make_result(200, true), make_result(300, false)};
    char *text = write_page(results, 2);
    assert_non_null(strstr(text, ">machine 0, 3 images of 200×100</h2>"));
    assert_non_null(strstr(text, ">machine 1, 3 images of 200×100</h2>"));
    assert_non_null(strstr(text, ">machine 0, 3 images of 300×100</h2>"));
    assert_null(strstr(text, ">machine 1, 3 images of 300×100</h2>"));
    assert_non_null(strstr(text, "data-key=\"0.rows.3.ms\">2.000<"));
    assert_non_null(strstr(text, "data-key=\"1.rows.1.ms\">2.000<"));
    assert_non_null(strstr(text, ">[{\"type\":\"bench-kernels\""));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_workload_has_its_own_record),
        cmocka_unit_test(several_workloads_have_a_panel_per_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
