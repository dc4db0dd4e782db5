// SPDX-License-Identifier: MIT
// Layers on a CUDA device: a stream uploads a batch, pads it if the kernel does not, runs the
// kernel and downloads the result. Several streams overlap these steps.
#include <stdlib.h>

#include "engine/cuda_device.h"
#include "engine/cuda_tensor_stream.h"
#include "engine/layer_device.h"
#include "kernels/layer/cuda/cuda_layers.h"

// Kernels read up to the next multiple of 16 bytes after the last plane (layer.h).
#define IN_SLACK 16

struct cuda_stream {
    struct conv_layer_stream head;
    struct conv_cuda_tensor_stream base;
    struct conv_cuda_memory d_in, d_out, d_scratch;
};

static enum conv_status open_device(int device, unsigned *have, struct conv_err *err)
{
    int capability;
    enum conv_status status = conv_cuda_device_check(device, err);
    if (status)
        return status;
    status = conv_cuda_device_capability(device, &capability, err);
    *have = (unsigned)capability;
    return status ? status : conv_cuda_device_use(device, err);
}

static enum conv_status upload(int device, struct conv_layer_prepared *prepared,
                               struct conv_err *err)
{
    struct conv_layer_plan *plan = &prepared->plan;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (status)
        return status;
    cudaError_t code = cudaMalloc(&prepared->d_packed, plan->packed_bytes);
    if (code) {
        prepared->d_packed = NULL;
        return conv_cuda_device_report(err, code, "allocate memory for the weights");
    }
    code = cudaMemcpy(prepared->d_packed, plan->packed, plan->packed_bytes, cudaMemcpyHostToDevice);
    if (code)
        return conv_cuda_device_report(err, code, "copy the weights to the device");
    plan->d_packed = prepared->d_packed;
    return CONV_OK;
}

static void release(int device, struct conv_layer_prepared *prepared)
{
    if (cudaSetDevice(device) == cudaSuccess)
        (void)cudaFree(prepared->d_packed); // nothing can be done about a failure
}

// --- streams -------------------------------------------------------------------------------------

static void close_stream(struct conv_layer_stream *head)
{
    struct cuda_stream *stream = (struct cuda_stream *)head;
    if (cudaSetDevice(stream->base.device) == cudaSuccess) {
        conv_cuda_memory_free(&stream->d_in);
        conv_cuda_memory_free(&stream->d_out);
        conv_cuda_memory_free(&stream->d_scratch);
        conv_cuda_tensor_stream_close(&stream->base);
    }
    free(stream);
}

static enum conv_status open_stream(int device, int threads, struct conv_layer_stream **out,
                                    struct conv_err *err)
{
    (void)threads;
    struct cuda_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CUDA stream");
    enum conv_status status = conv_cuda_tensor_stream_open(&stream->base, device, err);
    if (status)
        close_stream(&stream->head);
    else
        *out = &stream->head;
    return status;
}

static enum conv_status reserve_staging(struct conv_layer_stream *head, size_t in_bytes,
                                        size_t out_bytes, void **h_in, void **h_out,
                                        struct conv_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)head;
    return conv_cuda_tensor_stream_reserve(&stream->base, in_bytes, out_bytes, "for tensors", h_in,
                                           h_out, err);
}

static enum conv_status enqueue(const struct conv_layer_prepared *prepared,
                                const struct conv_layer_batch *batch, struct conv_err *err)
{
    const struct conv_layer_plan *plan = &prepared->plan;
    struct conv_layer_batch own = *batch;
    enum conv_status status = CONV_OK;
    if (prepared->plan.pads) {
        status = conv_cuda_layer_pad(&prepared->outer, &prepared->shape, batch, batch->scratch);
        own = conv_layer_batch_of(&prepared->plan.layer, &prepared->plan.shape, batch->images,
                                  batch->scratch, batch->dst);
        own.scratch = (uint8_t *)batch->scratch + prepared->pad_bytes;
        own.stream = batch->stream;
    }
    own.first_row = 0;
    own.rows = conv_layer_out_height(&prepared->plan.layer, prepared->plan.shape.height);
    if (!status)
        status = plan->variant->run(plan, &own);
    return status ? conv_cuda_device_report(err, cudaGetLastError(), "start the layer's kernel")
                  : CONV_OK;
}

static enum conv_status reserve_device(struct cuda_stream *stream,
                                       const struct conv_layer_prepared *prepared, size_t in,
                                       size_t out, struct conv_err *err)
{
    enum conv_status status =
        conv_cuda_memory_reserve(&stream->d_in, in + IN_SLACK, 0, "for tensors", err);
    if (!status)
        status = conv_cuda_memory_reserve(&stream->d_out, out, 0, "for tensors", err);
    if (!status && prepared->scratch > 0)
        status = conv_cuda_memory_reserve(&stream->d_scratch, prepared->scratch + IN_SLACK, 0,
                                          "for tensors", err);
    return status;
}

static enum conv_status run_stream(struct conv_layer_stream *head,
                                   const struct conv_layer_prepared *prepared, int64_t images,
                                   const void *src, void *dst, struct conv_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)head;
    size_t in, out;
    if (images <= 0)
        return CONV_OK;
    if (!conv_layer_context_bytes(&prepared->outer, prepared->shape.height, prepared->shape.width,
                                  &in, &out) ||
        __builtin_mul_overflow(in, (size_t)images, &in) ||
        __builtin_mul_overflow(out, (size_t)images, &out))
        return conv_err_set(err, CONV_ERR_MEMORY, "the batch is too large");
    enum conv_status status = conv_cuda_device_use(stream->base.device, err);
    if (!status)
        status = reserve_device(stream, prepared, in, out, err);
    if (status)
        return status;
    cudaError_t code =
        cudaMemcpyAsync(stream->d_in.d_data, src, in, cudaMemcpyHostToDevice, stream->base.cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor to the device");
    struct conv_layer_batch batch = conv_layer_batch_of(&prepared->outer, &prepared->shape, images,
                                                        stream->d_in.d_data, stream->d_out.d_data);
    batch.scratch = stream->d_scratch.d_data;
    batch.stream = stream->base.cuda;
    status = enqueue(prepared, &batch, err);
    if (status)
        return status;
    code =
        cudaMemcpyAsync(dst, stream->d_out.d_data, out, cudaMemcpyDeviceToHost, stream->base.cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor from the device");
    return conv_cuda_tensor_stream_wait(&stream->base, "run the layer", err);
}

const struct conv_layer_device_ops conv_layer_device_cuda = {
    .name = "cuda",
    .place = CONV_ON_CUDA,
    .open = open_device,
    .upload = upload,
    .release = release,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_staging = reserve_staging,
    .stream_run = run_stream,
    .enqueue = enqueue,
};
