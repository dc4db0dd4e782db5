// SPDX-License-Identifier: MIT
// The functions and numbers of cuDNN's backend interface that are used here, from NVIDIA's
// documentation; they are the same in every version 9.x.
#include "kernels/layer/cuda/cuda_cudnn.h"

#include <dlfcn.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "base/lock.h"

#define LIBRARY "libcudnn.so.9"
#define MOST_DEVICES 64

typedef void *handle;
typedef void *descriptor;

enum { SUCCESS, FLOAT_DATA = 0, HALF_DATA = 2, BFLOAT16_DATA = 9 };
enum { CROSS_CORRELATION = 1 };

// Kinds of descriptors.
enum {
    CONVOLUTION = 1,
    ENGINE,
    ENGINECFG,
    ENGINEHEUR,
    EXECUTION_PLAN,
    OPERATION_CONVOLUTION_FORWARD = 10,
    OPERATIONGRAPH = 15,
    VARIANT_PACK,
    TENSOR
};

// Types of attributes.
enum {
    HANDLE = 0,
    DATA_TYPE = 1,
    INT64 = 3,
    FLOAT = 4,
    VOID_PTR = 6,
    CONVOLUTION_MODE = 7,
    HEUR_MODE = 8,
    NUMERICAL_NOTE = 11,
    BACKEND_DESCRIPTOR = 15
};

// Attributes.
enum {
    ATTR_CONVOLUTION_TYPE = 100,
    ATTR_CONVOLUTION_MODE,
    ATTR_CONVOLUTION_DILATIONS,
    ATTR_CONVOLUTION_STRIDES,
    ATTR_CONVOLUTION_POST_PADDINGS,
    ATTR_CONVOLUTION_PRE_PADDINGS,
    ATTR_CONVOLUTION_AXES,
    ATTR_HEURISTIC_MODE = 200,
    ATTR_HEURISTIC_GRAPH,
    ATTR_HEURISTIC_RESULTS,
    ATTR_CONFIG_ENGINE = 300,
    ATTR_PLAN_HANDLE = 400,
    ATTR_PLAN_CONFIG,
    ATTR_PLAN_WORKSPACE,
    ATTR_FORWARD_ALPHA = 700,
    ATTR_FORWARD_BETA,
    ATTR_FORWARD_CONVOLUTION,
    ATTR_FORWARD_W,
    ATTR_FORWARD_X,
    ATTR_FORWARD_Y,
    ATTR_GRAPH_HANDLE = 800,
    ATTR_GRAPH_OPERATIONS,
    ATTR_TENSOR_ALIGNMENT = 900,
    ATTR_TENSOR_TYPE,
    ATTR_TENSOR_DIMENSIONS,
    ATTR_TENSOR_STRIDES,
    ATTR_TENSOR_ID = 906,
    ATTR_PACK_IDS = 1000,
    ATTR_PACK_POINTERS,
    ATTR_PACK_WORKSPACE = 1003,
    ATTR_ENGINE_NOTE = 1303
};

// Properties of engines.
enum {
    NOTE_TENSOR_CORE,
    NOTE_DOWN_CONVERT_INPUTS,
    NOTE_REDUCED_PRECISION_REDUCTION,
    NOTE_FFT,
    NOTE_NONDETERMINISTIC,
    NOTE_WINOGRAD,
    NOTE_WINOGRAD_LAST = 8
};

// Heuristics, each of which proposes plans that others do not: fast, by a model, for everything,
// and what NVIDIA recommends. PyTorch tries ten of the first and of those for everything.
enum { HEURISTICS = 4 };
#define MOST_CONFIGS 64 // of each heuristic
#define MOST_TRIED 10   // of those in the precision that is asked for
#define MOST_NOTES 32   // of an engine

struct library {
    void *opened; // NULL: why not is in `reason`
    char reason[400];
    const char *(*error_string)(int code);
    int (*create)(handle *handle);
    int (*set_stream)(handle handle, void *stream);
    int (*make)(int kind, descriptor *made);
    int (*destroy)(descriptor made);
    int (*finalize)(descriptor made);
    int (*set)(descriptor of, int name, int type, int64_t count, const void *values);
    int (*get)(descriptor of, int name, int type, int64_t room, int64_t *count, void *values);
    int (*execute)(handle handle, descriptor plan, descriptor pack);
};

