// SPDX-License-Identifier: MIT
// Computes the layers of `conv bench layers` with cuDNN: the fastest of the plans that its graph
// interface proposes, in NCHW and in NHWC.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "bench/bench_cuda.h"
#include "kernels/layer/cuda/cuda_cudnn.h"
#include "tensor/element.h"

struct cudnn { // starts as {0}
    const struct conv_bench_layers_data *data;
    const struct conv_bench_place_ops *ops;
    struct conv_bench_place *place;
    enum conv_element type;
    size_t element; // bytes
    bool tf32;      // float32 operands may be rounded to TF32
    uint8_t *d_src, *d_dst, *d_weights, *d_work;
    size_t work_bytes;
    const struct conv_cudnn_plan *running; // the plan that is timed
    struct conv_err reason;                // of its run
};

// --- data ----------------------------------------------------------------------------------------

// Converts `count` blocks of `channels` planes to elements of the type, with `last` channel-last;
// with `back` the reverse.
static void arrange(const struct cudnn *cudnn, void *elements, float *values, int count,
                    int channels, size_t plane, bool last, bool back)
{
    size_t many = (size_t)channels;
    for (size_t at = 0; at < (size_t)count * many * plane; at++) {
        size_t n = at / plane / many, c = at / plane % many, i = at % plane;
        size_t place = n * many * plane + (last ? i * many + c : c * plane + i);
        uint16_t *half = (uint16_t *)elements + place;
        float *whole = (float *)elements + place;
        if (back)
            values[at] = cudnn->element == 2 ? conv_half_to_float(*half) : *whole;
        else if (cudnn->element == 2)
            *half = conv_half_from_float(values[at]);
        else
            *whole = values[at];
    }
}

static size_t taps_of(const struct conv_layer *layer) // of one map and channel
{
    return (size_t)layer->kernel_height * (size_t)layer->kernel_width;
}

static enum conv_status take_memory(struct cudnn *cudnn, struct conv_err *err)
{
    static const char doing[] = "allocate memory for cuDNN";
    const size_t most_workspace = (size_t)2 << 30;
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_bench_place_ops *ops = cudnn->ops;
    size_t images = (size_t)data->shape.images * cudnn->element, free = 0, total = 0;
    size_t weights = (size_t)data->layer.maps * conv_layer_taps(&data->layer);
    enum conv_status status = ops->check_free(images * (data->image_in + data->image_out), "", err);
    if (!status)
        status = ops->take(&cudnn->d_src, images * data->image_in, doing, err);
    if (!status)
        status = ops->take(&cudnn->d_dst, images * data->image_out, doing, err);
    if (!status)
        status = ops->take(&cudnn->d_weights, weights * cudnn->element, doing, err);
    if (!status)
        (void)cudaMemGetInfo(&free, &total);
    cudnn->work_bytes = free / 2 < most_workspace ? free / 2 : most_workspace;
    return status ? status : ops->take(&cudnn->d_work, cudnn->work_bytes, doing, err);
}

static enum conv_status upload(struct cudnn *cudnn, bool last, struct conv_err *err)
{
    static const char doing[] = "copy images for cuDNN";
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    size_t weights = (size_t)layer->maps * conv_layer_taps(layer) * cudnn->element;
    size_t in = (size_t)data->distinct * data->image_in * cudnn->element;
    size_t all = (size_t)data->shape.images * data->image_in * cudnn->element;
    void *memory = malloc(in > weights ? in : weights);
    if (!memory)
        return conv_err_memory(err, "no memory for cuDNN's input");
    arrange(cudnn, memory, data->weights, layer->maps, layer->channels / layer->groups,
            taps_of(layer), last, false);
    enum conv_status status = cudnn->ops->copy_in(cudnn->d_weights, memory, weights, doing, err);
    arrange(cudnn, memory, data->input, data->distinct, layer->channels,
            (size_t)data->shape.height * (size_t)data->shape.width, last, false);
    if (!status)
        status = cudnn->ops->copy_in(cudnn->d_src, memory, in, doing, err);
    free(memory);
    for (size_t done = in, more; done < all && !status; done += more) {
        more = done < all - done ? done : all - done;
        status = cudnn->ops->move(cudnn->d_src + done, cudnn->d_src, more, err);
    }
    return status;
}

static enum conv_status fetch(const struct cudnn *cudnn, bool last, float *result,
                              struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    size_t bytes = (size_t)data->distinct * data->image_out * cudnn->element;
    void *memory = malloc(bytes);
    if (!memory)
        return conv_err_memory(err, "no memory for cuDNN's results");
    enum conv_status status = cudnn->ops->copy_out(memory, cudnn->d_dst, bytes, err);
    if (!status)
        arrange(cudnn, memory, result, data->distinct, data->layer.maps,
                data->image_out / (size_t)data->layer.maps, last, true);
    free(memory);
    return status;
}

