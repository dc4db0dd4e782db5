// SPDX-License-Identifier: MIT
// The one file that includes cuDNN.
#include "bench/bench_cudnn.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_timer.h"
#include "kernels/stencil/stencil.h"

#define MOST_WORKSPACE ((size_t)4 << 30)
#define MOST_CHOICES 16
#define TEXT_OF(number) #number
#define NAME_OF(major) "libcudnn.so." TEXT_OF(major)

// The functions that are called, by their names without "cudnn".
#define FUNCTIONS(X)                                                                               \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(CreateTensorDescriptor)                                                                      \
    X(DestroyTensorDescriptor)                                                                     \
    X(SetTensor4dDescriptor)                                                                       \
    X(CreateFilterDescriptor)                                                                      \
    X(DestroyFilterDescriptor)                                                                     \
    X(SetFilter4dDescriptor)                                                                       \
    X(CreateConvolutionDescriptor)                                                                 \
    X(DestroyConvolutionDescriptor)                                                                \
    X(SetConvolution2dDescriptor)                                                                  \
    X(FindConvolutionForwardAlgorithm)                                                             \
    X(ConvolutionForward)

// Planes of one size that follow each other, as one tensor.
struct batch {
    int width, height, count;
    size_t in, out; // floats before it
    cudnnTensorDescriptor_t src, dst;
    cudnnConvolutionFwdAlgo_t algorithm;
};

struct cudnn {
    struct conv_bench_timer timer;
    void *library;
#define POINTER(name) __typeof__(cudnn##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
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
    if (code == CUDNN_STATUS_SUCCESS)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN: %s", cudnn->GetErrorString(code));
}

static enum conv_status load(struct cudnn *cudnn, struct conv_err *err)
{
    cudnn->library = dlopen(NAME_OF(CUDNN_MAJOR), RTLD_NOW);
    if (!cudnn->library)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s", dlerror());
    bool all = true;
#define LOOK_UP(name)                                                                              \
    *(void **)&cudnn->name = dlsym(cudnn->library, "cudnn" #name);                                 \
    all = all && cudnn->name;
    FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return all ? CONV_OK
               : conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s lacks a function",
                              NAME_OF(CUDNN_MAJOR));
}

// --- what is convolved ---------------------------------------------------------------------------

static enum conv_status make_batches(struct cudnn *cudnn, const struct conv_filter *filter,
                                     const struct conv_group_plane *planes, int count,
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
                      const struct conv_group_plane *plane, const uint8_t *source)
{
    size_t stride = conv_image_stride(plane->width, plane->depth);
    for (int y = -(filter->height / 2); y < plane->height + filter->height / 2; y++) {
        int row = conv_stencil_border(CONV_BORDER_REPLICATE, y, plane->height);
        for (int x = -(filter->width / 2); x < plane->width + filter->width / 2; x++)
            *to++ = source[plane->offset + (size_t)row * stride +
                           (size_t)conv_stencil_border(CONV_BORDER_REPLICATE, x, plane->width)];
    }
}

static enum conv_status upload(struct cudnn *cudnn, const struct conv_filter *filter,
                               const struct conv_group_plane *planes, int count,
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
    return conv_bench_timer_report(code, err);
}

// --- how -----------------------------------------------------------------------------------------

