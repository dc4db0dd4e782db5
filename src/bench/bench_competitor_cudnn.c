// SPDX-License-Identifier: MIT
// NVIDIA's library for neural networks convolves float32. The input is planes of floats with the
// border around them, the output is sums. The times contain neither these conversions nor the
// rounding, which is done here. Planes of one size take one call.
#include "bench/bench_competitor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_cuda_timer.h"
#include "bench/bench_cudnn.h"
#include "image/image.h"
#include "kernels/stencil/stencil.h"

#define MOST_WORKSPACE ((size_t)4 << 30)
#define MOST_CHOICES 16

// Planes of one size that follow each other, as one tensor.
struct batch {
    int width, height, count;
    size_t in, out; // floats before it
    cudnnTensorDescriptor_t src, dst;
    cudnnConvolutionFwdAlgo_t algorithm;
};

struct cudnn {
    struct conv_bench_timer timer;
    struct conv_bench_cudnn api;
    cudnnHandle_t handle;
    cudnnFilterDescriptor_t kernel;
    cudnnConvolutionDescriptor_t convolution;
    struct batch *batches;
    int count;
    size_t in, out; // floats of all
    float *d_src, *d_dst, *d_coefs;
    void *d_work;
    size_t work_bytes;
};

static enum conv_status report(const struct cudnn *cudnn, cudnnStatus_t code, struct conv_err *err)
{
    return conv_bench_cudnn_report(&cudnn->api, code, err);
}

// --- input ---------------------------------------------------------------------------------------

static enum conv_status make_batches(struct cudnn *cudnn, const struct conv_filter *filter,
                                     const struct conv_bench_plane *planes, int count,
                                     struct conv_err *err)
{
    cudnn->batches = calloc((size_t)count, sizeof *cudnn->batches);
    if (!cudnn->batches)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (int p = 0; p < count; p++) {
        int width = planes[p].width, height = planes[p].height;
        struct batch *batch = cudnn->count ? &cudnn->batches[cudnn->count - 1] : NULL;
        if (!batch || batch->width != width || batch->height != height) {
            batch = &cudnn->batches[cudnn->count++];
            *batch = (struct batch){
                .width = width, .height = height, .in = cudnn->in, .out = cudnn->out};
        }
        batch->count++;
        cudnn->in += (size_t)(width + filter->width - 1) * (size_t)(height + filter->height - 1);
        cudnn->out += (size_t)width * (size_t)height;
    }
    return CONV_OK;
}

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

static enum conv_status upload(struct cudnn *cudnn, const struct conv_filter *filter,
                               const struct conv_bench_plane *planes, int count,
                               const uint8_t *source, struct conv_err *err)
{
    float coefs[CONV_FILTER_MAX_TAPS], *all = malloc(cudnn->in * sizeof *all), *at = all;
    size_t taps = (size_t)filter->width * (size_t)filter->height;
    if (!all)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < taps; i++)
        coefs[i] = (float)filter->coef[i];
    for (int p = 0; p < count; p++) {
        pad_plane(at, filter, &planes[p], source);
        at += (size_t)(planes[p].width + filter->width - 1) *
              (size_t)(planes[p].height + filter->height - 1);
    }
    cudaError_t code = cudaMalloc((void **)&cudnn->d_src, cudnn->in * sizeof *all);
    if (!code)
        code = cudaMalloc((void **)&cudnn->d_dst, cudnn->out * sizeof *all);
    if (!code)
        code = cudaMalloc((void **)&cudnn->d_coefs, taps * sizeof *coefs);
    if (!code)
        code = cudaMemcpy(cudnn->d_src, all, cudnn->in * sizeof *all, cudaMemcpyHostToDevice);
    if (!code)
        code = cudaMemcpy(cudnn->d_coefs, coefs, taps * sizeof *coefs, cudaMemcpyHostToDevice);
    free(all);
    return conv_bench_timer_report(code, "copy images for cuDNN", err);
}

// --- algorithm -----------------------------------------------------------------------------------

// The fastest algorithm that cuDNN finds by trying.
static enum conv_status choose(struct cudnn *cudnn, struct batch *batch, struct conv_err *err)
{
    cudnnConvolutionFwdAlgoPerf_t choices[MOST_CHOICES];
    int found = 0;
    enum conv_status status =
        report(cudnn,
               cudnn->api.FindConvolutionForwardAlgorithm(cudnn->handle, batch->src, cudnn->kernel,
                                                          cudnn->convolution, batch->dst,
                                                          MOST_CHOICES, &found, choices),
               err);
    for (int i = 0; i < found && !status; i++) {
        if (choices[i].status != CUDNN_STATUS_SUCCESS || choices[i].memory > MOST_WORKSPACE)
            continue;
        batch->algorithm = choices[i].algo;
        if (cudnn->work_bytes < choices[i].memory)
            cudnn->work_bytes = choices[i].memory;
        return CONV_OK;
    }
    return status ? status
                  : conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN has no algorithm for this");
}

static enum conv_status describe(struct cudnn *cudnn, const struct conv_filter *filter,
                                 struct batch *batch, struct conv_err *err)
{
    cudnnStatus_t code = cudnn->api.CreateTensorDescriptor(&batch->src);
    if (!code)
        code = cudnn->api.CreateTensorDescriptor(&batch->dst);
    if (!code)
        code = cudnn->api.SetTensor4dDescriptor(batch->src, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                                batch->count, 1, batch->height + filter->height - 1,
                                                batch->width + filter->width - 1);
    if (!code)
        code = cudnn->api.SetTensor4dDescriptor(batch->dst, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                                batch->count, 1, batch->height, batch->width);
    enum conv_status status = report(cudnn, code, err);
    return status ? status : choose(cudnn, batch, err);
}

