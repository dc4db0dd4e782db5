// SPDX-License-Identifier: MIT
// What limits a run, and how long its engines overlap (src/report/figures.c). Closing lines once
// named "write" where workers had nothing to do for three quarters of 0.3 s.

#include "report/record.h"
#include "support/random.h"
#include "support/unit.h"

// --- what limits a run ---------------------------------------------------------------------------

#define OTHERS "other programs"
#define GPU "starting the GPU"

struct run {
    const char *limit, *next;
    double seconds, start, cpu;      // cpu: of one core
    double stages[CONV_STAGE_COUNT]; // seconds, over all workers or streams
    int jobs, cores;
    bool async;
};

static void compute(const struct run *run, struct conv_figures *figures)
{
    struct conv_report_config config = {
        .device = run->async ? "cuda:0" : "cpu",
        .device_async = run->async,
        .device_count = run->async,
        .streams = 2,
        .jobs = run->jobs,
        .cores = run->cores,
    };
    struct conv_totals totals = {
        .done = 100, .seconds = run->seconds, .start_seconds = run->start, .cpu_seconds = run->cpu};
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        totals.ns[s] = (uint64_t)(run->stages[s] * 1e9);
    for (int e = 0; e < CONV_ENGINE_COUNT && run->async; e++)
        totals.devices[0].overlap.engine[e] = totals.ns[CONV_STAGE_COPY_IN + e];
    conv_figures_compute(&config, &totals, figures);
}

UNIT_TEST(the_limit_is_what_limits)
{
    static const struct run runs[] = {
        {"encode", "decode", 4, 0.01, 7.5, {0.2, 3, 0, 1, 0, 3.5, 0.1}, 2, 2, false},
        // too short to say
        {NULL, NULL, 0.3, 0.01, 0.55, {0.01, 0.2, 0, 0.1, 0, 0.25, 0.01}, 2, 2, false},
        // the disk, which takes no CPU time
        {"read", "decode", 10, 0.01, 1, {9, 0.4, 0, 0.2, 0, 0.3, 0.05}, 1, 8, false},
        {"write", "read", 10, 0.01, 1.2, {2, 0.4, 0, 0.2, 0, 0.3, 7}, 1, 8, false},
        // stages whose cores are taken
        {OTHERS, NULL, 10, 0.01, 2, {0.2, 8, 0, 3, 0, 8, 0.2}, 2, 2, false},
        // more workers than cores share those, which is no other program
        {"decode", "encode", 10, 0.01, 19, {0.2, 40, 0, 10, 0, 28, 0.2}, 8, 2, false},
        // a device that starts slowly, and one that is busy
        {GPU, NULL, 3, 1.9, 0.9, {0.9, 4.2, 0.25, 1.1, 0.4, 0, 5.9}, 16, 16, true},
        {"kernel", "copy_in", 3, 0.3, 9, {0.9, 4.2, 1, 2.8, 0.4, 2, 3}, 16, 16, true},
        // nothing was busy for most of the time
        {NULL, NULL, 3, 0.3, 0.9, {0.9, 4.2, 0.25, 1.1, 0.4, 0, 5.9}, 16, 16, true},
        {"starting", NULL, 3, 2.5, 0.4, {0.1, 0.1, 0, 0.1, 0, 0.2, 0.1}, 2, 2, false},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct conv_figures figures;
        compute(&runs[i], &figures);
        const char *limit = figures.limit ? figures.limit : "none";
        const char *next = figures.next_limit ? figures.next_limit : "none";
        if (strcmp(limit, runs[i].limit ? runs[i].limit : "none") != 0 ||
            strcmp(next, runs[i].next ? runs[i].next : "none") != 0)
            fail_msg("run %zu: %s, then %s", i, limit, next);
    }
}

// Whatever the times are.
UNIT_TEST(a_stage_limits_a_busy_run_only)
{
    uint64_t random = 0x5eed;
    for (int i = 0; i < 10000; i++) {
        struct run run = {.seconds = 1 + random_below(&random, 300) / 10.0 - 0.9,
                          .jobs = 1 + (int)random_below(&random, 16),
                          .cores = 1 + (int)random_below(&random, 16)};
        double left = run.seconds * run.jobs, worked = 0;
        for (int s = 0; s < CONV_STAGE_COUNT; s++) {
            run.stages[s] = left * random_below(&random, 1000) / 2000;
            left -= run.stages[s];
            worked += run.stages[s];
        }
        run.cpu = run.seconds * run.cores * random_below(&random, 1000) / 1000;
        run.start = run.seconds * random_below(&random, 1000) / 1000;
        struct conv_figures figures;
        compute(&run, &figures);
        bool idle = worked < 0.49 * run.seconds * run.jobs;
        if (run.seconds < 1)
            assert_null(figures.limit);
        if (idle && figures.limit)
            assert_string_equal(figures.limit, "starting");
        if (figures.next_limit)
            assert_false(idle || run.seconds < 1);
        assert_true(figures.start_seconds == run.start);
    }
}

// --- the sweep against counting every nanosecond one by one --------------------------------------

#define LENGTH 4000

static struct conv_overlap *open_overlap(void)
{
    struct conv_overlap *overlap = NULL;
    assert_ok(conv_overlap_open(&overlap, NULL));
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
