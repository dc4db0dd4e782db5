// SPDX-License-Identifier: MIT
// Computes the layers of `conv bench layers` with cuDNN: tries the plans that it proposes, in NCHW
// and in NHWC.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_layers_graph.h"
#include "tensor/half.h"

#define MOST_WORKSPACE ((size_t)2 << 30)

static enum conv_status report(const struct conv_bench_layers_cudnn *cudnn, cudnnStatus_t code,
                               struct conv_err *err)
{
    return conv_bench_cudnn_report(&cudnn->api, code, err);
}

// --- data ----------------------------------------------------------------------------------------

// Converts `count` blocks of `channels` planes to elements of the type, in that order of axes.
static void arrange(const struct conv_bench_layers_cudnn *cudnn, void *to, const float *from,
                    int count, int channels, size_t plane, cudnnTensorFormat_t format)
{
    size_t at = 0;
    for (int n = 0; n < count; n++)
        for (int c = 0; c < channels; c++)
            for (size_t i = 0; i < plane; i++) {
                size_t inside = format == CUDNN_TENSOR_NHWC ? i * (size_t)channels + (size_t)c
                                                            : (size_t)c * plane + i;
                size_t place = (size_t)n * (size_t)channels * plane + inside;
                if (cudnn->element == 2)
                    ((uint16_t *)to)[place] = conv_half_from_float(from[at++]);
                else
                    ((float *)to)[place] = from[at++];
            }
}

// The reverse, for results.
static void arrange_back(const struct conv_bench_layers_cudnn *cudnn, float *to, const void *from,
                         cudnnTensorFormat_t format)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    size_t channels = (size_t)data->layer.maps, plane = data->image_out / channels, at = 0;
    for (int n = 0; n < data->distinct; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t i = 0; i < plane; i++) {
                size_t inside = format == CUDNN_TENSOR_NHWC ? i * channels + c : c * plane + i;
                size_t place = (size_t)n * channels * plane + inside;
                to[at++] = cudnn->element == 2 ? conv_half_to_float(((const uint16_t *)from)[place])
                                               : ((const float *)from)[place];
            }
}

static enum conv_status take_memory(struct conv_bench_layers_cudnn *cudnn, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    size_t images = (size_t)data->shape.images, free = 0, total = 0;
    size_t taps = (size_t)layer->maps * (size_t)layer->channels * (size_t)layer->kernel_height *
                  (size_t)layer->kernel_width;
    size_t needed = images * (data->image_in + data->image_out) * cudnn->element;
    cudaError_t code = cudaMemGetInfo(&free, &total);
    if (!code && needed > free / 16 * 15)
        return conv_err_set(err, CONV_ERR_LIMIT, "%zu MiB of device memory are needed, of %zu MiB",
                            needed >> 20, free >> 20);
    if (!code)
        code = cudaMalloc((void **)&cudnn->d_src, images * data->image_in * cudnn->element);
    if (!code)
        code = cudaMalloc((void **)&cudnn->d_dst, images * data->image_out * cudnn->element);
    if (!code)
        code = cudaMalloc(&cudnn->d_weights, taps * cudnn->element);
    if (!code)
        code = cudaMemGetInfo(&free, &total);
    cudnn->work_bytes = free / 2 < MOST_WORKSPACE ? free / 2 : MOST_WORKSPACE;
    if (!code)
        code = cudaMalloc(&cudnn->d_work, cudnn->work_bytes);
    return conv_bench_timer_report(code, "allocate memory for cuDNN", err);
}

static enum conv_status upload(struct conv_bench_layers_cudnn *cudnn, cudnnTensorFormat_t format,
                               struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    size_t taps = (size_t)layer->kernel_height * (size_t)layer->kernel_width;
    size_t weights = (size_t)layer->maps * (size_t)layer->channels * taps * cudnn->element;
    size_t in = (size_t)data->distinct * data->image_in * cudnn->element;
    size_t all = (size_t)data->shape.images * data->image_in * cudnn->element;
    void *memory = malloc(in > weights ? in : weights);
    if (!memory)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for cuDNN's input");
    arrange(cudnn, memory, data->weights, layer->maps, layer->channels, taps, format);
    cudaError_t code = cudaMemcpy(cudnn->d_weights, memory, weights, cudaMemcpyHostToDevice);
    arrange(cudnn, memory, data->input, data->distinct, layer->channels,
            (size_t)data->shape.height * (size_t)data->shape.width, format);
    if (!code)
        code = cudaMemcpy(cudnn->d_src, memory, in, cudaMemcpyHostToDevice);
    free(memory);
    for (size_t done = in, more; done < all && !code; done += more) {
        more = done < all - done ? done : all - done;
        code = cudaMemcpyAsync(cudnn->d_src + done, cudnn->d_src, more, cudaMemcpyDeviceToDevice,
                               cudnn->timer.stream);
    }
    if (!code)
        code = cudaStreamSynchronize(cudnn->timer.stream);
    return conv_bench_timer_report(code, "copy images for cuDNN", err);
}