static struct library library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// cuDNN's state of each device, which one thread at a time may use. Kept until the process ends:
// making one takes a tenth of a second.
static struct device {
    struct conv_lock lock;
    handle handle; // protected by the lock
} devices[MOST_DEVICES];

// The tensors of a graph; the numbers are their identifiers, too.
enum tensor { SRC = 1, WEIGHTS, DST, TENSORS };

struct conv_cudnn_plan {
    struct device *device;
    descriptor plan, config; // the plan refers to the configuration
    int64_t workspace;
};

// --- loading -------------------------------------------------------------------------------------

// Opens the library of a folder, which may have * and ? in it.
static void *open_in(const char *folder)
{
    char pattern[PATH_MAX + 128];
    glob_t found;
    void *opened = NULL;
    snprintf(pattern, sizeof pattern, "%s/" LIBRARY, folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !opened; i++)
        opened = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return opened;
}

#define PACKAGES "lib/python3*/site-packages/nvidia/cudnn/lib"

// In one of these folders below `folder`.
static void *open_below(const char *folder, const char *const below[], size_t count)
{
    char path[PATH_MAX + 64];
    void *opened = NULL;
    for (size_t i = 0; folder && *folder && i < count && !opened; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, below[i]);
        opened = open_in(path);
    }
    return opened;
}

static void *open_anywhere(void)
{
    static const char *const in_toolkit[] = {"lib", "lib64"};
    // A program is in bin/ of an environment, a module in a package.
    static const char *const beside[] = {"../" PACKAGES, "../nvidia/cudnn/lib"};
    static const char *const packages[] = {PACKAGES};
    char program[PATH_MAX] = "", module[PATH_MAX] = "";
    Dl_info ours;
    const char *named = getenv("CONV_CUDNN");
    if (named && *named) {
        void *opened = open_in(named);
        return opened ? opened : dlopen(named, RTLD_NOW | RTLD_LOCAL);
    }
    if (dladdr((void *)&library, &ours) && ours.dli_fname)
        snprintf(module, sizeof module, "%s", ours.dli_fname);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        program[0] = '\0';
    void *opened = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); // also one that the process has
    if (!opened)
        opened = open_below(getenv("CUDNN_PATH"), in_toolkit, 2);
    if (!opened)
        opened = open_below(getenv("VIRTUAL_ENV"), packages, 1);
    if (!opened && strchr(module, '/'))
        opened = open_below(dirname(module), beside, 2);
    if (!opened && *program)
        opened = open_below(dirname(program), beside, 2);
    return opened;
}

static void load(void)
{
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"cudnnGetErrorString", &library.error_string},
        {"cudnnCreate", &library.create},
        {"cudnnSetStream", &library.set_stream},
        {"cudnnBackendCreateDescriptor", &library.make},
        {"cudnnBackendDestroyDescriptor", &library.destroy},
        {"cudnnBackendFinalize", &library.finalize},
        {"cudnnBackendSetAttribute", &library.set},
        {"cudnnBackendGetAttribute", &library.get},
        {"cudnnBackendExecute", &library.execute},
    };
    for (int i = 0; i < MOST_DEVICES; i++)
        (void)conv_lock_init(&devices[i].lock);
    void *opened = open_anywhere();
    const char *reason = opened ? NULL : dlerror();
    if (!opened) {
        snprintf(library.reason, sizeof library.reason, "cuDNN 9 was not found (%s)",
                 reason ? reason : LIBRARY);
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(opened, functions[i].name);
        if (!function) {
            snprintf(library.reason, sizeof library.reason, "cuDNN lacks %s", functions[i].name);
            return; // it stays open: its threads may run
        }
        memcpy(functions[i].place, &function, sizeof function);
    }
    library.opened = opened;
}

enum conv_status conv_cudnn_load(struct conv_err *err)
{
    (void)pthread_once(&once, load);
    return library.opened ? CONV_OK : conv_err_unsupported(err, "%s", library.reason);
}

static enum conv_status report(int code, enum conv_status status, struct conv_err *err)
{
    return code == SUCCESS ? CONV_OK
                           : conv_err_set(err, status, "cuDNN: %s", library.error_string(code));
}

// --- descriptors ---------------------------------------------------------------------------------

struct attribute {
    int name, type;
    int64_t count;
    const void *values;
};

