// SPDX-License-Identifier: MIT
// A filter bank on one device: planes in, maps or pooled features out. operation.h runs it on
// planes in host memory. After `open` any thread may use a context.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/layer_context.h"
#include "filter/bank.h"
#include "kernels/bank/bank_kernels.h"

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

// Bytes of one image's input and output in host memory. The output is float32:
// [maps][height][width] or, pooled, [maps][kinds][grid][grid]. False if that is beyond what a
// size_t holds.
bool conv_bank_context_bytes(const struct conv_bank_context *context, int height, int width,
                             size_t *in, size_t *out);

// Bytes of device memory per plane besides its input: maps and intermediate results.
size_t conv_bank_context_work(const struct conv_bank_context *context, int height, int width);

// Multiply-adds per sample of a plane, for the choice of a device.
double conv_bank_cost(const struct conv_bank *bank);

// As conv_operation_run.
enum conv_status conv_bank_context_run(struct conv_bank_context *context,
                                       struct conv_tensor_stream *stream,
                                       const struct conv_layer_shape *shape, int64_t images,
                                       const void *src, float *dst, struct conv_err *err);

// --- for the devices -----------------------------------------------------------------------------
// How a bank is computed: steps that each fill a range of its maps.

enum conv_bank_step_kind {
    CONV_BANK_STEP_SEPARABLE, // separable filters of one size, with magnitudes
    CONV_BANK_STEP_DENSE,     // a layer of one channel, a map per filter
    CONV_BANK_STEP_LARGEST,   // a layer whose maps become their largest
};

struct conv_bank_step {
    enum conv_bank_step_kind kind;
    int first_map, map_count;
    struct conv_separable separable; // SEPARABLE: its arrays are in `arrays`, in host memory
    void *arrays;
    size_t array_bytes;
    struct conv_separable device; // the same, arrays where the device reads them
    void *d_arrays;               // what holds them; NULL on the CPU
    // The others:
    struct conv_layer layer;
    float *weights; // of the layer
    struct conv_layer_context *dense;
};

struct conv_bank_steps {
    struct conv_bank_step *steps;
    int count;
    int maps;                    // of the bank
    int most_maps;               // that a step fills
    int most_filters;            // of a LARGEST step's layer; 0: there is none
    int half_height, half_width; // the largest of the separable steps
    bool has_separable;
};

struct conv_bank_context {
    struct conv_bank_config config; // without the bank
    struct conv_bank_steps steps;
    const struct conv_device_ops *ops;
};

// The padding in front of the separable steps, as a layer that conv_layer_pad takes, and the sides
// of the padded plane.
void conv_bank_context_padding(struct conv_layer *layer, const struct conv_bank_steps *steps,
                               const struct conv_bank_config *config);

// A batch of a separable step, whose src is a padded plane.
struct conv_separable_batch conv_bank_context_batch(const struct conv_bank_steps *steps,
                                                    const struct conv_separable *filters,
                                                    int height, int width, int64_t images,
                                                    const float *padded);

// Turns the sums of one map, cells[grid * grid], into features [kinds][grid][grid].
void conv_bank_context_features(float *features, const struct conv_pooling *pool,
                                const struct conv_pool_sums *cells, int height, int width);
