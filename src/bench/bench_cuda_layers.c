// SPDX-License-Identifier: MIT
// Layers on a CUDA device, timed with events on a stream of their own.
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_cuda_timer.h"
#include "bench/bench_layers.h"
#include "kernels/ladder/ladder.h"

#define ALIGN 256
#define FMA_NS 500000u // at least this long is measured

struct conv_bench_layers_place {
    const struct conv_bench_layers_data *data;
    struct conv_layer_plan *plan;
    struct conv_bench_timer timer;
    // Input and output in one piece, so that a copy can use half of both.
    uint8_t *d_in, *d_out;
    void *d_packed, *d_scratch;
    int blocks; // of the multiply-adds
};

static size_t align(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

// Checks the free memory first: a call of cudaMalloc that fails may take long, and one that
// succeeds may leave other processes too little.
static enum conv_status take(void **memory, size_t bytes, const char *what, struct conv_err *err)
{
    size_t free = 0, total = 0;
    *memory = NULL;
    cudaError_t code = cudaMemGetInfo(&free, &total);
    if (!code && bytes > free / 16 * 15)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "%s: %zu MiB of device memory are needed, of %zu MiB", what,
                            bytes >> 20, free >> 20);
    if (!code)
        code = cudaMalloc(memory, bytes ? bytes : 1);
    return conv_bench_timer_report(code, "allocate memory for a layer", err);
}

// Uploads the distinct images once and copies them on the device.
static cudaError_t fill_input(struct conv_bench_layers_place *place)
{
    const struct conv_bench_layers_data *data = place->data;
    size_t all = (size_t)data->shape.images * data->image_in * sizeof(float);
    size_t done = (size_t)data->distinct * data->image_in * sizeof(float);
    cudaError_t code = cudaMemcpy(place->d_in, data->input, done, cudaMemcpyHostToDevice);
    // Doubles the filled part: its images are a multiple of the distinct ones.
    for (size_t more; done < all && !code; done += more) {
        more = done < all - done ? done : all - done;
        code = cudaMemcpyAsync(place->d_in + done, place->d_in, more, cudaMemcpyDeviceToDevice,
                               place->timer.stream);
    }
    return code ? code : cudaStreamSynchronize(place->timer.stream);
}

static enum conv_status cuda_open(struct conv_bench_layers_place **result,
                                  const struct conv_bench_layers_data *data, int ordinal,
                                  struct conv_err *err)
{
    struct conv_bench_layers_place *place = *result = calloc(1, sizeof *place);
    if (!place)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    size_t in = align((size_t)data->shape.images * data->image_in * sizeof(float));
    size_t out = align((size_t)data->shape.images * data->image_out * sizeof(float));
    int processors = 0;
    void *memory = NULL;
    place->data = data;
    cudaError_t code = conv_bench_timer_open(&place->timer, ordinal);
    if (!code)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal);
    place->blocks = 8 * processors;
    enum conv_status status = conv_bench_timer_report(code, "prepare the benchmark", err);
    if (!status) // half of both is at most the second part
        status = take(&memory, in + (in > out ? in : out), "input and output", err);
    if (status)
        return status;
    place->d_in = memory;
    place->d_out = place->d_in + in;
    return conv_bench_timer_report(fill_input(place), "copy the input to the device", err);
}

static void cuda_close(struct conv_bench_layers_place *place)
{
    if (!place)
        return;
    (void)cudaFree(place->d_in);
    (void)cudaFree(place->d_packed);
    (void)cudaFree(place->d_scratch);
    conv_bench_timer_close(&place->timer);
    free(place);
}

