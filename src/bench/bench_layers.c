// SPDX-License-Identifier: MIT
// Every variant of a layer at every place, and cuDNN, on every layer of the list: compared with the
// reference, and timed beside a copy and multiply-adds in registers.
#include "bench/bench_layers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "base/limits.h"
#include "bench/bench.h"
#include "bench/bench_cuda.h"
#include "kernels/ladder/ladder.h"

#define LEAST_RUNS 3
// The time for all runs of a variant.
#define ENOUGH_NS (1000000000u / CONV_BENCH_SHORTER)
#define YARDSTICK_RUNS 3 // of each with each variant
#define CHECKED 24       // images of a result

// On a CPU the time per image does not depend on the batch, so a run has fewer images, as long as
// they are much larger than the caches.
#define CPU_RUN_NS (60000000u / CONV_BENCH_SHORTER)
// The bytes that a run on a CPU reads and writes: much more than its caches hold.
#define CPU_MOST_BYTES ((size_t)512 << 20)

static const int batches[] = {100, 1000, 10000};

struct bench {
    const struct conv_bench_options *options;
    struct conv_bench_layers_data data;
    struct conv_bench_table table;
    float *got;
    // The place that is measured.
    struct conv_bench_layers_place place;
    enum conv_bench_where where;
    struct conv_bench_layers_data here; // with the images that fit there
};

static void skip_line(struct bench *bench, enum conv_bench_kind kind, const char *name,
                      const char *reason)
{
    conv_bench_table_skip(&bench->table, kind, name, bench->where, reason);
}

// Both take turns with the variants.
static enum conv_status measure_yardsticks(struct bench *bench, struct conv_err *err)
{
    int64_t images = bench->here.shape.images;
    struct conv_bench_amount amount = conv_bench_layers_amount(&bench->data, images);
    enum conv_status status = CONV_OK;
    for (int run = 0; run < YARDSTICK_RUNS && !status; run++) {
        uint64_t ns;
        double rate;
        status = conv_bench_layers_place_limits(&bench->place, images, &ns, &rate, err);
        if (status)
            break;
        conv_bench_table_add_copy(&bench->table, bench->where, (double)ns, &amount);
        conv_bench_table_add_fma(&bench->table, bench->where, rate);
    }
    return status;
}

// --- one variant ---------------------------------------------------------------------------------

static enum conv_status check_result(struct bench *bench, const struct conv_layer_variant *variant,
                                     int64_t images, struct conv_bench_line *line,
                                     struct conv_err *err)
{
    const struct conv_bench_layers_place *at = &bench->place;
    size_t bytes = bench->data.image_out * sizeof(float);
    bool same = true;
    line->error = 0;
    for (int i = 0; i < CHECKED; i++) {
        int64_t image = (images - 1) * i / (CHECKED - 1); // the first, the last and some between
        enum conv_status status =
            at->ops->copy_out(bench->got, at->out + (size_t)image * bytes, bytes, err);
        if (status)
            return status;
        conv_bench_layers_compare(&bench->data, image, bench->got, &line->error, &same);
        line->same_bits = same;
        if (variant->precision == CONV_PRECISION_EXACT ? !same
                                                       : !(line->error <= (double)variant->bound))
            return conv_err_set(err, CONV_ERR_DEVICE,
                                "%s is wrong in image %lld: errors of up to %g * 2^-24",
                                variant->name, (long long)image, line->error);
    }
    return CONV_OK;
}

// The images of a timed run: `ns` is the time of `images` images.
static int64_t choose_images(const struct bench *bench, int64_t images, uint64_t ns)
{
    int64_t most = bench->here.shape.images;
    if (bench->where == CONV_BENCH_CUDA)
        return most;
    double wanted = (double)images * CPU_RUN_NS / (double)(ns ? ns : 1);
    return wanted >= (double)most ? most : wanted < 1 ? 1 : (int64_t)wanted;
}

