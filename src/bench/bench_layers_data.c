// SPDX-License-Identifier: MIT
// Input, weights and expected results of `conv bench layers`.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_layers.h"
#include "bench/bench_random.h"
#include "bench/bench_time.h"

#define MOST_DISTINCT 16
#define ENOUGH_PRODUCTS (4e8 / CONV_BENCH_SHORTER) // of all distinct images: a second of one core

// -1 to 1, the same on every machine.
static void fill_noise(float *values, size_t count, uint32_t state)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(int32_t)conv_bench_random(&state) * 0x1p-31f;
}

// --- expected results ----------------------------------------------------------------------------

struct work {
    struct conv_bench_layers_data *data;
    const struct conv_layer_plan *plan;
    atomic_int next; // row of all images
};

static void compute_exact(struct conv_bench_layers_data *data, int b, int i)
{
    const struct conv_layer *layer = &data->layer;
    const struct conv_layer_shape *shape = &data->shape;
    const float *image = data->input + (size_t)b * data->image_in;
    for (int m = 0; m < layer->maps; m++) {
        for (int j = 0; j < data->out_width; j++) {
            const float *weight = data->weights + (size_t)m * (size_t)layer->channels *
                                                      (size_t)layer->kernel_height *
                                                      (size_t)layer->kernel_width;
            double sum = 0, scale = 0;
            for (int c = 0; c < layer->channels; c++)
                for (int u = 0; u < layer->kernel_height; u++)
                    for (int v = 0; v < layer->kernel_width; v++) {
                        size_t row = (size_t)c * (size_t)shape->height + (size_t)(i + u);
                        double product =
                            (double)*weight++ * image[row * (size_t)shape->width + (size_t)(j + v)];
                        sum += product;
                        scale += fabs(product);
                    }
            size_t at = (((size_t)b * (size_t)layer->maps + (size_t)m) * (size_t)data->out_height +
                         (size_t)i) *
                            (size_t)data->out_width +
                        (size_t)j;
            data->exact[at] = sum;
            data->scale[at] = scale;
        }
    }
}

static void *compute_rows(void *context)
{
    struct work *work = context;
    struct conv_bench_layers_data *data = work->data;
    int rows = data->distinct * data->out_height, row;
    while ((row = atomic_fetch_add(&work->next, 1)) < rows) {
        int b = row / data->out_height, i = row % data->out_height;
        struct conv_layer_batch batch = {
            .images = 1,
            .src = data->input + (size_t)b * data->image_in,
            .src_row = (int64_t)sizeof(float) * data->shape.width,
            .src_plane = (int64_t)sizeof(float) * data->shape.width * data->shape.height,
            .src_image = (int64_t)(sizeof(float) * data->image_in),
            .dst = data->expected + (size_t)b * data->image_out,
            .first_row = i,
            .rows = 1,
        };
        conv_cpu_layer_reference.run(work->plan, &batch); // it cannot fail
        compute_exact(data, b, i);
    }
    return NULL;
}

static void compute_expected(struct conv_bench_layers_data *data, int cores)
{
    struct conv_layer_plan plan;
    conv_layer_plan_find(&plan, &conv_cpu_layer_reference, &data->layer, &data->shape, 0);
    struct work work = {.data = data, .plan = &plan};
    pthread_t threads[64];
    int started = 0;
    while (started < cores - 1 && started < 64 &&
           pthread_create(&threads[started], NULL, compute_rows, &work) == 0)
        started++;
    compute_rows(&work);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

// -------------------------------------------------------------------------------------------------

static void describe(struct conv_bench_layers_data *data, const struct conv_bench_layer *layer,
                     int batch)
{
    data->layer = (struct conv_layer){
        .channels = layer->channels,
        .maps = layer->maps,
        .kernel_height = layer->kernel_height,
        .kernel_width = layer->kernel_width,
        .stride = 1,
        .border = CONV_BORDER_CONSTANT,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output = CONV_ELEMENT_F32,
    };
    data->shape = (struct conv_layer_shape){batch, layer->height, layer->width};
    data->out_height = conv_layer_out_height(&data->layer, layer->height);
    data->out_width = conv_layer_out_width(&data->layer, layer->width);
    data->image_in = (size_t)layer->channels * (size_t)layer->height * (size_t)layer->width;
    data->image_out = (size_t)layer->maps * (size_t)data->out_height * (size_t)data->out_width;
    double distinct = ENOUGH_PRODUCTS / (conv_bench_layers_flops(data, 1) / 2) + 1;
    data->distinct = distinct > MOST_DISTINCT ? MOST_DISTINCT : (int)distinct;
    if (data->distinct > batch)
        data->distinct = batch;
}

enum conv_status conv_bench_layers_data_open(struct conv_bench_layers_data *data,
                                             const struct conv_bench_layer *layer, int batch,
                                             int cores, struct conv_err *err)
{
    *data = (struct conv_bench_layers_data){0};
    describe(data, layer, batch);
    size_t taps = (size_t)layer->maps * (size_t)layer->channels * (size_t)layer->kernel_height *
                  (size_t)layer->kernel_width;
    size_t in = (size_t)data->distinct * data->image_in;
    size_t out = (size_t)data->distinct * data->image_out;
    data->weights = malloc(taps * sizeof(float));
    data->input = malloc(in * sizeof(float));
    data->expected = malloc(out * sizeof(float));
    data->exact = malloc(out * sizeof(double));
    data->scale = malloc(out * sizeof(double));
    if (!data->weights || !data->input || !data->expected || !data->exact || !data->scale)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of expected results",
                            out * 20 >> 20);
    fill_noise(data->weights, taps, 1);
    fill_noise(data->input, in, 2);
    data->layer.weights = data->weights;
    compute_expected(data, cores);
    return CONV_OK;
}

void conv_bench_layers_data_close(struct conv_bench_layers_data *data)
{
    free(data->weights);
    free(data->input);
    free(data->expected);
    free(data->exact);
    free(data->scale);
    *data = (struct conv_bench_layers_data){0};
}

void conv_bench_layers_compare(const struct conv_bench_layers_data *data, int64_t image,
                               const float *got, double *error, bool *same)
{
    size_t first = (size_t)(image % data->distinct) * data->image_out;
    for (size_t i = 0; i < data->image_out; i++) {
        double apart = fabs(got[i] - data->exact[first + i]);
        if (apart != 0)
            apart /= 0x1p-24 * data->scale[first + i];
        if (!(apart <= *error))
            *error = apart; // also if it is not a number
    }
    if (memcmp(got, data->expected + first, data->image_out * sizeof *got) != 0)
        *same = false;
}
