// SPDX-License-Identifier: MIT
// A float32 product of matrices by cuBLAS, which `conv bench layers --network` shows beside layers
// of as many multiply-adds. The library is looked up at run time, without its header.
#include <dlfcn.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "bench/bench_cuda.h"
#include "bench/bench_layers.h"

#define MOST_VALUES ((int64_t)1 << 28) // of the m x k and the m x n values

struct conv_bench_cublas {
    void *library, *handle;
    // As cublas_v2.h declares them. The math mode of a new handle has no TF32.
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*sgemm)(void *handle, int transposed_a, int transposed_b, int m, int n, int k,
                 const float *alpha, const float *a, int lda, const float *b, int ldb,
                 const float *beta, float *c, int ldc);
    const struct conv_bench_place_ops *ops;
    struct conv_bench_place *place;
    // Of the product that is timed.
    int transposed, m, n, k, code;
    uint8_t *values[3]; // a, b, c
};

enum conv_status conv_bench_cublas_open(struct conv_bench_cublas **result, int ordinal,
                                        struct conv_err *err)
{
    static const char *const libraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    struct conv_bench_cublas *cublas = *result = calloc(1, sizeof *cublas);
    if (!cublas)
        return conv_err_memory(err, "no memory for cuBLAS");
    for (int i = 0; i < 3 && !cublas->library; i++)
        cublas->library = dlopen(libraries[i], RTLD_NOW);
    if (cublas->library) {
        *(void **)&cublas->create = dlsym(cublas->library, "cublasCreate_v2");
        *(void **)&cublas->destroy = dlsym(cublas->library, "cublasDestroy_v2");
        *(void **)&cublas->set_stream = dlsym(cublas->library, "cublasSetStream_v2");
        *(void **)&cublas->sgemm = dlsym(cublas->library, "cublasSgemm_v2");
    }
    cublas->ops = conv_bench_cuda()->place;
    bool found = cublas->create && cublas->destroy && cublas->set_stream && cublas->sgemm;
    if (found && !cublas->ops->open(&cublas->place, ordinal, err) &&
        !cublas->create(&cublas->handle))
        return CONV_OK;
    conv_bench_cublas_close(cublas);
    *result = NULL;
    return conv_err_unsupported(err, "%s cannot be used", libraries[0]);
}

void conv_bench_cublas_close(struct conv_bench_cublas *cublas)
{
    if (!cublas)
        return;
    if (cublas->handle)
        (void)cublas->destroy(cublas->handle);
    cublas->ops->close(cublas->place);
    if (cublas->library)
        (void)dlclose(cublas->library);
    free(cublas);
}

// c = a b, in the library's order of columns: m is adjacent in c, and in a or, transposed, k is.
static enum conv_status multiply(void *context, int, int, void *stream)
{
    struct conv_bench_cublas *cublas = context;
    const float one = 1, zero = 0, *a = (const float *)(void *)cublas->values[0];
    const float *b = (const float *)(void *)cublas->values[1];
    cublas->code = cublas->set_stream(cublas->handle, stream);
    if (!cublas->code)
        cublas->code =
            cublas->sgemm(cublas->handle, cublas->transposed, 0, cublas->m, cublas->n, cublas->k,
                          &one, a, cublas->transposed ? cublas->k : cublas->m, b, cublas->k, &zero,
                          (float *)(void *)cublas->values[2], cublas->m);
    return cublas->code ? CONV_ERR_UNSUPPORTED : CONV_OK;
}

static enum conv_status time_layout(struct conv_bench_cublas *cublas, int runs, double *ns,
                                    struct conv_err *err)
{
    struct conv_bench_work work = {.run = multiply, .context = cublas, .name = "of cuBLAS"};
    double times[CONV_BENCH_MOST_RUNS];
    enum conv_status status = CONV_OK;
    for (int r = -1; r < runs && !status && !cublas->code; r++) { // the first warms up
        uint64_t time;
        status = cublas->ops->run(cublas->place, &work, &time, err);
        times[r < 0 ? 0 : r] = (double)time;
    }
    *ns = conv_stat_median(times, runs);
    return cublas->code ? CONV_ERR_UNSUPPORTED : status;
}

// Memory with noise: zeros would be multiplied faster.
static enum conv_status take(struct conv_bench_cublas *cublas, int which, int64_t count,
                             struct conv_err *err)
{
    static const char doing[] = "allocate memory for cuBLAS";
    float noise[1 << 12];
    size_t bytes = (size_t)count * sizeof(float),
           done = bytes < sizeof noise ? bytes : sizeof noise;
    uint8_t **to = &cublas->values[which];
    uint32_t state = 3;
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        noise[i] = (float)(int32_t)conv_bench_random(&state) * 0x1p-31f;
    enum conv_status status = cublas->ops->take(to, bytes, doing, err);
    if (!status)
        status = cublas->ops->copy_in(*to, noise, done, doing, err);
    for (size_t more; done < bytes && !status; done += more) {
        more = done < bytes - done ? done : bytes - done;
        status = cublas->ops->move(*to + done, *to, more, err);
    }
    return status;
}

enum conv_status conv_bench_cublas_time(struct conv_bench_cublas *cublas, int64_t m, int64_t n,
                                        int64_t k, int runs, double *ns, struct conv_err *err)
{
    int64_t most = MOST_VALUES / (k > n ? k : n), part = m < most ? m : most;
    cublas->m = (int)part;
    cublas->n = (int)n;
    cublas->k = (int)k;
    double times[2] = {0};
    enum conv_status status = take(cublas, 0, part * k, err);
    if (!status)
        status = take(cublas, 1, k * n, err);
    if (!status)
        status = take(cublas, 2, part * n, err);
    for (cublas->transposed = 0; cublas->transposed < 2 && !status; cublas->transposed++)
        status = time_layout(cublas, runs, &times[cublas->transposed], err);
    *ns = (double)m / (double)part * (times[0] < times[1] ? times[0] : times[1]);
    for (int i = 0; i < 3; i++) {
        cublas->ops->release(cublas->values[i], 0);
        cublas->values[i] = NULL;
    }
    return status;
}
