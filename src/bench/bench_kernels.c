// SPDX-License-Identifier: MIT
// The ladder from its foot to its top: each row of the variant table, and those rows that only
// serve to show something, filters the same images. A row that is wrong ends the benchmark.
#include "bench/bench_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/features.h"
#include "bench/bench_kernels_images.h"
#include "bench/bench_mix.h"
#include "bench/bench_reference.h"
#include "bench/bench_table.h"
#include "bench/kernel_run.h"
#include "bench/kernels_page.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/own_files.h"
#include "report/report.h"
#if CONV_HAVE_CUDNN
#include "bench/bench_cudnn.h"
#endif
#if CONV_HAVE_NPP
#include "bench/bench_npp.h"
#endif

#define LEAST_RUNS 3
#define ENOUGH_NS 500000000u // for all runs of a row; a kernel that takes longer is not repeated
// A first run, page faults included, that takes longer than this is the only one.
#define TOO_LONG_NS 2000000000u

struct bench {
    const struct conv_options *options;
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    bool on_cpu, on_cuda; // what --device lets in
    int ordinal;
    struct conv_image *shapes; // of the images
    struct conv_image *wide;   // the same, stored as RGBRGB...: one plane of three times the width
    struct conv_group_plane *planes;
    int plane_count;
    uint8_t *source, *expected, *got; // the planes at their offsets, `bytes` each
    size_t bytes;
    struct conv_bench_table table;
    struct conv_page_job page;
};

static enum conv_status make_shapes(struct bench *bench, struct conv_err *err)
{
    struct conv_bench_table *table = &bench->table;
    size_t count = (size_t)table->images;
    bench->shapes = calloc(count, sizeof *bench->shapes);
    bench->wide = calloc(count, sizeof *bench->wide);
    if (!bench->shapes || !bench->wide)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu images", count);
    enum conv_status status =
        conv_bench_images_shape(bench->shapes, table->images, table->width, table->height,
                                table->depth, &table->pixels, err);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        bench->wide[i] = bench->shapes[i];
        bench->wide[i].width *= CONV_BENCH_CHANNELS;
        bench->wide[i].channels = 1;
    }
    return CONV_OK;
}

// --- one row -------------------------------------------------------------------------------------

// What the user sees until the table is there: its shares need the last row's copies too.
static void show_progress(const struct bench *bench, const char *name)
{
    const struct conv_options *options = bench->options;
    bool shown = options->progress == (int)CONV_ALWAYS ||
                 (options->progress == (int)CONV_AUTO && isatty(STDERR_FILENO));
    if (!shown || options->quiet)
        return;
    fputs("\r\033[K", stderr);
    if (name)
        fprintf(stderr, "measuring %s", name);
    fflush(stderr);
}

struct times {
    double ns[CONV_BENCH_MOST_RUNS];
    int count;
};

// Times the kernel, and in turn with it copies of the same bytes, which go into the table, after a
// first run that took first_ns.
static enum conv_status time_row(struct bench *bench, struct conv_kernel_run *contender,
                                 uint64_t first_ns, bool copies, struct times *times,
                                 struct conv_err *err)
{
    const struct conv_backend_ops *ops = contender->ops;
    bool on_cuda = contender->variant->place == CONV_ON_CUDA;
    uint64_t start = conv_clock_ns(), last = first_ns, copy = 0;
    for (int run = 0;
         run < CONV_BENCH_MOST_RUNS && (run < LEAST_RUNS || conv_clock_ns() - start < ENOUGH_NS);
         run++) {
        enum conv_status status =
            copies ? ops->stream_copy(contender->stream, &contender->group, &copy, err) : CONV_OK;
        if (!status && last <= (times->count ? ENOUGH_NS : TOO_LONG_NS)) {
            status = ops->stream_again(contender->stream, &contender->group, &last, err);
            times->ns[times->count++] = (double)last;
        }
        if (status)
            return status;
        if (copies)
            conv_bench_table_add_copy(&bench->table, on_cuda, copy);
    }
    if (times->count == 0)
        times->ns[times->count++] = (double)first_ns;
    return CONV_OK;
}

