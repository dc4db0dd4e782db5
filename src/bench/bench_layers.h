// SPDX-License-Identifier: MIT
// One convolution layer with its data, the places where variants of it are timed, and the table of
// results: bench_layers.c measures, and uses the other bench_layers_*.c for these.
#pragma once

#include "bench/bench.h"
#include "bench/bench_place.h"
#include "bench/bench_table.h"
#include "engine/cpu.h"
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

// Computes the expected results on `cores` threads; 0: one image without expected results. The
// layer's weights and bias are not used. CONV_ERR_MEMORY.
enum conv_status conv_bench_layers_data_open(struct conv_bench_layers_data *data,
                                             const struct conv_layer *layer, int height, int width,
                                             int batch, int cores, struct conv_err *err);
void conv_bench_layers_data_close(struct conv_bench_layers_data *data); // half-built is fine

// What a run of `images` images does.
struct conv_bench_amount conv_bench_layers_amount(const struct conv_bench_layers_data *data,
                                                  int64_t images);

// Compares `got`, the results of image `image`, with the exact ones. Raises *error to the largest
// |got - exact| / (2^-24 * sum |w * x|), and clears *same if bits differ from the reference's.
void conv_bench_layers_compare(const struct conv_bench_layers_data *data, int64_t image,
                               const float *got, double *error, bool *same);

// One output of the first image in the exact order.
float conv_bench_layers_output(const struct conv_bench_layers_data *data, size_t at);

// "1->12, 64x64, 5x5, padding 2"
void conv_bench_layers_describe(const struct conv_bench_layers_data *data, const char *to,
                                const char *times, char *text, size_t size);

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
    void *weights;             // packed
    uint8_t *packed, *scratch; // CUDA: the weights
    size_t packed_bytes, scratch_bytes;
    size_t pad_bytes; // CUDA: of padded input, at the beginning of `scratch`
    // Of the current run.
    struct conv_cpu_share share; // on CUDA: of its batch alone
};

// Room for the images of the data, filled with the input. `number`: threads, or CUDA's ordinal.
// CONV_ERR_LIMIT if there is too little memory.
enum conv_status conv_bench_layers_place_open(struct conv_bench_layers_place *place,
                                              const struct conv_bench_place_ops *ops,
                                              const struct conv_bench_layers_data *data, int number,
                                              struct conv_err *err);
void conv_bench_layers_place_close(struct conv_bench_layers_place *place); // half-built is fine
// Sets the plan of later runs, which outlives them, and packs its weights. CONV_ERR_LIMIT as for
// open.
enum conv_status conv_bench_layers_place_use(struct conv_bench_layers_place *place,
                                             struct conv_layer_plan *plan, struct conv_err *err);
// The yardsticks: copies as many bytes as the images read and write, half of them read; then
// multiply-adds. The results of a run are lost, the input stays.
enum conv_status conv_bench_layers_place_limits(struct conv_bench_layers_place *place,
                                                int64_t images, uint64_t *copy_ns,
                                                double *tflop_per_s, struct conv_err *err);
// Computes the first `images` images with cold caches.
enum conv_status conv_bench_layers_place_run(struct conv_bench_layers_place *place, int64_t images,
                                             uint64_t *ns, struct conv_err *err);

// --- cuBLAS --------------------------------------------------------------------------------------

struct conv_bench_cublas;

// CONV_ERR_UNSUPPORTED if the library is not installed; *cublas is then NULL.
enum conv_status conv_bench_cublas_open(struct conv_bench_cublas **cublas, int ordinal,
                                        struct conv_err *err);
void conv_bench_cublas_close(struct conv_bench_cublas *cublas); // NULL is fine
// The time of a float32 product of m x k and k x n values without TF32, the better of two layouts,
// as the median of `runs` with cold caches. Large products are measured with fewer m.
enum conv_status conv_bench_cublas_time(struct conv_bench_cublas *cublas, int64_t m, int64_t n,
                                        int64_t k, int runs, double *ns, struct conv_err *err);

// --- results -------------------------------------------------------------------------------------

extern const struct conv_bench_form conv_bench_layers_form;

// Prints the table of one layer and writes options->page. `status` is the outcome of the
// measurement: after a failure only text is printed, with the lines that are complete. Returns
// `status`, or the first failure in writing. `first`: no table was printed before.
enum conv_status conv_bench_layers_print(const struct conv_bench_options *options,
                                         const struct conv_bench_layers_data *data,
                                         const char *name, const struct conv_bench_table *table,
                                         bool first, enum conv_status status, struct conv_err *err);
