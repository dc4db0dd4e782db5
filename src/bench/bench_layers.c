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
#define YARDSTICK_RUNS 3    // of each with each variant
#define MOST_YARDSTICKS 512 // copies, or runs of multiply-adds, of a place
#define CHECKED 24          // images of a result

// On a CPU the time per image does not depend on the batch, so a run has fewer images, as long as
// they are much larger than the caches.
#define CPU_RUN_NS (60000000u / CONV_BENCH_SHORTER)
// The bytes that a run on a CPU reads and writes: much more than its caches hold.
#define CPU_MOST_BYTES ((size_t)512 << 20)

static const int batches[] = {100, 1000, 10000};

struct yardstick {
    double values[MOST_YARDSTICKS]; // GB/s or TFLOP/s
    int count;
};

struct bench {
    const struct conv_bench_options *options;
    struct conv_bench_layers_data data;
    struct conv_bench_layers_table table;
    float *got;
    // The place that is measured.
    struct conv_bench_layers_place place;
    enum conv_bench_layers_where where;
    struct conv_bench_layers_data here; // with the images that fit there
    double step_ms;                     // per image, of the previous step of the ladder; 0: none
    struct yardstick copies, fmas;
};

// --- lines ---------------------------------------------------------------------------------------

static struct conv_bench_layers_line *add_line(struct bench *bench, enum conv_bench_kind kind,
                                               const char *name, const char *summary)
{
    struct conv_bench_layers_table *table = &bench->table;
    if (table->count == CONV_BENCH_LAYERS_MOST_LINES) // the table of variants would have to double
        table->count--;
    struct conv_bench_layers_line *line = &table->lines[table->count++];
    *line = (struct conv_bench_layers_line){.kind = kind, .name = name, .where = bench->where};
    snprintf(line->summary, sizeof line->summary, "%s", summary);
    return line;
}

static void skip_line(struct bench *bench, enum conv_bench_kind kind, const char *name,
                      const char *reason)
{
    struct conv_bench_layers_line *line = add_line(bench, kind, name, "");
    snprintf(line->skipped, sizeof line->skipped, "%.*s", (int)sizeof line->skipped - 1, reason);
}

static void set_times(struct bench *bench, struct conv_bench_layers_line *line, double *ns,
                      int runs, int64_t images)
{
    struct conv_stat stat = conv_stat_sort(ns, runs);
    line->runs = runs;
    line->images = images;
    line->ms = stat.median / 1e6;
    line->ms_min = stat.min / 1e6;
    line->ms_max = stat.max / 1e6;
    line->ms_p25 = stat.p25 / 1e6;
    line->ms_p75 = stat.p75 / 1e6;
    line->gb_per_s = conv_bench_layers_bytes(&bench->data, (double)images) / stat.median;
    line->tflop_per_s = conv_bench_layers_flops(&bench->data, (double)images) / stat.median / 1e3;
}

// --- yardsticks ----------------------------------------------------------------------------------

static void add_yardstick(struct yardstick *yardstick, double value)
{
    if (yardstick->count < MOST_YARDSTICKS)
        yardstick->values[yardstick->count++] = value;
}

// Both take turns with the variants.
static enum conv_status measure_yardsticks(struct bench *bench, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int64_t images = bench->here.shape.images;
    double bytes = conv_bench_layers_bytes(&bench->data, (double)images), flops;
    uint64_t ns;
    for (int run = 0; run < YARDSTICK_RUNS && !status; run++) {
        status = conv_bench_layers_place_copy(&bench->place, images, &ns, err);
        if (!status)
            add_yardstick(&bench->copies, bytes / (double)(ns ? ns : 1));
        if (!status)
            status = conv_bench_layers_place_fma(&bench->place, &flops, &ns, err);
        if (!status)
            add_yardstick(&bench->fmas, flops / (double)(ns ? ns : 1) / 1e3);
    }
    return status;
}

static void set_shares(struct bench *bench)
{
    struct conv_bench_layers_table *table = &bench->table;
    if (!bench->copies.count)
        return;
    double copy = conv_stat_median(bench->copies.values, bench->copies.count);
    double fma = conv_stat_median(bench->fmas.values, bench->fmas.count);
    table->copy_gb_per_s[bench->where] = copy;
    table->fma_tflop_per_s[bench->where] = fma;
    for (int i = 0; i < table->count; i++) {
        struct conv_bench_layers_line *line = &table->lines[i];
        if (line->where != bench->where || *line->skipped)
            continue;
        line->byte_share = line->gb_per_s / copy;
        line->flop_share = line->tflop_per_s / fma;
    }
}