static enum conv_status compare(const struct bench *bench, const struct conv_kernel_run *contender,
                                bool interleaved, struct conv_err *err)
{
    struct conv_kernel_run truth = {.planes = bench->planes}, got = *contender;
    struct conv_difference first;
    truth.group.plane_count = bench->plane_count;
    truth.group.h_result = bench->expected;
    if (interleaved) {
        conv_bench_images_interleave(bench->planes, bench->plane_count, bench->got,
                                     &contender->group, contender->group.h_result, true);
        got.group.h_result = bench->got;
    }
    if (!conv_kernel_run_differs(&truth, &got, &first))
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_DEVICE, "%s is wrong: plane %d, x %d, y %d: %u, not %u",
                        contender->variant->name, first.plane, first.x, first.y, first.got,
                        first.expected);
}

// An interleaved image has other gaps at the ends of its rows, so a copy of it is not one of the
// same bytes: it counts only where nothing else runs on that device.
static bool is_yardstick(const struct bench *bench, const struct conv_variant *row,
                         bool interleaved)
{
    const char *only = bench->options->variant;
    return !interleaved || (only && strcmp(only, row->name) == 0);
}

// True if the variant could do the filter but its method is not meant for it: not to be timed
// unless it is named.
static bool is_unsuited(const struct bench *bench, const struct conv_variant *variant)
{
    struct conv_stencil stencil;
    const struct conv_options *options = bench->options;
    conv_stencil_init(&stencil, &bench->filters[0], bench->table.depth, options->border,
                      options->border_value);
    return !options->variant && (!variant->can || variant->can(&stencil)) &&
           variant->score(&stencil, NULL) == CONV_SCORE_UNSUITED;
}

// Opens a row's contender, holds it against the reference, times it and closes it.
static enum conv_status bench_row(struct bench *bench, const struct conv_variant *row,
                                  enum conv_bench_kind kind, bool interleaved, struct conv_err *err)
{
    struct conv_kernel_run contender = {0};
    struct conv_err reason = {0};
    bool on_cuda = row->place == CONV_ON_CUDA;
    show_progress(bench, row->name);
    if (is_unsuited(bench, row)) {
        conv_bench_table_leave_out(&bench->table, kind, row->name, on_cuda,
                                   "not for filters of this size");
        return CONV_OK;
    }
    enum conv_status status = conv_kernel_run_open(&contender, row, bench->options, bench->filters,
                                                   bench->filter_count, &reason);
    const char *chosen =
        status ? NULL : contender.ops->variant(contender.backend, 0, bench->table.depth);
    bool unfit = chosen && strcmp(chosen, row->name) != 0; // for images of this depth
    if (bench->options->variant && (status || unfit)) {    // nothing else is to be measured
        conv_kernel_run_close(&contender);
        status = status ? reason.status : CONV_ERR_USAGE;
        return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                             conv_err_set(err, status, "%s: %s", row->name,
                                          unfit ? "not at this depth" : reason.text));
    }
    if (status == CONV_ERR_USAGE || status == CONV_ERR_DEVICE || unfit) {
        conv_bench_table_leave_out(&bench->table, kind, row->name, on_cuda,
                                   chosen ? "not at this depth" : reason.text);
        conv_kernel_run_close(&contender);
        return CONV_OK;
    }
    if (status)
        *err = reason;
    else
        status = conv_kernel_run_place(&contender, interleaved ? bench->wide : bench->shapes,
                                       bench->table.images, false, NULL, err);
    struct conv_group *group = &contender.group;
    if (!status && interleaved)
        conv_bench_images_interleave(bench->planes, bench->plane_count, bench->source, group,
                                     group->h_in, false);
    else if (!status)
        memcpy(group->h_in, bench->source, bench->bytes);
    struct times times = {.count = 0};
    if (!status) // also warms up
        status = contender.ops->stream_run(contender.stream, group, err);
    if (!status)
        status = compare(bench, &contender, interleaved, err);
    if (!status)
        status = time_row(bench, &contender, group->ns_kernel,
                          is_yardstick(bench, row, interleaved), &times, err);
    if (!status)
        conv_bench_table_add(&bench->table, kind, row->name, row->summary, on_cuda, times.ns,
                             times.count);
    conv_kernel_run_close(&contender);
    return status;
}

