// SPDX-License-Identifier: MIT
// The layers that `conv bench layers` measures and that --shape names.
#ifndef CONV_CLI_BENCH_SHAPES_H
#define CONV_CLI_BENCH_SHAPES_H

// A convolution layer: stride 1, no padding.
struct conv_bench_layer {
    const char *name; // of a row of conv_bench_shapes_list, else NULL
    int batch;        // images; 0: the usual batches, one after the other
    int channels, height, width, maps;
    int kernel_height, kernel_width;
};

// The layers of which `conv bench layers` measures all by default; *count is set.
const struct conv_bench_layer *conv_bench_shapes_list(int *count);

#endif
