// SPDX-License-Identifier: MIT
// A CUDA device: work is timed with events on a stream of its own.
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "bench/bench_cuda.h"
#include "engine/cuda_device.h"
#include "kernels/ladder/ladder.h"
#include "kernels/layer/cuda/cuda_layers.h"
#include "kernels/stencil/cuda/cuda_variants.h"

#define FMA_NS 500000u // at least this long is measured

struct conv_bench_place {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *d_flush; // twice the level 2 cache
    size_t flush_bytes;
    int blocks; // of the multiply-adds
};

static enum conv_status cuda_open(struct conv_bench_place **result, int ordinal,
                                  struct conv_err *err)
{
    struct conv_bench_place *place = *result = calloc(1, sizeof *place);
    if (!place)
        return conv_err_memory(err, "no memory for the benchmark");
    int bytes = 0, processors = 0;
    cudaError_t code = cudaSetDevice(ordinal);
    if (!code)
        code = cudaStreamCreateWithFlags(&place->stream, cudaStreamNonBlocking);
    if (!code)
        code = cudaEventCreate(&place->start);
    if (!code)
        code = cudaEventCreate(&place->stop);
    if (!code)
        code = cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, ordinal);
    place->flush_bytes = 2 * (size_t)(bytes > 0 ? bytes : 1);
    if (!code)
        code = cudaMalloc(&place->d_flush, place->flush_bytes);
    if (!code)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal);
    place->blocks = 8 * processors;
    return conv_cuda_check(code, "prepare the benchmark", err);
}

// Failures to free are ignored: nothing can be done about them.
static void cuda_close(struct conv_bench_place *place)
{
    if (!place)
        return;
    (void)cudaFree(place->d_flush);
    if (place->start)
        (void)cudaEventDestroy(place->start);
    if (place->stop)
        (void)cudaEventDestroy(place->stop);
    if (place->stream)
        (void)cudaStreamDestroy(place->stream);
    (void)cudaGetLastError();
    free(place);
}

// --- memory --------------------------------------------------------------------------------------

static enum conv_status cuda_check_free(size_t bytes, const char *what, struct conv_err *err)
{
    size_t free = 0, total = 0;
    cudaError_t code = cudaMemGetInfo(&free, &total);
    if (!code && bytes > free / 16 * 15)
        return conv_err_limit(err, "%s%zu MiB of device memory are needed, of %zu MiB", what,
                              bytes >> 20, free >> 20);
    return conv_cuda_check(code, "read the free memory", err);
}

static enum conv_status cuda_take(uint8_t **memory, size_t bytes, const char *doing,
                                  struct conv_err *err)
{
    return conv_cuda_check(cudaMalloc((void **)memory, bytes ? bytes : 1), doing, err);
}

static void cuda_release(uint8_t *memory, size_t)
{
    (void)cudaFree(memory);
}

// Work is timed on a stream that does not wait for the default one. cudaMemcpy may return before
// the last bytes have arrived, unless it copies to the host.
static enum conv_status copy_and_wait(void *to, const void *from, size_t bytes,
                                      enum cudaMemcpyKind kind, const char *doing,
                                      struct conv_err *err)
{
    cudaError_t code = cudaMemcpy(to, from, bytes, kind);
    return conv_cuda_check(code ? code : cudaStreamSynchronize(NULL), doing, err);
}

static enum conv_status cuda_copy_in(uint8_t *to, const void *from, size_t bytes, const char *doing,
                                     struct conv_err *err)
{
    return copy_and_wait(to, from, bytes, cudaMemcpyHostToDevice, doing, err);
}

static enum conv_status cuda_copy_out(void *to, const uint8_t *from, size_t bytes,
                                      struct conv_err *err)
{
    return conv_cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost),
                           "copy the results from the device", err);
}

static enum conv_status cuda_move(uint8_t *to, const uint8_t *from, size_t bytes,
                                  struct conv_err *err)
{
    return copy_and_wait(to, from, bytes, cudaMemcpyDeviceToDevice, "copy within the device", err);
}

