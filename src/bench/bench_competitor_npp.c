// SPDX-License-Identifier: MIT
// NVIDIA Performance Primitives; the one file that includes NPP. One call per plane, since NPP
// takes only one at a time.
#include "bench/bench_competitor.h"

#include <nppi_filtering_functions.h>

#include "bench/bench_cuda_timer.h"
#include "image/image.h"

struct npp {
    struct conv_bench_timer timer;
    uint8_t *d_src, *d_dst;
    uint8_t *d_between; // two passes: the result of the first
    void *d_coefs;      // of the filter, or of its column and its row: Npp32s, or Npp32f
    Npp32s divisor;     // of the whole, or of the second pass
    Npp32s row_divisor;
    NppStreamContext context;
};

static enum conv_status open_context(struct npp *npp, int device, struct conv_err *err)
{
    NppStreamContext *context = &npp->context;
    struct cudaDeviceProp properties;
    cudaError_t code = conv_bench_timer_open(&npp->timer, device);
    if (!code)
        code = cudaGetDeviceProperties(&properties, device);
    if (!code)
        code = cudaStreamGetFlags(npp->timer.stream, &context->nStreamFlags);
    if (code)
        return conv_bench_timer_report(code, "prepare NPP", err);
    context->hStream = npp->timer.stream;
    context->nCudaDeviceId = device;
    context->nMultiProcessorCount = properties.multiProcessorCount;
    context->nMaxThreadsPerMultiProcessor = properties.maxThreadsPerMultiProcessor;
    context->nMaxThreadsPerBlock = properties.maxThreadsPerBlock;
    context->nSharedMemPerBlock = properties.sharedMemPerBlock;
    context->nCudaDevAttrComputeCapabilityMajor = properties.major;
    context->nCudaDevAttrComputeCapabilityMinor = properties.minor;
    return CONV_OK;
}

static enum conv_status upload(struct npp *npp, const void *coefs, size_t coef_bytes,
                               const uint8_t *source, size_t bytes, struct conv_err *err)
{
    cudaError_t code = cudaMalloc((void **)&npp->d_src, bytes);
    if (!code)
        code = cudaMalloc((void **)&npp->d_dst, bytes);
    if (!code)
        code = cudaMalloc(&npp->d_coefs, coef_bytes);
    if (!code)
        code = cudaMemcpy(npp->d_coefs, coefs, coef_bytes, cudaMemcpyHostToDevice);
    if (!code)
        code = cudaMemcpy(npp->d_src, source, bytes, cudaMemcpyHostToDevice);
    return conv_bench_timer_report(code, "prepare NPP", err);
}

// NPP rotates the kernel by 180 degrees, which a rotation here undoes.
static enum conv_status prepare(struct npp *npp, const struct conv_filter *filter,
                                const uint8_t *source, size_t bytes, struct conv_err *err)
{
    Npp32s coefs[CONV_FILTER_MAX_TAPS];
    int taps = filter->width * filter->height;
    for (int i = 0; i < taps; i++)
        coefs[i] = (Npp32s)filter->coef[taps - 1 - i];
    npp->divisor = (Npp32s)filter->scale;
    return upload(npp, coefs, (size_t)taps * sizeof *coefs, source, bytes, err);
}

static NppStatus filter_plane(const struct npp *npp, const struct conv_filter *filter,
                              const struct conv_bench_plane *plane)
{
    NppiSize kernel = {filter->width, filter->height}, size = {plane->width, plane->height};
    NppiPoint anchor = {filter->width / 2, filter->height / 2}, origin = {0, 0};
    int stride = (int)conv_image_stride(plane->width, 8);
    return nppiFilterBorder_8u_C1R_Ctx(
        npp->d_src + plane->offset, stride, size, origin, npp->d_dst + plane->offset, stride, size,
        npp->d_coefs, kernel, anchor, npp->divisor, NPP_BORDER_REPLICATE, npp->context);
}

// --- real filters --------------------------------------------------------------------------------

static enum conv_status prepare_real(struct npp *npp, const struct conv_filter *filter,
                                     const uint8_t *source, size_t bytes, struct conv_err *err)
{
    Npp32f coefs[CONV_FILTER_MAX_TAPS];
    int taps = filter->width * filter->height;
    for (int i = 0; i < taps; i++)
        coefs[i] = (Npp32f)(filter->coef[taps - 1 - i] / filter->scale);
    return upload(npp, coefs, (size_t)taps * sizeof *coefs, source, bytes, err);
}

static NppStatus filter_plane_real(const struct npp *npp, const struct conv_filter *filter,
                                   const struct conv_bench_plane *plane)
{
    NppiSize kernel = {filter->width, filter->height}, size = {plane->width, plane->height};
    NppiPoint anchor = {filter->width / 2, filter->height / 2}, origin = {0, 0};
    int stride = (int)conv_image_stride(plane->width, 8);
    return nppiFilterBorder32f_8u_C1R_Ctx(npp->d_src + plane->offset, stride, size, origin,
                                          npp->d_dst + plane->offset, stride, size, npp->d_coefs,
                                          kernel, anchor, NPP_BORDER_REPLICATE, npp->context);
}

// --- two passes ----------------------------------------------------------------------------------

