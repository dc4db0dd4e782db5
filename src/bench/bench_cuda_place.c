// SPDX-License-Identifier: MIT
// A CUDA device: work is timed with events on a stream of its own.
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_cuda.h"
#include "bench/bench_cuda_timer.h"
#include "engine/cuda_device.h"
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/cuda_variants.h"

#define FMA_NS 500000u // at least this long is measured

struct conv_bench_place {
    struct conv_bench_timer timer;
    int blocks; // of the multiply-adds
};

// --- the timer -----------------------------------------------------------------------------------

cudaError_t conv_bench_timer_open(struct conv_bench_timer *timer, int device)
{
    int bytes = 0;
    cudaError_t code = cudaSetDevice(device);
    if (!code)
        code = cudaStreamCreateWithFlags(&timer->stream, cudaStreamNonBlocking);
    if (!code)
        code = cudaEventCreate(&timer->start);
    if (!code)
        code = cudaEventCreate(&timer->stop);
    if (!code)
        code = cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device);
    timer->flush_bytes = 2 * (size_t)(bytes > 0 ? bytes : 1);
    return code ? code : cudaMalloc(&timer->d_flush, timer->flush_bytes);
}

// Failures to free are ignored: nothing can be done about them.
void conv_bench_timer_close(struct conv_bench_timer *timer)
{
    (void)cudaFree(timer->d_flush);
    if (timer->start)
        (void)cudaEventDestroy(timer->start);
    if (timer->stop)
        (void)cudaEventDestroy(timer->stop);
    if (timer->stream)
        (void)cudaStreamDestroy(timer->stream);
    (void)cudaGetLastError();
}

cudaError_t conv_bench_timer_start(const struct conv_bench_timer *timer)
{
    cudaError_t code = cudaMemsetAsync(timer->d_flush, 0, timer->flush_bytes, timer->stream);
    return code ? code : cudaEventRecord(timer->start, timer->stream);
}

cudaError_t conv_bench_timer_stop(const struct conv_bench_timer *timer, uint64_t *ns)
{
    float ms = 0;
    cudaError_t code = cudaEventRecord(timer->stop, timer->stream);
    if (!code)
        code = cudaEventSynchronize(timer->stop);
    if (!code)
        code = cudaEventElapsedTime(&ms, timer->start, timer->stop);
    *ns = (uint64_t)((double)ms * 1e6);
    return code;
}

enum conv_status conv_bench_timer_report(cudaError_t code, const char *doing, struct conv_err *err)
{
    return code ? conv_cuda_device_report(err, code, doing) : CONV_OK;
}

// --- memory --------------------------------------------------------------------------------------

static enum conv_status cuda_open(struct conv_bench_place **result, int ordinal,
                                  struct conv_err *err)
{
    struct conv_bench_place *place = *result = calloc(1, sizeof *place);
    if (!place)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    int processors = 0;
    cudaError_t code = conv_bench_timer_open(&place->timer, ordinal);
    if (!code)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal);
    place->blocks = 8 * processors;
    return conv_bench_timer_report(code, "prepare the benchmark", err);
}

static void cuda_close(struct conv_bench_place *place)
{
    if (!place)
        return;
    conv_bench_timer_close(&place->timer);
    free(place);
}

static enum conv_status cuda_check_free(size_t bytes, const char *what, struct conv_err *err)
{
    size_t free = 0, total = 0;
    cudaError_t code = cudaMemGetInfo(&free, &total);
    if (!code && bytes > free / 16 * 15)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "%s: %zu MiB of device memory are needed, of %zu MiB", what,
                            bytes >> 20, free >> 20);
    return conv_bench_timer_report(code, "read the free memory", err);
}

static enum conv_status cuda_take(uint8_t **memory, size_t bytes, const char *doing,
                                  struct conv_err *err)
{
    return conv_bench_timer_report(cudaMalloc((void **)memory, bytes ? bytes : 1), doing, err);
}

static void cuda_release(uint8_t *memory, size_t bytes)
{
    (void)bytes;
    (void)cudaFree(memory);
}

static enum conv_status cuda_copy_in(uint8_t *to, const void *from, size_t bytes, const char *doing,
                                     struct conv_err *err)
{
    return conv_bench_timer_report(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), doing, err);
}

static enum conv_status cuda_copy_out(void *to, const uint8_t *from, size_t bytes,
                                      struct conv_err *err)
{
    return conv_bench_timer_report(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost),
                                   "copy the results from the device", err);
}

static enum conv_status cuda_move(uint8_t *to, const uint8_t *from, size_t bytes,
                                  struct conv_err *err)
{
    return conv_bench_timer_report(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice),
                                   "copy within the device", err);
}

static enum conv_status cuda_upload_plan(struct conv_stencil_plan *plan, uint8_t *memory,
                                         struct conv_err *err)
{
    return conv_cuda_upload(plan, memory)
               ? conv_bench_timer_report(cudaGetLastError(), "prepare the filters", err)
               : CONV_OK;
}

// --- timed work ----------------------------------------------------------------------------------

static enum conv_status cuda_run(struct conv_bench_place *place, const struct conv_bench_work *work,
                                 uint64_t *ns, struct conv_err *err)
{
    cudaError_t code = conv_bench_timer_start(&place->timer);
    if (!code && work->run(work->context, 0, 0, place->timer.stream))
        code = cudaGetLastError();
    if (!code)
        code = conv_bench_timer_stop(&place->timer, ns);
    char doing[96];
    snprintf(doing, sizeof doing, "launch kernel %s", work->name);
    return conv_bench_timer_report(code, doing, err);
}

static enum conv_status cuda_copy(struct conv_bench_place *place, uint8_t *to, const uint8_t *from,
                                  size_t bytes, uint64_t *ns, struct conv_err *err)
{
    cudaError_t code = conv_bench_timer_start(&place->timer);
    if (!code)
        code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, place->timer.stream);
    if (!code)
        code = conv_bench_timer_stop(&place->timer, ns);
    return conv_bench_timer_report(code, "copy within the device", err);
}

// Doubles the work until it takes long enough.
static enum conv_status cuda_fma(struct conv_bench_place *place, uint8_t *out, double *flops,
                                 uint64_t *ns, struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    *ns = 0;
    for (int turns = 16; *ns < FMA_NS && turns < 1 << 20 && !code; turns *= 2) {
        code = conv_bench_timer_start(&place->timer);
        if (!code &&
            conv_cuda_ladder_fma((float *)(void *)out, place->blocks, turns, place->timer.stream))
            code = cudaGetLastError();
        if (!code)
            code = conv_bench_timer_stop(&place->timer, ns);
        *flops = conv_cuda_ladder_fma_flops(place->blocks, turns);
    }
    return conv_bench_timer_report(code, "measure multiply-adds", err);
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
        .time_copies = conv_bench_cuda_time_copies,
        .time_coding = conv_bench_cuda_time_coding,
    };
    return &cuda;
}
