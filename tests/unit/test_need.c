// SPDX-License-Identifier: MIT
// The memory that an image takes, as runs with limited memory estimate it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/features.h"
#include "engine/group.h"
#include "run/need.h"

static void estimate(struct conv_need *need, size_t *staging, size_t *scratch, int width)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_backend *backend;
    struct conv_err err;
    int count = 0;
    assert_int_equal(conv_filter_parse_chain(filters, &count, "emboss,gaussian:4",
                                             &(struct conv_filter_settings){0}, &err),
                     CONV_OK);
    const struct conv_backend_config open = {.filters = filters, .filter_count = count};
    assert_int_equal(conv_device_cpu.open(&backend, &open, &err), CONV_OK);
    const struct conv_pipeline_config config = {
        .ops = &conv_device_cpu,
        .backends = &backend,
        .filter_count = count,
        .output_type = CONV_OUTPUT_F32, // written from staging: encoding takes nothing
    };
    struct conv_file file = {0};
    struct conv_job job = {.file = &file, .format = conv_formats[0], .file_depth = 8};
    job.header.shape = (struct conv_image){.width = width, .height = 3, .channels = 1, .depth = 8};
    job.header.png.bit_depth = 8;
    *staging = conv_group_need(&job.header.shape, false, 0);
    *scratch = conv_device_cpu.scratch_bytes(backend, width, 8);
    conv_need_estimate(need, &config, &job, *staging);
    conv_device_cpu.close(backend);
}

// Kernels that read whole rows hold two of them: that was not counted, a third of the samples of an
// image of three long rows.
static void scratch_of_the_filter_counts(void **state)
{
    enum { LONG = 4000000 };
    struct conv_need need;
    size_t staging, scratch, few;
    (void)state;
    estimate(&need, &staging, &few, 64);
    estimate(&need, &staging, &scratch, LONG);
    assert_true(scratch >= few);
    if (conv_cpu_features() & CONV_CPU_AVX2) // emboss on whole rows
        assert_true(scratch >= 2 * (size_t)LONG);
    assert_true(need.work >= 2 * staging + scratch);
    assert_true(need.peak >= need.work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_of_the_filter_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
