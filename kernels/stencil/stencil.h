// SPDX-License-Identifier: MIT
// The table of stencil kernels. A variant states where it runs, what it needs, which filters it can
// do and how well it suits them; all variants compute the same bytes as the reference. A new idea
// is a new file and a new entry in stencil.c: variants do not refer to each other.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter/filter.h"
#include "kernels/common/border.h"
#include "kernels/common/place.h"

#ifdef __cplusplus
extern "C" {
#endif

// A filter made ready for arithmetic at one depth.
//   exact: out = clamp(round_half_even((sum icoef * p + bias) / divisor), 0, max)
//   real:  acc = fbias; for each tap, row by row, whose fcoef is not 0: acc = fmaf(fcoef, p, acc);
//          out = clamp(rintf(acc), 0, max)          (this order, in float32, on every machine)
//          With `symmetric`, diagonal by diagonal, d = 0, 1, ..., j ascending:
//          d = 0: acc = fmaf(fcoef[j][j], p[j][j], acc), else samples that trade places in a
//          transposed image are added first: acc = fmaf(fcoef[j][j+d], p[j][j+d] + p[j+d][j], acc)
//   magnitude: gx = sum icoef * p, gy the same with the matrix transposed, exact integers;
//          m = sqrtf((float)gx * (float)gx + (float)gy * (float)gy), each operation rounded to
//          float32; out = clamp(rintf(m / fdivisor + fbias), 0, max)
// With a threshold (`keeps`) a sum that is near the sample q at (x, y) is replaced, before it is
// divided: exact: s = sum + bias, k = q * divisor + bias, and s becomes k if |s - k| < keep_below.
// real: acc becomes k = fbias + q if |acc - k| < fkeep_below, each operation rounded to float32.
// A stencil with `floats` neither rounds to integers nor clamps; its results are float32:
//   exact: out = (float)((double)(sum icoef * p + bias) / (double)divisor); real: out = acc;
//   magnitude: out = m / fdivisor + fbias
// Float32 samples (depth 32) have float32 results; offset and border value are used as stated, in
// the samples' own units. Every filter is then real: out = acc, also where its numbers are
// integers. A magnitude's gx is such a sum, from 0, of fcoef (which is not scaled), and gy that of
// the transposed image. With real.side, the width and height, sums are of float64, by fused
// multiply-adds:
//   v(x) = sum column[j] * p(x, y + j - side / 2), from 0
//   acc = fbias; for each of the products: acc += sum row[i] * v(x + i - side / 2)
//   for each tap: acc += coef * p;  out = (float)acc, or k as above
// with i, j and taps ascending. An infinite
// sample or a NaN affects the results whose taps on it are not 0, and no
// others; which NaN value results is not defined. With divisor 1 and no offset, a magnitude of
// 8-bit samples is the exact root, rounded once: below 256 its square is an integer of less than 24
// bits, and the root of an integer is at least 1/2048 away from a tie. At 16 bits it is off by at
// most 0.508.
// With decimated.step (not exact): samples p of 8 bits times 256, of 16 and 32 bits as they are,
// over every column and row that the border extends the plane to:
//   s(m) = sum down * p / 2^16     at every step-th column and row, over both
//   f(m) = sum line * s / 2^16     over columns and rows of these
//   b(x) = sum up * f / 2^10       over the four nearest columns and rows
// Integers: s is rounded to an integer, f to a multiple of 1/16 of a sample, halves up; all else is
// exact, so that the order does not matter, and at 8 bits the sums of b are integers of 32 bits.
// Out = round(b), halves up, if amount is 0; else, with one = 16, at 8 bits 4096, b is rounded to a
// multiple of 1 / one and
//   out = clamp(round(p + amount / 2048 * (p - b)), 0, max)
// where a sample stays if |amount * (p - b)| * one < keep_below. Float32 results are not rounded
// at the end. Float32 samples have real weights and sums of float64, fused multiply-adds from 0 in
// ascending order, rows before columns, but at the end (s, f and b as above, with `coarse`):
//   s(m) = sum near[|y - m * step|] * p(y)     over the pixels less than 6 steps away
//   f(m) = line[0] * s(m), then + line[i] * (s(m - i) + s(m + i))
//   b(y) = sum (near[|y - m * step|] * scale[y % step]) * f(m)     over the same, columns first
// Out = (float)b, or p + c with c = amount * (p - b), rounded to float32 once, or p if |c| <
// fkeep_below.
#define CONV_COARSE_REACH 6 // steps

struct conv_coarse {
    double near[CONV_COARSE_REACH * CONV_DECIMATED_MAX_STEP]; // both sides sum to 1
    double scale[CONV_DECIMATED_MAX_STEP];                    // so that the weights of f sum to 1
    double line[CONV_DECIMATED_MAX_RADIUS + 1];
    double amount; // 0: out = b
};

struct conv_stencil {
    int width, height; // taps; the centre is at (width / 2, height / 2)
    // Interleaved samples per pixel: 1 for planes, 2 to 4 for images stored as RGBRGB... (see
    // conv_stencil_interleave), whose borders repeat pixels.
    int channels;
    int depth; // 8 or 16; 32: float32 samples
    int max;   // 255 or 65535; 0 at depth 32
    enum conv_border border;
    float border_value; // a sample at this depth, for CONV_BORDER_CONSTANT
    bool exact;         // coefficients, scale and offset are integers, and samples are, too
    bool magnitude;     // of the gradient; not exact, width == height
    bool floats;        // results are float32; conv_stencil_init sets it at depth 32 only
    bool keeps;         // has a threshold
    bool fits_int32; // exact, and 32 bits hold every sum (with bias and rounding) on any image, and
                     // s - k of a threshold
    bool symmetric;  // real, without a threshold, and fcoef equals its transpose
    int64_t divisor; // exact: > 0 (a negative scale inverts all coefficients)
    int64_t bias;    // exact: offset in samples times divisor
    float fbias;     // real and magnitude: offset in samples
    float fdivisor;  // magnitude: the scale
    int64_t keep_below;              // exact: the threshold in samples times divisor, rounded up
    struct conv_decimated decimated; // at depth 32 step, radius and around of `coarse`
    struct conv_coarse coarse;
    struct conv_real real; // depth 32; side 0: fcoef counts
    float fkeep_below; // real: the threshold in samples; exact: keep_below, infinite beyond 2^24
    int32_t icoef[CONV_FILTER_MAX_TAPS]; // exact and magnitude, row by row
    float fcoef[CONV_FILTER_MAX_TAPS];   // real: (float)(coef / scale), row by row; of magnitudes
                                         // at depth 32: (float)coef
};

// How a CUDA launch is divided among blocks.
struct conv_cuda_tiling {
    uint32_t first_tile; // index of the plane's first block in the launch (conv_stencil_tiles)
    // In the first plane of a launch's table in device memory: the blocks' common work counter and
    // the number of blocks that are done. 0 before and after each launch. With decimated.step
    // work_counter is where the plane's scratch memory begins, see conv_stencil_cells.
    uint32_t work_counter, finished_blocks;
};

// One plane of a launch: source and result, which never overlap and are in the memory of the device
// where the kernel runs. Rows begin at multiples of the sample size. On a CUDA device, where all
// rows of src begin at multiples of 16 bytes, the bytes after a row up to the next multiple may be
// read, without effect on the result. CUDA kernels read this struct as it is.
struct conv_stencil_plane {
    const uint8_t *src;             // at depth 32, rows of float32 at multiples of 4 bytes
    uint8_t *dst;                   // the same of a stencil with `floats`
    int64_t src_stride, dst_stride; // bytes, positive
    int32_t width, height;          // samples, at least 1
    const uint8_t *alpha; // premultiplied colours of a chain: the filtered alpha, laid out as dst
    uint32_t dst_spare;   // bytes after each row of dst that may be overwritten
    struct conv_cuda_tiling cuda; // unused on the CPU
};

// All planes of one launch, of the stencil's depth and any mix of sizes, and what their device
// needs.
struct conv_stencil_batch {
    const struct conv_stencil_plane *planes; // in host memory
    int count;
    union {
        struct {
            void *scratch; // conv_stencil_plan_scratch() bytes, 64-byte aligned, of this run only
            int from, to;  // the rows to be written of each plane; to == 0: all of them
        } cpu;
        struct {
            struct conv_stencil_plane *d_planes; // the same table in device memory
            uint32_t tiles;                      // blocks in the launch (conv_stencil_tiles)
            void *stream;                        // a cudaStream_t
            void *scratch; // conv_stencil_cells() bytes, 256-byte aligned, of this run only
        } cuda;
    };
};

#define CONV_STENCIL_PLAN_BYTES (24 << 10) // for the constants of any variant

// A variant made ready for a stencil: everything that does not depend on the planes, derived once.
// Constant after conv_stencil_plan_init: any number of threads may run it at the same time.
struct conv_stencil_plan {
    const struct conv_variant *variant;
    const struct conv_stencil *stencil; // outlives the plan
    union {
        struct {
            size_t scratch_fixed, scratch_per_column; // bytes: see conv_stencil_plan_scratch
        } cpu;
        struct {
            // Set by conv_cuda_upload: the filter in device memory, and the device's limits.
            const void *d_taps;
            int major;                            // of the compute capability
            int processors;                       // multiprocessors
            int shared_bytes, block_shared_bytes; // shared memory of a processor, of a block
        } cuda;
    };
    // The variant's own.
    __attribute__((aligned(16))) unsigned char constants[CONV_STENCIL_PLAN_BYTES];
};

// A score tells how well a variant suits a stencil that it can do, compared with the other variants
// of its place. It is a rank by measured speed of whole launches (kernels/README.md), not a speed:
//   CONV_SCORE_LAST      only if no other variant can do the filter
//   CONV_SCORE_UNSUITED  possible, but the method costs more than it saves: for forced choices
//   2 to 100             the faster, the higher
#define CONV_SCORE_LAST 0
#define CONV_SCORE_UNSUITED 1

struct conv_variant {
    const char *name;    // "<cpu|cuda>_<method>"
    const char *summary; // what distinguishes it
    enum conv_place place;
    unsigned needs; // see conv_place_offers
    // Whether the variant can do the stencil: arithmetic, depth, size. NULL: it can do every
    // stencil.
    bool (*can)(const struct conv_stencil *stencil);
    // How well it suits the stencil. Called only if `can` returns true. launch_bytes: samples of a
    // typical launch, in bytes; 0: unknown.
    int (*score)(const struct conv_stencil *stencil, size_t launch_bytes);
    // Fills in scratch and constants of a plan whose variant and stencil are set; the rest is 0.
    // NULL: there are none.
    void (*plan)(const struct conv_stencil *stencil, struct conv_stencil_plan *plan);
    // Filters every plane. CPU variants are done on return, CUDA variants have only queued the
    // work. CONV_OK, or CONV_ERR_DEVICE if a launch failed; the planes at dst are then undefined.
    enum conv_status (*run)(const struct conv_stencil_plan *plan,
                            const struct conv_stencil_batch *batch);
    int tile_width, tile_height; // CUDA: samples that a block writes
    // Whether it can do magnitudes, and float32 results; only then is `can` called for such
    // stencils.
    bool magnitudes, floats;
    // Kinds of stencils that the variant may support. `can` is not called for the others.
    bool float_samples; // depth 32
    bool thresholds;    // stencils with a threshold
    bool pixels;        // stencils with several channels
    bool decimated;     // stencils with decimated.step, and no others
    bool symmetric;     // symmetric stencils
};

// The definition: it has no requirements, can do every stencil, and all others are compared with
// it. Those with decimated.step it leaves to the second, which does no others.
extern const struct conv_variant conv_cpu_reference, conv_cpu_decimated;

// All variants of this build, CPU and CUDA mixed, in the order of lists and tables; *count is set.
const struct conv_variant *const *conv_stencil_variants(int *count);

// True if the variant can do the stencil on a machine that meets its requirements.
bool conv_stencil_takes(const struct conv_variant *variant, const struct conv_stencil *stencil);

// True if a machine that offers `have` (see conv_place_offers) can run this variant on the stencil.
bool conv_stencil_can(const struct conv_variant *variant, const struct conv_stencil *stencil,
                      unsigned have);

// The variant at `place` with the highest score among those that can run (if scores are equal, the
// first in the table); with `name` the variant of that name, whatever its score. NULL if there is
// none. launch_bytes: as for `score`.
const struct conv_variant *conv_stencil_pick(const struct conv_stencil *stencil,
                                             size_t launch_bytes, enum conv_place place,
                                             unsigned have, const char *name);

// Makes a plan of a variant that can run the stencil.
void conv_stencil_plan_init(struct conv_stencil_plan *plan, const struct conv_variant *variant,
                            const struct conv_stencil *stencil);

// Bytes of scratch that a CPU plan needs for planes of up to `width` samples; 0: none.
size_t conv_stencil_plan_scratch(const struct conv_stencil_plan *plan, int width);

// Analyses a checked filter for images of `depth` bits, 8, 16 or 32 (float32); border_value is in
// 8-bit units.
void conv_stencil_init(struct conv_stencil *stencil, const struct conv_filter *filter, int depth,
                       enum conv_border border, float border_value);

// Converts a stencil for planes to one for images stored as RGBRGB...: the taps of a row are
// `channels` samples apart, with zeros between them; at depth 32 it stays as it is, and kernels
// step over the samples between taps. Each plane of a launch is then such an image, whose width in
// samples is a multiple of `channels`. Returns false and leaves *stencil unchanged with
// decimated.step, and at depths 8 and 16 for magnitudes, for `symmetric`, as the taps would lose
// that order, and if a row of taps would be longer than CONV_FILTER_MAX_SIDE.
bool conv_stencil_interleave(struct conv_stencil *stencil, int channels);

// True if the coefficients of an exact stencil are integers column[j] * row[i]; fills `height` and
// `width` of them.
bool conv_stencil_factors(const struct conv_stencil *stencil, int32_t *column, int32_t *row);

// Matrices as sums of up to two products of integer lines: differences of Gaussians, Laplacians of
// Gaussians, sharpening filters, and any other matrix of rank 1 or 2 (products.c).
#define CONV_STENCIL_MOST_PRODUCTS 2

struct conv_stencil_products {
    int count; // 1 or 2
    int32_t column[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    int32_t row[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    int32_t sample; // the rest of the centre coefficient beside the products
    // The sum over all terms' coefficients; at least that of the matrix, since terms can cancel
    // each other.
    double magnitude;
};

// True if the coefficients of an exact stencil are the sum of column[j] * row[i] over the products,
// with `sample` more in the centre. False also for a matrix of zeros, and if a number does not fit.
bool conv_stencil_find_products(const struct conv_stencil *stencil,
                                struct conv_stencil_products *products);

// True if the coefficients of an exact stencil are integers column[j] * row[i] (of which `height`
// and `width` are filled in) except for the centre, which is *sample (not 0) more than the product.
// At least 3 x 3, where some coefficient is not 0 outside the middle row and column.
bool conv_stencil_sample_factors(const struct conv_stencil *stencil, int32_t *sample,
                                 int32_t *column, int32_t *row);

// True if a magnitude's matrix is the column (outer, inner, outer) times the row (-1, 0, 1), or its
// negative, with outer, inner >= 0 and 2 * outer + inner <= 16, like those of Sobel, Scharr and
// Prewitt. The sums are then integers of at most 21 bits. At 8 bits they are at most 16 * 255, and
// their squares have at most 24 bits; float32 holds all of these exactly.
bool conv_stencil_smoothing(const struct conv_stencil *stencil, int *outer, int *inner);

// Sets first_tile of each plane for this variant's tile size and returns the blocks of the launch.
uint32_t conv_stencil_tiles(const struct conv_variant *variant, struct conv_stencil_plane *planes,
                            int count);

// Bytes of device memory that a launch needs besides the planes: 0 without decimated.step, else at
// most 2 per sample of large planes, 10 at depth 32. Sets where each plane's part begins.
#define CONV_DECIMATED_CELLS_ALIGN 256
size_t conv_stencil_cells(const struct conv_stencil *stencil, struct conv_stencil_plane *planes,
                          int count);

#ifdef __cplusplus
}
#endif
