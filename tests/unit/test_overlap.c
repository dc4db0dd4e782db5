// SPDX-License-Identifier: MIT
// The sweep over a device's times against counting every nanosecond one by one.
#include "report/figures.h"
#include "support/random.h"
#include "support/unit.h"

#define LENGTH 4000

static struct conv_overlap *open_overlap(void)
{
    struct conv_overlap *overlap = NULL;
    assert_int_equal(conv_overlap_open(&overlap, NULL), CONV_OK);
    return overlap;
}

UNIT_TEST(what_is_counted_one_by_one)
{
    static unsigned char busy[CONV_ENGINE_COUNT][LENGTH];
    memset(busy, 0, sizeof busy);
    struct conv_overlap *overlap = open_overlap();
    uint64_t random = 7;
    for (int i = 0; i < 60; i++) {
        unsigned engine = random_below(&random, CONV_ENGINE_COUNT);
        unsigned start = random_below(&random, LENGTH), length = random_below(&random, 120);
        unsigned end = start + length < LENGTH ? start + length : LENGTH;
        conv_overlap_add(overlap, (enum conv_engine)engine, start, end);
        memset(busy[engine] + start, 1, end - start);
    }
    struct conv_overlap_times expected = {0}, times;
    for (int t = 0; t < LENGTH; t++) {
        int sum = 0;
        for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
            expected.engine[e] += busy[e][t];
            sum += busy[e][t];
        }
        expected.two += sum >= 2;
        expected.three += sum == 3;
    }
    assert_true(expected.three > 0 && expected.two > expected.three);
    conv_overlap_read(overlap, &times);
    assert_memory_equal(&times, &expected, sizeof times);
    conv_overlap_close(overlap);
}

// Far more work than is kept, reported a little out of order: copies in follow each other without a
// gap, each kernel overlaps with half of the next copy, and copies out of 99 groups at once overlap
// with all of it, also where the older half is counted.
UNIT_TEST(more_than_is_kept)
{
    struct conv_overlap *overlap = open_overlap();
    uint64_t groups = 100000, outs = groups / 100;
    for (uint64_t i = 0; i < groups; i++) {
        uint64_t j = i % 4 == 3 ? i - 3 : i + 1;
        conv_overlap_add(overlap, CONV_ENGINE_COPY_IN, 10 * j, 10 * j + 10);
        conv_overlap_add(overlap, CONV_ENGINE_KERNEL, 10 * j + 10, 10 * j + 15);
        if (i % 100 == 0)
            conv_overlap_add(overlap, CONV_ENGINE_COPY_OUT, 10 * i + 5, 10 * i + 995);
    }
    struct conv_overlap_times times;
    for (int again = 0; again < 2; again++) { // reading changes nothing
        conv_overlap_read(overlap, &times);
        assert_int_equal(times.engine[CONV_ENGINE_COPY_IN], 10 * groups);
        assert_int_equal(times.engine[CONV_ENGINE_KERNEL], 5 * groups);
        assert_int_equal(times.engine[CONV_ENGINE_COPY_OUT], 990 * outs);
        // Besides the copies out: the hundredth kernel of each hundred, except the very last.
        assert_int_equal(times.two, 990 * outs + 5 * (outs - 1));
        assert_int_equal(times.three, 99 * 5 * outs);
    }
    conv_overlap_close(overlap);
}

UNIT_MAIN(NULL, NULL)
