// SPDX-License-Identifier: MIT
// The state of `conv bench layers`, for the files that make it up: bench_layers.c goes through
// layers and places, bench_layers_variant.c measures one variant. All of it belongs to one thread.
#ifndef CONV_BENCH_BENCH_LAYERS_INTERNAL_H
#define CONV_BENCH_BENCH_LAYERS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/bench_layers.h"

#define CONV_BENCH_MOST_YARDSTICKS 512 // copies, or runs of multiply-adds, of a place

struct conv_bench_yardstick {
    double values[CONV_BENCH_MOST_YARDSTICKS]; // GB/s or TFLOP/s
    int count;
};

struct conv_bench_layers {
    const struct conv_bench_options *options;
    struct conv_bench_layers_data data;
    struct conv_bench_layers_table table;
    float *got;
    // The place that is measured.
    const struct conv_bench_layers_ops *ops;
    struct conv_bench_layers_place *place;
    enum conv_bench_layers_where where;
    struct conv_bench_layers_data here; // with the images that fit there
    double step_ms;                     // per image, of the previous step of the ladder; 0: none
    struct conv_bench_yardstick copies, fmas;
};

// A new line of the table, which keeps `name` and copies `summary`.
struct conv_bench_layers_line *conv_bench_layers_add(struct conv_bench_layers *bench,
                                                     enum conv_bench_kind kind, const char *name,
                                                     const char *summary);

// A new line for what is not measured, with the reason, which is copied.
void conv_bench_layers_skip(struct conv_bench_layers *bench, enum conv_bench_kind kind,
                            const char *name, const char *reason);

// Sets the line's times and rates from the ns of `runs` runs of `images` images. Sorts `ns`.
void conv_bench_layers_set_times(struct conv_bench_layers *bench,
                                 struct conv_bench_layers_line *line, double *ns, int runs,
                                 int64_t images);

// Sets the shares of a copy and of multiply-adds of all lines of the place.
void conv_bench_layers_set_shares(struct conv_bench_layers *bench);

// True if variants of this precision are measured. If only chosen variants are measured, more
// precise ones count as well.
bool conv_bench_layers_is_measured(const struct conv_bench_options *options,
                                   enum conv_precision precision);

// Measures a variant at the place that is open, or adds a line that says why not. CONV_ERR_DEVICE
// also if a result is wrong; CONV_ERR_MEMORY.
enum conv_status conv_bench_layers_variant(struct conv_bench_layers *bench,
                                           const struct conv_layer_variant *variant,
                                           enum conv_bench_kind kind, struct conv_err *err);

#endif