// --- its plans -----------------------------------------------------------------------------------

static enum conv_status execute(void *context, int, int, void *stream)
{
    struct cudnn *cudnn = context;
    const struct conv_cudnn_memory memory = {
        .src = cudnn->d_src,
        .weights = cudnn->d_weights,
        .dst = cudnn->d_dst,
        .workspace = cudnn->d_work,
    };
    return conv_cudnn_run(cudnn->running, &memory, stream, &cudnn->reason);
}

static enum conv_status time_plan(struct cudnn *cudnn, const struct conv_cudnn_plan *plan,
                                  double *ns, struct conv_err *err)
{
    struct conv_bench_work work = {.run = execute, .context = cudnn, .name = "of cuDNN"};
    uint64_t time = 0;
    cudnn->running = plan;
    enum conv_status status = cudnn->ops->run(cudnn->place, &work, &time, err);
    *ns = (double)time;
    if (cudnn->reason.status)
        *err = cudnn->reason;
    cudnn->reason = (struct conv_err){0};
    return status;
}

// The second of two runs: the first loads what it needs.
static enum conv_status try_plan(void *context, const struct conv_cudnn_plan *plan, double *ns)
{
    struct conv_err reason = {0};
    enum conv_status status = time_plan(context, plan, ns, &reason);
    return status ? status : time_plan(context, plan, ns, &reason);
}

// --- a layer -------------------------------------------------------------------------------------

// One order of axes; replaces the results if it is faster than *best.
static enum conv_status try_format(struct cudnn *cudnn, bool last, double *best, double *ns,
                                   int runs, float *result, char *summary, size_t size,
                                   struct conv_err *err)
{
    double times[CONV_BENCH_MOST_RUNS], sorted[CONV_BENCH_MOST_RUNS], fastest = 0;
    struct conv_cudnn_plan *plan = NULL;
    int tried = 0;
    const struct conv_cudnn_problem problem = {
        .layer = &cudnn->data->layer,
        .shape = cudnn->data->shape,
        .type = cudnn->type,
        .tf32 = cudnn->tf32,
        .channels_last = last,
    };
    enum conv_status status = upload(cudnn, last, err);
    if (!status)
        status = conv_cudnn_find(&plan, &fastest, &tried, &problem, cudnn->work_bytes, try_plan,
                                 cudnn, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_plan(cudnn, plan, &times[r < 0 ? 0 : r], err);
    size_t workspace = plan ? conv_cudnn_workspace(plan) : 0;
    conv_cudnn_plan_free(plan);
    if (status)
        return status;
    memcpy(sorted, times, sizeof sorted);
    double median = conv_stat_median(sorted, runs);
    if (*best > 0 && median >= *best)
        return CONV_OK;
    *best = median;
    memcpy(ns, times, (size_t)runs * sizeof *ns);
    snprintf(summary, size, "%s, the fastest of %d plans, %zu MiB of workspace",
             last ? "NHWC" : "NCHW", tried, workspace >> 20);
    return result ? fetch(cudnn, last, result, err) : CONV_OK;
}

// Failures to free are ignored: nothing can be done about them.
static void close_cudnn(struct cudnn *cudnn)
{
    cudnn->ops->release(cudnn->d_src, 0);
    cudnn->ops->release(cudnn->d_dst, 0);
    cudnn->ops->release(cudnn->d_weights, 0);
    cudnn->ops->release(cudnn->d_work, 0);
    cudnn->ops->close(cudnn->place);
}

enum conv_status conv_bench_cuda_time_cudnn(const struct conv_bench_layers_data *data, int ordinal,
                                            enum conv_precision precision, double *ns, int runs,
                                            float *result, char *summary, size_t size,
                                            struct conv_err *err)
{
    bool half = precision == CONV_PRECISION_FP16;
    struct cudnn cudnn = {
        .data = data,
        .ops = conv_bench_cuda()->place,
        .type = half ? CONV_ELEMENT_F16 : CONV_ELEMENT_F32,
        .element = half ? 2 : 4,
        .tf32 = precision == CONV_PRECISION_TF32,
    };
    double best = 0;
    struct conv_err reason = {0};
    enum conv_status status = conv_cudnn_load(err);
    if (!status)
        status = cudnn.ops->open(&cudnn.place, ordinal, err);
    if (!status)
        status = take_memory(&cudnn, err);
    for (int last = 0; last < (result ? 2 : 1) && !status; last++)
        (void)try_format(&cudnn, last, &best, ns, runs, result, summary, size, &reason);
    if (!status && best <= 0) {
        *err = reason;
        status = reason.status;
    }
    close_cudnn(&cudnn);
    return status;
}
