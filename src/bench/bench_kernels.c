// SPDX-License-Identifier: MIT
// The ladder from the simplest variant to the fastest: every variant of the table, variants that
// exist for demonstration only, and other libraries filter the same images.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "bench/bench.h"
#include "bench/bench_kernels.h"
#include "bench/bench_launch.h"
#include "bench/bench_table.h"
#include "bench/bench_workload.h"
#include "kernels/ladder/ladder.h"

#define LEAST_RUNS 3
// For all runs of a variant; one that takes longer is not repeated.
#define ENOUGH_NS (500000000u / CONV_BENCH_SHORTER)
// A first run, page faults included, that takes longer than this is the only one.
#define TOO_LONG_NS 2000000000u

struct bench {
    const struct conv_bench_options *options;
    struct conv_bench_chain chain;
    struct conv_bench_workload *workload;
    uint8_t *expected, *got; // the reference's result, a variant's; `bytes` of the workload each
    uint8_t *wide;           // RGBRGB..., source and result in turn
    struct conv_bench_table *table;
    struct conv_bench_amount amount; // of a launch
};

static enum conv_bench_where where(const struct conv_variant *variant)
{
    return variant->place == CONV_ON_CUDA ? CONV_BENCH_CUDA : CONV_BENCH_ONE_CORE;
}

static enum conv_status check_result(struct bench *bench, const struct conv_bench_launch *launch,
                                     bool interleaved, struct conv_err *err)
{
    const struct conv_bench_workload *workload = bench->workload;
    enum conv_status status =
        interleaved ? conv_bench_launch_read(launch, bench->wide, workload->wide_bytes, err)
                    : conv_bench_launch_read(launch, bench->got, workload->bytes, err);
    if (status)
        return status;
    if (interleaved)
        conv_bench_workload_interleave(workload, bench->got, bench->wide, true);
    return conv_bench_workload_compare(workload, bench->expected, bench->got, launch->variant->name,
                                       err);
}

// --- one variant ---------------------------------------------------------------------------------

// Alternates runs with copies, which go into the table. `first_ns`: the time of the warm-up run.
static enum conv_status time_variant(struct bench *bench, struct conv_bench_launch *launch,
                                     uint64_t first_ns, bool copies, double *times, int *count,
                                     struct conv_err *err)
{
    uint64_t start = conv_clock_ns(), last = first_ns, copy = 0;
    *count = 0;
    for (int run = 0;
         run < CONV_BENCH_MOST_RUNS && (run < LEAST_RUNS || conv_clock_ns() - start < ENOUGH_NS);
         run++) {
        enum conv_status status = copies ? conv_bench_launch_copy(launch, &copy, err) : CONV_OK;
        if (!status && last <= (*count ? ENOUGH_NS : TOO_LONG_NS)) {
            status = conv_bench_launch_run(launch, &last, err);
            times[(*count)++] = (double)last;
        }
        if (status)
            return status;
        if (copies)
            conv_bench_table_add_copy(bench->table, where(launch->variant), (double)copy,
                                      &bench->amount);
    }
    if (*count == 0)
        times[(*count)++] = (double)first_ns;
    return CONV_OK;
}

// A copy of an interleaved image copies other padding at the ends of rows, so it is a yardstick
// only where nothing else is measured.
static bool is_yardstick(const struct bench *bench, bool interleaved)
{
    return !interleaved || bench->options->variant;
}

// True if the variant could do the filter but its method is not meant for it: not to be timed
// unless it is requested by name.
static bool is_unsuited(const struct bench *bench, const struct conv_variant *variant)
{
    struct conv_stencil stencil;
    const struct conv_bench_chain *chain = &bench->chain;
    conv_stencil_init(&stencil, &chain->filters[0], chain->depth, chain->border,
                      chain->border_value);
    return !bench->options->variant && conv_stencil_takes(variant, &stencil) &&
           variant->score(&stencil, 0) == CONV_SCORE_UNSUITED;
}

// Places, checks and times an open launch and adds its line.
static enum conv_status run_variant(struct bench *bench, struct conv_bench_launch *launch,
                                    enum conv_bench_kind kind, bool interleaved,
                                    struct conv_err *err)
{
    const struct conv_bench_workload *workload = bench->workload;
    const struct conv_variant *variant = launch->variant;
    double times[CONV_BENCH_MOST_RUNS];
    uint64_t first_ns;
    int count;
    enum conv_status status;
    if (interleaved) {
        conv_bench_workload_interleave(workload, workload->source, bench->wide, false);
        status = conv_bench_launch_place(launch, workload->wide, workload->images, bench->wide,
                                         workload->wide_bytes, err);
    } else {
        status = conv_bench_launch_place(launch, workload->planes, workload->plane_count,
                                         workload->source, workload->bytes, err);
    }
    if (!status) // also warms up
        status = conv_bench_launch_run(launch, &first_ns, err);
    if (!status)
        status = check_result(bench, launch, interleaved, err);
    if (!status)
        status = time_variant(bench, launch, first_ns, is_yardstick(bench, interleaved), times,
                              &count, err);
    if (status)
        return status;
    conv_bench_table_add(bench->table, kind, variant->name, variant->summary, where(variant));
    conv_bench_table_set(bench->table, times, count, &bench->amount);
    return CONV_OK;
}