static enum conv_status time_variant(struct bench *bench, const struct conv_layer_variant *variant,
                                     struct conv_bench_line *line, struct conv_err *err)
{
    double times[CONV_BENCH_MOST_RUNS];
    int64_t most = bench->here.shape.images, images = most;
    uint64_t ns, start;
    int count = 0;
    if (bench->where != CONV_BENCH_CUDA) {
        images = bench->where == CONV_BENCH_ONE_CORE ? 1 : bench->table.threads;
        images = images < most ? images : most;
    }
    enum conv_status status = conv_bench_layers_place_run(&bench->place, images, &ns, err);
    for (int i = 0; i < 2 && !status; i++) { // the first estimate is of cold code
        images = choose_images(bench, images, ns);
        status = conv_bench_layers_place_run(&bench->place, images, &ns, err);
    }
    if (!status)
        status = check_result(bench, variant, images, line, err);
    for (start = conv_clock_ns(); !status && count < CONV_BENCH_MOST_RUNS &&
                                  (count < LEAST_RUNS || conv_clock_ns() - start < ENOUGH_NS);
         count++) {
        status = conv_bench_layers_place_run(&bench->place, images, &ns, err);
        times[count] = (double)ns;
    }
    struct conv_bench_amount amount = conv_bench_layers_amount(&bench->data, images);
    if (!status)
        conv_bench_table_set(&bench->table, times, count, &amount);
    return status;
}

static unsigned offer(const struct bench *bench)
{
    return bench->where == CONV_BENCH_CUDA ? bench->options->gpu.offers : conv_cpu_features();
}

static enum conv_status run_variant(struct bench *bench, struct conv_layer_plan *plan,
                                    enum conv_bench_kind kind, struct conv_err *err)
{
    const struct conv_layer_variant *variant = plan->variant;
    enum conv_status status = measure_yardsticks(bench, err);
    if (!status)
        status = conv_bench_layers_place_use(&bench->place, plan, err);
    if (!status) {
        struct conv_bench_line *line = conv_bench_table_add(&bench->table, kind, variant->name,
                                                            variant->summary, bench->where);
        line->precision = conv_layer_precisions[variant->precision];
        status = time_variant(bench, variant, line, err);
        bench->table.count -= status != CONV_OK; // only complete lines stay
    } else if (status == CONV_ERR_LIMIT) {
        skip_line(bench, kind, variant->name, err->text);
        status = CONV_OK;
    }
    return status;
}

static bool is_measured(const struct conv_bench_options *options, enum conv_precision precision)
{
    return options->any_precision || options->choice->filter.layer.precision == precision ||
           (options->layer_chosen && precision < options->choice->filter.layer.precision);
}

// True if conv layer would choose this variant for a precision that is measured.
static bool is_chosen(const struct bench *bench, const struct conv_layer_variant *variant)
{
    for (int p = 0; p <= CONV_PRECISION_FP16; p++) {
        struct conv_layer layer = bench->data.layer;
        layer.precision = (enum conv_precision)p;
        struct conv_layer_plan plan;
        if (is_measured(bench->options, layer.precision) &&
            conv_layer_plan_best(&plan, &layer, &bench->here.shape, variant->place, offer(bench),
                                 NULL) &&
            plan.variant == variant)
            return true;
    }
    return false;
}

