// SPDX-License-Identifier: MIT
// Computes the layers of `conv bench layers` with cuDNN: the fastest of the plans that its graph
// interface proposes, in NCHW and in NHWC. Its functions are looked up at run time: only its header
// is needed to build.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cudnn_backend.h>

#include "base/clock.h"
#include "bench/bench_cuda.h"
#include "bench/bench_layers.h"
#include "tensor/element.h"

#define TEXT_OF(number) #number
#define NAME_OF(major) "libcudnn.so." TEXT_OF(major)

// The functions that are called, by their names without "cudnn".
#define FUNCTIONS(X)                                                                               \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

typedef cudnnBackendDescriptor_t descriptor;

// The descriptors of a layer. The numbers of the tensors are also their identifiers.
enum part { SRC = 1, DST, WEIGHTS, CONVOLUTION, OPERATION, GRAPH, PACK, PLAN, PARTS };

struct cudnn { // starts as {0}
    void *library;
#define POINTER(name) __typeof__(cudnn##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
    cudnnHandle_t handle;
    const struct conv_bench_layers_data *data;
    const struct conv_bench_place_ops *ops;
    struct conv_bench_place *place;
    cudnnDataType_t type;
    size_t element; // bytes
    bool tf32;      // float32 operands may be rounded to TF32
    uint8_t *d_src, *d_dst, *d_weights, *d_work;
    size_t work_bytes;
    descriptor parts[PARTS];
    descriptor running; // the plan that is timed
    cudnnStatus_t code; // of its run
    int tried;          // plans of this order of axes
    int64_t workspace;  // bytes of the fastest
};

static enum conv_status report(const struct cudnn *cudnn, cudnnStatus_t code, struct conv_err *err)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN: %s", cudnn->GetErrorString(code));
}

// CONV_ERR_UNSUPPORTED if the library is not installed or lacks a function.
static enum conv_status open_library(struct cudnn *cudnn, struct conv_err *err)
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

// --- data ----------------------------------------------------------------------------------------

