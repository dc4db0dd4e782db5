// SPDX-License-Identifier: MIT
// The one file that includes NPP.
#include "cli/bench_npp.h"

#include <nppi_filtering_functions.h>

#include "cli/bench_timer.h"

struct npp {
    struct conv_bench_timer timer;
    uint8_t *d_src, *d_dst;
    Npp32s *d_coefs;
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
        return conv_bench_timer_report(code, err);
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

// NPP turns the kernel by 180 degrees, which turning it beforehand undoes.
static enum conv_status upload(struct npp *npp, const struct conv_filter *filter,
                               const uint8_t *source, size_t bytes, struct conv_err *err)
{
    Npp32s coefs[CONV_FILTER_MAX_TAPS];
    int taps = filter->width * filter->height;
    for (int i = 0; i < taps; i++)
        coefs[i] = (Npp32s)filter->coef[taps - 1 - i];
    size_t coef_bytes = (size_t)taps * sizeof *coefs;
    cudaError_t code = cudaMalloc((void **)&npp->d_src, bytes);
    if (!code)
        code = cudaMalloc((void **)&npp->d_dst, bytes);
    if (!code)
        code = cudaMalloc((void **)&npp->d_coefs, coef_bytes);
    if (!code)
        code = cudaMemcpy(npp->d_coefs, coefs, coef_bytes, cudaMemcpyHostToDevice);
    if (!code)
        code = cudaMemcpy(npp->d_src, source, bytes, cudaMemcpyHostToDevice);
    return conv_bench_timer_report(code, err);
}

static enum conv_status filter_planes(const struct npp *npp, const struct conv_filter *filter,
                                      const struct conv_group_plane *planes, int count,
                                      struct conv_err *err)
{
    NppiSize kernel = {filter->width, filter->height};
    NppiPoint anchor = {filter->width / 2, filter->height / 2}, origin = {0, 0};
    for (int p = 0; p < count; p++) {
        int stride = (int)conv_image_stride(planes[p].width, planes[p].depth);
        NppiSize size = {planes[p].width, planes[p].height};
        NppStatus status = nppiFilterBorder_8u_C1R_Ctx(
            npp->d_src + planes[p].offset, stride, size, origin, npp->d_dst + planes[p].offset,
            stride, size, npp->d_coefs, kernel, anchor, (Npp32s)filter->scale, NPP_BORDER_REPLICATE,
            npp->context);
        if (status < 0)
            return conv_err_set(err, CONV_ERR_UNSUPPORTED, "NPP's status %d for %dx%d", (int)status,
                                size.width, size.height);
    }
    return CONV_OK;
}

static enum conv_status time_once(const struct npp *npp, const struct conv_filter *filter,
                                  const struct conv_group_plane *planes, int count, uint64_t *ns,
                                  struct conv_err *err)
{
    enum conv_status status = conv_bench_timer_report(conv_bench_timer_start(&npp->timer), err);
    if (!status)
        status = filter_planes(npp, filter, planes, count, err);
    if (!status)
        status = conv_bench_timer_report(conv_bench_timer_stop(&npp->timer, ns), err);
    return status;
}

// Nothing can be done about a failure to free.
static void close_npp(struct npp *npp)
{
    (void)cudaFree(npp->d_src);
    (void)cudaFree(npp->d_dst);
    (void)cudaFree(npp->d_coefs);
    conv_bench_timer_close(&npp->timer);
}

enum conv_status conv_bench_npp(const struct conv_filter *filter, enum conv_border border,
                                const struct conv_group_plane *planes, int count,
                                const uint8_t *source, uint8_t *result, size_t bytes, int device,
                                uint64_t *ns, int runs, struct conv_err *err)
{
    if (!conv_filter_is_exact(filter) || filter->offset != 0 || filter->scale < 0 ||
        border != CONV_BORDER_REPLICATE || planes[0].depth != 8)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "NPP has integers without offset, 8 bits, replicate border");
    struct npp npp = {0};
    enum conv_status status = open_context(&npp, device, err);
    if (!status)
        status = upload(&npp, filter, source, bytes, err);
    if (!status) // warms up
        status = time_once(&npp, filter, planes, count, ns, err);
    for (int r = 0; r < runs && !status; r++)
        status = time_once(&npp, filter, planes, count, &ns[r], err);
    if (!status)
        status = conv_bench_timer_report(
            cudaMemcpy(result, npp.d_dst, bytes, cudaMemcpyDeviceToHost), err);
    close_npp(&npp);
    return status;
}
