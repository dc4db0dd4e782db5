// SPDX-License-Identifier: MIT
// The parts of check_kernels: a case (a filter, images, the expected result) and its runs.
#pragma once

#include "kernels/stencil/stencil.h"
#include "support/guard.h"

#define CHECK_MAX_PLANES 6
#define CHECK_GUARD 0xa5
#define CHECK_GUARD_BYTES 64 // before the first and after the last row of dst

// A reproducible stream of numbers (splitmix64).
struct check_random {
    uint64_t state;
};

uint64_t check_random_next(struct check_random *random);
// 0 to n - 1.
int check_random_below(struct check_random *random, int n);
// One of the values.
int check_random_pick(struct check_random *random, const int *values, int count);
#define PICK(random, ...)                                                                          \
    check_random_pick(random, (const int[]){__VA_ARGS__},                                          \
                      (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))
// Fills in everything of the filter except its name; returns its kind.
const char *check_random_filter(struct check_random *random, struct conv_filter *filter);

// Memory between guard pages.
struct check_memory {
    struct guarded pages;
    uint8_t *data; // `size` bytes, beside one of the guard pages
    size_t size;
};

struct check_case {
    uint64_t seed;
    struct conv_filter filter;
    struct conv_stencil stencil;
    enum conv_border border;
    float border_value; // 8-bit units, or as float32 samples are
    const char *kind;
    const char *only; // variants whose names begin so; NULL: all
    int count;
    struct conv_stencil_plane planes[CHECK_MAX_PLANES]; // src and dst in these memories
    struct check_memory src[CHECK_MAX_PLANES], dst[CHECK_MAX_PLANES];
    uint8_t *expected[CHECK_MAX_PLANES]; // what dst must become
    double saturated;                    // share of expected samples that are 0 or max
};

// The random case of a seed.
void check_case_init(struct check_case *c, uint64_t seed);
// Sums of two taps, divided by `divisor`: c0 * a + b + offset * divisor, with all pairs of 8-bit
// samples a and b, or all 16-bit samples a with one b each.
void check_case_init_division(struct check_case *c, int depth, int coef, int divisor, int offset);
// A real filter for which the rounding of a sample depends on the coefficient `tiny`.
void check_case_init_tie(struct check_case *c, double tiny);
#ifndef CHECK_LARGE_PART
#define CHECK_LARGE_PART 1
#endif
// An aligned plane so large that CPU variants write it past the caches: more than 16 MiB for 3x1
// taps (`side` 1), more than 4 MiB for side x side. In a build with sanitizers a 64th of that.
void check_case_init_large(struct check_case *c, int side);
// A narrow plane, with a seed for which the emulated device has much shared memory.
void check_case_init_height(struct check_case *c, int height);
// A filter of side x side on planes laid out as the program lays them out.
void check_case_init_layout(struct check_case *c, int side, bool separable,
                            enum conv_border border);
// A column times a row of `side` taps on a plane so high that a block filters tiles below one
// another: one or two columns of them. 26 times as high as for the emulated device, which has few
// processors. For the variants that keep sums from tile to tile, and those they are compared with.
void check_case_init_column(struct check_case *c, int side, int depth, bool sharpens, bool two,
                            enum conv_border border);
// The same case as one plane of RGBRGB...; `c` must be an image, with its expected result.
void check_case_init_interleaved(struct check_case *c, const struct check_case *image);
void check_case_free(struct check_case *c);
// Fills `expected` with the reference's result and, if `define`, compares it with a second
// definition. Prints and returns false on a difference.
bool check_case_expect(struct check_case *c, bool define);
// Bytes of a result.
size_t check_case_result_bytes(const struct check_case *c);
// True if the planes are the three of one image.
bool check_case_is_image(const struct check_case *c);
// Prints the filter and how to repeat the case.
void check_case_print(const struct check_case *c);
// Fills all of dst with the guard pattern.
void check_case_clear(struct check_case *c);
// Compares dst with `expected`, guards included; false, and printed unless `quiet`, if they differ.
bool check_case_compare(const struct check_case *c, const char *variant, bool quiet);

// Runs a variant on the CPU, in bands. Prints and returns false on failure.
bool check_cpu_run(const struct conv_variant *variant, struct check_case *c);

// Proves that wrong variants are caught.
bool check_selftest(void);

// Runs the requested variants on a case and compares them with the reference, and if `define` the
// reference with its definition; false on a difference.
typedef bool (*check_run_fn)(struct check_case *c, bool define, void *context);
// Divisors, ties, layouts, heights, columns of tiles and large planes. Prints the result of each.
bool check_special_cases(uint64_t seed, check_run_fn run, void *context);

#if CONV_HAVE_CUDA
// Runs a variant on copies of the case's memories and copies dst back. Prints and returns false if
// CUDA fails.
bool check_cuda_run(const struct conv_variant *variant, struct check_case *c);
// Compares the device's handling of premultiplied colours between filters with the CPU's. Prints
// the result.
bool check_cuda_alpha(uint64_t seed);
#endif