static enum conv_status cuda_use(struct conv_bench_layers_place *place,
                                 struct conv_layer_plan *plan, struct conv_err *err)
{
    (void)cudaFree(place->d_packed);
    (void)cudaFree(place->d_scratch);
    place->d_packed = place->d_scratch = NULL;
    place->plan = plan;
    enum conv_status status = CONV_OK;
    if (plan->packed_bytes) {
        status = take(&place->d_packed, plan->packed_bytes, "weights", err);
        if (!status)
            status = conv_bench_timer_report(cudaMemcpy(place->d_packed, plan->packed,
                                                        plan->packed_bytes, cudaMemcpyHostToDevice),
                                             "copy the weights to the device", err);
        plan->d_packed = place->d_packed;
    }
    if (!status && plan->scratch)
        status = take(&place->d_scratch, plan->scratch, "scratch memory", err);
    return status;
}

static enum conv_status cuda_run(struct conv_bench_layers_place *place, int64_t images,
                                 uint64_t *ns, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = place->data;
    struct conv_layer_batch batch = {
        .images = images,
        .src = place->d_in,
        .src_row = (int64_t)sizeof(float) * data->shape.width,
        .src_plane = (int64_t)sizeof(float) * data->shape.width * data->shape.height,
        .src_image = (int64_t)(sizeof(float) * data->image_in),
        .dst = place->d_out,
        .rows = data->out_height,
        .scratch = place->d_scratch,
        .stream = place->timer.stream,
    };
    cudaError_t code = conv_bench_timer_start(&place->timer);
    if (!code && place->plan->variant->run(place->plan, &batch))
        code = cudaGetLastError();
    if (!code)
        code = conv_bench_timer_stop(&place->timer, ns);
    char doing[96];
    snprintf(doing, sizeof doing, "launch kernel %s", place->plan->variant->name);
    return conv_bench_timer_report(code, doing, err);
}

static enum conv_status cuda_read(struct conv_bench_layers_place *place, int64_t image, float *to,
                                  struct conv_err *err)
{
    size_t bytes = place->data->image_out * sizeof(float);
    return conv_bench_timer_report(
        cudaMemcpy(to, place->d_out + (size_t)image * bytes, bytes, cudaMemcpyDeviceToHost),
        "copy the results from the device", err);
}

static enum conv_status cuda_copy(struct conv_bench_layers_place *place, int64_t images,
                                  uint64_t *ns, struct conv_err *err)
{
    const struct conv_bench_layers_data *data = place->data;
    size_t in = align((size_t)data->shape.images * data->image_in * sizeof(float));
    size_t out = align((size_t)data->shape.images * data->image_out * sizeof(float));
    size_t end = in + (in > out ? in : out);
    size_t half = (size_t)(conv_bench_layers_bytes(data, (double)images) / 2);
    if (half > end / 2)
        half = end / 2; // the weights do not count
    half -= half % sizeof(float);
    cudaError_t code = conv_bench_timer_start(&place->timer);
    if (!code)
        code = cudaMemcpyAsync(place->d_in + end - half, place->d_in, half,
                               cudaMemcpyDeviceToDevice, place->timer.stream);
    if (!code)
        code = conv_bench_timer_stop(&place->timer, ns);
    return conv_bench_timer_report(code, "copy within the device", err);
}

// Doubles the work until it takes long enough.
static enum conv_status cuda_fma(struct conv_bench_layers_place *place, double *flops, uint64_t *ns,
                                 struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    *ns = 0;
    for (int turns = 16; *ns < FMA_NS && turns < 1 << 20 && !code; turns *= 2) {
        code = conv_bench_timer_start(&place->timer);
        if (!code &&
            conv_cuda_ladder_fma((float *)place->d_out, place->blocks, turns, place->timer.stream))
            code = cudaGetLastError();
        if (!code)
            code = conv_bench_timer_stop(&place->timer, ns);
        *flops = conv_cuda_ladder_fma_flops(place->blocks, turns);
    }
    return conv_bench_timer_report(code, "measure multiply-adds", err);
}

const struct conv_bench_layers_ops conv_bench_layers_cuda = {
    .open = cuda_open,
    .close = cuda_close,
    .use = cuda_use,
    .run = cuda_run,
    .read = cuda_read,
    .copy = cuda_copy,
    .fma = cuda_fma,
};