static enum conv_status cuda_upload_plan(struct conv_stencil_plan *plan, uint8_t *memory,
                                         struct conv_err *err)
{
    return conv_cuda_upload(plan, memory)
               ? conv_cuda_check(cudaGetLastError(), "prepare the filters", err)
               : CONV_OK;
}

// --- timed work ----------------------------------------------------------------------------------

// The flush also keeps the device busy while the host queues the work.
static enum conv_status time_work(struct conv_bench_place *place,
                                  const struct conv_bench_work *work, const char *doing,
                                  uint64_t *ns, struct conv_err *err)
{
    float ms = 0;
    cudaError_t code = cudaMemsetAsync(place->d_flush, 0, place->flush_bytes, place->stream);
    if (!code)
        code = cudaEventRecord(place->start, place->stream);
    if (!code && work->run(work->context, 0, 0, place->stream))
        code = cudaGetLastError();
    if (!code)
        code = cudaEventRecord(place->stop, place->stream);
    if (!code)
        code = cudaEventSynchronize(place->stop);
    if (!code)
        code = cudaEventElapsedTime(&ms, place->start, place->stop);
    *ns = (uint64_t)((double)ms * 1e6);
    return conv_cuda_check(code, doing, err);
}

static enum conv_status cuda_run(struct conv_bench_place *place, const struct conv_bench_work *work,
                                 uint64_t *ns, struct conv_err *err)
{
    char doing[96];
    snprintf(doing, sizeof doing, "launch kernel %s", work->name);
    return time_work(place, work, doing, ns, err);
}

struct queued {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    int blocks, turns;
};

static enum conv_status queue_copy(void *context, int, int, void *stream)
{
    const struct queued *copy = context;
    return cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyDeviceToDevice, stream)
               ? CONV_ERR_DEVICE
               : CONV_OK;
}

static enum conv_status cuda_copy(struct conv_bench_place *place, uint8_t *to, const uint8_t *from,
                                  size_t bytes, uint64_t *ns, struct conv_err *err)
{
    struct queued copy = {.to = to, .from = from, .bytes = bytes};
    struct conv_bench_work work = {.run = queue_copy, .context = &copy};
    return time_work(place, &work, "copy within the device", ns, err);
}

static enum conv_status queue_fma(void *context, int, int, void *stream)
{
    const struct queued *fma = context;
    return conv_cuda_ladder_fma((float *)(void *)fma->to, fma->blocks, fma->turns, stream);
}

// Doubles the work until it takes long enough.
static enum conv_status cuda_fma(struct conv_bench_place *place, uint8_t *out, double *flops,
                                 uint64_t *ns, struct conv_err *err)
{
    struct queued fma = {.to = out, .blocks = place->blocks};
    struct conv_bench_work work = {.run = queue_fma, .context = &fma};
    enum conv_status status = CONV_OK;
    *ns = 0;
    for (fma.turns = 16; *ns < FMA_NS && fma.turns < 1 << 20 && !status; fma.turns *= 2) {
        status = time_work(place, &work, "measure multiply-adds", ns, err);
        *flops = conv_cuda_ladder_fma_flops(fma.blocks, fma.turns);
    }
    return status;
}

static const struct conv_bench_place_ops place_ops = {
    .open = cuda_open,
    .close = cuda_close,
    .check_free = cuda_check_free,
    .take = cuda_take,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .move = cuda_move,
    .plan_bytes = conv_cuda_upload_bytes,
    .upload_plan = cuda_upload_plan,
    .run = cuda_run,
    .copy = cuda_copy,
    .fma = cuda_fma,
};

const struct conv_bench_cuda *conv_bench_cuda(void)
{
    static const struct conv_bench_cuda cuda = {
        .place = &place_ops,
        .pad = conv_cuda_layer_pad,
        .time_copies = conv_bench_cuda_time_copies,
        .time_cudnn = conv_bench_cuda_time_cudnn,
        .time_coding = conv_bench_cuda_time_coding,
    };
    return &cuda;
}
