// SPDX-License-Identifier: MIT
// NVIDIA Performance Primitives; the one file that includes NPP. One call per plane, since NPP
// takes only one at a time.
#include "bench/bench_competitor.h"

#include <cuda_runtime_api.h>
#include <nppi_filtering_functions.h>

#include "bench/bench_cuda.h"
#include "engine/cuda_device.h"
#include "image/image.h"

struct npp {
    const struct conv_competitor_filter *task;
    enum { INTEGERS, REALS, PASSES } way;
    uint8_t *d_src, *d_dst;
    uint8_t *d_between; // PASSES: the result of the first
    uint8_t *d_coefs;   // of the filter, or of its column and its row: Npp32s, or Npp32f
    Npp32s divisor;     // of the whole, or of the second pass
    Npp32s row_divisor;
    NppStreamContext context;
    NppStatus status;                     // of the call that failed
    const struct conv_bench_plane *plane; // of that call
};

static enum conv_status set_context(NppStreamContext *context, int device, struct conv_err *err)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code)
        return conv_cuda_device_report(err, code, "prepare NPP");
    context->nStreamFlags = cudaStreamNonBlocking;
    context->nCudaDeviceId = device;
    context->nMultiProcessorCount = properties.multiProcessorCount;
    context->nMaxThreadsPerMultiProcessor = properties.maxThreadsPerMultiProcessor;
    context->nMaxThreadsPerBlock = properties.maxThreadsPerBlock;
    context->nSharedMemPerBlock = properties.sharedMemPerBlock;
    context->nCudaDevAttrComputeCapabilityMajor = properties.major;
    context->nCudaDevAttrComputeCapabilityMinor = properties.minor;
    return CONV_OK;
}

// --- coefficients --------------------------------------------------------------------------------

union coefs {
    Npp32s integers[CONV_FILTER_MAX_TAPS + 2 * CONV_FILTER_MAX_SIDE];
    Npp32f reals[CONV_FILTER_MAX_TAPS];
};

static enum conv_status set_passes(struct npp *npp, union coefs *coefs, struct conv_err *err)
{
    const struct conv_filter *filter = npp->task->filter;
    struct conv_stencil stencil;
    int32_t column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    int width = filter->width, height = filter->height;
    conv_stencil_init(&stencil, filter, 8, CONV_BORDER_REPLICATE, 0);
    if (!conv_stencil_factors(&stencil, column, row))
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "not a column times a row");
    for (int j = 0; j < height; j++)
        coefs->integers[j] = column[height - 1 - j];
    for (int i = 0; i < width; i++) {
        coefs->integers[height + i] = row[width - 1 - i];
        npp->row_divisor += row[i];
    }
    if (npp->row_divisor <= 0 || stencil.divisor % npp->row_divisor)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "the divisor is not a product of integers");
    npp->divisor = (Npp32s)(stencil.divisor / npp->row_divisor);
    return CONV_OK;
}

// NPP rotates the kernel by 180 degrees, which a rotation here undoes.
static enum conv_status set_coefs(struct npp *npp, union coefs *coefs, struct conv_err *err)
{
    const struct conv_filter *filter = npp->task->filter;
    int taps = filter->width * filter->height;
    if (npp->way == PASSES)
        return set_passes(npp, coefs, err);
    npp->divisor = npp->way == INTEGERS ? (Npp32s)filter->scale : 1;
    for (int i = 0; i < taps; i++)
        if (npp->way == INTEGERS)
            coefs->integers[i] = (Npp32s)filter->coef[taps - 1 - i];
        else
            coefs->reals[i] = (Npp32f)(filter->coef[taps - 1 - i] / filter->scale);
    return CONV_OK;
}

// --- the planes ----------------------------------------------------------------------------------