// Converts `count` blocks of `channels` planes to elements of the type, in that order of axes; with
// `back` the reverse.
static void arrange(const struct cudnn *cudnn, void *elements, float *values, int count,
                    int channels, size_t plane, cudnnTensorFormat_t format, bool back)
{
    size_t many = (size_t)channels;
    for (size_t at = 0; at < (size_t)count * many * plane; at++) {
        size_t n = at / plane / many, c = at / plane % many, i = at % plane;
        size_t place =
            n * many * plane + (format == CUDNN_TENSOR_NHWC ? i * many + c : c * plane + i);
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
    size_t weights =
        (size_t)data->layer.maps * (size_t)data->layer.channels * taps_of(&data->layer);
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

static enum conv_status upload(struct cudnn *cudnn, cudnnTensorFormat_t format,
                               struct conv_err *err)
{
    static const char doing[] = "copy images for cuDNN";
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    size_t weights =
        (size_t)layer->maps * (size_t)layer->channels * taps_of(layer) * cudnn->element;
    size_t in = (size_t)data->distinct * data->image_in * cudnn->element;
    size_t all = (size_t)data->shape.images * data->image_in * cudnn->element;
    void *memory = malloc(in > weights ? in : weights);
    if (!memory)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for cuDNN's input");
    arrange(cudnn, memory, data->weights, layer->maps, layer->channels, taps_of(layer), format,
            false);
    enum conv_status status = cudnn->ops->copy_in(cudnn->d_weights, memory, weights, doing, err);
    arrange(cudnn, memory, data->input, data->distinct, layer->channels,
            (size_t)data->shape.height * (size_t)data->shape.width, format, false);
    if (!status)
        status = cudnn->ops->copy_in(cudnn->d_src, memory, in, doing, err);
    free(memory);
    for (size_t done = in, more; done < all && !status; done += more) {
        more = done < all - done ? done : all - done;
        status = cudnn->ops->move(cudnn->d_src + done, cudnn->d_src, more, err);
    }
    (void)cudaDeviceSynchronize();
    return status;
}

static enum conv_status fetch(const struct cudnn *cudnn, cudnnTensorFormat_t format, float *result,
                              struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    size_t bytes = (size_t)data->distinct * data->image_out * cudnn->element;
    void *memory = malloc(bytes);
    if (!memory)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for cuDNN's results");
    enum conv_status status = cudnn->ops->copy_out(memory, cudnn->d_dst, bytes, err);
    if (!status)
        arrange(cudnn, memory, result, data->distinct, data->layer.maps,
                data->image_out / (size_t)data->layer.maps, format, true);
    free(memory);
    return status;
}

// --- the graph -----------------------------------------------------------------------------------

#define MOST_CONFIGS 16 // of each heuristic
#define FAR_FROM_BEST 3 // times as long: not run again
#define MOST_NOTES 16   // of an engine

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
};

#define ATTRIBUTE(NAME, TYPE, COUNT, VALUES)                                                       \
    {                                                                                              \
        CUDNN_ATTR_##NAME, CUDNN_TYPE_##TYPE, COUNT, VALUES                                        \
    }

// A finished descriptor with these attributes; *made is to be destroyed also after a failure.
#define MAKE(KIND, MADE, ...)                                                                      \
    make(cudnn, CUDNN_BACKEND_##KIND##_DESCRIPTOR, MADE, (const struct attribute[]){__VA_ARGS__},  \
         sizeof((const struct attribute[]){__VA_ARGS__}) / sizeof(struct attribute))

static cudnnStatus_t make(const struct cudnn *cudnn, cudnnBackendDescriptorType_t kind,
                          descriptor *made, const struct attribute *attributes, size_t count)
{
    cudnnStatus_t code = cudnn->BackendCreateDescriptor(kind, made);
    for (size_t i = 0; i < count && !code; i++)
        code = cudnn->BackendSetAttribute(*made, attributes[i].name, attributes[i].type,
                                          attributes[i].count, attributes[i].values);
    return code ? code : cudnn->BackendFinalize(*made);
}

static void destroy(const struct cudnn *cudnn, descriptor *part)
{
    if (*part)
        (void)cudnn->BackendDestroyDescriptor(*part);
    *part = NULL;
}

static void destroy_graph(struct cudnn *cudnn)
{
    for (int i = PARTS - 1; i >= 0; i--)
        destroy(cudnn, &cudnn->parts[i]);
}

// A tensor of these sizes. Elements along the last axis are adjacent in NCHW, along the second axis
// in NHWC.
static cudnnStatus_t make_tensor(struct cudnn *cudnn, enum part part, const int64_t sizes[4],
                                 cudnnTensorFormat_t format)
{
    bool last = format == CUDNN_TENSOR_NHWC;
    int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], last ? 1 : sizes[2] * sizes[3],
                          last ? sizes[3] * sizes[1] : sizes[3], last ? sizes[1] : 1};
    int64_t id = part, alignment = 16;
    return MAKE(
        TENSOR, &cudnn->parts[part], ATTRIBUTE(TENSOR_DATA_TYPE, DATA_TYPE, 1, &cudnn->type),
        ATTRIBUTE(TENSOR_DIMENSIONS, INT64, 4, sizes), ATTRIBUTE(TENSOR_STRIDES, INT64, 4, strides),
        ATTRIBUTE(TENSOR_UNIQUE_ID, INT64, 1, &id),
        ATTRIBUTE(TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment));
}

static cudnnStatus_t make_operation(struct cudnn *cudnn)
{
    const int64_t ones[2] = {1, 1}, zeros[2] = {0, 0}, dimensions = 2;
    const float one = 1, zero = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    descriptor *parts = cudnn->parts;
    cudnnStatus_t code = MAKE(CONVOLUTION, &parts[CONVOLUTION],
                              ATTRIBUTE(CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &type),
                              ATTRIBUTE(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode),
                              ATTRIBUTE(CONVOLUTION_SPATIAL_DIMS, INT64, 1, &dimensions),
                              ATTRIBUTE(CONVOLUTION_DILATIONS, INT64, 2, ones),
                              ATTRIBUTE(CONVOLUTION_FILTER_STRIDES, INT64, 2, ones),
                              ATTRIBUTE(CONVOLUTION_PRE_PADDINGS, INT64, 2, zeros),
                              ATTRIBUTE(CONVOLUTION_POST_PADDINGS, INT64, 2, zeros));
    return code ? code
                : MAKE(OPERATION_CONVOLUTION_FORWARD, &parts[OPERATION],
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, &one),
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, &zero),
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR, 1,
                                 &parts[CONVOLUTION]),
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1,
                                 &parts[SRC]),
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1,
                                 &parts[WEIGHTS]),
                       ATTRIBUTE(OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1,
                                 &parts[DST]));
}