// Makes a descriptor with these attributes; *made is to be destroyed also after a failure.
#define MAKE(KIND, MADE, ...)                                                                      \
    make(KIND, MADE, (const struct attribute[]){__VA_ARGS__},                                      \
         sizeof((const struct attribute[]){__VA_ARGS__}) / sizeof(struct attribute))

static int make(int kind, descriptor *made, const struct attribute *attributes, size_t count)
{
    int code = library.make(kind, made);
    for (size_t i = 0; i < count && !code; i++)
        code = library.set(*made, attributes[i].name, attributes[i].type, attributes[i].count,
                           attributes[i].values);
    return code ? code : library.finalize(*made);
}

static void destroy(descriptor *made)
{
    if (*made)
        (void)library.destroy(*made);
    *made = NULL;
}

// The parts of a graph.
struct graph {
    const struct conv_cudnn_problem *problem;
    struct device *device;
    descriptor tensors[TENSORS];
    descriptor convolution, operation, graph;
};

static void destroy_graph(struct graph *graph)
{
    destroy(&graph->graph);
    destroy(&graph->operation);
    destroy(&graph->convolution);
    for (int i = 0; i < TENSORS; i++)
        destroy(&graph->tensors[i]);
}

static int data_type(enum conv_element element)
{
    return element == CONV_ELEMENT_F16    ? HALF_DATA
           : element == CONV_ELEMENT_BF16 ? BFLOAT16_DATA
                                          : FLOAT_DATA;
}

// `sizes` in the order N, C, H, W.
static int make_tensor(struct graph *graph, enum tensor tensor, const int64_t sizes[4])
{
    bool last = graph->problem->channels_last;
    int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], last ? 1 : sizes[2] * sizes[3],
                          last ? sizes[3] * sizes[1] : sizes[3], last ? sizes[1] : 1};
    int64_t id = tensor, alignment = 16;
    int type = data_type(graph->problem->type);
    return MAKE(TENSOR, &graph->tensors[tensor], {ATTR_TENSOR_TYPE, DATA_TYPE, 1, &type},
                {ATTR_TENSOR_DIMENSIONS, INT64, 4, sizes}, {ATTR_TENSOR_STRIDES, INT64, 4, strides},
                {ATTR_TENSOR_ID, INT64, 1, &id}, {ATTR_TENSOR_ALIGNMENT, INT64, 1, &alignment});
}

static int make_tensors(struct graph *graph)
{
    const struct conv_layer *layer = graph->problem->layer;
    const struct conv_layer_shape *shape = &graph->problem->shape;
    const int64_t src[4] = {shape->images, layer->channels, shape->height, shape->width};
    const int64_t dst[4] = {shape->images, layer->maps, conv_layer_out_height(layer, shape->height),
                            conv_layer_out_width(layer, shape->width)};
    const int64_t weights[4] = {layer->maps, layer->channels / layer->groups, layer->kernel_height,
                                layer->kernel_width};
    int code = make_tensor(graph, SRC, src);
    if (!code)
        code = make_tensor(graph, WEIGHTS, weights);
    return code ? code : make_tensor(graph, DST, dst);
}

