// SPDX-License-Identifier: MIT
// Computes the layers of `conv bench layers` with cuDNN: tries the plans that it proposes, in NCHW
// and in NHWC.
#include "bench/bench_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_competitor.h"
#include "bench/bench_layers.h"
#include "image/image.h"
#include "kernels/stencil/stencil.h"
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

// --- a filter as a layer
// ----------------------------------------------------------------------------

// Planes of one size are images of a layer with one channel and one map. The input is planes of
// floats with the border around them, the output is sums. The times contain neither these
// conversions nor the rounding, which is done here.

static void pad_plane(float *to, const struct conv_filter *filter,
                      const struct conv_bench_plane *plane, const uint8_t *source)
{
    size_t stride = conv_image_stride(plane->width, 8);
    for (int y = -(filter->height / 2); y < plane->height + filter->height / 2; y++) {
        int row = conv_border_index(CONV_BORDER_REPLICATE, y, plane->height);
        for (int x = -(filter->width / 2); x < plane->width + filter->width / 2; x++)
            *to++ = source[plane->offset + (size_t)row * stride +
                           (size_t)conv_border_index(CONV_BORDER_REPLICATE, x, plane->width)];
    }
}

static void round_plane(uint8_t *result, const struct conv_filter *filter,
                        const struct conv_bench_plane *plane, const float *sums)
{
    size_t stride = conv_image_stride(plane->width, 8);
    for (int y = 0; y < plane->height; y++)
        for (int x = 0; x < plane->width; x++) {
            double value = rint((double)*sums++ / filter->scale + filter->offset);
            result[plane->offset + (size_t)y * stride + (size_t)x] =
                (uint8_t)fmin(fmax(value, 0), 255);
        }
}

static enum conv_status filter_planes(const struct conv_competitor_filter *task, uint64_t *ns,
                                      int runs, struct conv_err *err)
{
    const struct conv_filter *filter = task->filter;
    int width = task->planes[0].width, height = task->planes[0].height;
    bool fits = task->border == CONV_BORDER_REPLICATE && task->depth == 8;
    for (int p = 0; p < task->count && fits; p++)
        fits = task->planes[p].width == width && task->planes[p].height == height;
    if (!fits || runs > CONV_BENCH_MOST_RUNS)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "measured with 8 bits, replicate border, images of one size");
    float coefs[CONV_FILTER_MAX_TAPS];
    for (int i = 0; i < filter->width * filter->height; i++)
        coefs[i] = (float)filter->coef[i];
    struct conv_bench_layers_data data = {
        .layer = {.channels = 1,
                  .maps = 1,
                  .kernel_height = filter->height,
                  .kernel_width = filter->width,
                  .stride = 1},
        .shape = {task->count, height + filter->height - 1, width + filter->width - 1},
        .out_height = height,
        .out_width = width,
        .distinct = task->count,
        .image_in = (size_t)(height + filter->height - 1) * (size_t)(width + filter->width - 1),
        .image_out = (size_t)height * (size_t)width,
        .weights = coefs,
    };
    double times[CONV_BENCH_MOST_RUNS];
    char summary[120];
    data.input = malloc((size_t)task->count * data.image_in * sizeof *data.input);
    float *sums = malloc((size_t)task->count * data.image_out * sizeof *sums);
    enum conv_status status =
        data.input && sums ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (int p = 0; p < task->count && !status; p++)
        pad_plane(data.input + (size_t)p * data.image_in, filter, &task->planes[p], task->source);
    if (!status)
        status = conv_bench_layers_cudnn(&data, task->device, CONV_PRECISION_EXACT, times, runs,
                                         sums, summary, sizeof summary, err);
    for (int p = 0; p < task->count && !status; p++)
        round_plane(task->result, filter, &task->planes[p], sums + (size_t)p * data.image_out);
    for (int r = 0; r < runs && !status; r++)
        ns[r] = (uint64_t)times[r];
    free(data.input);
    free(sums);
    return status;
}

const struct conv_competitor conv_competitor_cudnn = {
    .name = "cuDNN",
    .summary = "float32, without conversion and rounding",
    .inexact = "float32, without conversion and rounding; results differ by 1",
    .tolerance = 1,
    .filter = filter_planes,
};