// The images, laid out as the reference has them in one group.
static enum conv_status keep_source(struct bench *bench, const struct conv_group *group,
                                    struct conv_err *err)
{
    bench->bytes = group->front;
    bench->plane_count = group->plane_count;
    size_t table = (size_t)group->plane_count * sizeof *bench->planes;
    bench->planes = malloc(table);
    bench->source = malloc(bench->bytes);
    bench->expected = calloc(bench->bytes, 1);
    bench->got = malloc(bench->bytes);
    if (!bench->planes || !bench->source || !bench->expected || !bench->got)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of images",
                            3 * bench->bytes >> 20);
    memcpy(bench->planes, group->planes, table);
    conv_bench_images_fill(group);
    memcpy(bench->source, group->h_in, bench->bytes);
    return CONV_OK;
}

// The row all others are held against. Keeps the images and what has come out.
static enum conv_status bench_reference(struct bench *bench, const struct conv_variant *row,
                                        struct conv_err *err)
{
    struct conv_kernel_run contender = {0};
    struct conv_group *group = &contender.group;
    show_progress(bench, row->name);
    enum conv_status status = conv_kernel_run_open(&contender, row, bench->options, bench->filters,
                                                   bench->filter_count, err);
    if (!status)
        status =
            conv_kernel_run_place(&contender, bench->shapes, bench->table.images, false, NULL, err);
    if (!status)
        status = keep_source(bench, group, err);
    struct conv_bench_reference truth = {
        .options = bench->options,
        .reference = row,
        .filters = bench->filters,
        .filter_count = bench->filter_count,
        .shapes = bench->shapes,
        .images = bench->table.images,
        .planes = bench->planes,
        .source = bench->source,
        .result = bench->expected,
    };
    if (!status)
        status = conv_bench_reference(&truth, err);
    struct times times = {.count = 0};
    if (!status && bench->on_cpu)
        status = contender.ops->stream_run(contender.stream, group, err);
    if (!status && bench->on_cpu) // the reference in one piece
        status = compare(bench, &contender, false, err);
    if (!status && bench->on_cpu)
        status = time_row(bench, &contender, group->ns_kernel, true, &times, err);
    if (!status && bench->on_cpu)
        conv_bench_table_add(&bench->table, CONV_BENCH_RUNG, row->name, row->summary, false,
                             times.ns, times.count);
    conv_kernel_run_close(&contender);
    return status;
}

// --- rivals --------------------------------------------------------------------------------------

#if CONV_HAVE_NPP || CONV_HAVE_CUDNN
#define RIVAL_RUNS 7

static const struct rival {
    const char *name, *summary, *rounded; // if it rounds otherwise than we do
    unsigned apart;                       // at most, from what we make: more is another filter
    enum conv_status (*run)(const struct conv_filter *filter, enum conv_border border,
                            const struct conv_group_plane *planes, int count, const uint8_t *source,
                            uint8_t *result, size_t bytes, int device, uint64_t *ns, int runs,
                            struct conv_err *err);
} rivals[] = {
#if CONV_HAVE_NPP
    {"NPP FilterBorder", "a call a plane", "a call a plane; truncates, results differ by 1", 1,
     conv_bench_npp},
    {"NPP Row and Column", "two calls a plane",
     "two calls a plane; truncates twice, results differ by up to 2", 2, conv_bench_npp_passes},
#endif
#if CONV_HAVE_CUDNN
    {"cuDNN", "float32, without conversion and rounding",
     "float32, without conversion and rounding; results differ by 1", 1, conv_bench_cudnn},
#endif
};

// Rivals round in their own ways.
static unsigned largest_difference(const struct bench *bench)
{
    unsigned most = 0;
    for (int p = 0; p < bench->plane_count; p++) {
        const struct conv_group_plane *plane = &bench->planes[p];
        size_t stride = conv_image_stride(plane->width, plane->depth);
        for (int y = 0; y < plane->height; y++) {
            const uint8_t *a = bench->expected + plane->offset + (size_t)y * stride;
            const uint8_t *b = bench->got + plane->offset + (size_t)y * stride;
            for (int x = 0; x < plane->width; x++) {
                unsigned apart = a[x] > b[x] ? (unsigned)(a[x] - b[x]) : (unsigned)(b[x] - a[x]);
                most = apart > most ? apart : most;
            }
        }
    }
    return most;
}

