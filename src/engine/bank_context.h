// SPDX-License-Identifier: MIT
// A filter bank on one device: planes in, maps or pooled features out.
//
// A context is opened once; its streams do the work. After `open` any thread may use a context; a
// stream belongs to one thread at a time. Streams are closed before their context.
#ifndef CONV_ENGINE_BANK_CONTEXT_H
#define CONV_ENGINE_BANK_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "filter/bank.h"
#include "filter/filter.h"
#include "kernels/common/place.h"
#include "tensor/element.h"

struct conv_bank_context;
struct conv_bank_stream;

// What is computed from the samples of a map in one cell of the grid.
enum conv_pool_kind {
    CONV_POOL_MEAN,
    CONV_POOL_STD, // the root of the mean squared distance from the mean
    CONV_POOL_MAX,
    CONV_POOL_ENERGY, // the mean square
    CONV_POOL_KINDS,
};

// "mean,std:4": kinds, and the side of the grid. At most CONV_POOL_KINDS kinds, each once; the grid
// has 1 to CONV_POOL_MAX_GRID cells a side. No kinds: maps are not pooled.
#define CONV_POOL_MAX_GRID 64
struct conv_pooling {
    enum conv_pool_kind kinds[CONV_POOL_KINDS];
    int count, grid;
};

// CONV_ERR_USAGE with an example.
enum conv_status conv_pooling_parse(struct conv_pooling *pooling, const char *text,
                                    struct conv_err *err);

struct conv_bank_config {
    const struct conv_bank *bank; // used by `open` only
    enum conv_place place;
    int device; // ordinal among those of the place
    // Maps have the size of the image: beyond its edges the samples are those of the border.
    enum conv_border border;
    float border_value;       // in units of the float32 samples
    enum conv_element input;  // U8, or F32 samples that are used as they are
    float input_divisor;      // U8: sample / input_divisor, correctly rounded
    struct conv_pooling pool; // all zeros: maps
};

// CONV_ERR_DEVICE with the reason if there is no such device; CONV_ERR_MEMORY. *context is set on
// success only.
enum conv_status conv_bank_context_open(struct conv_bank_context **context,
                                        const struct conv_bank_config *config,
                                        struct conv_err *err);
void conv_bank_context_close(struct conv_bank_context *context); // NULL is fine

// The bank's maps per plane, and the place of the device.
int conv_bank_context_maps(const struct conv_bank_context *context);
enum conv_place conv_bank_context_place(const struct conv_bank_context *context);

// "cpu", "cuda:0"
void conv_bank_context_describe(const struct conv_bank_context *context, char *text, size_t size);

// Bytes of one image's input and output in host memory. The output is float32:
// [maps][height][width] or, pooled, [maps][kinds][grid][grid]. False if that is beyond what a
// size_t holds.
bool conv_bank_context_bytes(const struct conv_bank_context *context, int height, int width,
                             size_t *in, size_t *out);

// Bytes of device memory per plane besides its input: maps and intermediate results.
size_t conv_bank_context_work(const struct conv_bank_context *context, int height, int width);

// Multiply-adds per sample of a plane, for the choice of a device.
double conv_bank_cost(const struct conv_bank *bank);

// CONV_ERR_MEMORY, CONV_ERR_DEVICE. The work of a CPU stream is done by the calling thread.
enum conv_status conv_bank_stream_open(struct conv_bank_context *context,
                                       struct conv_bank_stream **stream, struct conv_err *err);
void conv_bank_stream_close(struct conv_bank_stream *stream); // NULL is fine

// Memory of the stream for one call of `run`, pinned for a CUDA device: at least in_bytes and
// out_bytes, of any content, valid until the next call or the stream's end.
enum conv_status conv_bank_stream_staging(struct conv_bank_stream *stream, size_t in_bytes,
                                          size_t out_bytes, void **h_in, void **h_out,
                                          struct conv_err *err);

// Computes `images` planes of height x width, without gaps, from host memory to host memory.
// Returns when dst is complete. CONV_ERR_USAGE if a pooled plane is smaller than its grid;
// CONV_ERR_MEMORY: fewer images may succeed; CONV_ERR_DEVICE: the device is lost.
enum conv_status conv_bank_stream_run(struct conv_bank_stream *stream, int height, int width,
                                      int64_t images, const void *src, float *dst,
                                      struct conv_err *err);

#endif
