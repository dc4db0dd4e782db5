// SPDX-License-Identifier: MIT
// cuDNN computes the layers of `conv bench layers`: the plans that it proposes are tried in both
// orders of the axes. Its graph interface has engines that the older functions lack.
#include <stdlib.h>
#include <string.h>

#include "base/stat.h"
#include "bench/bench_cuda_timer.h"
#include "bench/bench_cudnn.h"
#include "bench/bench_layers.h"
#include "tensor/half.h"

#define MOST_WORKSPACE ((size_t)2 << 30)
#define MOST_CONFIGS 16 // of each heuristic
#define FAR_FROM_BEST 3 // times as long: not run again
#define MOST_NOTES 16   // of an engine

// Sets an attribute of a descriptor unless something failed before.
#define SET(DESCRIPTOR, NAME, TYPE, COUNT, VALUES)                                                 \
    if (!code)                                                                                     \
    code = cudnn->api.BackendSetAttribute(DESCRIPTOR, CUDNN_ATTR_##NAME, CUDNN_TYPE_##TYPE, COUNT, \
                                          VALUES)

// Descriptors of cuDNN's graph interface. The numbers of the tensors are also their identifiers.
enum part { SRC = 1, DST, WEIGHTS, CONVOLUTION, OPERATION, GRAPH, PACK, PLAN, MOST_PARTS };

struct cudnn {
    const struct conv_bench_layers_data *data;
    struct conv_bench_timer timer;
    struct conv_bench_cudnn api;
    cudnnHandle_t handle;
    cudnnDataType_t type;
    size_t element; // bytes
    bool tf32;      // float32 operands may be rounded to TF32
    uint8_t *d_src, *d_dst;
    void *d_weights, *d_work;
    size_t work_bytes;
    cudnnBackendDescriptor_t parts[MOST_PARTS];
    int tried;         // plans of this order of axes
    int64_t workspace; // bytes of the fastest
};

static enum conv_status report(const struct cudnn *cudnn, cudnnStatus_t code, struct conv_err *err)
{
    return conv_bench_cudnn_report(&cudnn->api, code, err);
}

// --- data ----------------------------------------------------------------------------------------

// Converts `count` blocks of `channels` planes to elements of the type, in that order of axes.
static void arrange(const struct cudnn *cudnn, void *to, const float *from, int count, int channels,
                    size_t plane, cudnnTensorFormat_t format)
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
static void arrange_back(const struct cudnn *cudnn, float *to, const void *from,
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

static enum conv_status take_memory(struct cudnn *cudnn, struct conv_err *err)
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
    return conv_bench_timer_report(code, "take memory for cuDNN", err);
}

static enum conv_status upload(struct cudnn *cudnn, cudnnTensorFormat_t format,
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

// --- how -----------------------------------------------------------------------------------------

typedef cudnnBackendDescriptor_t descriptor;

// Creates a descriptor of a tensor with these sizes. Elements along the last axis are adjacent in
// NCHW, along the second axis in NHWC.
static cudnnStatus_t make_tensor(struct cudnn *cudnn, int index, const int64_t sizes[4],
                                 cudnnTensorFormat_t format)
{
    bool last = format == CUDNN_TENSOR_NHWC;
    int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], last ? 1 : sizes[2] * sizes[3],
                          last ? sizes[3] * sizes[1] : sizes[3], last ? sizes[1] : 1};
    int64_t id = index, alignment = 16;
    cudnnStatus_t code =
        cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &cudnn->parts[index]);
    SET(cudnn->parts[index], TENSOR_DATA_TYPE, DATA_TYPE, 1, &cudnn->type);
    SET(cudnn->parts[index], TENSOR_DIMENSIONS, INT64, 4, sizes);
    SET(cudnn->parts[index], TENSOR_STRIDES, INT64, 4, strides);
    SET(cudnn->parts[index], TENSOR_UNIQUE_ID, INT64, 1, &id);
    SET(cudnn->parts[index], TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment);
    return code ? code : cudnn->api.BackendFinalize(cudnn->parts[index]);
}

