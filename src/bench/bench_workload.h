// SPDX-License-Identifier: MIT
// The images that `conv bench kernels` filters in one launch: three planes each, all in one piece
// of memory.
#pragma once

#include "bench/bench.h"
#include "bench/bench_launch.h"

#define CONV_BENCH_CHANNELS 3

// --- images of many sizes, for --image-size mix and uniform --------------------------------------

#define CONV_BENCH_MIX_IMAGES 500 // unless --images says otherwise

struct conv_bench_size {
    int width, height;
};

// Always the same sizes from 1 x 1 to 4000 x 3000, each octave of a side equally likely, the
// largest size first. Half of 500 are smaller than 0.006 megapixels; their sum is 139.9.
void conv_bench_mix(struct conv_bench_size *sizes, int count);

// --- images --------------------------------------------------------------------------------------

struct conv_bench_workload {
    enum conv_bench_sizes sizes; // not CONV_BENCH_SIZES_STANDARD
    int width, height;           // of each image; 0 unless CONV_BENCH_SIZES_ONE
    int images, depth;
    double pixels; // of all images
    struct conv_bench_plane *planes;
    int plane_count;
    size_t bytes;
    uint8_t *source;
    // The same images as RGBRGB...: one plane of three times the width each.
    struct conv_bench_plane *wide;
    size_t wide_bytes;
};

// `images` 0: 1, or CONV_BENCH_MIX_IMAGES of many sizes. The samples are noise around a gradient.
// CONV_ERR_MEMORY.
enum conv_status conv_bench_workload_open(struct conv_bench_workload *workload,
                                          enum conv_bench_sizes sizes, int width, int height,
                                          int images, int depth, struct conv_err *err);
// Half-built is fine. The sizes and counts stay.
void conv_bench_workload_close(struct conv_bench_workload *workload);

// Copies planes, `bytes` bytes, to RGBRGB..., wide_bytes bytes; with `split` the reverse.
void conv_bench_workload_interleave(const struct conv_bench_workload *workload, uint8_t *planes,
                                    uint8_t *wide, bool split);

// "1 image of 300x200", "500 images from 1x1 to 4000x3000"; `times` is the text between the sides,
// and `named` adds the word "images".
void conv_bench_workload_describe(const struct conv_bench_workload *workload, const char *times,
                                  bool named, char *text, size_t size);

// Compares `result` with `expected`, which are laid out as the source. CONV_ERR_DEVICE describes
// the first sample that differs; `name` is what made the result.
enum conv_status conv_bench_workload_compare(const struct conv_bench_workload *workload,
                                             const uint8_t *expected, const uint8_t *result,
                                             const char *name, struct conv_err *err);
