// SPDX-License-Identifier: MIT
// Layers on a CUDA device: a stream uploads a batch, pads it if the kernel does not, runs the
// kernel and downloads the result. Several streams overlap these steps.
#include <stdlib.h>

#include "engine/cuda_device.h"
#include "engine/cuda_tensor.h"
#include "kernels/layer/cuda/cuda_layers.h"

// --- the device ----------------------------------------------------------------------------------

enum conv_status conv_cuda_tensor_open(int device, unsigned *offers, struct conv_err *err)
{
    int capability;
    enum conv_status status = conv_cuda_device_check(device, err);
    if (status)
        return status;
    status = conv_cuda_device_capability(device, &capability, err);
    *offers = (unsigned)capability;
    return status ? status : conv_cuda_device_use(device, err);
}

enum conv_status conv_cuda_tensor_upload(int device, const void *data, size_t bytes, void **d_data,
                                         struct conv_err *err)
{
    *d_data = NULL;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (status)
        return status;
    cudaError_t code = cudaMalloc(d_data, bytes);
    if (code) {
        *d_data = NULL;
        return conv_cuda_device_report(err, code, "allocate memory for the weights");
    }
    code = cudaMemcpy(*d_data, data, bytes, cudaMemcpyHostToDevice);
    return code ? conv_cuda_device_report(err, code, "copy the weights to the device") : CONV_OK;
}

void conv_cuda_tensor_release(int device, void *d_data)
{
    if (cudaSetDevice(device) == cudaSuccess)
        (void)cudaFree(d_data); // nothing can be done about a failure
}

// --- streams -------------------------------------------------------------------------------------

enum conv_status conv_cuda_tensor_stream_open(int device, struct conv_workers *workers, int threads,
                                              struct conv_tensor_stream **out, struct conv_err *err)
{
    (void)workers;
    (void)threads;
    struct conv_tensor_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a CUDA stream");
    stream->device = device;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (!status) {
        cudaError_t code = cudaStreamCreateWithFlags(&stream->cuda, cudaStreamNonBlocking);
        if (code)
            status = conv_cuda_device_report(err, code, "make a stream");
    }
    if (!status)
        status = conv_cuda_event_create(&stream->done, err);
    if (status)
        conv_cuda_tensor_stream_close(stream);
    else
        *out = stream;
    return status;
}

void conv_cuda_tensor_stream_close(struct conv_tensor_stream *stream)
{
    struct conv_cuda_memory *const d_memory[] = {
        &stream->d_in,   &stream->d_scratch, &stream->d_out,   &stream->d_padded,
        &stream->d_maps, &stream->d_filters, &stream->d_cells, &stream->d_row_sums,
    };
    if (cudaSetDevice(stream->device) == cudaSuccess) {
        for (size_t i = 0; i < sizeof d_memory / sizeof d_memory[0]; i++)
            conv_cuda_memory_free(d_memory[i]);
        conv_cuda_mapped_free(&stream->cells);
        conv_cuda_mapped_free(&stream->in);
        conv_cuda_mapped_free(&stream->out);
        conv_cuda_event_destroy(&stream->done);
        if (stream->cuda)
            (void)cudaStreamDestroy(stream->cuda);
    }
    free(stream);
}

enum conv_status conv_cuda_tensor_stream_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                                 size_t out_bytes, void **h_in, void **h_out,
                                                 struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = conv_cuda_mapped_reserve(&stream->in, in_bytes ? in_bytes : 1, "for tensors", err);
    if (!status)
        status =
            conv_cuda_mapped_reserve(&stream->out, out_bytes ? out_bytes : 1, "for tensors", err);
    *h_in = stream->in.h_data;
    *h_out = stream->out.h_data;
    return status;
}

enum conv_status conv_cuda_tensor_stream_wait(struct conv_tensor_stream *stream, const char *what,
                                              struct conv_err *err)
{
    // A thread that waits for the event sleeps; one that waits for the stream would spin.
    enum conv_status status = conv_cuda_event_record(stream->done, stream->cuda, err);
    if (status)
        return status;
    cudaError_t code = cudaEventSynchronize(stream->done);
    return code ? conv_cuda_device_report(err, code, what) : CONV_OK;
}

// --- layers --------------------------------------------------------------------------------------

enum conv_status conv_cuda_layer_enqueue(const struct conv_layer_prepared *prepared,
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

static enum conv_status reserve_device(struct conv_tensor_stream *stream,
                                       const struct conv_layer_prepared *prepared, size_t in,
                                       size_t out, struct conv_err *err)
{
    enum conv_status status =
        conv_cuda_memory_reserve(&stream->d_in, in + CONV_CUDA_TENSOR_SLACK, 0, "for tensors", err);
    if (!status)
        status = conv_cuda_memory_reserve(&stream->d_out, out, 0, "for tensors", err);
    if (!status && prepared->scratch > 0)
        status = conv_cuda_memory_reserve(
            &stream->d_scratch, prepared->scratch + CONV_CUDA_TENSOR_SLACK, 0, "for tensors", err);
    return status;
}

enum conv_status conv_cuda_layer_run(struct conv_tensor_stream *stream,
                                     const struct conv_layer_prepared *prepared, int64_t images,
                                     const void *src, void *dst, struct conv_err *err)
{
    size_t in, out;
    if (!conv_layer_context_bytes(&prepared->outer, prepared->shape.height, prepared->shape.width,
                                  &in, &out) ||
        __builtin_mul_overflow(in, (size_t)images, &in) ||
        __builtin_mul_overflow(out, (size_t)images, &out))
        return conv_err_set(err, CONV_ERR_MEMORY, "the batch is too large");
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = reserve_device(stream, prepared, in, out, err);
    if (status)
        return status;
    cudaError_t code =
        cudaMemcpyAsync(stream->d_in.d_data, src, in, cudaMemcpyHostToDevice, stream->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor to the device");
    struct conv_layer_batch batch = conv_layer_batch_of(&prepared->outer, &prepared->shape, images,
                                                        stream->d_in.d_data, stream->d_out.d_data);
    batch.scratch = stream->d_scratch.d_data;
    batch.stream = stream->cuda;
    status = conv_cuda_layer_enqueue(prepared, &batch, err);
    if (status)
        return status;
    code = cudaMemcpyAsync(dst, stream->d_out.d_data, out, cudaMemcpyDeviceToHost, stream->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a tensor from the device");
    return conv_cuda_tensor_stream_wait(stream, "run the layer", err);
}