static cudnnStatus_t make_operation(struct cudnn *cudnn)
{
    const int64_t ones[2] = {1, 1}, zeros[2] = {0, 0}, dimensions = 2;
    const float one = 1, zero = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    descriptor *parts = cudnn->parts;
    cudnnStatus_t code = cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                                                            &parts[CONVOLUTION]);
    SET(parts[CONVOLUTION], CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &type);
    SET(parts[CONVOLUTION], CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode);
    SET(parts[CONVOLUTION], CONVOLUTION_SPATIAL_DIMS, INT64, 1, &dimensions);
    SET(parts[CONVOLUTION], CONVOLUTION_DILATIONS, INT64, 2, ones);
    SET(parts[CONVOLUTION], CONVOLUTION_FILTER_STRIDES, INT64, 2, ones);
    SET(parts[CONVOLUTION], CONVOLUTION_PRE_PADDINGS, INT64, 2, zeros);
    SET(parts[CONVOLUTION], CONVOLUTION_POST_PADDINGS, INT64, 2, zeros);
    if (!code)
        code = cudnn->api.BackendFinalize(parts[CONVOLUTION]);
    if (!code)
        code = cudnn->api.BackendCreateDescriptor(
            CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &parts[OPERATION]);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, &one);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, &zero);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR, 1,
        &parts[CONVOLUTION]);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1, &parts[SRC]);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1, &parts[WEIGHTS]);
    SET(parts[OPERATION], OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1, &parts[DST]);
    return code ? code : cudnn->api.BackendFinalize(parts[OPERATION]);
}

// The layer as a graph of one operation.
static enum conv_status describe(struct cudnn *cudnn, cudnnTensorFormat_t format,
                                 struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    int64_t images = data->shape.images;
    descriptor *parts = cudnn->parts;
    cudnnStatus_t code = make_tensor(
        cudnn, SRC, (int64_t[]){images, layer->channels, data->shape.height, data->shape.width},
        format);
    if (!code)
        code = make_tensor(cudnn, DST,
                           (int64_t[]){images, layer->maps, data->out_height, data->out_width},
                           format);
    if (!code)
        code = make_tensor(
            cudnn, WEIGHTS,
            (int64_t[]){layer->maps, layer->channels, layer->kernel_height, layer->kernel_width},
            format);
    if (!code)
        code = make_operation(cudnn);
    if (!code)
        code = cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                                                  &parts[GRAPH]);
    SET(parts[GRAPH], OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, &parts[OPERATION]);
    SET(parts[GRAPH], OPERATIONGRAPH_HANDLE, HANDLE, 1, &cudnn->handle);
    if (!code)
        code = cudnn->api.BackendFinalize(parts[GRAPH]);
    return report(cudnn, code, err);
}

static void destroy(struct cudnn *cudnn, descriptor *part)
{
    if (*part)
        (void)cudnn->api.BackendDestroyDescriptor(*part);
    *part = NULL;
}

static void destroy_parts(struct cudnn *cudnn)
{
    for (int i = MOST_PARTS - 1; i >= 0; i--)
        destroy(cudnn, &cudnn->parts[i]);
}

// Engines that round float32 operands count as TF32 only.
static bool is_wanted(struct cudnn *cudnn, descriptor config)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    descriptor engine = NULL;
    int64_t count = 0;
    cudnnStatus_t code =
        cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (!code)
        code = cudnn->api.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (!code)
        code = cudnn->api.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                              CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &count, notes);
    destroy(cudnn, &engine);
    for (int64_t i = 0; i < count && i < MOST_NOTES && !code; i++)
        if (cudnn->element == 4 && (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                                    (!cudnn->tf32 && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE)))
            return false;
    return !code;
}

// An executable plan of an engine's configuration, NULL if there is none within the workspace.
static descriptor make_plan(struct cudnn *cudnn, descriptor config, int64_t *workspace)
{
    descriptor plan = NULL;
    int64_t count = 0;
    cudnnStatus_t code =
        cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    SET(plan, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &config);
    SET(plan, EXECUTION_PLAN_HANDLE, HANDLE, 1, &cudnn->handle);
    if (!code)
        code = cudnn->api.BackendFinalize(plan);
    if (!code)
        code = cudnn->api.BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                              CUDNN_TYPE_INT64, 1, &count, workspace);
    if (code || *workspace > (int64_t)cudnn->work_bytes)
        destroy(cudnn, &plan);
    return plan;
}

static enum conv_status make_pack(struct cudnn *cudnn, struct conv_err *err)
{
    const int64_t ids[3] = {SRC, DST, WEIGHTS};
    void *pointers[3] = {cudnn->d_src, cudnn->d_dst, cudnn->d_weights};
    descriptor *pack = &cudnn->parts[PACK];
    cudnnStatus_t code =
        cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack);
    SET(*pack, VARIANT_PACK_UNIQUE_IDS, INT64, 3, ids);
    SET(*pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 3, pointers);
    SET(*pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &cudnn->d_work);
    if (!code)
        code = cudnn->api.BackendFinalize(*pack);
    return report(cudnn, code, err);
}

