// SPDX-License-Identifier: MIT
// The one file that includes NPP.
#include "cli/bench_npp.h"

#include <cuda_runtime_api.h>
#include <nppi_filtering_functions.h>

struct npp {
    uint8_t *d_src, *d_dst, *d_flush;
    size_t flush_bytes;
    Npp32s *d_coefs;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    NppStreamContext context;
};

static enum conv_status report(cudaError_t code, struct conv_err *err)
{
    if (code == cudaSuccess)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_DEVICE, "CUDA failed: %s", cudaGetErrorString(code));
}

static enum conv_status open_context(struct npp *npp, int device, struct conv_err *err)
{
    NppStreamContext *context = &npp->context;
    struct cudaDeviceProp properties;
    cudaError_t code = cudaSetDevice(device);
    if (!code)
        code = cudaGetDeviceProperties(&properties, device);
    if (!code)
        code = cudaStreamCreateWithFlags(&npp->stream, cudaStreamNonBlocking);
    if (!code)
        code = cudaEventCreate(&npp->start);
    if (!code)
        code = cudaEventCreate(&npp->stop);
    if (!code)
        code = cudaStreamGetFlags(npp->stream, &context->nStreamFlags);
    if (code)
        return report(code, err);
    context->hStream = npp->stream;
    context->nCudaDeviceId = device;
    context->nMultiProcessorCount = properties.multiProcessorCount;
    context->nMaxThreadsPerMultiProcessor = properties.maxThreadsPerMultiProcessor;
    context->nMaxThreadsPerBlock = properties.maxThreadsPerBlock;
    context->nSharedMemPerBlock = properties.sharedMemPerBlock;
    context->nCudaDevAttrComputeCapabilityMajor = properties.major;
    context->nCudaDevAttrComputeCapabilityMinor = properties.minor;
    npp->flush_bytes = 2 * (size_t)(properties.l2CacheSize > 0 ? properties.l2CacheSize : 1);
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
        code = cudaMalloc((void **)&npp->d_flush, npp->flush_bytes);
    if (!code)
        code = cudaMalloc((void **)&npp->d_coefs, coef_bytes);
    if (!code)
        code = cudaMemcpy(npp->d_coefs, coefs, coef_bytes, cudaMemcpyHostToDevice);
    if (!code)
        code = cudaMemcpy(npp->d_src, source, bytes, cudaMemcpyHostToDevice);
    return report(code, err);
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
    float ms = 0;
    cudaError_t code = cudaMemsetAsync(npp->d_flush, 0, npp->flush_bytes, npp->stream);
    if (!code)
        code = cudaEventRecord(npp->start, npp->stream);
    enum conv_status status = report(code, err);
    if (!status)
        status = filter_planes(npp, filter, planes, count, err);
    if (status)
        return status;
    code = cudaEventRecord(npp->stop, npp->stream);
    if (!code)
        code = cudaEventSynchronize(npp->stop);
    if (!code)
        code = cudaEventElapsedTime(&ms, npp->start, npp->stop);
    *ns = (uint64_t)((double)ms * 1e6);
    return report(code, err);
}

// Nothing can be done about a failure to free.
static void close_npp(struct npp *npp)
{
    (void)cudaFree(npp->d_src);
    (void)cudaFree(npp->d_dst);
    (void)cudaFree(npp->d_flush);
    (void)cudaFree(npp->d_coefs);
    if (npp->start)
        (void)cudaEventDestroy(npp->start);
    if (npp->stop)
        (void)cudaEventDestroy(npp->stop);
    if (npp->stream)
        (void)cudaStreamDestroy(npp->stream);
    (void)cudaGetLastError();
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
        status = report(cudaMemcpy(result, npp.d_dst, bytes, cudaMemcpyDeviceToHost), err);
    close_npp(&npp);
    return status;
}
