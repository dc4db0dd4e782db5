// SPDX-License-Identifier: MIT
// The common part of the CUDA streams of layers and of filter banks: a stream, an event to wait
// for, and staging memory. A stream belongs to one thread at a time.
#ifndef CONV_ENGINE_CUDA_TENSOR_STREAM_H
#define CONV_ENGINE_CUDA_TENSOR_STREAM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/cuda_device.h"

// Starts as {0}.
struct conv_cuda_tensor_stream {
    int device;
    cudaStream_t cuda;
    cudaEvent_t done;
    struct conv_cuda_mapped in, out; // staging
};

// CONV_ERR_DEVICE; the stream is to be closed after that, too.
enum conv_status conv_cuda_tensor_stream_open(struct conv_cuda_tensor_stream *stream, int device,
                                              struct conv_err *err);

// Accepts a stream that is open in part, or {0}. The device must be the current one.
void conv_cuda_tensor_stream_close(struct conv_cuda_tensor_stream *stream);

// Makes the device current, and sets *h_in and *h_out to staging memory of at least in_bytes and
// out_bytes (0 is fine), valid until the next call. `what` names the staged data in messages.
// CONV_ERR_DEVICE, CONV_ERR_MEMORY.
enum conv_status conv_cuda_tensor_stream_reserve(struct conv_cuda_tensor_stream *stream,
                                                 size_t in_bytes, size_t out_bytes,
                                                 const char *what, void **h_in, void **h_out,
                                                 struct conv_err *err);

// Waits until the stream has done all enqueued work; the thread sleeps. `what` names the work in
// messages. CONV_ERR_DEVICE.
enum conv_status conv_cuda_tensor_stream_wait(struct conv_cuda_tensor_stream *stream,
                                              const char *what, struct conv_err *err);

#endif