// The fastest algorithm that cuDNN finds by trying.
static enum conv_status choose(struct cudnn *cudnn, struct batch *batch, struct conv_err *err)
{
    cudnnConvolutionFwdAlgoPerf_t choices[MOST_CHOICES];
    int found = 0;
    enum conv_status status =
        report(cudnn,
               cudnn->FindConvolutionForwardAlgorithm(cudnn->handle, batch->src, cudnn->kernel,
                                                      cudnn->convolution, batch->dst, MOST_CHOICES,
                                                      &found, choices),
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
    cudnnStatus_t code = cudnn->CreateTensorDescriptor(&batch->src);
    if (!code)
        code = cudnn->CreateTensorDescriptor(&batch->dst);
    if (!code)
        code = cudnn->SetTensor4dDescriptor(batch->src, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                            batch->count, 1, batch->height + filter->height - 1,
                                            batch->width + filter->width - 1);
    if (!code)
        code = cudnn->SetTensor4dDescriptor(batch->dst, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                            batch->count, 1, batch->height, batch->width);
    enum conv_status status = report(cudnn, code, err);
    return status ? status : choose(cudnn, batch, err);
}

static enum conv_status prepare(struct cudnn *cudnn, const struct conv_filter *filter,
                                struct conv_err *err)
{
    cudnnStatus_t code = cudnn->Create(&cudnn->handle);
    if (!code)
        code = cudnn->SetStream(cudnn->handle, cudnn->timer.stream);
    if (!code)
        code = cudnn->CreateFilterDescriptor(&cudnn->kernel);
    if (!code)
        code = cudnn->SetFilter4dDescriptor(cudnn->kernel, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1,
                                            1, filter->height, filter->width);
    if (!code)
        code = cudnn->CreateConvolutionDescriptor(&cudnn->convolution);
    if (!code)
        code = cudnn->SetConvolution2dDescriptor(cudnn->convolution, 0, 0, 1, 1, 1, 1,
                                                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    enum conv_status status = report(cudnn, code, err);
    for (int i = 0; i < cudnn->count && !status; i++)
        status = describe(cudnn, filter, &cudnn->batches[i], err);
    if (!status && cudnn->work_bytes)
        status = conv_bench_timer_report(cudaMalloc(&cudnn->d_work, cudnn->work_bytes), err);
    return status;
}

static enum conv_status time_once(const struct cudnn *cudnn, uint64_t *ns, struct conv_err *err)
{
    const float one = 1, zero = 0;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    enum conv_status status = conv_bench_timer_report(conv_bench_timer_start(&cudnn->timer), err);
    for (int i = 0; i < cudnn->count && !status && !code; i++) {
        const struct batch *batch = &cudnn->batches[i];
        code = cudnn->ConvolutionForward(cudnn->handle, &one, batch->src, cudnn->d_src + batch->in,
                                         cudnn->kernel, cudnn->d_coefs, cudnn->convolution,
                                         batch->algorithm, cudnn->d_work, cudnn->work_bytes, &zero,
                                         batch->dst, cudnn->d_dst + batch->out);
    }
    if (!status)
        status = report(cudnn, code, err);
    return status ? status : conv_bench_timer_report(conv_bench_timer_stop(&cudnn->timer, ns), err);
}

static enum conv_status fetch(const struct cudnn *cudnn, const struct conv_filter *filter,
                              const struct conv_group_plane *planes, int count, uint8_t *result,
                              struct conv_err *err)
{
    float *sums = malloc(cudnn->out * sizeof *sums), *at = sums;
    if (!sums)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    cudaError_t code =
        cudaMemcpy(sums, cudnn->d_dst, cudnn->out * sizeof *sums, cudaMemcpyDeviceToHost);
    for (int p = 0; p < count && !code; p++) {
        size_t stride = conv_image_stride(planes[p].width, planes[p].depth);
        for (int y = 0; y < planes[p].height; y++)
            for (int x = 0; x < planes[p].width; x++) {
                double value = rint((double)*at++ / filter->scale + filter->offset);
                result[planes[p].offset + (size_t)y * stride + (size_t)x] =
                    (uint8_t)fmin(fmax(value, 0), 255);
            }
    }
    free(sums);
    return conv_bench_timer_report(code, err);
}

// Nothing can be done about a failure to free.
static void close_cudnn(struct cudnn *cudnn)
{
    for (int i = 0; i < cudnn->count; i++) {
        if (cudnn->batches[i].src)
            (void)cudnn->DestroyTensorDescriptor(cudnn->batches[i].src);
        if (cudnn->batches[i].dst)
            (void)cudnn->DestroyTensorDescriptor(cudnn->batches[i].dst);
    }
    free(cudnn->batches);
    if (cudnn->convolution)
        (void)cudnn->DestroyConvolutionDescriptor(cudnn->convolution);
    if (cudnn->kernel)
        (void)cudnn->DestroyFilterDescriptor(cudnn->kernel);
    if (cudnn->handle)
        (void)cudnn->Destroy(cudnn->handle);
    (void)cudaFree(cudnn->d_src);
    (void)cudaFree(cudnn->d_dst);
    (void)cudaFree(cudnn->d_coefs);
    (void)cudaFree(cudnn->d_work);
    conv_bench_timer_close(&cudnn->timer);
    if (cudnn->library)
        (void)dlclose(cudnn->library);
}

enum conv_status conv_bench_cudnn(const struct conv_filter *filter, enum conv_border border,
                                  const struct conv_group_plane *planes, int count,
                                  const uint8_t *source, uint8_t *result, size_t bytes, int device,
                                  uint64_t *ns, int runs, struct conv_err *err)
{
    (void)bytes;
    if (border != CONV_BORDER_REPLICATE || planes[0].depth != 8)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "measured with 8 bits, replicate border");
    struct cudnn cudnn = {0};
    enum conv_status status = load(&cudnn, err);
    if (!status)
        status = conv_bench_timer_report(conv_bench_timer_open(&cudnn.timer, device), err);
    if (!status)
        status = make_batches(&cudnn, filter, planes, count, err);
    if (!status)
        status = upload(&cudnn, filter, planes, count, source, err);
    if (!status)
        status = prepare(&cudnn, filter, err);
    if (!status) // warms up
        status = time_once(&cudnn, ns, err);
    for (int r = 0; r < runs && !status; r++)
        status = time_once(&cudnn, &ns[r], err);
    if (!status)
        status = fetch(&cudnn, filter, planes, count, result, err);
    close_cudnn(&cudnn);
    return status;
}
