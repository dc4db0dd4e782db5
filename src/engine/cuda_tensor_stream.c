// SPDX-License-Identifier: MIT
#include "engine/cuda_tensor_stream.h"

#include "engine/cuda_device.h"

enum conv_status conv_cuda_tensor_stream_open(struct conv_cuda_tensor_stream *stream, int device,
                                              struct conv_err *err)
{
    stream->device = device;
    enum conv_status status = conv_cuda_device_use(device, err);
    if (!status) {
        cudaError_t code = cudaStreamCreateWithFlags(&stream->cuda, cudaStreamNonBlocking);
        if (code)
            status = conv_cuda_device_report(err, code, "make a stream");
    }
    return status ? status : conv_cuda_event_create(&stream->done, err);
}

void conv_cuda_tensor_stream_close(struct conv_cuda_tensor_stream *stream)
{
    conv_cuda_mapped_free(&stream->in);
    conv_cuda_mapped_free(&stream->out);
    conv_cuda_event_destroy(&stream->done);
    if (stream->cuda)
        (void)cudaStreamDestroy(stream->cuda);
}

enum conv_status conv_cuda_tensor_stream_reserve(struct conv_cuda_tensor_stream *stream,
                                                 size_t in_bytes, size_t out_bytes,
                                                 const char *what, void **h_in, void **h_out,
                                                 struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_use(stream->device, err);
    if (!status)
        status = conv_cuda_mapped_reserve(&stream->in, in_bytes ? in_bytes : 1, what, err);
    if (!status)
        status = conv_cuda_mapped_reserve(&stream->out, out_bytes ? out_bytes : 1, what, err);
    *h_in = stream->in.h_data;
    *h_out = stream->out.h_data;
    return status;
}

enum conv_status conv_cuda_tensor_stream_wait(struct conv_cuda_tensor_stream *stream,
                                              const char *what, struct conv_err *err)
{
    // A thread that waits for the event sleeps; one that waits for the stream would spin.
    enum conv_status status = conv_cuda_event_record(stream->done, stream->cuda, err);
    if (status)
        return status;
    cudaError_t code = cudaEventSynchronize(stream->done);
    return code ? conv_cuda_device_report(err, code, what) : CONV_OK;
}