// --- one variant ---------------------------------------------------------------------------------

// The first images, the last ones and some between them.
static int64_t checked_image(int number, int64_t images)
{
    if (number < CHECKED / 3)
        return number < images ? number : images - 1;
    if (number < CHECKED / 3 * 2)
        return images - 1 - (number - CHECKED / 3) % images;
    return images * (number - CHECKED / 3 * 2) / (CHECKED / 3);
}

static enum conv_status check_result(struct bench *bench, const struct conv_layer_variant *variant,
                                     int64_t images, struct conv_bench_layers_line *line,
                                     struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    line->same_bits = true;
    line->error = 0;
    for (int i = 0; i < CHECKED && !status; i++) {
        int64_t image = checked_image(i, images);
        status = conv_bench_layers_place_read(&bench->place, image, bench->got, err);
        if (status)
            break;
        conv_bench_layers_compare(&bench->data, image, bench->got, &line->error, &line->same_bits);
        if (variant->precision == CONV_PRECISION_EXACT ? !line->same_bits
                                                       : !(line->error <= (double)variant->bound))
            status = conv_err_set(err, CONV_ERR_DEVICE,
                                  "%s is wrong in image %lld: errors of up to %g * 2^-24",
                                  variant->name, (long long)image, line->error);
    }
    return status;
}

// The images of a timed run: `ns` is the time of `images` images.
static int64_t choose_images(const struct bench *bench, int64_t images, uint64_t ns)
{
    int64_t most = bench->here.shape.images;
    if (bench->where == CONV_BENCH_LAYERS_CUDA)
        return most;
    double wanted = (double)images * CPU_RUN_NS / (double)(ns ? ns : 1);
    return wanted >= (double)most ? most : wanted < 1 ? 1 : (int64_t)wanted;
}

static enum conv_status time_variant(struct bench *bench, const struct conv_layer_variant *variant,
                                     struct conv_bench_layers_line *line, struct conv_err *err)
{
    double times[CONV_BENCH_MOST_RUNS];
    int64_t most = bench->here.shape.images, images = most;
    uint64_t ns, start;
    int count = 0;
    if (bench->where != CONV_BENCH_LAYERS_CUDA) {
        images = bench->where == CONV_BENCH_LAYERS_ONE_CORE ? 1 : bench->table.threads;
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
    if (!status)
        set_times(bench, line, times, count, images);
    return status;
}

static unsigned offer(const struct bench *bench)
{
    return bench->where == CONV_BENCH_LAYERS_CUDA ? bench->options->gpu.offers
                                                  : conv_cpu_features();
}

static void set_step(struct bench *bench, struct conv_bench_layers_line *line)
{
    double ms = line->ms / (double)line->images;
    line->step = bench->step_ms > 0 ? bench->step_ms / ms : 0;
    bench->step_ms = ms;
}

static enum conv_status run_variant(struct bench *bench, struct conv_layer_plan *plan,
                                    enum conv_bench_kind kind, struct conv_err *err)
{
    const struct conv_layer_variant *variant = plan->variant;
    void *packed = aligned_alloc(64, (plan->packed_bytes + 64) / 64 * 64);
    if (!packed)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the weights");
    conv_layer_plan_pack(plan, packed);
    enum conv_status status = measure_yardsticks(bench, err);
    if (!status)
        status = conv_bench_layers_place_use(&bench->place, plan, err);
    if (!status) {
        struct conv_bench_layers_line line; // in the table once it is complete
        struct conv_bench_layers_line *added =
            add_line(bench, kind, variant->name, variant->summary);
        line = *added;
        line.precision = variant->precision;
        status = time_variant(bench, variant, &line, err);
        if (!status && kind == CONV_BENCH_VARIANT)
            set_step(bench, &line);
        if (!status)
            *added = line;
        else
            bench->table.count--;
    } else if (status == CONV_ERR_LIMIT) {
        skip_line(bench, kind, variant->name, err->text);
        status = CONV_OK;
    }
    free(packed);
    return status;
}

static bool is_measured(const struct conv_bench_options *options, enum conv_precision precision)
{
    return options->any_precision || options->precision == precision ||
           (options->layer_chosen && precision < options->precision);
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
    bool on_cuda = bench->where == CONV_BENCH_LAYERS_CUDA;
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

#if CONV_HAVE_CUDNN
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
        if (conv_bench_layers_cudnn(data, bench->options->ordinal, (enum conv_precision)p, times,
                                    CONV_BENCH_MOST_RUNS, result, summary, sizeof summary, &err)) {
            skip_line(bench, CONV_BENCH_COMPETITOR, names[p], err.text);
            continue;
        }
        struct conv_bench_layers_line *line =
            add_line(bench, CONV_BENCH_COMPETITOR, names[p], summary);
        set_times(bench, line, times, CONV_BENCH_MOST_RUNS, data->shape.images);
        line->precision = (enum conv_precision)p;
        line->same_bits = true;
        for (int b = 0; b < data->distinct; b++)
            conv_bench_layers_compare(data, b, result + (size_t)b * data->image_out, &line->error,
                                      &line->same_bits);
    }
    free(result);
}
#endif