// What this machine offers at that place: see conv_place_offers.
static unsigned offer(const struct bench *bench, enum conv_place place)
{
    return place == CONV_ON_CUDA ? bench->options->gpu.offers : conv_cpu_features();
}

static enum conv_status bench_variant(struct bench *bench, const struct conv_ladder_step *row,
                                      struct conv_err *err)
{
    const struct conv_variant *variant = row->variant;
    enum conv_bench_kind kind = row->shape ? CONV_BENCH_SHAPE : CONV_BENCH_VARIANT;
    struct conv_bench_launch launch;
    struct conv_err reason = {0};
    conv_bench_progress(bench->options->show_progress, variant->name);
    if (is_unsuited(bench, variant)) {
        conv_bench_table_skip(bench->table, kind, variant->name, where(variant),
                              "not for filters of this size");
        return CONV_OK;
    }
    enum conv_status status =
        conv_bench_launch_open(&launch, variant, &bench->chain,
                               variant->place == CONV_ON_CUDA ? bench->options->ordinal : 1,
                               offer(bench, variant->place), &reason);
    if (!status)
        status = run_variant(bench, &launch, kind, row->interleaved, err);
    else if (bench->options->variant) // nothing else is to be measured
        conv_err_hint(err, CONV_HINT_VARIANT, 0,
                      conv_err_set(err, status, "%s: %s", variant->name, reason.text));
    else if (status == CONV_ERR_USAGE || status == CONV_ERR_DEVICE) {
        conv_bench_table_skip(bench->table, kind, variant->name, where(variant), reason.text);
        status = CONV_OK;
    } else
        *err = reason;
    conv_bench_launch_close(&launch);
    return status;
}

// All others are compared with the reference, which computes the expected result on all cores,
// since it is slow.
static enum conv_status bench_reference(struct bench *bench, const struct conv_variant *reference,
                                        struct conv_err *err)
{
    const struct conv_bench_workload *workload = bench->workload;
    struct conv_bench_launch launch;
    conv_bench_progress(bench->options->show_progress, reference->name);
    enum conv_status status = conv_bench_launch_open(&launch, reference, &bench->chain,
                                                     bench->options->choice->machine.limits->cores,
                                                     conv_cpu_features(), err);
    if (!status)
        status = conv_bench_launch_place(&launch, workload->planes, workload->plane_count,
                                         workload->source, workload->bytes, err);
    if (!status)
        status = conv_bench_launch_share(&launch, err);
    if (!status)
        status = conv_bench_launch_read(&launch, bench->expected, workload->bytes, err);
    conv_bench_launch_close(&launch);
    if (status || !bench->options->on_cpu)
        return status;
    status = conv_bench_launch_open(&launch, reference, &bench->chain, 1, conv_cpu_features(), err);
    if (!status)
        status = run_variant(bench, &launch, CONV_BENCH_VARIANT, false, err);
    conv_bench_launch_close(&launch);
    return status;
}

// --- all of it -----------------------------------------------------------------------------------

static bool is_wanted(const struct bench *bench, const struct conv_variant *variant)
{
    const struct conv_bench_options *options = bench->options;
    return (variant->place == CONV_ON_CUDA ? options->on_cuda : options->on_cpu) &&
           (!options->variant || options->variant == variant);
}

#define MOST_ROWS 96

static bool is_listed(const struct conv_ladder_step *rows, int count,
                      const struct conv_variant *variant)
{
    for (int i = 0; i < count; i++)
        if (rows[i].variant == variant)
            return true;
    return false;
}

// From the simplest to the fastest: those of the CPU, the ladder, the other ones of the device.
static int list_rows(struct conv_ladder_step *rows)
{
    int in_table, step_count, count = 0;
    const struct conv_variant *const *variants = conv_stencil_variants(&in_table);
    const struct conv_ladder_step *steps = conv_ladder_steps(&step_count);
    for (int i = in_table - 1; i >= 0; i--)
        if (variants[i]->place == CONV_ON_CPU)
            rows[count++] = (struct conv_ladder_step){.variant = variants[i]};
    for (int i = 0; i < step_count; i++)
        rows[count++] = steps[i];
    for (int i = in_table - 1; i >= 0; i--)
        if (!is_listed(rows, count, variants[i]))
            rows[count++] = (struct conv_ladder_step){.variant = variants[i]};
    return count;
}

