// SPDX-License-Identifier: MIT
// What the files share that run layers (cpu_layer.c) and filter banks (cpu_bank.c) on the CPU, and
// their functions in the table of engine.h.
#ifndef CONV_ENGINE_CPU_TENSOR_H
#define CONV_ENGINE_CPU_TENSOR_H

#include "engine/bank_context.h"

// Host memory that grows, aligned to 64 bytes. Starts as {0}.
struct conv_tensor_memory {
    void *data;
    size_t size; // bytes
};

struct conv_tensor_stream {
    struct conv_workers *workers; // NULL: the calling thread does all
    int threads;
    struct conv_tensor_memory in, out; // staging
    struct conv_tensor_memory padded;
    struct conv_tensor_memory scratch;       // of a layer: of all threads, with gaps between them
    struct conv_tensor_memory maps, filters; // of a bank
};

// Makes it at least `size` bytes, which is not 0; the old contents are lost. `what` names the
// contents in messages. CONV_ERR_MEMORY: then there is no memory.
enum conv_status conv_cpu_tensor_reserve(struct conv_tensor_memory *memory, size_t size,
                                         const char *what, struct conv_err *err);

enum conv_status conv_cpu_tensor_open(int device, unsigned *offers, struct conv_err *err);
enum conv_status conv_cpu_tensor_stream_open(int device, struct conv_workers *workers, int threads,
                                             struct conv_tensor_stream **stream,
                                             struct conv_err *err);
void conv_cpu_tensor_stream_close(struct conv_tensor_stream *stream);
enum conv_status conv_cpu_tensor_stream_staging(struct conv_tensor_stream *stream, size_t in_bytes,
                                                size_t out_bytes, void **h_in, void **h_out,
                                                struct conv_err *err);
enum conv_status conv_cpu_layer_run(struct conv_tensor_stream *stream,
                                    const struct conv_layer_prepared *prepared, int64_t images,
                                    const void *src, void *dst, struct conv_err *err);
enum conv_status conv_cpu_layer_enqueue(const struct conv_layer_prepared *prepared,
                                        const struct conv_layer_batch *batch, struct conv_err *err);
enum conv_status conv_cpu_bank_run(struct conv_tensor_stream *stream,
                                   const struct conv_bank_context *bank, int height, int width,
                                   int64_t images, const void *src, float *dst,
                                   struct conv_err *err);

#endif
