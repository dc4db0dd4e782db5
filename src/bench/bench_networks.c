// SPDX-License-Identifier: MIT
// Layers as networks have them: the exact variant that the choice takes for each, timed beside
// cuDNN's float32, a product of matrices of the same size, a copy and multiply-adds in registers.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "base/limits.h"
#include "bench/bench_cuda.h"
#include "bench/bench_layers.h"
#include "kernels/layer/layer.h"
#include "report/json.h"

#define ENOUGH_NS (40000000u / CONV_BENCH_SHORTER) // for all runs of one kernel
#define LEAST_RUNS 3
#define MOST_RUNS 15
#define OTHERS_RUNS 7 // of other libraries
#define CHECKED 24    // outputs
// Multiply-adds of a launch: longer ones say nothing else.
#define MOST_PRODUCTS 1e12
#define MOST_PRODUCTS_CPU 2e10

static const int batches[] = {1, 16, 64, 256, 0}, cpu_batches[] = {1, 16, 0};

struct figures { // NAN: not measured
    double ms, fma, copy, cudnn_ms, of_cudnn, gemm_ms, of_gemm;
};

static const struct {
    const char *title, *name; // of the text and in JSON
    int width, digits;
    size_t at;
} columns[] = {
    {"ms", "ms", 9, 4, offsetof(struct figures, ms)},
    {"FP32", "share_of_fma", 5, 2, offsetof(struct figures, fma)},
    {"copy", "share_of_copy", 5, 2, offsetof(struct figures, copy)},
    {"cuDNN", "cudnn_float32_ms", 9, 4, offsetof(struct figures, cudnn_ms)},
    {"ours", "of_cudnn", 5, 2, offsetof(struct figures, of_cudnn)},
    {"SGEMM", "cublas_ms", 9, 4, offsetof(struct figures, gemm_ms)},
    {"ours", "of_cublas", 5, 2, offsetof(struct figures, of_gemm)},
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

struct sweep {
    const struct conv_bench_options *options;
    struct conv_bench_cublas *cublas;
    char machine[CONV_BENCH_MACHINE];
    bool said;                                        // why cuDNN is not measured
    int layers, too_large, compared, not_slower, far; // of the summary
    double worst;
    char worst_layer[160];
    // The layer that is measured.
    struct conv_bench_layers_data data;
    struct conv_bench_layers_place place;
    struct conv_layer_plan plan;
};

// Some outputs of the first and the last image, against the definition.
static enum conv_status check_outputs(struct sweep *sweep, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = &sweep->data;
    uint32_t state = 7;
    for (int i = 0; i < CHECKED; i++) {
        size_t at = conv_bench_random(&state) % data->image_out;
        size_t last = i % 2 ? (size_t)data->shape.images - 1 : 0;
        const uint8_t *from = sweep->place.out + (last * data->image_out + at) * sizeof(float);
        float got, expected = conv_bench_layers_output(data, at);
        enum conv_status status = sweep->place.ops->copy_out(&got, from, sizeof got, err);
        if (status)
            return status;
        if (memcmp(&got, &expected, sizeof got) != 0)
            return conv_err_set(err, CONV_ERR_DEVICE, "%s is wrong: output %zu is %g, not %g",
                                sweep->plan.variant->name, at, (double)got, (double)expected);
    }
    return CONV_OK;
}

static enum conv_status time_plan(struct sweep *sweep, double *ms, struct conv_err *err)
{
    double times[MOST_RUNS];
    uint64_t ns, start = 0;
    int count = -1; // the first run is of cold code
    enum conv_status status = conv_bench_layers_place_use(&sweep->place, &sweep->plan, err);
    for (; !status && count < MOST_RUNS &&
           (count < LEAST_RUNS || conv_clock_ns() - start < ENOUGH_NS);
         count++) {
        status = conv_bench_layers_place_run(&sweep->place, sweep->data.shape.images, &ns, err);
        if (!status && count < 0)
            status = check_outputs(sweep, err);
        if (count <= 0)
            start = conv_clock_ns();
        times[count < 0 ? 0 : count] = (double)ns;
    }
    if (!status)
        *ms = conv_stat_median(times, count) / 1e6;
    return status;
}

// The times of a copy of as many bytes, and of as many multiply-adds.
static enum conv_status time_limits(struct sweep *sweep, double *copy_ms, double *fma_ms,
                                    struct conv_err *err)
{
    double copies[LEAST_RUNS], rates[LEAST_RUNS];
    int64_t images = sweep->data.shape.images;
    enum conv_status status = CONV_OK;
    for (int run = 0; run < LEAST_RUNS && !status; run++) {
        uint64_t ns = 0;
        status = conv_bench_layers_place_limits(&sweep->place, images, &ns, &rates[run], err);
        copies[run] = (double)ns;
    }
    if (status)
        return status;
    *copy_ms = conv_stat_median(copies, LEAST_RUNS) / 1e6;
    *fma_ms = conv_bench_layers_amount(&sweep->data, images).flops / 1e9 /
              conv_stat_median(rates, LEAST_RUNS);
    return CONV_OK;
}

static void time_others(struct sweep *sweep, struct figures *line)
{
    const struct conv_bench_layers_data *data = &sweep->data;
    double ns[CONV_BENCH_MOST_RUNS];
    char summary[120];
    struct conv_err reason = {0};
    if (!conv_bench_cuda()->time_cudnn(data, sweep->options->ordinal, CONV_PRECISION_EXACT, ns,
                                       OTHERS_RUNS, NULL, summary, sizeof summary, &reason))
        line->cudnn_ms = conv_stat_median(ns, OTHERS_RUNS) / 1e6;
    else if (!sweep->said)
        fprintf(stderr, "conv: %s\n", reason.text);
    sweep->said |= isnan(line->cudnn_ms);
    if (sweep->cublas && data->layer.groups == 1 &&
        !conv_bench_cublas_time(
            sweep->cublas, data->shape.images * data->out_height * data->out_width,
            data->layer.maps, (int64_t)conv_layer_taps(&data->layer), OTHERS_RUNS, ns, &reason))
        line->gemm_ms = ns[0] / 1e6;
}

static enum conv_status measure(struct sweep *sweep, struct figures *line, struct conv_err *err)
{
    const struct conv_bench_options *options = sweep->options;
    bool cuda = options->on_cuda;
    double copy_ms, fma_ms;
    if (!conv_layer_plan_best(&sweep->plan, &sweep->data.layer, &sweep->data.shape,
                              cuda ? CONV_ON_CUDA : CONV_ON_CPU,
                              cuda ? options->gpu.offers : conv_cpu_features(), NULL))
        return conv_err_unsupported(err, "no variant can do a layer");
    enum conv_status status = conv_bench_layers_place_open(
        &sweep->place, cuda ? conv_bench_cuda()->place : &conv_bench_place_cpu, &sweep->data,
        cuda ? options->ordinal : options->jobs, err);
    if (!status)
        status = time_limits(sweep, &copy_ms, &fma_ms, err);
    if (!status)
        status = time_plan(sweep, &line->ms, err);
    conv_bench_layers_place_close(&sweep->place);
    if (status)
        return status;
    if (cuda)
        time_others(sweep, line);
    line->fma = fma_ms / line->ms;
    line->copy = copy_ms / line->ms;
    line->of_cudnn = line->ms / line->cudnn_ms;
    line->of_gemm = line->ms / line->gemm_ms;
    return CONV_OK;
}

// --- results -------------------------------------------------------------------------------------

static void print_line(const struct sweep *sweep, const char *networks, const char *layer,
                       const struct figures *line)
{
    const struct conv_layer_plan *plan = &sweep->plan;
    bool json = sweep->options->format == CONV_BENCH_JSON;
    if (json) {
        fputs("{\"type\":\"bench-network-layer\"", stdout);
        conv_json_member(stdout, "networks", networks);
        conv_json_member(stdout, "layer", layer);
        printf(",\"batch\":%lld", (long long)sweep->data.shape.images);
        conv_json_member(stdout, "variant", plan->variant->name);
        conv_json_member(stdout, "tile", plan->tile);
    } else {
        printf("%-52s %5lld", layer, (long long)sweep->data.shape.images);
    }
    for (int i = 0; i < COLUMNS; i++) {
        double value = *(const double *)(const void *)((const char *)line + columns[i].at);
        if (json && isnan(value))
            printf(",\"%s\":null", columns[i].name);
        else if (json)
            printf(",\"%s\":%.6f", columns[i].name, value);
        else if (isnan(value))
            printf(" %*s", columns[i].width, "-");
        else
            printf(" %*.*f", columns[i].width, columns[i].digits, value);
    }
    if (json)
        puts("}");
    else
        printf("  %s%s%s (%s)\n", plan->variant->name, *plan->tile ? " " : "", plan->tile,
               networks);
    fflush(stdout);
}

static void print_head(const struct sweep *sweep)
{
    if (sweep->options->format == CONV_BENCH_JSON)
        return;
    printf("Layers of %s in the exact order on %s; caches are cold. FP32, copy: share of the speed "
           "of multiply-adds in\nregisters, and of a copy of the same bytes. After the times of "
           "cuDNN and cuBLAS: ours over theirs.\n%-52s %5s",
           sweep->options->choice->bench.network, sweep->machine, "layer", "batch");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %*s", columns[i].width, columns[i].title);
    puts("  variant, tile (networks)");
}

static void print_summary(const struct sweep *sweep)
{
    double share = sweep->compared ? (double)sweep->not_slower / sweep->compared : 0;
    if (sweep->options->format == CONV_BENCH_JSON) {
        printf("{\"type\":\"bench-network-summary\",\"version\":\"" CONV_VERSION "\"");
        conv_json_member(stdout, "network", sweep->options->choice->bench.network);
        conv_json_member(stdout, "machine", sweep->machine);
        printf(",\"layers\":%d,\"too_large\":%d,\"beside_cudnn\":%d,\"share_not_slower\":%.4f,"
               "\"slower_than_1_3\":%d,\"worst\":%.4f",
               sweep->layers, sweep->too_large, sweep->compared, share, sweep->far, sweep->worst);
        conv_json_member(stdout, "worst_layer", sweep->worst_layer);
        puts("}");
        return;
    }
    printf("\n%d layers; %d more have over %g multiply-adds or need too much memory.\n",
           sweep->layers, sweep->too_large,
           sweep->options->on_cuda ? MOST_PRODUCTS : MOST_PRODUCTS_CPU);
    if (sweep->compared)
        printf("Not slower than cuDNN: %.1f %% of %d; by more than 1.3: %d; the worst: %.2f, %s\n",
               100 * share, sweep->compared, sweep->far, sweep->worst, sweep->worst_layer);
}

static void count_line(struct sweep *sweep, const struct figures *line, const char *layer)
{
    sweep->layers++;
    if (isnan(line->of_cudnn))
        return;
    sweep->compared++;
    sweep->not_slower += line->of_cudnn <= 1;
    sweep->far += line->of_cudnn > 1.3;
    if (line->of_cudnn <= sweep->worst)
        return;
    sweep->worst = line->of_cudnn;
    snprintf(sweep->worst_layer, sizeof sweep->worst_layer, "%s, batch of %lld", layer,
             (long long)sweep->data.shape.images);
}

// --- the list ------------------------------------------------------------------------------------

static enum conv_status bench_one(struct sweep *sweep, const struct conv_layer_network *from,
                                  int batch, struct conv_err *err)
{
    struct figures line = {NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    char layer[120];
    enum conv_status status = conv_bench_layers_data_open(&sweep->data, &from->layer, from->height,
                                                          from->width, batch, 0, err);
    double products = conv_bench_layers_amount(&sweep->data, batch).flops / 2;
    sweep->data.memory = conv_limits_memory_left(sweep->options->choice->machine.limits);
    conv_bench_layers_describe(&sweep->data, "->", "x", layer, sizeof layer);
    if (!status && products > (sweep->options->on_cuda ? MOST_PRODUCTS : MOST_PRODUCTS_CPU))
        status = CONV_ERR_LIMIT;
    else if (!status)
        status = measure(sweep, &line, err);
    if (!status) {
        print_line(sweep, from->names, layer, &line);
        count_line(sweep, &line, layer);
    }
    conv_bench_layers_data_close(&sweep->data);
    if (status != CONV_ERR_LIMIT)
        return status;
    sweep->too_large++;
    return CONV_OK;
}

static enum conv_status bench_list(struct sweep *sweep, struct conv_err *err)
{
    const struct conv_bench_options *options = sweep->options;
    const char *network = options->choice->bench.network;
    const int one[2] = {options->choice->bench.batch, 0};
    const int *list = *one ? one : options->on_cuda ? batches : cpu_batches;
    struct conv_layer_network from;
    enum conv_status status = CONV_OK;
    bool some = false;
    for (const char *at = NULL; (at = conv_layer_networks_next(at, &from)) && !status;) {
        if (!conv_layer_networks_has(&from, network))
            continue;
        if (!some)
            print_head(sweep);
        some = true;
        for (const int *batch = list; *batch && !status; batch++)
            status = bench_one(sweep, &from, *batch, err);
    }
    if (!some)
        return conv_err_usage(err, "%s: no network of the list", network);
    return status;
}

enum conv_status conv_bench_networks(const struct conv_bench_options *options, struct conv_err *err)
{
    struct conv_err reason = {0};
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        return conv_err_memory(err, "no memory for the benchmark");
    sweep->options = options;
    conv_bench_describe_machine(options, options->on_cuda ? 0 : options->jobs, sweep->machine);
    if (options->on_cuda && conv_bench_cublas_open(&sweep->cublas, options->ordinal, &reason))
        fprintf(stderr, "conv: %s\n", reason.text);
    enum conv_status status = bench_list(sweep, err);
    if (!status)
        print_summary(sweep);
    conv_bench_cublas_close(sweep->cublas);
    free(sweep);
    return status;
}