static enum conv_status bench_variants(struct bench *bench, struct conv_err *err)
{
    struct conv_ladder_step rows[MOST_ROWS];
    int count = list_rows(rows);
    enum conv_status status = bench_reference(bench, rows[0].variant, err);
    for (int i = 1; i < count && !status; i++)
        if (is_wanted(bench, rows[i].variant))
            status = bench_variant(bench, &rows[i], err);
    return status;
}

const struct conv_variant *conv_bench_kernels_find(const char *name)
{
    struct conv_ladder_step rows[MOST_ROWS];
    int count = list_rows(rows);
    for (int i = 0; i < count; i++)
        if (strcmp(rows[i].variant->name, name) == 0)
            return rows[i].variant;
    return NULL;
}

static enum conv_status take_memory(struct bench *bench, struct conv_err *err)
{
    const struct conv_bench_workload *workload = bench->workload;
    bench->expected = calloc(workload->bytes, 1);
    bench->got = calloc(workload->bytes, 1);
    bench->wide = calloc(workload->wide_bytes, 1);
    if (!bench->expected || !bench->got || !bench->wide)
        return conv_err_memory(err, "no memory for %zu MiB of images", 3 * workload->bytes >> 20);
    return CONV_OK;
}

struct sizes {
    enum conv_bench_sizes sizes;
    int width, height, images;
};

// Measures and prints; *result is finished also after a failure.
static enum conv_status bench_workload(const struct conv_bench_options *options,
                                       const struct sizes *sizes, struct conv_bench_result *result,
                                       struct conv_err *err)
{
    struct bench bench = {
        .options = options,
        .workload = &result->workload,
        .table = &result->table,
        .chain = {.filters = options->filters,
                  .count = options->filter_count,
                  .border = options->choice->filter.border,
                  .border_value = options->choice->filter.border_value,
                  .depth = options->depth},
    };
    struct conv_bench_workload *workload = &result->workload;
    enum conv_status status = conv_bench_workload_open(
        workload, sizes->sizes, sizes->width, sizes->height, sizes->images, options->depth, err);
    if (!status && options->compare && options->choice->bench.sizes != CONV_BENCH_SIZES_STANDARD)
        status = conv_bench_compare_check(options->compare, options, workload, err);
    if (!status)
        status = take_memory(&bench, err);
    bench.amount = (struct conv_bench_amount){
        .images = workload->images,
        .pixels = workload->pixels,
        .bytes = workload->pixels * CONV_BENCH_CHANNELS * 2 * (options->depth / 8),
    };
    result->table.form = &conv_bench_kernels_form;
    if (options->on_cpu)
        conv_bench_describe_machine(options, 1, result->table.places[CONV_BENCH_ONE_CORE].machine);
    if (options->on_cuda)
        conv_bench_describe_machine(options, 0, result->table.places[CONV_BENCH_CUDA].machine);
    if (!status) {
        status = bench_variants(&bench, err);
        conv_bench_progress(bench.options->show_progress, NULL);
        conv_bench_table_finish(&result->table);
        if (options->compare)
            conv_bench_compare_fill(options->compare, options, workload, &result->table);
        conv_bench_kernels_print(options, result, status != CONV_OK);
    }
    conv_bench_workload_close(workload);
    free(bench.expected);
    free(bench.got);
    free(bench.wide);
    return status;
}

enum conv_status conv_bench_kernels(const struct conv_bench_options *options, struct conv_err *err)
{
    static const struct sizes standard[CONV_BENCH_MOST_WORKLOADS] = {
        {CONV_BENCH_SIZES_ONE, 8192, 8192, 1},
        {CONV_BENCH_SIZES_ONE, 2880, 1800, 32},
        {CONV_BENCH_SIZES_ONE, 300, 300, 1000},
        {CONV_BENCH_SIZES_MIX, 0, 0, 500},
    };
    const struct sizes given = {options->choice->bench.sizes, options->choice->bench.width,
                                options->choice->bench.height, options->choice->bench.images};
    bool is_standard = options->choice->bench.sizes == CONV_BENCH_SIZES_STANDARD;
    int count = is_standard ? CONV_BENCH_MOST_WORKLOADS : 1;
    struct conv_bench_result *results = calloc((size_t)count, sizeof *results);
    if (!results)
        return conv_err_memory(err, "no memory for the benchmark");
    enum conv_status status = CONV_OK;
    for (int i = 0; i < count && !status; i++)
        status = bench_workload(options, is_standard ? &standard[i] : &given, &results[i], err);
    if (!status && options->page->file)
        status = conv_bench_kernels_page(options, results, count, err);
    free(results);
    return status;
}