// A graph of one operation. With bias and ReLU in it there was no engine for tensors in NCHW.
static int make_graph(struct graph *graph)
{
    const struct conv_layer *layer = graph->problem->layer;
    const int64_t strides[2] = {layer->stride_y, layer->stride_x}, axes = 2;
    const int64_t dilations[2] = {layer->dilation_y, layer->dilation_x};
    const int64_t before[2] = {layer->pad_top, layer->pad_left};
    const int64_t after[2] = {layer->pad_bottom, layer->pad_right};
    const float one = 1, zero = 0;
    const int type = FLOAT_DATA, mode = CROSS_CORRELATION;
    int code = make_tensors(graph);
    if (!code)
        code = MAKE(CONVOLUTION, &graph->convolution, {ATTR_CONVOLUTION_TYPE, DATA_TYPE, 1, &type},
                    {ATTR_CONVOLUTION_MODE, CONVOLUTION_MODE, 1, &mode},
                    {ATTR_CONVOLUTION_AXES, INT64, 1, &axes},
                    {ATTR_CONVOLUTION_DILATIONS, INT64, 2, dilations},
                    {ATTR_CONVOLUTION_STRIDES, INT64, 2, strides},
                    {ATTR_CONVOLUTION_PRE_PADDINGS, INT64, 2, before},
                    {ATTR_CONVOLUTION_POST_PADDINGS, INT64, 2, after});
    if (!code)
        code = MAKE(OPERATION_CONVOLUTION_FORWARD, &graph->operation,
                    {ATTR_FORWARD_ALPHA, FLOAT, 1, &one}, {ATTR_FORWARD_BETA, FLOAT, 1, &zero},
                    {ATTR_FORWARD_CONVOLUTION, BACKEND_DESCRIPTOR, 1, &graph->convolution},
                    {ATTR_FORWARD_X, BACKEND_DESCRIPTOR, 1, &graph->tensors[SRC]},
                    {ATTR_FORWARD_W, BACKEND_DESCRIPTOR, 1, &graph->tensors[WEIGHTS]},
                    {ATTR_FORWARD_Y, BACKEND_DESCRIPTOR, 1, &graph->tensors[DST]});
    return code ? code
                : MAKE(OPERATIONGRAPH, &graph->graph,
                       {ATTR_GRAPH_OPERATIONS, BACKEND_DESCRIPTOR, 1, &graph->operation},
                       {ATTR_GRAPH_HANDLE, HANDLE, 1, &graph->device->handle});
}

// --- plans ---------------------------------------------------------------------------------------

