// SPDX-License-Identifier: MIT
// Copies between pinned and device memory with nothing else in progress: the speed of the link,
// with which streams are compared.
#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "bench/bench_cuda.h"
#include "engine/cuda_device.h"

#define MOST_STREAMS 64
#define MOST_MEMORY ((size_t)256 << 20) // a side: more than caches hold

struct link {
    uint8_t *h_in, *h_out, *d_in, *d_out;
    size_t bytes; // of each of them
    cudaStream_t in[MOST_STREAMS], out[MOST_STREAMS];
};

static void close_link(struct link *link)
{
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (link->in[i])
            (void)cudaStreamDestroy(link->in[i]);
        if (link->out[i])
            (void)cudaStreamDestroy(link->out[i]);
    }
    (void)cudaFreeHost(link->h_in);
    (void)cudaFreeHost(link->h_out);
    (void)cudaFree(link->d_in);
    (void)cudaFree(link->d_out);
}

static cudaError_t open_link(struct link *link, const struct conv_copy_test *test)
{
    size_t all = test->bytes * (size_t)test->count;
    link->bytes = all < MOST_MEMORY ? all : MOST_MEMORY;
    if (link->bytes < test->bytes)
        link->bytes = test->bytes;
    cudaError_t code = cudaHostAlloc((void **)&link->h_in, link->bytes, cudaHostAllocDefault);
    if (!code)
        code = cudaHostAlloc((void **)&link->h_out, link->bytes, cudaHostAllocDefault);
    if (!code)
        code = cudaMalloc((void **)&link->d_in, link->bytes);
    if (!code)
        code = cudaMalloc((void **)&link->d_out, link->bytes);
    for (int i = 0; i < test->streams && !code; i++) {
        code = cudaStreamCreateWithFlags(&link->in[i], cudaStreamNonBlocking);
        if (!code)
            code = cudaStreamCreateWithFlags(&link->out[i], cudaStreamNonBlocking);
    }
    return code;
}

// Queues the i-th copy of the test and, if one_by_one, waits for it.
static cudaError_t copy(const struct link *link, const struct conv_copy_test *test, int i)
{
    size_t offset = (size_t)i % (link->bytes / test->bytes) * test->bytes;
    bool back = test->way == CONV_COPY_AND_BACK;
    cudaStream_t in = link->in[i % test->streams];
    cudaStream_t out = back ? in : link->out[i % test->streams];
    cudaError_t code = cudaSuccess;
    if (test->way != CONV_COPY_OUT)
        code = cudaMemcpyAsync(link->d_in + offset, link->h_in + offset, test->bytes,
                               cudaMemcpyHostToDevice, in);
    if (!code && test->way != CONV_COPY_IN)
        code = cudaMemcpyAsync(link->h_out + offset, (back ? link->d_in : link->d_out) + offset,
                               test->bytes, cudaMemcpyDeviceToHost, out);
    if (!code && test->one_by_one)
        code = cudaStreamSynchronize(in);
    return !code && test->one_by_one ? cudaStreamSynchronize(out) : code;
}

static cudaError_t copy_all(const struct link *link, const struct conv_copy_test *test)
{
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < test->count && !code; i++)
        code = copy(link, test, i);
    for (int i = 0; i < test->streams && !code; i++) {
        code = cudaStreamSynchronize(link->in[i]);
        if (!code)
            code = cudaStreamSynchronize(link->out[i]);
    }
    return code;
}

enum conv_status conv_bench_cuda_time_copies(int ordinal, const struct conv_copy_test *test,
                                             uint64_t *ns, struct conv_err *err)
{
    struct link link = {0};
    if (test->streams < 1 || test->streams > MOST_STREAMS || test->bytes == 0 || test->count < 1)
        return conv_err_usage(err, "no such test of copies");
    cudaError_t code = cudaSetDevice(ordinal);
    if (!code)
        code = open_link(&link, test);
    if (!code)
        code = copy_all(&link, test); // warms up
    for (int i = 0; i < test->repeats && !code; i++) {
        uint64_t start = conv_clock_ns();
        code = copy_all(&link, test);
        uint64_t took = conv_clock_ns() - start;
        *ns = i == 0 || took < *ns ? took : *ns;
    }
    close_link(&link);
    return code ? conv_cuda_device_report(err, code, "time copies") : CONV_OK;
}
