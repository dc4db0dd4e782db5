// SPDX-License-Identifier: MIT
// What the files share that run layers (cuda_layer.c) and filter banks (cuda_bank.c) on a CUDA
// device, and their functions in the table of engine.h.
#ifndef CONV_ENGINE_CUDA_TENSOR_H
#define CONV_ENGINE_CUDA_TENSOR_H

#include <cuda_runtime_api.h>

#include "engine/bank_context.h"
#include "engine/cuda_device.h"

// Kernels read up to the next multiple of 16 bytes after the last plane (layer.h).
#define CONV_CUDA_TENSOR_SLACK 16

struct conv_tensor_stream {
    int device;
    cudaStream_t cuda;
    cudaEvent_t done;
    struct conv_cuda_mapped in, out; // staging
    struct conv_cuda_memory d_in, d_scratch;
    struct conv_cuda_memory d_out; // of a layer
    // Of a bank:
    struct conv_cuda_memory d_padded, d_maps, d_filters, d_cells, d_row_sums;
    struct conv_cuda_mapped cells;
};

// Waits until the stream has done all enqueued work; the thread sleeps. `what` names the work in
// messages. CONV_ERR_DEVICE.
enum conv_status conv_cuda_tensor_stream_wait(struct conv_tensor_stream *stream, const char *what,
                                              struct conv_err *err);

enum conv_status conv_cuda_tensor_open(int device, unsigned *offers, struct conv_err *err);
enum conv_status conv_cuda_tensor_upload(int device, const void *data, size_t bytes, void **d_data,
                                         struct conv_err *err);
void conv_cuda_tensor_release(int device, void *d_data);
enum conv_status conv_cuda_tensor_stream_open(int device, struct conv_workers *workers, int threads,
                                              struct conv_tensor_stream **stream,
                                              struct conv_err *err);
void conv_cuda_tensor_stream_close(struct conv_tensor_stream *stream);
enum conv_status conv_cuda_tensor_stream_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                                 size_t out_bytes, void **h_in, void **h_out,
                                                 struct conv_err *err);
enum conv_status conv_cuda_layer_run(struct conv_tensor_stream *stream,
                                     const struct conv_layer_prepared *prepared, int64_t images,
                                     const void *src, void *dst, struct conv_err *err);
enum conv_status conv_cuda_layer_enqueue(const struct conv_layer_prepared *prepared,
                                         const struct conv_layer_batch *batch,
                                         struct conv_err *err);
enum conv_status conv_cuda_bank_run(struct conv_tensor_stream *stream,
                                    const struct conv_bank_context *bank, int height, int width,
                                    int64_t images, const void *src, float *dst,
                                    struct conv_err *err);

#endif
