// SPDX-License-Identifier: MIT
// Layers that need not be exact, by cuDNN: each of its plans and the chosen kernel of ours are
// timed once for a shape, on memory that is taken for that, and the fastest is kept. What the plan
// does not do, padding with anything but zeros, other types of samples, bias and activation, is a
// pass before or after.
#include "kernels/layer/cuda/cuda_cudnn.h"

#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kernels/layer/cuda/cuda_layers.h"

#define ALIGN 256
// Of a plan, which may arrange input and result in another order there: 64 images of 256 x 256 with
// 64 channels take 2 GiB.
#define MOST_WORKSPACE ((size_t)4 << 30)
// Of a batch: sums of sizes fit a size_t, and cuDNN's strides 2^31.
#define MOST_IMAGES (1 << 24)
#define MOST_BYTES ((size_t)1 << 36)
// An own kernel is kept if it takes no more than this share of cuDNN's time: the difference of two
// runs is as large.
#define ENOUGH 1.02

const struct conv_layer_variant conv_cudnn_variant = {
    .name = "cuda_layer_cudnn",
    .summary = "NVIDIA's cuDNN, the fastest of its plans",
    .place = CONV_ON_CUDA,
};

// How a layer is given to cuDNN, and what is done around that.
struct way {
    struct conv_layer inner; // without pads if they are a pass before
    struct conv_layer_shape inner_shape;
    enum conv_element type; // of cuDNN's tensors
    bool tf32;
    bool converts; // pads and converts the input before
};

struct conv_library_layer {
    struct conv_layer layer;
    struct conv_layer_shape shape;
    bool gaps; // in the input
    struct way way;
    struct conv_cudnn_plan *plan;
    size_t in, sums;        // bytes of scratch: the converted input, sums of another type
    size_t packed, outputs; // bytes of converted weights; elements of the result
    void *d_weights;        // of the way's type
    void *d_bias;           // F32
};