static enum conv_status bench_variant(struct bench *bench, const struct conv_layer_variant *variant,
                                      enum conv_bench_kind kind, struct conv_err *err)
{
    const struct conv_bench_options *options = bench->options;
    bool on_cuda = bench->where == CONV_BENCH_CUDA;
    if ((variant->place == CONV_ON_CUDA) != on_cuda ||
        (options->layer_variant && options->layer_variant != variant) ||
        (options->layer_chosen ? !is_chosen(bench, variant)
                               : !is_measured(options, variant->precision)))
        return CONV_OK;
    struct conv_layer layer = bench->data.layer;
    struct conv_layer_plan plan;
    layer.precision = variant->precision;
    conv_bench_progress(bench->options->show_progress, variant->name);
    if (!conv_place_offers(variant->place, offer(bench), variant->needs))
        skip_line(bench, kind, variant->name, "this machine lacks what it needs");
    else if (!conv_layer_plan_find(&plan, variant, &layer, &bench->here.shape, offer(bench)))
        skip_line(bench, kind, variant->name, "not possible for this layer");
    else if (!options->layer_variant && variant->score(&plan) == CONV_LAYER_SCORE_UNSUITED)
        skip_line(bench, kind, variant->name, "not suited for this layer");
    else
        return run_variant(bench, &plan, kind, err);
    return CONV_OK;
}

const struct conv_layer_variant *conv_bench_layers_find(const char *name)
{
    int count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(variants[i]->name, name) == 0)
            return variants[i];
    const struct conv_ladder_layer_step *steps = conv_ladder_layer_steps(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(steps[i].variant->name, name) == 0)
            return steps[i].variant;
    return NULL;
}

// --- cuDNN ---------------------------------------------------------------------------------------

static void bench_cudnn(struct bench *bench)
{
    static const char *const names[] = {"cuDNN float32", NULL, "cuDNN TF32", "cuDNN FP16"};
    const struct conv_bench_layers_data *data = &bench->data;
    double times[CONV_BENCH_MOST_RUNS];
    float *result = malloc((size_t)data->distinct * data->image_out * sizeof *result);
    for (int p = 0; result && p <= CONV_PRECISION_FP16; p++) {
        char summary[120];
        struct conv_err err = {0};
        if (!names[p] || !is_measured(bench->options, (enum conv_precision)p))
            continue;
        conv_bench_progress(bench->options->show_progress, names[p]);
        if (conv_bench_cuda()->time_cudnn(data, bench->options->ordinal, (enum conv_precision)p,
                                          times, CONV_BENCH_MOST_RUNS, result, summary,
                                          sizeof summary, &err)) {
            skip_line(bench, CONV_BENCH_COMPETITOR, names[p], err.text);
            continue;
        }
        struct conv_bench_line *line = conv_bench_table_add(&bench->table, CONV_BENCH_COMPETITOR,
                                                            names[p], summary, CONV_BENCH_CUDA);
        struct conv_bench_amount amount = conv_bench_layers_amount(data, data->shape.images);
        bool same = true;
        line->precision = conv_layer_precisions[p];
        conv_bench_table_set(&bench->table, times, CONV_BENCH_MOST_RUNS, &amount);
        for (int b = 0; b < data->distinct; b++)
            conv_bench_layers_compare(data, b, result + (size_t)b * data->image_out, &line->error,
                                      &same);
        line->same_bits = same;
    }
    free(result);
}

// --- one place, one layer ------------------------------------------------------------------------

static void limit_cpu_images(struct bench *bench)
{
    double most = (double)CPU_MOST_BYTES / conv_bench_layers_amount(&bench->data, 1).bytes;
    if ((double)bench->here.shape.images > most)
        bench->here.shape.images = most < 1 ? 1 : (int64_t)most;
}

// From the simplest to the fastest: the steps of the ladder are those of CUDA.
static enum conv_status bench_variants(struct bench *bench, struct conv_err *err)
{
    int count, step_count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    const struct conv_ladder_layer_step *steps = conv_ladder_layer_steps(&step_count);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < step_count && !status; i++)
        status = bench_variant(bench, steps[i].variant,
                               steps[i].shape ? CONV_BENCH_SHAPE : CONV_BENCH_VARIANT, err);
    for (int i = count - 1; i >= 0 && !status; i--)
        status = bench_variant(bench, variants[i], CONV_BENCH_VARIANT, err);
    return status;
}

