// SPDX-License-Identifier: MIT
// How a bank is computed: steps that each fill a range of its maps. Private to the files of
// bank_context.h.
#ifndef CONV_ENGINE_BANK_STEPS_H
#define CONV_ENGINE_BANK_STEPS_H

#include "engine/bank_context.h"
#include "engine/layer_context.h"
#include "kernels/bank/pooling.h"
#include "kernels/bank/separable.h"

enum conv_bank_step_kind {
    CONV_BANK_STEP_SEPARABLE, // separable filters of one size, with magnitudes
    CONV_BANK_STEP_DENSE,     // a layer of one channel, a map per filter
    CONV_BANK_STEP_COMBINED,  // a layer whose maps become one
};

struct conv_bank_step {
    enum conv_bank_step_kind kind;
    int first_map, map_count;
    struct conv_separable separable; // SEPARABLE: arrays in host memory, which `arrays` own
    float *arrays[2];                // rows and columns
    int32_t *line_of;
    struct conv_separable device; // the same, arrays where the device reads them
    void *d_arrays;               // CUDA: what holds them
    // The others:
    struct conv_layer layer;
    float *weights; // of the layer
    struct conv_layer_context *dense;
    enum conv_bank_combine combine; // COMBINED: MAGNITUDE or MAX of all maps of the layer
};

struct conv_bank_steps {
    struct conv_bank_step *steps;
    int count;
    int maps;                    // of the bank
    int most_maps;               // that a step fills
    int most_filters;            // of a COMBINED step's layer; 0: there is none
    int half_height, half_width; // the largest of the separable steps
    bool has_separable;
};

// Derives the steps of a bank; `config` gives input, border and device of the layers, whose
// contexts are opened. On failure the steps are empty.
enum conv_status conv_bank_steps_make(struct conv_bank_steps *steps,
                                      const struct conv_bank_config *config, struct conv_err *err);
void conv_bank_steps_free(struct conv_bank_steps *steps);

// The padding in front of the separable steps, as a layer that conv_layer_pad takes, and the sides
// of the padded plane.
void conv_bank_steps_padding(struct conv_layer *layer, const struct conv_bank_steps *steps,
                             const struct conv_bank_config *config);

// A batch of a separable step, whose src is a padded plane.
struct conv_separable_batch conv_bank_steps_batch(const struct conv_bank_steps *steps,
                                                  const struct conv_separable *filters, int height,
                                                  int width, int64_t images, const float *padded);

// Turns the sums of one map, cells[grid * grid], into features [kinds][grid][grid].
void conv_bank_steps_features(float *features, const struct conv_pooling *pool,
                              const struct conv_pool_sums *cells, int height, int width);

// --- devices -------------------------------------------------------------------------------------

struct conv_bank_stream {
    struct conv_bank_context *context;
    const struct conv_bank_device_ops *ops;
};

struct conv_bank_device_ops {
    enum conv_place place;
    // Makes `device` of every separable step; undoes it. Called once, in this order.
    enum conv_status (*upload)(int device, struct conv_bank_steps *steps, struct conv_err *err);
    void (*release)(int device, struct conv_bank_steps *steps);
    // As in bank_context.h.
    enum conv_status (*stream_open)(int device, struct conv_bank_stream **stream,
                                    struct conv_err *err);
    void (*stream_close)(struct conv_bank_stream *stream);
    enum conv_status (*stream_staging)(struct conv_bank_stream *stream, size_t in_bytes,
                                       size_t out_bytes, void **h_in, void **h_out,
                                       struct conv_err *err);
    enum conv_status (*stream_run)(struct conv_bank_stream *stream,
                                   const struct conv_bank_steps *steps,
                                   const struct conv_bank_config *config, int height, int width,
                                   int64_t images, const void *src, float *dst,
                                   struct conv_err *err);
};

extern const struct conv_bank_device_ops conv_bank_device_cpu, conv_bank_device_cuda;

#endif