static size_t align(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

// --- running it ----------------------------------------------------------------------------------

static struct conv_layer_finish finish_of(const struct conv_library_layer *cudnn)
{
    const struct conv_layer *layer = &cudnn->layer;
    int64_t plane = (int64_t)conv_layer_out_height(layer, cudnn->shape.height) *
                    conv_layer_out_width(layer, cudnn->shape.width);
    int64_t planes = cudnn->shape.images * layer->maps;
    return (struct conv_layer_finish){
        .planes = layer->channels_last ? 1 : planes,
        .plane = layer->channels_last ? planes * plane : plane,
        .maps = layer->maps,
        .last = layer->channels_last,
        .activation = layer->activation,
        .from = cudnn->way.type,
        .to = layer->output,
    };
}

// Rounds weights in device memory to the way's type.
static enum conv_status convert_weights(const struct conv_library_layer *cudnn, const float *d_from,
                                        void *d_to, void *stream)
{
    const struct conv_layer_finish rounding = {
        .planes = 1,
        .plane = (int64_t)conv_layer_taps(&cudnn->layer) * cudnn->layer.maps,
        .maps = 1,
        .from = CONV_ELEMENT_F32,
        .to = cudnn->way.type,
    };
    return conv_cuda_layer_finish(&rounding, d_from, d_to, stream);
}

static enum conv_status report(struct conv_err *err, cudaError_t code, const char *doing)
{
    return code ? conv_err_set(err, CONV_ERR_DEVICE, "cannot %s: %s", doing,
                               cudaGetErrorString(code))
                : CONV_OK;
}

static enum conv_status launched(enum conv_status status, struct conv_err *err)
{
    return status ? report(err, cudaGetLastError(), "start the layer's kernel") : CONV_OK;
}

static enum conv_status run(const struct conv_library_layer *cudnn,
                            const struct conv_cudnn_plan *plan,
                            const struct conv_layer_batch *batch, struct conv_err *err)
{
    const struct way *way = &cudnn->way;
    uint8_t *scratch = batch->scratch;
    void *sums = cudnn->sums ? scratch + cudnn->in : batch->dst;
    struct conv_cudnn_memory memory = {
        .src = way->converts ? scratch : batch->src,
        .weights = cudnn->layer.weights ? cudnn->d_weights : (const void *)batch->weights,
        .dst = sums,
        .workspace = scratch + cudnn->in + cudnn->sums,
    };
    enum conv_status status = CONV_OK;
    if (way->converts)
        status = conv_cuda_layer_pad(&cudnn->layer, &cudnn->shape, batch, scratch, way->type);
    if (!status && cudnn->packed && !cudnn->layer.weights) {
        status = convert_weights(cudnn, batch->weights, batch->packed, batch->stream);
        memory.weights = batch->packed;
    }
    status = launched(status, err);
    if (!status)
        status = conv_cudnn_run(plan, &memory, batch->stream, err);
    struct conv_layer_finish finish = finish_of(cudnn);
    finish.d_bias = cudnn->layer.weights ? cudnn->d_bias : batch->bias;
    bool nothing = !cudnn->sums && !finish.d_bias && finish.activation == CONV_ACTIVATION_NONE;
    if (status || nothing)
        return status;
    return launched(conv_cuda_layer_finish(&finish, sums, batch->dst, batch->stream), err);
}

enum conv_status conv_cudnn_layer_run(const struct conv_library_layer *cudnn,
                                      const struct conv_layer_batch *batch, struct conv_err *err)
{
    return run(cudnn, cudnn->plan, batch, err);
}

void conv_cudnn_layer_close(struct conv_library_layer *cudnn)
{
    (void)cudaFree(cudnn->d_weights); // nothing can be done about a failure
    (void)cudaFree(cudnn->d_bias);
    conv_cudnn_plan_free(cudnn->plan);
    free(cudnn);
}

void conv_cudnn_layer_sizes(const struct conv_library_layer *cudnn, size_t *scratch, size_t *packed)
{
    *scratch = cudnn->in + cudnn->sums + conv_cudnn_workspace(cudnn->plan);
    *packed = cudnn->layer.weights ? 0 : cudnn->packed;
}

// --- timing --------------------------------------------------------------------------------------

// What takes part in the choice, in device memory.
struct trial {
    const struct conv_cudnn_choice *choice;
    struct conv_library_layer *cudnn;
    struct conv_layer_batch batch;
    cudaStream_t stream;
    cudaEvent_t start, end;
    uint8_t *d_memory;
    size_t workspace; // bytes for plans
    double best;      // ns of the fastest plan so far, or 0
};

// A run of a plan, or of the own kernel without one.
static enum conv_status run_once(const struct trial *trial, const struct conv_cudnn_plan *plan)
{
    struct conv_err reason = {0};
    return plan ? run(trial->cudnn, plan, &trial->batch, &reason)
                : trial->choice->run_own(trial->choice->context, &trial->batch);
}

#define ENOUGH_NS 2e6 // of runs that are timed together
#define MOST_RUNS 20
#define FAR_FROM_BEST 3 // times as long: not timed again

// The time of `runs` runs in a row, of a graph if that can be made: so the time between launches of
// small kernels does not count, which depends on what else the host does.
static enum conv_status time_runs(const struct trial *trial, const struct conv_cudnn_plan *plan,
                                  int runs, double *ns)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    float ms = 0;
    enum conv_status status = CONV_OK;
    bool captured =
        cudaStreamBeginCapture(trial->stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
    for (int i = 0; captured && i < runs && !status; i++)
        status = run_once(trial, plan);
    if (captured)
        captured = cudaStreamEndCapture(trial->stream, &graph) == cudaSuccess && !status &&
                   cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess &&
                   cudaGraphLaunch(ready, trial->stream) == cudaSuccess;
    (void)cudaGetLastError();
    cudaError_t code = cudaEventRecord(trial->start, trial->stream);
    if (captured && !code)
        code = cudaGraphLaunch(ready, trial->stream);
    for (int i = 0; !captured && i < runs && !code && !status; i++)
        status = run_once(trial, plan);
    if (!code)
        code = cudaEventRecord(trial->end, trial->stream);
    if (!code)
        code = cudaEventSynchronize(trial->end);
    if (!code)
        code = cudaEventElapsedTime(&ms, trial->start, trial->end);
    if (ready)
        (void)cudaGraphExecDestroy(ready);
    if (graph)
        (void)cudaGraphDestroy(graph);
    *ns = (double)ms * 1e6 / runs;
    return code ? CONV_ERR_DEVICE : status;
}

static enum conv_status time_plan(void *context, const struct conv_cudnn_plan *plan, double *ns)
{
    const struct trial *trial = context;
    enum conv_status status = run_once(trial, plan); // loads what it needs
    if (!status)
        status = cudaStreamSynchronize(trial->stream) == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
    if (!status)
        status = time_runs(trial, plan, 1, ns);
    double more = *ns > 0 ? ENOUGH_NS / *ns : MOST_RUNS;
    if (status || more < 2 || (trial->best > 0 && *ns > FAR_FROM_BEST * trial->best))
        return status;
    return time_runs(trial, plan, more < MOST_RUNS ? (int)more : MOST_RUNS, ns);
}

// --- ways ----------------------------------------------------------------------------------------

static bool pads_zeros(const struct conv_layer *layer)
{
    bool padded = layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right;
    return !padded || (layer->border == CONV_BORDER_CONSTANT && layer->border_value == 0);
}

// The way of a type; false if cuDNN cannot take the layer like that.
static bool set_way(struct conv_library_layer *cudnn, enum conv_element type, bool converts)
{
    const struct conv_layer *layer = &cudnn->layer;
    struct conv_layer_plan padded = {.layer = *layer, .shape = cudnn->shape};
    if (converts && layer->channels_last)
        return false;
    if (converts)
        conv_layer_plan_pad(&padded);
    else if (layer->input != type || cudnn->gaps || !pads_zeros(layer))
        return false;
    cudnn->way = (struct way){
        .inner = padded.layer,
        .inner_shape = padded.shape,
        .type = type,
        .tf32 = layer->precision != CONV_PRECISION_FAST,
        .converts = converts,
    };
    size_t element = conv_element_size(type);
    cudnn->in = converts ? align((size_t)padded.shape.images * (size_t)layer->channels *
                                 (size_t)padded.shape.height * (size_t)padded.shape.width * element)
                         : 0;
    cudnn->sums = layer->output != type ? align(cudnn->outputs * element) : 0;
    cudnn->packed = type != CONV_ELEMENT_F32
                        ? align(conv_layer_taps(layer) * (size_t)layer->maps * element)
                        : 0;
    return true;
}

// The types that may compute a layer, the first of them without conversion if there is one.
static int types_of(const struct conv_layer *layer, enum conv_element types[2])
{
    enum conv_element half = layer->precision == CONV_PRECISION_BF16   ? CONV_ELEMENT_BF16
                             : layer->precision == CONV_PRECISION_FP16 ? CONV_ELEMENT_F16
                                                                       : CONV_ELEMENT_F32;
    types[0] = half;
    types[1] = CONV_ELEMENT_F32;
    bool only = half == CONV_ELEMENT_F32 || (layer->input == half && layer->output == half);
    return only ? 1 : 2;
}

// --- the choice ----------------------------------------------------------------------------------

static cudaError_t upload(void **d_data, const void *data, size_t bytes)
{
    cudaError_t code = cudaMalloc(d_data, bytes);
    return code ? code : cudaMemcpy(*d_data, data, bytes, cudaMemcpyHostToDevice);
}

// Weights and bias of cuDNN's own, in device memory.
static enum conv_status upload_weights(struct conv_library_layer *cudnn, struct conv_err *err)
{
    const struct conv_layer *layer = &cudnn->layer;
    size_t maps = (size_t)layer->maps, bytes = conv_layer_taps(layer) * maps * sizeof(float);
    void *d_weights = NULL;
    cudaError_t code = upload(&d_weights, layer->weights, bytes);
    if (!code && layer->bias)
        code = upload(&cudnn->d_bias, layer->bias, maps * sizeof(float));
    if (code || !cudnn->packed) {
        cudnn->d_weights = d_weights;
        return report(err, code, "copy the weights to the device");
    }
    code = cudaMalloc(&cudnn->d_weights, cudnn->packed);
    if (!code && convert_weights(cudnn, d_weights, cudnn->d_weights, NULL))
        code = cudaGetLastError();
    cudaError_t freed = cudaFree(d_weights); // after the conversion
    return report(err, code ? code : freed, "round the weights");
}

static void close_trial(struct trial *trial)
{
    (void)cudaFree(trial->d_memory);
    if (trial->start)
        (void)cudaEventDestroy(trial->start);
    if (trial->end)
        (void)cudaEventDestroy(trial->end);
    if (trial->stream)
        (void)cudaStreamDestroy(trial->stream);
}

// Memory for the layer's input, result, weights and bias, and for the scratch of every way.
static enum conv_status open_trial(struct trial *trial, const struct conv_cudnn_choice *choice)
{
    const struct conv_layer *layer = choice->layer;
    size_t images = (size_t)choice->shape.images, free_bytes = 0, total = 0;
    size_t in = align(choice->in * images + 16), out = align(choice->out * images);
    size_t weights = align((conv_layer_taps(layer) + 1) * (size_t)layer->maps * sizeof(float));
    struct conv_layer_plan padded = {.layer = *layer, .shape = choice->shape};
    conv_layer_plan_pad(&padded);
    size_t scratch = align(images * (size_t)layer->channels * (size_t)padded.shape.height *
                           (size_t)padded.shape.width * sizeof(float)) +
                     align(choice->out / conv_element_size(layer->output) * images * sizeof(float));
    if (scratch < choice->scratch + 16)
        scratch = align(choice->scratch + 16);
    size_t packed = align(choice->packed + weights);
    size_t fixed = in + out + 2 * weights + packed + scratch;
    cudaError_t code = cudaMemGetInfo(&free_bytes, &total);
    if (!code && fixed > free_bytes)
        code = cudaErrorMemoryAllocation;
    if (!code) {
        trial->workspace = (free_bytes - fixed) / 4 / ALIGN * ALIGN;
        if (trial->workspace > MOST_WORKSPACE)
            trial->workspace = MOST_WORKSPACE;
        code = cudaMalloc((void **)&trial->d_memory, fixed + trial->workspace);
    }
    if (!code)
        code = cudaStreamCreateWithFlags(&trial->stream, cudaStreamNonBlocking);
    if (!code)
        code = cudaEventCreate(&trial->start);
    if (!code)
        code = cudaEventCreate(&trial->end);
    // Small numbers of every type: multiplying zeros takes less power, and so less time.
    if (!code)
        code = cudaMemsetAsync(trial->d_memory, 0x3c, fixed, trial->stream);
    if (code) {
        (void)cudaGetLastError();
        return CONV_ERR_MEMORY;
    }
    uint8_t *at = trial->d_memory;
    int64_t row = choice->shape.width * (int64_t)conv_element_size(layer->input);
    trial->batch = (struct conv_layer_batch){
        .images = choice->shape.images,
        .src = at,
        .src_row = row,
        .src_plane = row * choice->shape.height,
        .src_image = row * choice->shape.height * layer->channels,
        .dst = at + in,
    };
    trial->batch.weights = (const float *)(at + in + out);
    trial->batch.bias = (const float *)(at + in + out + weights);
    trial->batch.packed = at + in + out + 2 * weights;
    trial->batch.scratch = at + in + out + 2 * weights + packed;
    trial->batch.stream = trial->stream;
    return CONV_OK;
}

// Searches all plans of a type. *found has the fastest one and its way.
static void search_type(struct trial *trial, enum conv_element type,
                        struct conv_library_layer *found, struct conv_err *reason)
{
    struct conv_library_layer *cudnn = trial->cudnn;
    int tried = 0;
    for (int converts = 0; converts < 2 && tried == 0; converts++) {
        double before = trial->best;
        if (!set_way(cudnn, type, converts))
            continue;
        struct conv_cudnn_problem problem = {
            .layer = &cudnn->way.inner,
            .shape = cudnn->way.inner_shape,
            .type = type,
            .tf32 = cudnn->way.tf32,
            .channels_last = cudnn->layer.channels_last,
        };
        (void)conv_cudnn_find(&found->plan, &trial->best, &tried, &problem, trial->workspace,
                              time_plan, trial, reason);
        if (trial->best != before) {
            struct conv_cudnn_plan *plan = found->plan;
            *found = *cudnn;
            found->plan = plan;
        }
    }
}

static enum conv_status search(struct trial *trial, struct conv_library_layer *found,
                               struct conv_err *err)
{
    enum conv_element types[2];
    double own = 0;
    int count = types_of(&trial->cudnn->layer, types);
    for (int i = 0; i < count; i++)
        search_type(trial, types[i], found, err);
    if (!found->plan)
        return CONV_ERR_UNSUPPORTED;
    if (trial->choice->forced || !trial->choice->own || time_plan(trial, NULL, &own))
        return CONV_OK;
    if (own <= ENOUGH * trial->best)
        return conv_err_unsupported(err, "%s takes %.3f ms, cuDNN %.3f", trial->choice->own,
                                    own / 1e6, trial->best / 1e6);
    return CONV_OK;
}

enum conv_status conv_cudnn_layer_open(struct conv_library_layer **out,
                                       const struct conv_cudnn_choice *choice, struct conv_err *err)
{
    const struct conv_layer_shape *shape = &choice->shape;
    enum conv_status status = conv_cudnn_load(err);
    if (status)
        return status;
    if (shape->images <= 0 || shape->images > MOST_IMAGES || choice->in > MOST_BYTES ||
        choice->out > MOST_BYTES)
        return conv_err_unsupported(err, "cuDNN is not used for such a batch");
    struct conv_library_layer *found = calloc(1, sizeof *found);
    struct conv_library_layer own = {
        .layer = *choice->layer,
        .shape = *shape,
        .gaps = choice->gaps,
        .outputs = choice->out / conv_element_size(choice->layer->output) * (size_t)shape->images,
    };
    struct trial trial = {.choice = choice, .cudnn = &own};
    if (!found)
        return conv_err_memory(err, "no memory for a layer");
    if (open_trial(&trial, choice))
        status = conv_err_unsupported(err, "too little memory is free to time cuDNN");
    own.d_weights = (void *)(uintptr_t)trial.batch.weights;
    own.d_bias = (void *)(uintptr_t)trial.batch.bias;
    if (!status)
        status = search(&trial, found, err);
    found->d_weights = found->d_bias = NULL;
    close_trial(&trial);
    if (!status && found->layer.weights)
        status = upload_weights(found, err);
    if (status)
        conv_cudnn_layer_close(found);
    else
        *out = found;
    return status;
}
