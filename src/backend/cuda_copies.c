// SPDX-License-Identifier: MIT
// Copies between pinned and device memory with nothing else going on: what the wire gives, against
// which the streams are measured.
#include "backend/cuda_internal.h"

#include "base/clock.h"

#define MOST_STREAMS 64
#define MOST_MEMORY ((size_t)256 << 20) // a side: more than caches hold

struct wire {
    uint8_t *h_in, *h_out, *d_in, *d_out;
    size_t bytes; // of each of them
    cudaStream_t in[MOST_STREAMS], out[MOST_STREAMS];
};

static void close_wire(struct wire *wire)
{
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (wire->in[i])
            (void)cudaStreamDestroy(wire->in[i]);
        if (wire->out[i])
            (void)cudaStreamDestroy(wire->out[i]);
    }
    (void)cudaFreeHost(wire->h_in);
    (void)cudaFreeHost(wire->h_out);
    (void)cudaFree(wire->d_in);
    (void)cudaFree(wire->d_out);
}

static cudaError_t open_wire(struct wire *wire, const struct conv_copy_test *test)
{
    size_t all = test->bytes * (size_t)test->count;
    wire->bytes = all < MOST_MEMORY ? all : MOST_MEMORY;
    if (wire->bytes < test->bytes)
        wire->bytes = test->bytes;
    cudaError_t code = cudaHostAlloc((void **)&wire->h_in, wire->bytes, cudaHostAllocDefault);
    if (!code)
        code = cudaHostAlloc((void **)&wire->h_out, wire->bytes, cudaHostAllocDefault);
    if (!code)
        code = cudaMalloc((void **)&wire->d_in, wire->bytes);
    if (!code)
        code = cudaMalloc((void **)&wire->d_out, wire->bytes);
    for (int i = 0; i < test->streams && !code; i++) {
        code = cudaStreamCreateWithFlags(&wire->in[i], cudaStreamNonBlocking);
        if (!code)
            code = cudaStreamCreateWithFlags(&wire->out[i], cudaStreamNonBlocking);
    }
    return code;
}

// The i-th copy of the test: queued, and with one_by_one waited for.
static cudaError_t copy(const struct wire *wire, const struct conv_copy_test *test, int i)
{
    size_t offset = (size_t)i % (wire->bytes / test->bytes) * test->bytes;
    bool back = test->way == CONV_COPY_AND_BACK;
    cudaStream_t in = wire->in[i % test->streams];
    cudaStream_t out = back ? in : wire->out[i % test->streams];
    cudaError_t code = cudaSuccess;
    if (test->way != CONV_COPY_OUT)
        code = cudaMemcpyAsync(wire->d_in + offset, wire->h_in + offset, test->bytes,
                               cudaMemcpyHostToDevice, in);
    if (!code && test->way != CONV_COPY_IN)
        code = cudaMemcpyAsync(wire->h_out + offset, (back ? wire->d_in : wire->d_out) + offset,
                               test->bytes, cudaMemcpyDeviceToHost, out);
    if (!code && test->one_by_one)
        code = cudaStreamSynchronize(in);
    return !code && test->one_by_one ? cudaStreamSynchronize(out) : code;
}

static cudaError_t copy_all(const struct wire *wire, const struct conv_copy_test *test)
{
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < test->count && !code; i++)
        code = copy(wire, test, i);
    for (int i = 0; i < test->streams && !code; i++) {
        code = cudaStreamSynchronize(wire->in[i]);
        if (!code)
            code = cudaStreamSynchronize(wire->out[i]);
    }
    return code;
}

enum conv_status conv_cuda_copies_time(struct conv_backend *backend,
                                       const struct conv_copy_test *test, uint64_t *ns,
                                       struct conv_err *err)
{
    struct wire wire = {0};
    enum conv_status status = conv_cuda_device_use(backend->device, err);
    if (status)
        return status;
    if (test->streams < 1 || test->streams > MOST_STREAMS || test->bytes == 0 || test->count < 1)
        return conv_err_set(err, CONV_ERR_USAGE, "no such test of copies");
    cudaError_t code = open_wire(&wire, test);
    if (!code)
        code = copy_all(&wire, test); // warms up
    for (int i = 0; i < test->repeats && !code; i++) {
        uint64_t start = conv_clock_ns();
        code = copy_all(&wire, test);
        uint64_t took = conv_clock_ns() - start;
        *ns = i == 0 || took < *ns ? took : *ns;
    }
    if (code)
        status = conv_cuda_device_report(err, code, "time copies");
    close_wire(&wire);
    return status;
}