static enum conv_status fetch(const struct conv_bench_layers_cudnn *cudnn,
                              cudnnTensorFormat_t format, float *result, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    size_t bytes = (size_t)data->distinct * data->image_out * cudnn->element;
    void *memory = malloc(bytes);
    if (!memory)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for cuDNN's results");
    cudaError_t code = cudaMemcpy(memory, cudnn->d_dst, bytes, cudaMemcpyDeviceToHost);
    if (!code)
        arrange_back(cudnn, result, memory, format);
    free(memory);
    return conv_bench_timer_report(code, "copy results of cuDNN", err);
}

static enum conv_status open_cudnn(struct conv_bench_layers_cudnn *cudnn, int ordinal,
                                   struct conv_err *err)
{
    enum conv_status status = conv_bench_cudnn_open(&cudnn->api, err);
    if (!status)
        status = conv_bench_timer_report(conv_bench_timer_open(&cudnn->timer, ordinal),
                                         "prepare cuDNN", err);
    if (status)
        return status;
    cudnnStatus_t code = cudnn->api.Create(&cudnn->handle);
    if (!code)
        code = cudnn->api.SetStream(cudnn->handle, cudnn->timer.stream);
    status = report(cudnn, code, err);
    return status ? status : take_memory(cudnn, err);
}

// Failures to free are ignored: nothing can be done about them.
static void close_cudnn(struct conv_bench_layers_cudnn *cudnn)
{
    conv_bench_layers_graph_close(cudnn);
    if (cudnn->handle)
        (void)cudnn->api.Destroy(cudnn->handle);
    (void)cudaFree(cudnn->d_src);
    (void)cudaFree(cudnn->d_dst);
    (void)cudaFree(cudnn->d_weights);
    (void)cudaFree(cudnn->d_work);
    conv_bench_timer_close(&cudnn->timer);
    conv_bench_cudnn_close(&cudnn->api);
}

// -------------------------------------------------------------------------------------------------

static double median_of(const double *ns, int runs, double *sorted)
{
    memcpy(sorted, ns, (size_t)runs * sizeof *ns);
    return conv_stat_median(sorted, runs);
}

// One order of axes; replaces the results if it is faster than *best.
static enum conv_status try_format(struct conv_bench_layers_cudnn *cudnn,
                                   cudnnTensorFormat_t format, double *best, double *ns, int runs,
                                   float *result, char *summary, size_t size, struct conv_err *err)
{
    double times[CONV_BENCH_MOST_RUNS], sorted[CONV_BENCH_MOST_RUNS];
    enum conv_status status = conv_bench_layers_graph_open(cudnn, format, err);
    if (!status)
        status = upload(cudnn, format, err);
    if (!status)
        status = conv_bench_layers_graph_choose(cudnn, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = conv_bench_layers_graph_time(cudnn, &times[r < 0 ? 0 : r], err);
    if (status)
        return status;
    double median = median_of(times, runs, sorted);
    if (*best > 0 && median >= *best)
        return CONV_OK;
    *best = median;
    memcpy(ns, times, (size_t)runs * sizeof *ns);
    snprintf(summary, size, "%s, the fastest of %d plans, %lld MiB of workspace",
             format == CUDNN_TENSOR_NHWC ? "NHWC" : "NCHW", cudnn->tried,
             (long long)(cudnn->workspace >> 20));
    return fetch(cudnn, format, result, err);
}

enum conv_status conv_bench_layers_cudnn(const struct conv_bench_layers_data *data, int ordinal,
                                         enum conv_precision precision, double *ns, int runs,
                                         float *result, char *summary, size_t size,
                                         struct conv_err *err)
{
    static const cudnnTensorFormat_t formats[] = {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC};
    bool half = precision == CONV_PRECISION_FP16;
    struct conv_bench_layers_cudnn cudnn = {
        .data = data,
        .type = half ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT,
        .element = half ? 2 : 4,
        .tf32 = precision == CONV_PRECISION_TF32,
    };
    double best = 0;
    struct conv_err reason = {0};
    enum conv_status status = open_cudnn(&cudnn, ordinal, err);
    for (int f = 0; f < 2 && !status; f++) {
        (void)try_format(&cudnn, formats[f], &best, ns, runs, result, summary, size, &reason);
        conv_bench_layers_graph_close(&cudnn);
    }
    if (!status && best <= 0) {
        *err = reason;
        status = reason.status;
    }
    close_cudnn(&cudnn);
    return status;
}
