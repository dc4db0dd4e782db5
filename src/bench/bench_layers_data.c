// SPDX-License-Identifier: MIT
// Input, weights and expected results of `conv bench layers`, and a layer at one place: its images
// in the place's memory, and timed runs of one plan.
#include "bench/bench_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_cuda.h"
#include "engine/layer_context.h"
#include "engine/memory.h"

#define MOST_DISTINCT 16
#define ENOUGH_PRODUCTS (4e8 / CONV_BENCH_SHORTER) // of all distinct images: a second of one core

struct conv_bench_amount conv_bench_layers_amount(const struct conv_bench_layers_data *data,
                                                  int64_t images)
{
    const struct conv_layer *layer = &data->layer;
    double taps = (double)conv_layer_taps(layer);
    double samples = (double)images * (double)(data->image_in + data->image_out);
    return (struct conv_bench_amount){
        .images = (double)images,
        .bytes = sizeof(float) * (samples + taps * layer->maps),
        .flops = 2 * (double)images * (double)data->image_out * taps,
    };
}

// -1 to 1, the same on every machine.
static void fill_noise(float *values, size_t count, uint32_t state)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(int32_t)conv_bench_random(&state) * 0x1p-31f;
}

// --- expected results ----------------------------------------------------------------------------

// An output of distinct image b in the exact order, in float64, and the sum of |w * x|.
static float compute_output(const struct conv_bench_layers_data *data, int b, size_t at,
                            double *exact, double *scale)
{
    const struct conv_layer *layer = &data->layer;
    const struct conv_layer_shape *shape = &data->shape;
    size_t plane = (size_t)data->out_height * (size_t)data->out_width, map = at / plane;
    size_t channels = (size_t)(layer->channels / layer->groups);
    size_t first = map / (size_t)(layer->maps / layer->groups) * channels;
    int i = (int)(at % plane) / data->out_width, j = (int)(at % plane) % data->out_width;
    const float *weight = data->weights + map * conv_layer_taps(layer);
    float sum = 0;
    *exact = *scale = 0;
    for (size_t c = first; c < first + channels; c++) {
        const float *from = data->input + (size_t)b * data->image_in +
                            c * (size_t)shape->height * (size_t)shape->width;
        for (int u = 0; u < layer->kernel_height; u++) {
            int y = i * layer->stride_y + u * layer->dilation_y - layer->pad_top;
            for (int v = 0; v < layer->kernel_width; v++, weight++) {
                int x = j * layer->stride_x + v * layer->dilation_x - layer->pad_left;
                bool inside = y >= 0 && y < shape->height && x >= 0 && x < shape->width;
                float sample = inside ? from[(ptrdiff_t)y * shape->width + x] : 0;
                double product = (double)*weight * sample;
                sum = fmaf(*weight, sample, sum);
                *exact += product;
                *scale += fabs(product);
            }
        }
    }
    return sum;
}

float conv_bench_layers_output(const struct conv_bench_layers_data *data, size_t at)
{
    double exact, scale;
    return compute_output(data, 0, at, &exact, &scale);
}

// A row of a map of an image's results.
static void compute_row(void *context, int, int row)
{
    struct conv_bench_layers_data *data = context;
    int rows = data->layer.maps * data->out_height, b = row / rows;
    size_t at = (size_t)(row % rows) * (size_t)data->out_width;
    for (int j = 0; j < data->out_width; j++, at++) {
        size_t to = (size_t)b * data->image_out + at;
        data->expected[to] = compute_output(data, b, at, &data->exact[to], &data->scale[to]);
    }
}

static enum conv_status compute_expected(struct conv_bench_layers_data *data, int cores,
                                         struct conv_err *err)
{
    struct conv_workers *workers = NULL;
    enum conv_status status = conv_workers_open(&workers, cores, err);
    if (!status)
        conv_workers_run(workers, cores, compute_row, data,
                         data->distinct * data->layer.maps * data->out_height);
    conv_workers_close(workers);
    return status;
}

// -------------------------------------------------------------------------------------------------

