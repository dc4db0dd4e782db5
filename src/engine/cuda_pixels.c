// SPDX-License-Identifier: MIT
// Filters on images stored as RGBRGB...: a row of three channels is filtered like the row of a
// plane three times as wide, with taps three samples apart. The kernels must repeat pixels, not
// samples, at borders.
#include <stdlib.h>

#include "engine/cuda_context.h"
#include "kernels/stencil/cuda/cuda_variants.h"

struct pixel_op {
    struct conv_stencil stencil;
    struct conv_stencil_plan plan; // refers to `stencil`
};

struct conv_cuda_pixels {
    uint8_t *d_stencils;
    struct pixel_op ops[];
};

void conv_cuda_pixels_close(struct conv_cuda_pixels *pixels)
{
    if (pixels && pixels->d_stencils)
        (void)cudaFree(pixels->d_stencils); // nothing can be done about a failure
    free(pixels);
}

static bool plan_op(struct pixel_op *op, const struct conv_stencil *planes, const char *variant,
                    int channels, unsigned capability)
{
    op->stencil = *planes;
    if (!conv_stencil_interleave(&op->stencil, channels))
        return false;
    const struct conv_variant *best =
        conv_stencil_pick(&op->stencil, 0, CONV_ON_CUDA, capability, variant);
    if (best)
        conv_stencil_plan_init(&op->plan, best, &op->stencil);
    return best;
}

static enum conv_status upload(struct conv_cuda_pixels *pixels, int count, struct conv_err *err)
{
    size_t each = conv_cuda_upload_bytes();
    cudaError_t code = cudaMalloc((void **)&pixels->d_stencils, (size_t)count * each);
    if (code)
        return conv_cuda_device_report(err, code, "allocate memory for the filters");
    for (int i = 0; i < count; i++)
        if (conv_cuda_upload(&pixels->ops[i].plan, pixels->d_stencils + (size_t)i * each))
            return conv_cuda_device_report(err, cudaGetLastError(),
                                           "copy the filters to the device");
    return CONV_OK;
}

enum conv_status conv_cuda_pixels_open(struct conv_cuda_pixels **out,
                                       const struct conv_backend *backend, const char *variant,
                                       int channels, struct conv_err *err)
{
    int capability, count = backend->op_count;
    *out = NULL;
    enum conv_status status = conv_cuda_device_capability(backend->device, &capability, err);
    if (status)
        return status;
    struct conv_cuda_pixels *pixels =
        calloc(1, sizeof *pixels + (size_t)count * sizeof pixels->ops[0]);
    if (!pixels)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    bool can = true;
    for (int i = 0; i < count && can; i++)
        can = plan_op(&pixels->ops[i], &backend->chain[i].stencil[conv_chain_at(8)], variant,
                      channels, (unsigned)capability);
    if (can)
        status = upload(pixels, count, err);
    if (can && !status)
        *out = pixels;
    else
        conv_cuda_pixels_close(pixels);
    return status;
}

const struct conv_stencil_plan *conv_cuda_pixels_plan(const struct conv_cuda_pixels *pixels, int op)
{
    return &pixels->ops[op].plan;
}

bool conv_cuda_pixels_fit(const conv_image *view)
{
    return view->column_stride == view->channels * view->channel_stride &&
           view->channel_stride == conv_sample_bytes(view->sample) &&
           view->row_stride >= view->width * view->column_stride &&
           ((uintptr_t)view->data | (uintptr_t)view->row_stride) % CONV_IMAGE_ROW_ALIGN == 0;
}