// Its share is of the copy that the ladder measures.
static void bench_rival(struct bench *bench, const struct rival *rival)
{
    uint64_t ns[RIVAL_RUNS];
    double times[RIVAL_RUNS];
    struct conv_err err = {0};
    const char *name = rival->name;
    show_progress(bench, name);
    if (bench->filter_count > 1) {
        conv_bench_table_leave_out(&bench->table, CONV_BENCH_RIVAL, name, true,
                                   "one filter at a time");
        return;
    }
    if (rival->run(&bench->filters[0], bench->options->border, bench->planes, bench->plane_count,
                   bench->source, bench->got, bench->bytes, bench->ordinal, ns, RIVAL_RUNS, &err)) {
        conv_bench_table_leave_out(&bench->table, CONV_BENCH_RIVAL, name, true, err.text);
        return;
    }
    unsigned apart = largest_difference(bench);
    if (apart > rival->apart) {
        char reason[64];
        snprintf(reason, sizeof reason, "differs by up to %u", apart);
        conv_bench_table_leave_out(&bench->table, CONV_BENCH_RIVAL, name, true, reason);
        return;
    }
    for (int r = 0; r < RIVAL_RUNS; r++)
        times[r] = (double)ns[r];
    conv_bench_table_add(&bench->table, CONV_BENCH_RIVAL, name,
                         apart ? rival->rounded : rival->summary, true, times, RIVAL_RUNS);
}
#endif

// --- all of it -----------------------------------------------------------------------------------

static bool is_wanted(const struct bench *bench, const struct conv_variant *row)
{
    const char *only = bench->options->variant;
    return (row->place == CONV_ON_CUDA ? bench->on_cuda : bench->on_cpu) &&
           (!only || strcmp(row->name, only) == 0);
}

// Rungs of their own (`of` NULL), or the other shapes of a rung.
static enum conv_status bench_extras(struct bench *bench, const struct conv_variant *of,
                                     struct conv_err *err)
{
    int count;
    const struct conv_stencil_extra *extras = conv_stencil_extras(&count);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < count && !status; i++)
        if (extras[i].of == of && is_wanted(bench, extras[i].variant))
            status = bench_row(bench, extras[i].variant, of ? CONV_BENCH_SHAPE : CONV_BENCH_RUNG,
                               extras[i].interleaved, err);
    return status;
}

static enum conv_status bench_rows(struct bench *bench, struct conv_err *err)
{
    int count;
    const struct conv_variant *const *rows = conv_stencil_variants(&count);
    bool on_cuda = false;
    enum conv_status status = bench_reference(bench, rows[count - 1], err);
    for (int i = count - 2; i >= 0 && !status; i--) {
        if (rows[i]->place == CONV_ON_CUDA && !on_cuda) {
            on_cuda = true;
            status = bench_extras(bench, NULL, err);
        }
        if (!status && is_wanted(bench, rows[i]))
            status = bench_row(bench, rows[i], CONV_BENCH_RUNG, false, err);
        if (!status)
            status = bench_extras(bench, rows[i], err);
    }
#if CONV_HAVE_NPP || CONV_HAVE_CUDNN
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0]; i++)
        if (!status && bench->on_cuda && !bench->options->variant)
            bench_rival(bench, &rivals[i]);
#endif
    return status;
}

// NULL if there is no such row.
static const struct conv_variant *find_variant(const char *name)
{
    int rows, extras;
    const struct conv_variant *const *variants = conv_stencil_variants(&rows);
    const struct conv_stencil_extra *extra = conv_stencil_extras(&extras);
    for (int i = 0; i < rows; i++)
        if (strcmp(variants[i]->name, name) == 0)
            return variants[i];
    for (int i = 0; i < extras; i++)
        if (strcmp(extra[i].variant->name, name) == 0)
            return extra[i].variant;
    return NULL;
}

// A variant that --device excludes, or that needs a GPU where there is none, must not turn into a
// measurement of something else.
static enum conv_status check_variant(const struct bench *bench, const struct conv_variant *row,
                                      enum conv_device_choice choice, struct conv_err *err)
{
    if (choice == (row->place == CONV_ON_CPU ? CONV_DEVICE_GPU : CONV_DEVICE_CPU))
        return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                             conv_err_set(err, CONV_ERR_USAGE,
                                          "%s cannot be combined with the device %s", row->name,
                                          bench->options->device_text));
    return CONV_OK;
}

static void describe_cpu(char *text, size_t size)
{
    char model[64];
    conv_cpu_model(model, sizeof model);
    snprintf(text, size, "one core of %s", model);
}