static void describe(struct conv_bench_layers_data *data, const struct conv_layer *layer,
                     int height, int width, int batch, bool compared)
{
    data->layer = conv_layer_sized(layer, height, width);
    data->shape = (struct conv_layer_shape){batch, height, width};
    data->out_height = conv_layer_out_height(&data->layer, height);
    data->out_width = conv_layer_out_width(&data->layer, width);
    data->image_in = (size_t)data->layer.channels * (size_t)height * (size_t)width;
    data->image_out = (size_t)data->layer.maps * (size_t)data->out_height * (size_t)data->out_width;
    double distinct = ENOUGH_PRODUCTS / (conv_bench_layers_amount(data, 1).flops / 2) + 1;
    data->distinct = !compared ? 1 : distinct > MOST_DISTINCT ? MOST_DISTINCT : (int)distinct;
    if (data->distinct > batch)
        data->distinct = batch;
}

enum conv_status conv_bench_layers_data_open(struct conv_bench_layers_data *data,
                                             const struct conv_layer *layer, int height, int width,
                                             int batch, int cores, struct conv_err *err)
{
    *data = (struct conv_bench_layers_data){0};
    describe(data, layer, height, width, batch, cores > 0);
    size_t taps = (size_t)data->layer.maps * conv_layer_taps(&data->layer);
    size_t in = (size_t)data->distinct * data->image_in;
    size_t out = cores > 0 ? (size_t)data->distinct * data->image_out : 1;
    data->weights = malloc(taps * sizeof(float));
    data->input = malloc(in * sizeof(float));
    data->expected = malloc(out * sizeof(float));
    data->exact = malloc(out * sizeof(double));
    data->scale = malloc(out * sizeof(double));
    if (!data->weights || !data->input || !data->expected || !data->exact || !data->scale)
        return conv_err_memory(err, "no memory for %zu MiB of expected results", out * 20 >> 20);
    fill_noise(data->weights, taps, 1);
    fill_noise(data->input, in, 2);
    data->layer.weights = data->weights;
    return cores > 0 ? compute_expected(data, cores, err) : CONV_OK;
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

// --- a layer at one place ------------------------------------------------------------------------

#define ALIGN 256

static size_t align(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool on_cuda(const struct conv_bench_layers_place *place)
{
    return place->ops->plan_bytes != NULL;
}

static enum conv_status check_free(const struct conv_bench_layers_place *place, size_t bytes,
                                   const char *what, struct conv_err *err)
{
    if (place->ops->check_free)
        return place->ops->check_free(bytes, what, err);
    size_t left = place->data->memory;
    return bytes <= left / 4 * 3 ? CONV_OK
                                 : conv_err_limit(err, "%zu MiB of memory are needed, of %zu MiB",
                                                  bytes >> 20, left >> 20);
}

// Copies the distinct images once and then within the memory: image b is b % distinct.
static enum conv_status fill_input(struct conv_bench_layers_place *place, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = place->data;
    size_t all = (size_t)data->shape.images * data->image_in * sizeof(float);
    size_t done = (size_t)data->distinct * data->image_in * sizeof(float);
    done = done < all ? done : all;
    enum conv_status status =
        place->ops->copy_in(place->memory, data->input, done, "copy the input to the device", err);
    for (size_t more; done < all && !status; done += more) {
        more = done < all - done ? done : all - done;
        status = place->ops->move(place->memory + done, place->memory, more, err);
    }
    return status;
}

enum conv_status conv_bench_layers_place_open(struct conv_bench_layers_place *place,
                                              const struct conv_bench_place_ops *ops,
                                              const struct conv_bench_layers_data *data, int number,
                                              struct conv_err *err)
{
    size_t in = align((size_t)data->shape.images * data->image_in * sizeof(float));
    size_t out = align((size_t)data->shape.images * data->image_out * sizeof(float));
    // Half of both, which a copy uses, is at most the second part.
    *place = (struct conv_bench_layers_place){
        .ops = ops, .data = data, .threads = number, .bytes = in + (in > out ? in : out)};
    enum conv_status status = ops->open(&place->place, number, err);
    if (!status)
        status = check_free(place, place->bytes, "input and output: ", err);
    if (!status)
        status = ops->take(&place->memory, place->bytes, "allocate memory for a layer", err);
    if (status)
        return status;
    place->out = place->memory + in;
    return fill_input(place, err);
}

static void release_plan(struct conv_bench_layers_place *place)
{
    place->ops->release(place->packed, place->packed_bytes);
    place->ops->release(place->scratch, place->scratch_bytes);
    place->packed = place->scratch = NULL;
    free(place->weights);
}

void conv_bench_layers_place_close(struct conv_bench_layers_place *place)
{
    if (!place->ops)
        return;
    release_plan(place);
    place->ops->release(place->memory, place->bytes);
    place->ops->close(place->place);
    *place = (struct conv_bench_layers_place){0};
}

enum conv_status conv_bench_layers_place_use(struct conv_bench_layers_place *place,
                                             struct conv_layer_plan *plan, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    release_plan(place);
    place->plan = plan;
    place->weights = aligned_alloc(64, (plan->packed_bytes + 64) / 64 * 64);
    if (!place->weights)
        return conv_err_memory(err, "no memory for the weights");
    conv_layer_plan_pack(plan, place->weights);
    place->packed_bytes = on_cuda(place) ? plan->packed_bytes : 0;
    const struct conv_layer_shape *shape = &plan->shape; // padded; variants for CPUs do that
    place->pad_bytes = plan->pads
                           ? align((size_t)shape->images * (size_t)plan->layer.channels *
                                   (size_t)shape->height * (size_t)shape->width * sizeof(float))
                           : 0;
    place->scratch_bytes =
        on_cuda(place) ? plan->scratch + place->pad_bytes
                       : (align(plan->scratch) + CONV_LAYER_SCRATCH_GAP) * (size_t)place->threads;
    if (place->packed_bytes) {
        status = check_free(place, place->packed_bytes, "weights: ", err);
        if (!status)
            status = place->ops->take(&place->packed, place->packed_bytes,
                                      "allocate memory for a layer", err);
        if (!status)
            status = place->ops->copy_in(place->packed, plan->packed, plan->packed_bytes,
                                         "copy the weights to the device", err);
        plan->d_packed = place->packed;
    }
    if (!status && place->scratch_bytes)
        status = check_free(place, place->scratch_bytes, "scratch memory: ", err);
    if (!status && place->scratch_bytes)
        status = place->ops->take(&place->scratch, place->scratch_bytes,
                                  "allocate memory for a layer", err);
    return status;
}

static enum conv_status run_task(void *context, int worker, int task, void *stream)
{
    struct conv_bench_layers_place *place = context;
    const struct conv_bench_layers_data *data = place->data;
    struct conv_layer_batch batch = place->share.batch;
    enum conv_status status = CONV_OK;
    if (!on_cuda(place)) {
        conv_cpu_share_run(&place->share, worker, task);
        return (enum conv_status)atomic_load(&place->share.status);
    }
    batch.stream = stream;
    if (place->plan->pads) {
        status = conv_bench_cuda()->pad(&data->layer, &data->shape, &batch, batch.scratch,
                                        CONV_ELEMENT_F32);
        batch = conv_layer_batch_of(&place->plan->layer, &place->plan->shape, batch.images,
                                    batch.scratch, batch.dst);
        batch.scratch = place->scratch + place->pad_bytes;
        batch.stream = stream;
    }
    return status ? status : place->plan->variant->run(place->plan, &batch);
}

enum conv_status conv_bench_layers_place_run(struct conv_bench_layers_place *place, int64_t images,
                                             uint64_t *ns, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = place->data;
    struct conv_layer_batch batch =
        conv_layer_batch_of(&data->layer, &data->shape, images, place->memory, place->out);
    batch.scratch = place->scratch;
    conv_cpu_share_plan(&place->share, place->plan, &batch, on_cuda(place) ? 1 : place->threads);
    struct conv_bench_work work = {
        .run = run_task,
        .context = place,
        .tasks = place->share.tasks,
        .name = place->plan->variant->name,
        .cold = {{place->memory, (size_t)images * data->image_in * sizeof(float)},
                 {place->out, (size_t)images * data->image_out * sizeof(float)}},
    };
    return place->ops->run(place->place, &work, ns, err);
}

enum conv_status conv_bench_layers_place_limits(struct conv_bench_layers_place *at, int64_t images,
                                                uint64_t *copy_ns, double *tflop_per_s,
                                                struct conv_err *err)
{
    double flops;
    uint64_t ns;
    size_t half = (size_t)(conv_bench_layers_amount(at->data, images).bytes / 2);
    if (half > at->bytes / 2)
        half = at->bytes / 2; // the weights do not count
    half -= half % sizeof(float);
    enum conv_status status =
        at->ops->copy(at->place, at->memory + at->bytes - half, at->memory, half, copy_ns, err);
    if (!status)
        status = at->ops->fma(at->place, at->out, &flops, &ns, err);
    if (!status)
        *tflop_per_s = flops / (double)(ns ? ns : 1) / 1e3;
    return status;
}