static enum conv_status time_once(const struct cudnn *cudnn, descriptor plan, double *ns,
                                  struct conv_err *err)
{
    uint64_t time = 0;
    enum conv_status status =
        conv_bench_timer_report(conv_bench_timer_start(&cudnn->timer), "time cuDNN", err);
    if (!status)
        status =
            report(cudnn, cudnn->api.BackendExecute(cudnn->handle, plan, cudnn->parts[PACK]), err);
    if (!status)
        status =
            conv_bench_timer_report(conv_bench_timer_stop(&cudnn->timer, &time), "time cuDNN", err);
    *ns = (double)time;
    return status;
}

// Keeps the configuration's plan if it is faster than those before.
static void try_config(struct cudnn *cudnn, descriptor config, double *best)
{
    double ns = 0;
    int64_t workspace = 0;
    struct conv_err reason = {0};
    descriptor plan = is_wanted(cudnn, config) ? make_plan(cudnn, config, &workspace) : NULL;
    enum conv_status status = plan ? CONV_OK : CONV_ERR_UNSUPPORTED;
    for (int run = 0; run < 2 && !status; run++) { // the first warms up
        status = time_once(cudnn, plan, &ns, &reason);
        if (*best > 0 && ns > FAR_FROM_BEST * *best)
            break;
    }
    cudnn->tried += !status;
    if (!status && (*best <= 0 || ns < *best)) {
        *best = ns;
        cudnn->workspace = workspace;
        destroy(cudnn, &cudnn->parts[PLAN]);
        cudnn->parts[PLAN] = plan;
        plan = NULL;
    }
    (void)cudaGetLastError(); // of a plan that did not work
    destroy(cudnn, &plan);
}

// The fastest of the configurations that a heuristic proposes, best first.
static void try_mode(struct cudnn *cudnn, cudnnBackendHeurMode_t mode, double *best)
{
    descriptor heuristic = NULL, configs[MOST_CONFIGS] = {NULL};
    int64_t count = 0;
    cudnnStatus_t code =
        cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    SET(heuristic, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &cudnn->parts[GRAPH]);
    SET(heuristic, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
    if (!code)
        code = cudnn->api.BackendFinalize(heuristic);
    for (int i = 0; i < MOST_CONFIGS && !code; i++)
        code = cudnn->api.BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (!code)
        code = cudnn->api.BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &count,
                                              configs);
    for (int64_t i = 0; i < count && i < MOST_CONFIGS && !code; i++)
        try_config(cudnn, configs[i], best);
    for (int i = 0; i < MOST_CONFIGS; i++)
        destroy(cudnn, &configs[i]);
    destroy(cudnn, &heuristic);
}

static enum conv_status fetch(const struct cudnn *cudnn, cudnnTensorFormat_t format, float *result,
                              struct conv_err *err)
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

static enum conv_status open_cudnn(struct cudnn *cudnn, int ordinal, struct conv_err *err)
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
static void close_cudnn(struct cudnn *cudnn)
{
    destroy_parts(cudnn);
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
static enum conv_status try_format(struct cudnn *cudnn, cudnnTensorFormat_t format, double *best,
                                   double *ns, int runs, float *result, char *summary, size_t size,
                                   struct conv_err *err)
{
    static const cudnnBackendHeurMode_t modes[] = {
        CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_FALLBACK};
    double times[CONV_BENCH_MOST_RUNS], sorted[CONV_BENCH_MOST_RUNS], fastest = 0;
    cudnn->tried = 0;
    enum conv_status status = describe(cudnn, format, err);
    if (!status)
        status = upload(cudnn, format, err);
    if (!status)
        status = make_pack(cudnn, err);
    if (!status) {
        for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
            try_mode(cudnn, modes[i], &fastest);
        if (fastest <= 0)
            status = conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN has no algorithm for this");
    }
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_once(cudnn, cudnn->parts[PLAN], &times[r < 0 ? 0 : r], err);
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
    struct cudnn cudnn = {
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
        destroy_parts(&cudnn);
    }
    if (!status && best <= 0) {
        *err = reason;
        status = reason.status;
    }
    close_cudnn(&cudnn);
    return status;
}
