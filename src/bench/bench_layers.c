// SPDX-License-Identifier: MIT
// Every variant of a layer at every place, and cuDNN, on every layer of the list.
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "base/limits.h"
#include "bench/bench_cuda.h"
#include "bench/bench_layers_internal.h"
#include "bench/bench_progress.h"
#include "kernels/ladder/ladder.h"

// The bytes that a run on a CPU reads and writes: much more than its caches hold.
#define CPU_MOST_BYTES ((size_t)512 << 20)

static const int batches[] = {100, 1000, 10000};

// --- cuDNN ---------------------------------------------------------------------------------------

#if CONV_HAVE_CUDNN
static void bench_cudnn(struct conv_bench_layers *bench)
{
    static const char *const names[] = {"cuDNN float32", NULL, "cuDNN TF32", "cuDNN FP16"};
    const struct conv_bench_layers_data *data = &bench->data;
    double times[CONV_BENCH_MOST_RUNS];
    float *result = malloc((size_t)data->distinct * data->image_out * sizeof *result);
    for (int p = 0; result && p <= CONV_PRECISION_FP16; p++) {
        char summary[120];
        struct conv_err err = {0};
        if (!names[p] || !conv_bench_layers_is_measured(bench->options, (enum conv_precision)p))
            continue;
        conv_bench_progress(bench->options->show_progress, names[p]);
        if (conv_bench_layers_cudnn(data, bench->options->ordinal, (enum conv_precision)p, times,
                                    CONV_BENCH_MOST_RUNS, result, summary, sizeof summary, &err)) {
            conv_bench_layers_skip(bench, CONV_BENCH_COMPETITOR, names[p], err.text);
            continue;
        }
        struct conv_bench_layers_line *line =
            conv_bench_layers_add(bench, CONV_BENCH_COMPETITOR, names[p], summary);
        conv_bench_layers_set_times(bench, line, times, CONV_BENCH_MOST_RUNS, data->shape.images);
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

static void limit_cpu_images(struct conv_bench_layers *bench)
{
    double most = (double)CPU_MOST_BYTES / conv_bench_layers_bytes(&bench->data, 1);
    if ((double)bench->here.shape.images > most)
        bench->here.shape.images = most < 1 ? 1 : (int64_t)most;
}

// From the simplest to the fastest: the steps of the ladder are those of CUDA.
static enum conv_status bench_variants(struct conv_bench_layers *bench, struct conv_err *err)
{
    int count, step_count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    const struct conv_ladder_layer_step *steps = conv_ladder_layer_steps(&step_count);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < step_count && !status; i++)
        status = conv_bench_layers_variant(
            bench, steps[i].variant, steps[i].shape ? CONV_BENCH_SHAPE : CONV_BENCH_VARIANT, err);
    for (int i = count - 1; i >= 0 && !status; i--)
        status = conv_bench_layers_variant(bench, variants[i], CONV_BENCH_VARIANT, err);
    return status;
}

static enum conv_status bench_place(struct conv_bench_layers *bench,
                                    enum conv_bench_layers_where where,
                                    const struct conv_bench_layers_ops *ops, int number,
                                    struct conv_err *err)
{
    bench->where = where;
    bench->ops = ops;
    bench->here = bench->data;
    bench->step_ms = 0;
    bench->copies.count = bench->fmas.count = 0;
    if (where != CONV_BENCH_LAYERS_CUDA)
        limit_cpu_images(bench);
    enum conv_status status = ops->open(&bench->place, &bench->here, number, err);
    if (!status)
        status = bench_variants(bench, err);
    ops->close(bench->place);
    bench->place = NULL;
#if CONV_HAVE_CUDNN
    if (!status && where == CONV_BENCH_LAYERS_CUDA && !bench->options->layer_variant)
        bench_cudnn(bench);
#endif
    conv_bench_layers_set_shares(bench);
    if (status == CONV_ERR_LIMIT) {
        conv_bench_layers_skip(bench, CONV_BENCH_VARIANT, "all kernels", err->text);
        status = CONV_OK;
    }
    return status;
}

static void describe_machine(struct conv_bench_layers *bench)
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
    struct conv_bench_layers *bench = calloc(1, sizeof *bench);
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
        status = bench_place(bench, CONV_BENCH_LAYERS_ONE_CORE, &conv_bench_layers_cpu, 1, err);
    if (!status && options->on_cpu && bench->table.threads > 1)
        status = bench_place(bench, CONV_BENCH_LAYERS_ALL_CORES, &conv_bench_layers_cpu,
                             bench->table.threads, err);
    if (!status && options->on_cuda)
        status = bench_place(bench, CONV_BENCH_LAYERS_CUDA, conv_bench_cuda()->layers,
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
