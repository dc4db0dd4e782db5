// SPDX-License-Identifier: MIT
// The parts of check_layers: a case (a layer, images, the expected result) and its runs.
#pragma once

#include "kernels/layer/layer.h"
#include "support/guard.h"
#include "support/random.h"

// The numbers in a case.
enum check_numbers {
    CHECK_MODERATE, // magnitudes from 2^-12 to 1
    CHECK_INTEGERS, // small: all sums are exact
    CHECK_WIDE,     // magnitudes from 2^-40 to 2^40; unfit for float16 operands
    CHECK_TINY,     // products and sums are subnormal; exact variants only
    CHECK_SPECIAL,  // with NaN, infinities, -0, subnormals, the largest numbers
    CHECK_ZEROS,    // sums of -0 to which padding may add 0
};

// Memory between guard pages. The accessible bytes around `data` hold a pattern.
struct check_memory {
    struct guarded pages;
    uint8_t *data; // `size` bytes
    size_t size;
};

struct check_case {
    uint64_t seed; // 0: none
    int64_t taps;  // the limit that the case was made with
    struct conv_layer layer;
    struct conv_layer_shape shape;
    enum check_numbers numbers;
    int64_t images;
    int64_t src_row, src_plane, src_image;
    struct check_memory src, dst, weights, bias;
    // Of each of the `outputs`:
    size_t outputs;
    uint8_t *expected;      // the reference's result, as dst must become
    double *exact, *margin; // the value in float64, and |bias| + sum |w * x|
    bool useful;            // at least a quarter of the outputs are finite and not 0
};

// The random case of a seed, with at most about `taps` multiplications.
void check_case_init(struct check_case *c, uint64_t seed, int64_t taps);
// A layer of a known network. The plan is for a batch of `planned` images.
struct check_network_layer {
    int channels, maps, kernel, height, width, images, planned;
};
void check_case_init_network(struct check_case *c, const struct check_network_layer *network);
void check_case_free(struct check_case *c);
// Fills in `expected` and `useful` and, if `define`, `exact` and `margin` by a second definition.
// Prints and returns false if the reference differs from that, or if the case proves nothing.
bool check_case_expect(struct check_case *c, bool define);
// Prints the parameters, and how to repeat the case.
void check_case_print(const struct check_case *c, const char *variant);
// What orders the threads of an emulated device and sets its capability.
uint64_t check_case_order(const struct check_case *c);
// True if the case is within what the variant's precision promises.
bool check_case_suits(const struct check_case *c, const struct conv_layer_variant *variant);
// Compares dst within the precision that the variant promises, and looks for writes around dst;
// prints unless `quiet`. Adds to *worst the largest error as a share of the bound. False on a
// difference.
bool check_case_compare(const struct check_case *c, const struct conv_layer_variant *variant,
                        double *worst, bool quiet);

void check_memory_init(struct check_memory *memory, size_t size, size_t align, bool at_end);
void check_memory_free(struct check_memory *memory);
// Fills the accessible bytes, data too, with the pattern; true if those around data still hold it.
void check_memory_clear(struct check_memory *memory);
bool check_memory_holds(const struct check_memory *memory);
extern const uint8_t check_memory_pattern;

// Runs a variant on the CPU, output rows in several parts. On failure returns false, and prints
// unless `quiet`.
bool check_cpu_run(const struct conv_layer_variant *variant, unsigned have, struct check_case *c,
                   bool quiet);
// The batch of a case in host memory, all rows.
struct conv_layer_batch check_case_batch(const struct check_case *c);

// Proves that wrong variants are caught and that a right one of less precision is accepted.
bool check_selftest(void);

#if CONV_HAVE_CUDA
// Runs a variant on copies of the case's memories and copies dst back. Prints and returns false if
// CUDA fails.
bool check_cuda_run(const struct conv_layer_variant *variant, unsigned have, struct check_case *c);
#endif