// Where to measure. A GPU that cannot be used is an error only if it was asked for.
static enum conv_status choose_devices(struct bench *bench, struct conv_err *err)
{
    struct conv_device_list list;
    enum conv_status status = conv_device_parse_one(bench->options, &list, err);
    const struct conv_variant *row =
        bench->options->variant ? find_variant(bench->options->variant) : NULL;
    if (!status && row)
        status = check_variant(bench, row, list.choice, err);
    if (status)
        return status;
    bench->ordinal = list.ordinals[0];
    enum conv_device_choice choice =
        row && row->place == CONV_ON_CPU ? CONV_DEVICE_CPU : list.choice;
    struct conv_device_info info[64];
    struct conv_err reason = {0};
    int count = 0;
    bench->on_cpu = choice != CONV_DEVICE_GPU;
    if (bench->on_cpu)
        describe_cpu(bench->table.cpu, sizeof bench->table.cpu);
    if (choice == CONV_DEVICE_CPU)
        return CONV_OK;
    status = list.gpu->devices(info, 64, &count, &reason);
    if (!status && bench->ordinal >= count)
        status = conv_err_set(&reason, CONV_ERR_DEVICE, "no %s device %d", list.gpu->title,
                              bench->ordinal);
    if (!status) {
        bench->on_cuda = true;
        snprintf(bench->table.cuda, sizeof bench->table.cuda, "%s", info[bench->ordinal].name);
        return CONV_OK;
    }
    if (choice == CONV_DEVICE_GPU || row)
        return conv_err_set(err, status, "%s", reason.text);
    if (!bench->options->quiet)
        conv_report_say("%s; measuring the CPU alone", reason.text);
    return CONV_OK;
}

static enum conv_status prepare(struct bench *bench, struct conv_err *err)
{
    const struct conv_options *options = bench->options;
    if (options->operand_count != 1)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "conv bench kernels takes no operands, but '%s' was given",
                            options->operands[1]);
    const struct conv_backend_ops *forced =
        options->variant ? conv_backends_of_kernel(options->backends, options->variant) : NULL;
    if (forced && !forced->built)
        return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                             conv_err_set(err, CONV_ERR_DEVICE,
                                          "%s: this conv was built without %s", options->variant,
                                          forced->title));
    if (options->variant && !find_variant(options->variant))
        return conv_err_hint(err, CONV_HINT_VARIANT, 0,
                             conv_err_set(err, CONV_ERR_USAGE,
                                          "%s: unknown variant (conv bench kernels lists them)",
                                          options->variant));
    struct conv_own_files_use use = {.filters = options->bench_filter};
    enum conv_status status = conv_commands_parse_chain(options, options->bench_filter,
                                                        bench->filters, &bench->filter_count, err);
    if (!status)
        status = conv_own_files_check(options, &use, err);
    if (!status)
        status = choose_devices(bench, err);
    if (!status)
        status = conv_page_open(&bench->page, options, err);
    bench->table.filter = options->bench_filter;
    bench->table.border = conv_filter_border_name(options->border);
    bench->table.width = options->bench_width;
    bench->table.height = options->bench_height;
    bench->table.depth = options->bench_depth == CONV_BENCH_16_BITS ? 16 : 8;
    bench->table.images = options->bench_images ? options->bench_images
                          : bench->table.width  ? 1
                                                : CONV_BENCH_MIX_IMAGES;
    return status ? status : make_shapes(bench, err);
}

enum conv_status conv_bench_kernels(const struct conv_options *options, struct conv_err *err)
{
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    bench->options = options;
    enum conv_status status = prepare(bench, err);
    if (!status) {
        status = bench_rows(bench, err);
        show_progress(bench, NULL);
        conv_bench_table_finish(&bench->table);
    }
    if (!options->json && !options->csv && bench->table.count > 0)
        conv_bench_table_print(&bench->table); // what there is, even if a row was wrong
    if (!status && options->json)
        conv_bench_table_print_json(&bench->table, stdout);
    if (!status && options->csv)
        conv_bench_table_print_csv(&bench->table);
    if (!status && bench->page.file)
        status = conv_kernels_page_write(&bench->page, &bench->table, bench->filters,
                                         bench->filter_count, err);
    conv_page_close(&bench->page);
    free(bench->shapes);
    free(bench->wide);
    free(bench->planes);
    free(bench->source);
    free(bench->expected);
    free(bench->got);
    free(bench);
    return status;
}