// The layer as a graph of one operation, on the memory that was taken.
static enum conv_status make_graph(struct cudnn *cudnn, cudnnTensorFormat_t format,
                                   struct conv_err *err)
{
    const struct conv_bench_layers_data *data = cudnn->data;
    const struct conv_layer *layer = &data->layer;
    const int64_t images = data->shape.images, ids[3] = {SRC, DST, WEIGHTS};
    const int64_t src[4] = {images, layer->channels, data->shape.height, data->shape.width};
    const int64_t dst[4] = {images, layer->maps, data->out_height, data->out_width};
    const int64_t weights[4] = {layer->maps, layer->channels, layer->kernel_height,
                                layer->kernel_width};
    void *pointers[3] = {cudnn->d_src, cudnn->d_dst, cudnn->d_weights};
    cudnnStatus_t code = make_tensor(cudnn, SRC, src, format);
    if (!code)
        code = make_tensor(cudnn, DST, dst, format);
    if (!code)
        code = make_tensor(cudnn, WEIGHTS, weights, format);
    if (!code)
        code = make_operation(cudnn);
    if (!code)
        code = MAKE(OPERATIONGRAPH, &cudnn->parts[GRAPH],
                    ATTRIBUTE(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, &cudnn->parts[OPERATION]),
                    ATTRIBUTE(OPERATIONGRAPH_HANDLE, HANDLE, 1, &cudnn->handle));
    if (!code)
        code = MAKE(VARIANT_PACK, &cudnn->parts[PACK],
                    ATTRIBUTE(VARIANT_PACK_UNIQUE_IDS, INT64, 3, ids),
                    ATTRIBUTE(VARIANT_PACK_DATA_POINTERS, VOID_PTR, 3, pointers),
                    ATTRIBUTE(VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &cudnn->d_work));
    return report(cudnn, code, err);
}

// --- its plans -----------------------------------------------------------------------------------

static enum conv_status execute(void *context, int worker, int task, void *stream)
{
    (void)worker;
    (void)task;
    struct cudnn *cudnn = context;
    cudnn->code = cudnn->SetStream(cudnn->handle, stream);
    if (!cudnn->code)
        cudnn->code = cudnn->BackendExecute(cudnn->handle, cudnn->running, cudnn->parts[PACK]);
    return cudnn->code ? CONV_ERR_UNSUPPORTED : CONV_OK;
}

static enum conv_status time_plan(struct cudnn *cudnn, descriptor plan, double *ns,
                                  struct conv_err *err)
{
    struct conv_bench_work work = {.run = execute, .context = cudnn, .name = "of cuDNN"};
    uint64_t time = 0;
    cudnn->running = plan;
    enum conv_status status = cudnn->ops->run(cudnn->place, &work, &time, err);
    *ns = (double)time;
    return cudnn->code ? report(cudnn, cudnn->code, err) : status;
}

// Engines that round float32 operands count as TF32 only.
static bool is_wanted(const struct cudnn *cudnn, descriptor config)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    descriptor engine = NULL;
    int64_t count = 0;
    cudnnStatus_t code = cudnn->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (!code)
        code = cudnn->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (!code)
        code = cudnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                          CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &count, notes);
    destroy(cudnn, &engine);
    for (int64_t i = 0; i < count && i < MOST_NOTES && !code; i++)
        if (cudnn->element == 4 && (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                                    (!cudnn->tf32 && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE)))
            return false;
    return !code;
}