// --- one place, one layer ------------------------------------------------------------------------

static void limit_cpu_images(struct bench *bench)
{
    double most = (double)CPU_MOST_BYTES / conv_bench_layers_bytes(&bench->data, 1);
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

static enum conv_status bench_place(struct bench *bench, enum conv_bench_layers_where where,
                                    const struct conv_bench_place_ops *ops, int number,
                                    struct conv_err *err)
{
    bench->where = where;
    bench->here = bench->data;
    bench->step_ms = 0;
    bench->copies.count = bench->fmas.count = 0;
    if (where != CONV_BENCH_LAYERS_CUDA)
        limit_cpu_images(bench);
    enum conv_status status =
        conv_bench_layers_place_open(&bench->place, ops, &bench->here, number, err);
    if (!status)
        status = bench_variants(bench, err);
    conv_bench_layers_place_close(&bench->place);
#if CONV_HAVE_CUDNN
    if (!status && where == CONV_BENCH_LAYERS_CUDA && !bench->options->layer_variant)
        bench_cudnn(bench);
#endif
    set_shares(bench);
    if (status == CONV_ERR_LIMIT) {
        skip_line(bench, CONV_BENCH_VARIANT, "all kernels", err->text);
        status = CONV_OK;
    }
    return status;
}

static void describe_machine(struct bench *bench)
{
    const struct conv_bench_options *options = bench->options;
    struct conv_bench_layers_table *table = &bench->table;
    char model[64];
    conv_cpu_model(model, sizeof model);
    table->threads = options->limits->cores;
    if (options->on_cpu)
        snprintf(table->machine[CONV_BENCH_LAYERS_ONE_CORE], sizeof table->machine[0],
                 "one core of %s", model);
    if (options->on_cpu && table->threads > 1)
        snprintf(table->machine[CONV_BENCH_LAYERS_ALL_CORES], sizeof table->machine[0],
                 "%d cores of %s", table->threads, model);
    if (options->on_cuda)
        snprintf(table->machine[CONV_BENCH_LAYERS_CUDA], sizeof table->machine[0], "%s",
                 options->gpu.name);
}

static enum conv_status bench_layer(const struct conv_bench_options *options,
                                    const struct conv_bench_layer *layer, int batch, bool first,
                                    struct conv_err *err)
{
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    bench->options = options;
    describe_machine(bench);
    conv_bench_progress(bench->options->show_progress, "the reference");
    enum conv_status status =
        conv_bench_layers_data_open(&bench->data, layer, batch, bench->table.threads, err);
    if (!status && !(bench->got = malloc(bench->data.image_out * sizeof *bench->got)))
        status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for results");
    bool opened = !status;
    bench->data.memory = conv_limits_memory_left(options->limits);
    if (!status && options->on_cpu)
        status = bench_place(bench, CONV_BENCH_LAYERS_ONE_CORE, &conv_bench_place_cpu, 1, err);
    if (!status && options->on_cpu && bench->table.threads > 1)
        status = bench_place(bench, CONV_BENCH_LAYERS_ALL_CORES, &conv_bench_place_cpu,
                             bench->table.threads, err);
    if (!status && options->on_cuda)
        status = bench_place(bench, CONV_BENCH_LAYERS_CUDA, conv_bench_cuda()->place,
                             options->ordinal, err);
    conv_bench_progress(bench->options->show_progress, NULL);
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
    const struct conv_bench_layer *list =
        options->layer ? options->layer : conv_bench_shapes_list(&count);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < (list[i].batch ? 1 : batch_count) && !status; j++) {
            status = bench_layer(options, &list[i], list[i].batch ? list[i].batch : batches[j],
                                 first, err);
            first = false;
        }
    return status;
}
