// SPDX-License-Identifier: MIT
// One convolution layer with its data, the places where variants of it are timed, and the table of
// results: bench_layers.c measures, and uses the other bench_layers_*.c for these.
#ifndef CONV_BENCH_BENCH_LAYERS_H
#define CONV_BENCH_BENCH_LAYERS_H

#include "bench/bench.h"
#include "bench/bench_place.h"
#include "bench/bench_table.h"
#include "kernels/layer/layer.h"

// --- data ----------------------------------------------------------------------------------------

// Noise for one layer. The input of a launch repeats `distinct` images, so that the results of few
// images are enough to compare with. Image b of the input and of every result is b % distinct.
struct conv_bench_layers_data {
    struct conv_layer layer;
    struct conv_layer_shape shape; // images: the batch
    int out_height, out_width;
    int distinct;
    size_t image_in, image_out; // samples of one image
    size_t memory;              // bytes that the process may take
    float *weights;
    float *input;    // `distinct` images
    float *expected; // the reference's results
    double *exact;   // the same in float64
    double *scale;   // sum of |w * x| of each: what an error is relative to
};

// Computes the expected results on `cores` threads. CONV_ERR_MEMORY.
enum conv_status conv_bench_layers_data_open(struct conv_bench_layers_data *data,
                                             const struct conv_bench_layer *layer, int batch,
                                             int cores, struct conv_err *err);
void conv_bench_layers_data_close(struct conv_bench_layers_data *data); // half-built is fine

// What a run of `images` images does.
struct conv_bench_amount conv_bench_layers_amount(const struct conv_bench_layers_data *data,
                                                  int64_t images);

// Compares `got`, the results of image `image`, with the exact ones. Raises *error to the largest
// |got - exact| / (2^-24 * sum |w * x|), and clears *same if bits differ from the reference's.
void conv_bench_layers_compare(const struct conv_bench_layers_data *data, int64_t image,
                               const float *got, double *error, bool *same);

// --- places --------------------------------------------------------------------------------------

// Memory for input and output at one place, and timed work on it. Every function reports
// CONV_ERR_MEMORY or CONV_ERR_DEVICE.
struct conv_bench_layers_place { // starts as {0}
    const struct conv_bench_place_ops *ops;
    struct conv_bench_place *place;
    const struct conv_bench_layers_data *data;
    int threads;
    uint8_t *memory, *out; // input and output in one piece, so that a copy can use half of both
    size_t bytes;
    // Of the plan in use.
    struct conv_layer_plan *plan;
    uint8_t *packed, *scratch;
    size_t packed_bytes, scratch_bytes;
    // Of the current run.
    int64_t images;
    int tasks, bands; // bands: of an image
};

// Room for the images of the data, filled with the input. `number`: threads, or CUDA's ordinal.
// CONV_ERR_LIMIT if there is too little memory.
enum conv_status conv_bench_layers_place_open(struct conv_bench_layers_place *place,
                                              const struct conv_bench_place_ops *ops,
                                              const struct conv_bench_layers_data *data, int number,
                                              struct conv_err *err);
void conv_bench_layers_place_close(struct conv_bench_layers_place *place); // half-built is fine
// Sets the plan of later runs, which outlives them. CONV_ERR_LIMIT as for open.
enum conv_status conv_bench_layers_place_use(struct conv_bench_layers_place *place,
                                             struct conv_layer_plan *plan, struct conv_err *err);
// Computes the first `images` images with cold caches.
enum conv_status conv_bench_layers_place_run(struct conv_bench_layers_place *place, int64_t images,
                                             uint64_t *ns, struct conv_err *err);

// --- results -------------------------------------------------------------------------------------

extern const struct conv_bench_form conv_bench_layers_form;

// Prints the table of one layer and writes options->page. `status` is the outcome of the
// measurement: after a failure only text is printed, with the lines that are complete. Returns
// `status`, or the first failure in writing. `first`: no table was printed before.
enum conv_status conv_bench_layers_print(const struct conv_bench_options *options,
                                         const struct conv_bench_layers_data *data,
                                         const char *name, const struct conv_bench_table *table,
                                         bool first, enum conv_status status, struct conv_err *err);

#endif