// An executable plan of an engine's configuration, NULL if there is none within the workspace.
static descriptor make_plan(const struct cudnn *cudnn, descriptor config, int64_t *workspace)
{
    descriptor plan = NULL;
    int64_t count = 0;
    cudnnStatus_t code =
        MAKE(EXECUTION_PLAN, &plan,
             ATTRIBUTE(EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &config),
             ATTRIBUTE(EXECUTION_PLAN_HANDLE, HANDLE, 1, &cudnn->handle));
    if (!code)
        code = cudnn->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, workspace);
    if (code || *workspace > (int64_t)cudnn->work_bytes)
        destroy(cudnn, &plan);
    return plan;
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
        status = time_plan(cudnn, plan, &ns, &reason);
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
        MAKE(ENGINEHEUR, &heuristic,
             ATTRIBUTE(ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &cudnn->parts[GRAPH]),
             ATTRIBUTE(ENGINEHEUR_MODE, HEUR_MODE, 1, &mode));
    for (int i = 0; i < MOST_CONFIGS && !code; i++)
        code = cudnn->BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (!code)
        code = cudnn->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &count,
                                          configs);
    for (int64_t i = 0; i < count && i < MOST_CONFIGS && !code; i++)
        try_config(cudnn, configs[i], best);
    for (int i = 0; i < MOST_CONFIGS; i++)
        destroy(cudnn, &configs[i]);
    destroy(cudnn, &heuristic);
}

static enum conv_status choose_plan(struct cudnn *cudnn, struct conv_err *err)
{
    static const cudnnBackendHeurMode_t modes[] = {
        CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_FALLBACK};
    double fastest = 0;
    cudnn->tried = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        try_mode(cudnn, modes[i], &fastest);
    return fastest > 0 ? CONV_OK
                       : conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN has no algorithm for this");
}

// --- a layer -------------------------------------------------------------------------------------

// One order of axes; replaces the results if it is faster than *best.
static enum conv_status try_format(struct cudnn *cudnn, cudnnTensorFormat_t format, double *best,
                                   double *ns, int runs, float *result, char *summary, size_t size,
                                   struct conv_err *err)
{
    double times[CONV_BENCH_MOST_RUNS], sorted[CONV_BENCH_MOST_RUNS];
    enum conv_status status = make_graph(cudnn, format, err);
    if (!status)
        status = upload(cudnn, format, err);
    if (!status)
        status = choose_plan(cudnn, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_plan(cudnn, cudnn->parts[PLAN], &times[r < 0 ? 0 : r], err);
    if (status)
        return status;
    memcpy(sorted, times, sizeof sorted);
    double median = conv_stat_median(sorted, runs);
    if (*best > 0 && median >= *best)
        return CONV_OK;
    *best = median;
    memcpy(ns, times, (size_t)runs * sizeof *ns);
    snprintf(summary, size, "%s, the fastest of %d plans, %lld MiB of workspace",
             format == CUDNN_TENSOR_NHWC ? "NHWC" : "NCHW", cudnn->tried,
             (long long)(cudnn->workspace >> 20));
    return fetch(cudnn, format, result, err);
}

// Failures to free are ignored: nothing can be done about them.
static void close_cudnn(struct cudnn *cudnn)
{
    if (cudnn->handle)
        (void)cudnn->Destroy(cudnn->handle);
    cudnn->ops->release(cudnn->d_src, 0);
    cudnn->ops->release(cudnn->d_dst, 0);
    cudnn->ops->release(cudnn->d_weights, 0);
    cudnn->ops->release(cudnn->d_work, 0);
    cudnn->ops->close(cudnn->place);
    if (cudnn->library)
        (void)dlclose(cudnn->library);
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
        .ops = conv_bench_cuda()->place,
        .type = half ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT,
        .element = half ? 2 : 4,
        .tf32 = precision == CONV_PRECISION_TF32,
    };
    double best = 0;
    struct conv_err reason = {0};
    enum conv_status status = open_library(&cudnn, err);
    if (!status)
        status = cudnn.ops->open(&cudnn.place, ordinal, err);
    if (!status)
        status = report(&cudnn, cudnn.Create(&cudnn.handle), err);
    if (!status)
        status = take_memory(&cudnn, err);
    for (int f = 0; f < 2 && !status; f++) {
        (void)try_format(&cudnn, formats[f], &best, ns, runs, result, summary, size, &reason);
        destroy_graph(&cudnn);
    }
    if (!status && best <= 0) {
        *err = reason;
        status = reason.status;
    }
    close_cudnn(&cudnn);
    return status;
}
