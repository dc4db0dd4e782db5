// SPDX-License-Identifier: MIT
#include "bench/bench_cuda_timer.h"

#include "engine/cuda_device.h"

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
