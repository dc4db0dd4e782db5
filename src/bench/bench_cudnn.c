// SPDX-License-Identifier: MIT
// cuDNN's graph interface, which has faster engines than the older functions.
#include "bench/bench_cudnn.h"

#include <dlfcn.h>
#include <stdbool.h>

#define TEXT_OF(number) #number
#define NAME_OF(major) "libcudnn.so." TEXT_OF(major)

enum conv_status conv_bench_cudnn_open(struct conv_bench_cudnn *cudnn, struct conv_err *err)
{
    cudnn->library = dlopen(NAME_OF(CUDNN_MAJOR), RTLD_NOW);
    if (!cudnn->library)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s", dlerror());
    bool all = true;
#define LOOK_UP(name)                                                                              \
    *(void **)&cudnn->name = dlsym(cudnn->library, "cudnn" #name);                                 \
    all = all && cudnn->name;
    CONV_BENCH_CUDNN_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return all ? CONV_OK
               : conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s lacks a function",
                              NAME_OF(CUDNN_MAJOR));
}

void conv_bench_cudnn_close(struct conv_bench_cudnn *cudnn)
{
    if (cudnn->library)
        (void)dlclose(cudnn->library);
    cudnn->library = NULL;
}

enum conv_status conv_bench_cudnn_report(const struct conv_bench_cudnn *cudnn, cudnnStatus_t code,
                                         struct conv_err *err)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "cuDNN: %s", cudnn->GetErrorString(code));
}

// --- the graph -----------------------------------------------------------------------------------

#define MOST_CONFIGS 16 // of each heuristic
#define FAR_FROM_BEST 3 // times as long: not run again
#define MOST_NOTES 16   // of an engine

// Sets an attribute of a descriptor unless something failed before.
#define SET(DESCRIPTOR, NAME, TYPE, COUNT, VALUES)                                                 \
    if (!code)                                                                                     \
    code = cudnn->api.BackendSetAttribute(DESCRIPTOR, CUDNN_ATTR_##NAME, CUDNN_TYPE_##TYPE, COUNT, \
                                          VALUES)

// Descriptors of cuDNN's graph interface. The numbers of the tensors are also their identifiers.
enum part { SRC = 1, DST, WEIGHTS, CONVOLUTION, OPERATION, GRAPH, PACK, PLAN, PARTS };
_Static_assert(PARTS == CONV_BENCH_GRAPH_PARTS, "bench_layers_graph.h");

static enum conv_status report(const struct conv_bench_layers_cudnn *cudnn, cudnnStatus_t code,
                               struct conv_err *err)
{
    return conv_bench_cudnn_report(&cudnn->api, code, err);
}

typedef cudnnBackendDescriptor_t descriptor;

// Creates a descriptor of a tensor with these sizes. Elements along the last axis are adjacent in
// NCHW, along the second axis in NHWC.
static cudnnStatus_t make_tensor(struct conv_bench_layers_cudnn *cudnn, int index,
                                 const int64_t sizes[4], cudnnTensorFormat_t format)
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

static cudnnStatus_t make_operation(struct conv_bench_layers_cudnn *cudnn)
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
static enum conv_status describe(struct conv_bench_layers_cudnn *cudnn, cudnnTensorFormat_t format,
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

static void destroy(struct conv_bench_layers_cudnn *cudnn, descriptor *part)
{
    if (*part)
        (void)cudnn->api.BackendDestroyDescriptor(*part);
    *part = NULL;
}

void conv_bench_layers_graph_close(struct conv_bench_layers_cudnn *cudnn)
{
    for (int i = PARTS - 1; i >= 0; i--)
        destroy(cudnn, &cudnn->parts[i]);
}

// Engines that round float32 operands count as TF32 only.
static bool is_wanted(struct conv_bench_layers_cudnn *cudnn, descriptor config)
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
static descriptor make_plan(struct conv_bench_layers_cudnn *cudnn, descriptor config,
                            int64_t *workspace)
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

static enum conv_status make_pack(struct conv_bench_layers_cudnn *cudnn, struct conv_err *err)
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

static enum conv_status time_once(const struct conv_bench_layers_cudnn *cudnn, descriptor plan,
                                  double *ns, struct conv_err *err)
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
static void try_config(struct conv_bench_layers_cudnn *cudnn, descriptor config, double *best)
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
static void try_mode(struct conv_bench_layers_cudnn *cudnn, cudnnBackendHeurMode_t mode,
                     double *best)
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

enum conv_status conv_bench_layers_graph_open(struct conv_bench_layers_cudnn *cudnn,
                                              cudnnTensorFormat_t format, struct conv_err *err)
{
    enum conv_status status = describe(cudnn, format, err);
    return status ? status : make_pack(cudnn, err);
}

enum conv_status conv_bench_layers_graph_choose(struct conv_bench_layers_cudnn *cudnn,
                                                struct conv_err *err)
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

enum conv_status conv_bench_layers_graph_time(const struct conv_bench_layers_cudnn *cudnn,
                                              double *ns, struct conv_err *err)
{
    return time_once(cudnn, cudnn->parts[PLAN], ns, err);
}