static NppStatus filter_plane(const struct npp *npp, const struct conv_bench_plane *plane)
{
    const struct conv_filter *filter = npp->task->filter;
    NppiSize kernel = {filter->width, filter->height}, size = {plane->width, plane->height};
    NppiPoint anchor = {filter->width / 2, filter->height / 2}, origin = {0, 0};
    int stride = (int)conv_image_stride(plane->width, 8);
    const uint8_t *src = npp->d_src + plane->offset;
    uint8_t *dst = npp->d_dst + plane->offset;
    const Npp32s *integers = (const Npp32s *)(const void *)npp->d_coefs;
    if (npp->way == INTEGERS)
        return nppiFilterBorder_8u_C1R_Ctx(src, stride, size, origin, dst, stride, size, integers,
                                           kernel, anchor, npp->divisor, NPP_BORDER_REPLICATE,
                                           npp->context);
    if (npp->way == REALS)
        return nppiFilterBorder32f_8u_C1R_Ctx(src, stride, size, origin, dst, stride, size,
                                              (const Npp32f *)(const void *)npp->d_coefs, kernel,
                                              anchor, NPP_BORDER_REPLICATE, npp->context);
    uint8_t *between = npp->d_between + plane->offset;
    NppStatus status = nppiFilterRowBorder_8u_C1R_Ctx(
        src, stride, size, origin, between, stride, size, integers + filter->height, filter->width,
        filter->width / 2, npp->row_divisor, NPP_BORDER_REPLICATE, npp->context);
    return status < 0 ? status
                      : nppiFilterColumnBorder_8u_C1R_Ctx(between, stride, size, origin, dst,
                                                          stride, size, integers, filter->height,
                                                          filter->height / 2, npp->divisor,
                                                          NPP_BORDER_REPLICATE, npp->context);
}

static enum conv_status filter_planes(void *context, int worker, int task, void *stream)
{
    (void)worker;
    (void)task;
    struct npp *npp = context;
    npp->context.hStream = stream;
    for (int p = 0; p < npp->task->count && npp->status >= 0; p++) {
        npp->plane = &npp->task->planes[p];
        npp->status = filter_plane(npp, npp->plane);
    }
    return npp->status < 0 ? CONV_ERR_UNSUPPORTED : CONV_OK;
}

static enum conv_status time_once(struct npp *npp, struct conv_bench_place *place, uint64_t *ns,
                                  struct conv_err *err)
{
    struct conv_bench_work work = {.run = filter_planes, .context = npp, .name = "NPP"};
    enum conv_status status = conv_bench_cuda()->place->run(place, &work, ns, err);
    return npp->status < 0 ? conv_err_set(err, CONV_ERR_UNSUPPORTED, "NPP's status %d for %dx%d",
                                          (int)npp->status, npp->plane->width, npp->plane->height)
                           : status;
}

static enum conv_status run(struct npp *npp, uint64_t *ns, int runs, struct conv_err *err)
{
    const struct conv_competitor_filter *task = npp->task;
    const struct conv_bench_place_ops *ops = conv_bench_cuda()->place;
    if (task->filter->offset != 0 || task->filter->scale < 0 ||
        task->border != CONV_BORDER_REPLICATE || task->depth != 8)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "NPP has no offset, 8 bits, replicate border");
    static const char doing[] = "prepare NPP";
    struct conv_bench_place *place = NULL;
    union coefs coefs = {{0}};
    enum conv_status status = set_coefs(npp, &coefs, err);
    if (!status)
        status = ops->open(&place, task->device, err);
    if (!status)
        status = set_context(&npp->context, task->device, err);
    if (!status)
        status = ops->take(&npp->d_src, task->bytes, doing, err);
    if (!status)
        status = ops->take(&npp->d_dst, task->bytes, doing, err);
    if (!status && npp->way == PASSES)
        status = ops->take(&npp->d_between, task->bytes, doing, err);
    if (!status)
        status = ops->take(&npp->d_coefs, sizeof coefs, doing, err);
    if (!status)
        status = ops->copy_in(npp->d_coefs, &coefs, sizeof coefs, doing, err);
    if (!status)
        status = ops->copy_in(npp->d_src, task->source, task->bytes, doing, err);
    for (int r = -1; r < runs && !status; r++) // -1: warms up
        status = time_once(npp, place, &ns[r < 0 ? 0 : r], err);
    if (!status)
        status = ops->copy_out(task->result, npp->d_dst, task->bytes, err);
    ops->release(npp->d_src, task->bytes);
    ops->release(npp->d_dst, task->bytes);
    ops->release(npp->d_between, task->bytes);
    ops->release(npp->d_coefs, sizeof coefs);
    ops->close(place);
    return status;
}

static enum conv_status filter_at_once(const struct conv_competitor_filter *task, uint64_t *ns,
                                       int runs, struct conv_err *err)
{
    struct npp npp = {.task = task, .way = conv_filter_is_exact(task->filter) ? INTEGERS : REALS};
    return run(&npp, ns, runs, err);
}

static enum conv_status filter_in_passes(const struct conv_competitor_filter *task, uint64_t *ns,
                                         int runs, struct conv_err *err)
{
    struct npp npp = {.task = task, .way = PASSES};
    return run(&npp, ns, runs, err);
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
