// SPDX-License-Identifier: MIT
// Two runs of the pipeline in one process at the same time, with their own filters, folders,
// journals and stop flags, write the files that each of them writes alone.
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "filter/filter.h"
#include "io/files/journal.h"
#include "io/walk/walk.h"
#include "run/pipeline.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/unit.h"

#define IMAGES 60
#define WORKERS 3

struct run {
    const char *filter;
    char in[64], out[64], journal[64]; // journal "": none
    struct conv_totals totals;
    enum conv_status status;
};

static void write_inputs(const char *folder, uint64_t seed)
{
    static uint16_t samples[64 * 64 * 3];
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < IMAGES; i++) {
        struct png_spec spec = {
            .width = 20 + (i * 7) % 40,
            .height = 64 - i % 30,
            .color_type = i % 2 ? 2 : 0,
            .depth = 8,
            .samples = samples,
        };
        for (size_t k = 0; k < sizeof samples / sizeof samples[0]; k++)
            samples[k] = (uint16_t)random_below(&seed, 256);
        struct png_file file = {0};
        png_make_image(&file, &spec);
        char path[128];
        snprintf(path, sizeof path, "%s/%02d.png", folder, i);
        FILE *stream = fopen(path, "wb");
        assert_non_null(stream);
        assert_int_equal(fwrite(file.data, 1, file.size, stream), file.size);
        assert_int_equal(fclose(stream), 0);
        png_make_free(&file);
    }
}

// What cli/run.c does for `conv FILTER IN OUT [--resume JOURNAL] --device cpu`.
static enum conv_status run_pipeline(struct run *run, struct conv_err *err)
{
    static const struct conv_device_ops *const ops = &conv_device_cpu;
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    const struct conv_filter_settings filter_options = {0};
    atomic_int stop = 0;
    const char *inputs[] = {run->in};
    struct conv_backend_config backend_config = {.filters = filters, .stop = &stop};
    struct conv_backend *backend = NULL;
    struct conv_walk *walk = NULL;
    struct conv_journal *journal = NULL;
    struct conv_sink *sink = NULL;
    struct conv_report *report = NULL;
    enum conv_status status = conv_filter_parse_chain(filters, &backend_config.filter_count,
                                                      run->filter, &filter_options, err);
    if (!status)
        status = ops->open(&backend, &backend_config, err);
    struct conv_walk_config walk_config = {
        .operands = {.inputs = inputs, .input_count = 1, .output = run->out},
        .stop = &stop,
    };
    if (!status)
        status = conv_walk_open(&walk, &walk_config, err);
    struct conv_journal_config journal_config = {.path = run->journal, .stop = &stop};
    if (!status && run->journal[0])
        status = conv_journal_open(&journal, &journal_config, err);
    struct conv_sink_config sink_config = {
        .kind = CONV_SINK_FOLDER,
        .path = run->out,
        .workers = WORKERS,
        .journal = journal,
        .stop = &stop,
    };
    if (!status)
        status = conv_sink_open(&sink, &sink_config, err);
    struct conv_report_config report_config = {
        .quiet = true,
        .progress = CONV_NEVER,
        .filters = run->filter,
        .device = "cpu",
        .jobs = WORKERS,
        .cores = WORKERS,
    };
    if (!status)
        status = conv_report_open(&report, &report_config, err);
    struct conv_pipeline_config config = {
        .ops = ops,
        .backends = &backend,
        .device_count = 1,
        .filter_count = backend_config.filter_count,
        .jobs = WORKERS,
        .streams = 1,
        .group_bytes = (size_t)1 << 20,
        .max_pixels = 1 << 20,
        .codec = {.level = -1, .stop = &stop},
        .sink = sink,
        .resume = journal != NULL,
        .stop = &stop,
    };
    if (!status) {
        (void)conv_ledger_set(&config, conv_walk_source(walk), (size_t)64 << 20, true);
        status = conv_pipeline_run(&config, conv_walk_source(walk), report, err);
    }
    enum conv_status finished = conv_sink_finish(sink, err);
    if (report)
        (void)conv_report_close(report, 0, &run->totals, err);
    conv_journal_close(journal);
    conv_walk_close(walk);
    ops->close(backend);
    return status ? status : finished;
}

static void *run_main(void *argument)
{
    struct run *run = argument;
    struct conv_err err = {0};
    run->status = run_pipeline(run, &err);
    if (run->status)
        fprintf(stderr, "%s: %s\n", run->filter, err.text);
    return NULL;
}

static void run_both(struct run *a, struct run *b)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_main, a), 0);
    run_main(b);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(a->status, CONV_OK);
    assert_int_equal(b->status, CONV_OK);
}

static size_t read_file(const char *folder, int i, uint8_t *data, size_t room)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%02d.png", folder, i);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t size = fread(data, 1, room, stream);
    assert_true(size > 0 && size < room);
    assert_int_equal(fclose(stream), 0);
    return size;
}

static int count_different(const char *a, const char *b)
{
    static uint8_t data[2][1 << 16];
    int different = 0;
    for (int i = 0; i < IMAGES; i++) {
        size_t size = read_file(a, i, data[0], sizeof data[0]);
        different +=
            size != read_file(b, i, data[1], sizeof data[1]) || memcmp(data[0], data[1], size) != 0;
    }
    return different;
}

UNIT_TEST(test_two_at_once_write_what_each_writes_alone)
{
    char folder[] = "/tmp/conv-two-runs-XXXXXX", command[80];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    write_inputs("in-a", 1);
    write_inputs("in-b", 2);
    struct run a = {.filter = "emboss", .in = "in-a", .out = "alone-a"};
    struct run b = {.filter = "blur,sharpen", .in = "in-b", .out = "alone-b"};
    run_main(&a);
    run_main(&b);
    assert_int_equal(a.status, CONV_OK);
    assert_int_equal(b.status, CONV_OK);
    assert_int_equal(a.totals.done, IMAGES);
    assert_true(count_different("alone-a", "alone-b") == IMAGES); // or the test shows nothing

    strcpy(a.out, "both-a");
    strcpy(b.out, "both-b");
    strcpy(b.journal, "journal");
    run_both(&a, &b);
    assert_int_equal(a.totals.done, IMAGES);
    assert_int_equal(b.totals.done, IMAGES);
    assert_int_equal(count_different("alone-a", "both-a"), 0);
    assert_int_equal(count_different("alone-b", "both-b"), 0);

    // Once more: one run has its journal, the other does its work again.
    run_both(&a, &b);
    assert_int_equal(a.totals.done, IMAGES);
    assert_int_equal(b.totals.skipped, IMAGES);
    assert_int_equal(count_different("alone-a", "both-a"), 0);

    assert_int_equal(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

UNIT_MAIN(NULL, NULL)