static enum conv_status bench_place(struct bench *bench, enum conv_bench_where where,
                                    const struct conv_bench_place_ops *ops, int number,
                                    struct conv_err *err)
{
    bench->where = where;
    bench->here = bench->data;
    if (where != CONV_BENCH_CUDA)
        limit_cpu_images(bench);
    enum conv_status status =
        conv_bench_layers_place_open(&bench->place, ops, &bench->here, number, err);
    if (!status)
        status = bench_variants(bench, err);
    conv_bench_layers_place_close(&bench->place);
    if (!status && where == CONV_BENCH_CUDA && !bench->options->layer_variant)
        bench_cudnn(bench);
    if (status == CONV_ERR_LIMIT) {
        skip_line(bench, CONV_BENCH_VARIANT, "all kernels", err->text);
        status = CONV_OK;
    }
    return status;
}

static void describe_machine(struct bench *bench)
{
    const struct conv_bench_options *options = bench->options;
    struct conv_bench_table *table = &bench->table;
    struct conv_bench_yardsticks *places = table->places;
    table->form = &conv_bench_layers_form;
    table->threads = options->choice->machine.limits->cores;
    if (options->on_cpu)
        conv_bench_describe_machine(options, 1, places[CONV_BENCH_ONE_CORE].machine);
    if (options->on_cpu && table->threads > 1)
        conv_bench_describe_machine(options, table->threads, places[CONV_BENCH_ALL_CORES].machine);
    if (options->on_cuda)
        conv_bench_describe_machine(options, 0, places[CONV_BENCH_CUDA].machine);
}

static enum conv_status bench_layer(const struct conv_bench_options *options,
                                    const struct conv_bench_layer *layer, int batch, bool first,
                                    struct conv_err *err)
{
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_memory(err, "no memory for the benchmark");
    bench->options = options;
    describe_machine(bench);
    conv_bench_progress(bench->options->show_progress, "the reference");
    struct conv_layer sides = options->geometry;
    sides.channels = layer->channels;
    sides.maps = layer->maps;
    sides.kernel_height = layer->kernel_height;
    sides.kernel_width = layer->kernel_width;
    enum conv_status status = conv_bench_layers_data_open(
        &bench->data, &sides, layer->height, layer->width, batch, bench->table.threads, err);
    if (!status && !(bench->got = malloc(bench->data.image_out * sizeof *bench->got)))
        status = conv_err_memory(err, "no memory for results");
    bool opened = !status;
    bench->data.memory = conv_limits_memory_left(options->choice->machine.limits);
    if (!status && options->on_cpu)
        status = bench_place(bench, CONV_BENCH_ONE_CORE, &conv_bench_place_cpu, 1, err);
    if (!status && options->on_cpu && bench->table.threads > 1)
        status = bench_place(bench, CONV_BENCH_ALL_CORES, &conv_bench_place_cpu,
                             bench->table.threads, err);
    if (!status && options->on_cuda)
        status =
            bench_place(bench, CONV_BENCH_CUDA, conv_bench_cuda()->place, options->ordinal, err);
    conv_bench_progress(bench->options->show_progress, NULL);
    conv_bench_table_finish(&bench->table);
    if (opened)
        status = conv_bench_layers_print(options, &bench->data, layer->name, &bench->table, first,
                                         status, err);
    free(bench->got);
    conv_bench_layers_data_close(&bench->data);
    free(bench);
    return status;
}

enum conv_status conv_bench_layers(const struct conv_bench_options *options, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int count = 1, batch_count = (int)(sizeof batches / sizeof batches[0]);
    bool first = true;
    const struct conv_bench_layer *list = &options->choice->bench.layer;
    if (!list->channels)
        list = conv_bench_shapes_list(&count);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < (list[i].batch ? 1 : batch_count) && !status; j++) {
            status = bench_layer(options, &list[i], list[i].batch ? list[i].batch : batches[j],
                                 first, err);
            first = false;
        }
    return status;
}