// Whether an engine computes in the precision that is asked for.
static bool is_wanted(const struct conv_cudnn_problem *problem, descriptor config)
{
    int notes[MOST_NOTES];
    descriptor engine = NULL;
    int64_t count = 0;
    bool full = problem->type == CONV_ELEMENT_F32;
    int code = library.make(ENGINE, &engine);
    if (!code)
        code = library.get(config, ATTR_CONFIG_ENGINE, BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (!code)
        code = library.get(engine, ATTR_ENGINE_NOTE, NUMERICAL_NOTE, MOST_NOTES, &count, notes);
    destroy(&engine);
    for (int64_t i = 0; i < count && i < MOST_NOTES && !code; i++)
        if (notes[i] == NOTE_FFT || (notes[i] >= NOTE_WINOGRAD && notes[i] <= NOTE_WINOGRAD_LAST) ||
            notes[i] == NOTE_REDUCED_PRECISION_REDUCTION ||
            (full && notes[i] == NOTE_DOWN_CONVERT_INPUTS) ||
            (full && !problem->tf32 && notes[i] == NOTE_TENSOR_CORE))
            return false;
    return !code;
}

void conv_cudnn_plan_free(struct conv_cudnn_plan *plan)
{
    if (!plan)
        return;
    destroy(&plan->plan);
    destroy(&plan->config);
    free(plan);
}

size_t conv_cudnn_workspace(const struct conv_cudnn_plan *plan)
{
    return (size_t)plan->workspace;
}

// The plan of a configuration, which it takes over; NULL if there is none within the workspace.
static struct conv_cudnn_plan *make_plan(const struct graph *graph, descriptor *config,
                                         size_t most_workspace)
{
    struct conv_cudnn_plan *plan = calloc(1, sizeof *plan);
    int64_t count = 0;
    if (!plan)
        return NULL;
    plan->device = graph->device;
    plan->config = *config;
    *config = NULL;
    int code =
        MAKE(EXECUTION_PLAN, &plan->plan, {ATTR_PLAN_CONFIG, BACKEND_DESCRIPTOR, 1, &plan->config},
             {ATTR_PLAN_HANDLE, HANDLE, 1, &graph->device->handle});
    if (!code)
        code = library.get(plan->plan, ATTR_PLAN_WORKSPACE, INT64, 1, &count, &plan->workspace);
    if (!code && plan->workspace >= 0 && (uint64_t)plan->workspace <= most_workspace)
        return plan;
    conv_cudnn_plan_free(plan);
    return NULL;
}

// Of the plans that a heuristic proposes. The device's lock is held except while plans are timed.
static void try_heuristic(const struct graph *graph, int mode, size_t most_workspace,
                          conv_cudnn_time_fn time, void *context, struct conv_cudnn_plan **best,
                          double *best_ns, int *tried)
{
    descriptor heuristic = NULL, configs[MOST_CONFIGS] = {NULL};
    int64_t count = 0;
    conv_lock_acquire(&graph->device->lock);
    int code =
        MAKE(ENGINEHEUR, &heuristic, {ATTR_HEURISTIC_GRAPH, BACKEND_DESCRIPTOR, 1, &graph->graph},
             {ATTR_HEURISTIC_MODE, HEUR_MODE, 1, &mode});
    for (int i = 0; i < MOST_CONFIGS && !code; i++)
        code = library.make(ENGINECFG, &configs[i]);
    if (!code)
        code = library.get(heuristic, ATTR_HEURISTIC_RESULTS, BACKEND_DESCRIPTOR, MOST_CONFIGS,
                           &count, configs);
    int most = *tried + MOST_TRIED;
    for (int64_t i = 0; i < count && i < MOST_CONFIGS && *tried < most && !code; i++) {
        double ns = 0;
        struct conv_cudnn_plan *plan = is_wanted(graph->problem, configs[i])
                                           ? make_plan(graph, &configs[i], most_workspace)
                                           : NULL;
        conv_lock_release(&graph->device->lock);
        bool runs = plan && !time(context, plan, &ns);
        conv_lock_acquire(&graph->device->lock);
        if (plan)
            (void)cudaGetLastError(); // of a plan that did not work
        *tried += runs;
        if (runs && (*best_ns <= 0 || ns < *best_ns)) {
            struct conv_cudnn_plan *slower = *best;
            *best = plan;
            *best_ns = ns;
            plan = slower;
        }
        conv_cudnn_plan_free(plan);
    }
    for (int i = 0; i < MOST_CONFIGS; i++)
        destroy(&configs[i]);
    destroy(&heuristic);
    conv_lock_release(&graph->device->lock);
}

static enum conv_status open_device(struct device **out, struct conv_err *err)
{
    int ordinal;
    if (cudaGetDevice(&ordinal) != cudaSuccess || ordinal >= MOST_DEVICES)
        return conv_err_unsupported(err, "cuDNN is used on %d devices at most", MOST_DEVICES);
    struct device *device = *out = &devices[ordinal];
    conv_lock_acquire(&device->lock);
    int code = device->handle ? SUCCESS : library.create(&device->handle);
    if (code)
        device->handle = NULL;
    conv_lock_release(&device->lock);
    return report(code, CONV_ERR_UNSUPPORTED, err);
}

enum conv_status conv_cudnn_find(struct conv_cudnn_plan **plan, double *best, int *tried,
                                 const struct conv_cudnn_problem *problem, size_t most_workspace,
                                 conv_cudnn_time_fn time, void *context, struct conv_err *err)
{
    struct graph graph = {.problem = problem};
    int count = 0;
    enum conv_status status = conv_cudnn_load(err);
    if (!status)
        status = open_device(&graph.device, err);
    if (status)
        return status;
    conv_lock_acquire(&graph.device->lock);
    int code = make_graph(&graph);
    conv_lock_release(&graph.device->lock);
    if (!code) {
        for (int mode = HEURISTICS - 1; mode >= 0; mode--)
            try_heuristic(&graph, mode, most_workspace, time, context, plan, best, &count);
    }
    destroy_graph(&graph);
    if (tried)
        *tried += count;
    if (code)
        return report(code, CONV_ERR_UNSUPPORTED, err);
    return count ? CONV_OK : conv_err_unsupported(err, "cuDNN has no kernel for this layer");
}

enum conv_status conv_cudnn_run(const struct conv_cudnn_plan *plan,
                                const struct conv_cudnn_memory *memory, void *stream,
                                struct conv_err *err)
{
    const int64_t ids[3] = {SRC, WEIGHTS, DST};
    const void *const pointers[3] = {memory->src, memory->weights, memory->dst};
    struct device *device = plan->device;
    descriptor pack = NULL;
    conv_lock_acquire(&device->lock);
    int code = library.set_stream(device->handle, stream);
    if (!code)
        code = MAKE(VARIANT_PACK, &pack, {ATTR_PACK_IDS, INT64, 3, ids},
                    {ATTR_PACK_POINTERS, VOID_PTR, 3, pointers},
                    {ATTR_PACK_WORKSPACE, VOID_PTR, 1, &memory->workspace});
    if (!code)
        code = library.execute(device->handle, plan->plan, pack);
    destroy(&pack);
    conv_lock_release(&device->lock);
    return report(code, CONV_ERR_DEVICE, err);
}