static enum conv_status prepare(struct cudnn *cudnn, const struct conv_filter *filter,
                                struct conv_err *err)
{
    cudnnStatus_t code = cudnn->api.Create(&cudnn->handle);
    if (!code)
        code = cudnn->api.SetStream(cudnn->handle, cudnn->timer.stream);
    if (!code)
        code = cudnn->api.CreateFilterDescriptor(&cudnn->kernel);
    if (!code)
        code = cudnn->api.SetFilter4dDescriptor(cudnn->kernel, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                                1, 1, filter->height, filter->width);
    if (!code)
        code = cudnn->api.CreateConvolutionDescriptor(&cudnn->convolution);
    if (!code)
        code = cudnn->api.SetConvolution2dDescriptor(cudnn->convolution, 0, 0, 1, 1, 1, 1,
                                                     CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    enum conv_status status = report(cudnn, code, err);
    for (int i = 0; i < cudnn->count && !status; i++)
        status = describe(cudnn, filter, &cudnn->batches[i], err);
    if (!status && cudnn->work_bytes)
        status = conv_bench_timer_report(cudaMalloc(&cudnn->d_work, cudnn->work_bytes),
                                         "allocate memory for cuDNN", err);
    return status;
}

static enum conv_status time_once(const struct cudnn *cudnn, uint64_t *ns, struct conv_err *err)
{
    const float one = 1, zero = 0;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    enum conv_status status =
        conv_bench_timer_report(conv_bench_timer_start(&cudnn->timer), "time cuDNN", err);
    for (int i = 0; i < cudnn->count && !status && !code; i++) {
        const struct batch *batch = &cudnn->batches[i];
        code = cudnn->api.ConvolutionForward(
            cudnn->handle, &one, batch->src, cudnn->d_src + batch->in, cudnn->kernel,
            cudnn->d_coefs, cudnn->convolution, batch->algorithm, cudnn->d_work, cudnn->work_bytes,
            &zero, batch->dst, cudnn->d_dst + batch->out);
    }
    if (!status)
        status = report(cudnn, code, err);
    return status ? status
                  : conv_bench_timer_report(conv_bench_timer_stop(&cudnn->timer, ns), "time cuDNN",
                                            err);
}

static enum conv_status fetch(const struct cudnn *cudnn, const struct conv_filter *filter,
                              const struct conv_bench_plane *planes, int count, uint8_t *result,
                              struct conv_err *err)
{
    float *sums = malloc(cudnn->out * sizeof *sums), *at = sums;
    if (!sums)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    cudaError_t code =
        cudaMemcpy(sums, cudnn->d_dst, cudnn->out * sizeof *sums, cudaMemcpyDeviceToHost);
    for (int p = 0; p < count && !code; p++) {
        size_t stride = conv_image_stride(planes[p].width, 8);
        for (int y = 0; y < planes[p].height; y++)
            for (int x = 0; x < planes[p].width; x++) {
                double value = rint((double)*at++ / filter->scale + filter->offset);
                result[planes[p].offset + (size_t)y * stride + (size_t)x] =
                    (uint8_t)fmin(fmax(value, 0), 255);
            }
    }
    free(sums);
    return conv_bench_timer_report(code, "copy images for cuDNN", err);
}

// Failures to free are ignored: nothing can be done about them.
static void close_cudnn(struct cudnn *cudnn)
{
    for (int i = 0; i < cudnn->count; i++) {
        if (cudnn->batches[i].src)
            (void)cudnn->api.DestroyTensorDescriptor(cudnn->batches[i].src);
        if (cudnn->batches[i].dst)
            (void)cudnn->api.DestroyTensorDescriptor(cudnn->batches[i].dst);
    }
    free(cudnn->batches);
    if (cudnn->convolution)
        (void)cudnn->api.DestroyConvolutionDescriptor(cudnn->convolution);
    if (cudnn->kernel)
        (void)cudnn->api.DestroyFilterDescriptor(cudnn->kernel);
    if (cudnn->handle)
        (void)cudnn->api.Destroy(cudnn->handle);
    (void)cudaFree(cudnn->d_src);
    (void)cudaFree(cudnn->d_dst);
    (void)cudaFree(cudnn->d_coefs);
    (void)cudaFree(cudnn->d_work);
    conv_bench_timer_close(&cudnn->timer);
    conv_bench_cudnn_close(&cudnn->api);
}

static enum conv_status filter(const struct conv_competitor_filter *task, uint64_t *ns, int runs,
                               struct conv_err *err)
{
    if (task->border != CONV_BORDER_REPLICATE || task->depth != 8)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "measured with 8 bits, replicate border");
    struct cudnn cudnn = {0};
    enum conv_status status = conv_bench_cudnn_open(&cudnn.api, err);
    if (!status)
        status = conv_bench_timer_report(conv_bench_timer_open(&cudnn.timer, task->device),
                                         "prepare cuDNN", err);
    if (!status)
        status = make_batches(&cudnn, task->filter, task->planes, task->count, err);
    if (!status)
        status = upload(&cudnn, task->filter, task->planes, task->count, task->source, err);
    if (!status)
        status = prepare(&cudnn, task->filter, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_once(&cudnn, &ns[r < 0 ? 0 : r], err);
    if (!status)
        status = fetch(&cudnn, task->filter, task->planes, task->count, task->result, err);
    close_cudnn(&cudnn);
    return status;
}

const struct conv_competitor conv_competitor_cudnn = {
    .name = "cuDNN",
    .summary = "float32, without conversion and rounding",
    .inexact = "float32, without conversion and rounding; results differ by 1",
    .tolerance = 1,
    .filter = filter,
};