static enum conv_status prepare_passes(struct npp *npp, const struct conv_filter *filter,
                                       const uint8_t *source, size_t bytes, struct conv_err *err)
{
    struct conv_stencil stencil;
    int32_t column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    Npp32s coefs[2 * CONV_FILTER_MAX_SIDE];
    int width = filter->width, height = filter->height;
    conv_stencil_init(&stencil, filter, 8, CONV_BORDER_REPLICATE, 0);
    if (!conv_stencil_factors(&stencil, column, row))
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "not a column times a row");
    for (int j = 0; j < height; j++)
        coefs[j] = column[height - 1 - j];
    for (int i = 0; i < width; i++) {
        coefs[height + i] = row[width - 1 - i];
        npp->row_divisor += row[i];
    }
    if (npp->row_divisor <= 0 || stencil.divisor % npp->row_divisor)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "the divisor is not a product of integers");
    npp->divisor = (Npp32s)(stencil.divisor / npp->row_divisor);
    cudaError_t code = cudaMalloc((void **)&npp->d_between, bytes);
    return code ? conv_bench_timer_report(code, "prepare NPP", err)
                : upload(npp, coefs, (size_t)(width + height) * sizeof *coefs, source, bytes, err);
}

static NppStatus filter_plane_passes(const struct npp *npp, const struct conv_filter *filter,
                                     const struct conv_bench_plane *plane)
{
    NppiSize size = {plane->width, plane->height};
    NppiPoint origin = {0, 0};
    int stride = (int)conv_image_stride(plane->width, 8);
    uint8_t *d_between = npp->d_between + plane->offset;
    NppStatus status = nppiFilterRowBorder_8u_C1R_Ctx(
        npp->d_src + plane->offset, stride, size, origin, d_between, stride, size,
        (const Npp32s *)npp->d_coefs + filter->height, filter->width, filter->width / 2,
        npp->row_divisor, NPP_BORDER_REPLICATE, npp->context);
    if (status < 0)
        return status;
    return nppiFilterColumnBorder_8u_C1R_Ctx(
        d_between, stride, size, origin, npp->d_dst + plane->offset, stride, size, npp->d_coefs,
        filter->height, filter->height / 2, npp->divisor, NPP_BORDER_REPLICATE, npp->context);
}

// --- all of them ---------------------------------------------------------------------------------

struct way {
    enum conv_status (*prepare)(struct npp *npp, const struct conv_filter *filter,
                                const uint8_t *source, size_t bytes, struct conv_err *err);
    NppStatus (*filter_plane)(const struct npp *npp, const struct conv_filter *filter,
                              const struct conv_bench_plane *plane);
};

static enum conv_status time_once(const struct npp *npp, const struct way *way,
                                  const struct conv_filter *filter,
                                  const struct conv_bench_plane *planes, int count, uint64_t *ns,
                                  struct conv_err *err)
{
    enum conv_status status =
        conv_bench_timer_report(conv_bench_timer_start(&npp->timer), "time NPP", err);
    for (int p = 0; p < count && !status; p++) {
        NppStatus code = way->filter_plane(npp, filter, &planes[p]);
        if (code < 0)
            status = conv_err_set(err, CONV_ERR_UNSUPPORTED, "NPP's status %d for %dx%d", (int)code,
                                  planes[p].width, planes[p].height);
    }
    if (!status)
        status = conv_bench_timer_report(conv_bench_timer_stop(&npp->timer, ns), "time NPP", err);
    return status;
}

// Failures to free are ignored: nothing can be done about them.
static void close_npp(struct npp *npp)
{
    (void)cudaFree(npp->d_src);
    (void)cudaFree(npp->d_dst);
    (void)cudaFree(npp->d_between);
    (void)cudaFree(npp->d_coefs);
    conv_bench_timer_close(&npp->timer);
}

static enum conv_status run(const struct way *way, const struct conv_competitor_filter *task,
                            uint64_t *ns, int runs, struct conv_err *err)
{
    const struct conv_filter *filter = task->filter;
    if (filter->offset != 0 || filter->scale < 0 || task->border != CONV_BORDER_REPLICATE ||
        task->depth != 8)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "NPP has no offset, 8 bits, replicate border");
    struct npp npp = {0};
    enum conv_status status = open_context(&npp, task->device, err);
    if (!status)
        status = way->prepare(&npp, filter, task->source, task->bytes, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_once(&npp, way, filter, task->planes, task->count, &ns[r < 0 ? 0 : r], err);
    if (!status)
        status = conv_bench_timer_report(
            cudaMemcpy(task->result, npp.d_dst, task->bytes, cudaMemcpyDeviceToHost),
            "copy NPP's results", err);
    close_npp(&npp);
    return status;
}

static enum conv_status filter_at_once(const struct conv_competitor_filter *task, uint64_t *ns,
                                       int runs, struct conv_err *err)
{
    static const struct way exact = {prepare, filter_plane},
                            real = {prepare_real, filter_plane_real};
    return run(conv_filter_is_exact(task->filter) ? &exact : &real, task, ns, runs, err);
}

static enum conv_status filter_in_passes(const struct conv_competitor_filter *task, uint64_t *ns,
                                         int runs, struct conv_err *err)
{
    static const struct way way = {prepare_passes, filter_plane_passes};
    return run(&way, task, ns, runs, err);
}

// nppiFilterBorder_8u_C1R, or nppiFilterBorder32f_8u_C1R for real filters.
const struct conv_competitor conv_competitor_npp = {
    .name = "NPP FilterBorder",
    .summary = "one call per plane",
    .inexact = "one call per plane; truncates, results differ by 1",
    .tolerance = 1,
    .filter = filter_at_once,
};

// nppiFilterRowBorder_8u_C1R, then nppiFilterColumnBorder_8u_C1R on its result, which is bytes.
const struct conv_competitor conv_competitor_npp_passes = {
    .name = "NPP Row and Column",
    .summary = "two calls per plane",
    .inexact = "two calls per plane; truncates twice, results differ by up to 2",
    .tolerance = 2,
    .filter = filter_in_passes,
};
