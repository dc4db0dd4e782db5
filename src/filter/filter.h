// SPDX-License-Identifier: MIT
// A filter: a small matrix of coefficients, a scale, an offset. At each pixel of each channel:
//   out(x,y) = clamp(round_half_even(sum c[j][i] * p(x+i-rx, y+j-ry) / scale + offset), 0, max)
// A gradient magnitude has two sums: gx by the matrix c, gy by its transpose. In float32, each
// operation rounded:
//   out(x,y) = clamp(round_half_even(sqrt(gx * gx + gy * gy) / scale + offset), 0, max)
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONV_FILTER_MAX_SIDE 31
#define CONV_FILTER_MAX_TAPS (CONV_FILTER_MAX_SIDE * CONV_FILTER_MAX_SIDE)
#define CONV_FILTER_MAX_CHAIN 16          // filters in one command, `a,b,c`
#define CONV_FILTER_MAX_COEF 2147483647.0 // |c|, |scale|: sums then fit 64 bits at every size
#define CONV_FILTER_MAX_OFFSET 65535.0

// A Gaussian that is too large for a matrix: the image is reduced to one sample of every `step`
// rows and columns (down), filtered there (line), and enlarged again (up). Each of the three is a
// column times a row of integers, symmetric, and its result is rounded once (kernels/stencil):
// rows and columns are treated alike. Borders extend the image, nothing else.
#define CONV_DECIMATED_MAX_STEP 32
#define CONV_DECIMATED_MAX_RADIUS 63
#define CONV_DECIMATED_GRID 96 // a multiple of every step
#define CONV_DECIMATED_AMOUNT 2048

struct conv_decimated {
    int step;   // 0: the filter is a matrix
    int radius; // of the line
    // Weights of the pixels 0, 1, ... up to 2 * step - 1 away from a coarse sample, and of the
    // coarse samples 0 to `radius` away; both sides together sum to 2^16.
    int32_t down[2 * CONV_DECIMATED_MAX_STEP], line[CONV_DECIMATED_MAX_RADIUS + 1];
    // For the pixel that is k pixels after coarse sample m: weights of m - 1 to m + 2, of sum 2^10.
    int32_t up[CONV_DECIMATED_MAX_STEP][4];
    // 0: the result is the Gaussian; else the sample plus amount / CONV_DECIMATED_AMOUNT times its
    // difference from that.
    int32_t amount, around; // around: steps that the result depends on beyond the line
};

// The real coefficients of a parametric filter, for float32 samples: up to two products of a column
// and a row that is a multiple of it, plus single ones. The integers of `coef` may be fewer. A
// Gaussian with a sigma takes a coarse image instead, see kernels/stencil.
#define CONV_REAL_MAX_SIDE 39
#define CONV_REAL_MOST_LINES 2
#define CONV_REAL_MOST_TAPS 128

struct conv_real {
    int side; // odd, of lines and of the square of taps; 0: there are none
    int lines, taps;
    double sigma, gain; // gain: 0, or of the sample's difference from the Gaussian, which is added
    double column[CONV_REAL_MOST_LINES][CONV_REAL_MAX_SIDE];
    double row[CONV_REAL_MOST_LINES][CONV_REAL_MAX_SIDE];
    struct conv_real_tap {
        int32_t x, y; // from the centre
        double coef;
    } tap[CONV_REAL_MOST_TAPS]; // with lines at most one, of the centre
};

struct conv_filter {
    char name[64];
    int width, height;                 // odd, 1 to CONV_FILTER_MAX_SIDE
    double coef[CONV_FILTER_MAX_TAPS]; // row by row: coef[j * width + i], top left first
    double scale;                      // divisor, never 0
    double offset;                     // in 8-bit units
    bool magnitude; // of the gradient; the matrix is square and its coefficients are integers
    // A sample stays unchanged (except for the offset) where the result, before offset and
    // rounding, differs from it by less than this. 8-bit units; 0: no threshold. Not for
    // magnitudes.
    double threshold;
    // For a parametric filter: how far a result can be from that of the real coefficients, before
    // rounding, on any 8-bit image; 257 times as much at 16 bits.
    double deviation;
    struct conv_real real;
    // With a step the matrix has one coefficient, of the sample itself, which is not used.
    struct conv_decimated decimated;
};

enum conv_border {
    CONV_BORDER_REPLICATE,  // aaa|abcd|ddd
    CONV_BORDER_REFLECT,    // cba|abcd|dcb
    CONV_BORDER_REFLECT101, // dcb|abcd|cba
    CONV_BORDER_WRAP,       // bcd|abcd|abc
    CONV_BORDER_CONSTANT,   // vvv|abcd|vvv
};

// How images with an alpha channel are filtered.
enum conv_alpha_mode {
    CONV_ALPHA_KEEP,        // colours only; alpha passes through
    CONV_ALPHA_FILTER,      // all channels
    CONV_ALPHA_PREMULTIPLY, // all, the colours multiplied by alpha before and divided by it after
    CONV_ALPHA_MODES,
};
extern const char *const conv_alpha_names[]; // ended by NULL

// Checks sides, ranges and scale, and for a magnitude that the matrix is square and of integers.
// CONV_ERR_FORMAT with the reason.
enum conv_status conv_filter_check(const struct conv_filter *filter, struct conv_err *err);

// True if coefficients, scale and offset are all integers: then the result is exact by definition.
// Never true of a magnitude or with a step.
bool conv_filter_is_exact(const struct conv_filter *filter);

// The only test of separability, for kernels and for `conv show`: true if coef[j * width + i] is
// column[j] * row[i] for integers, of which `height` and `width` are then set. False for a matrix
// of zeros. Every |coef| must be at most CONV_FILTER_MAX_COEF.
bool conv_filter_factor(const int32_t *coef, int width, int height, int32_t *column, int32_t *row);

// True if the filter is exact and its coefficients factor as above; then kernels may filter in two
// passes. Real filters are defined as one order of multiply-adds, so they are never separable in
// this sense. Stores the factors (integers); the pointers may be NULL.
bool conv_filter_is_separable(const struct conv_filter *filter, double *column, double *row);

// Rotates the matrix by 180 degrees: correlation becomes convolution.
void conv_filter_flip(struct conv_filter *filter);

// How far from a sample its result depends on others; 0 without a step.
int conv_decimated_reach(const struct conv_decimated *decimated);

// Sum of the coefficients.
double conv_filter_sum(const struct conv_filter *filter);

// "replicate", ..., as conv_filter_parse_border takes it; a static string.
const char *conv_filter_border_name(enum conv_border border);

// --- parse.c: text to filter ---------------------------------------------------------------------

// Parses libvips' matrix format: a line `width height [scale offset]`, then one line per row;
// blanks, commas, semicolons or tabs between numbers. CONV_ERR_FORMAT with "SOURCE:LINE:COLUMN:
// ...".
enum conv_status conv_filter_parse_matrix(struct conv_filter *filter, const char *text, size_t size,
                                          const char *source, struct conv_err *err);

// `--kernel SPEC`: "3x3: -2,-1,0 -1,1,1 0,1,2" (ImageMagick), "1 2 1 2 4 2 1 2 1" (a square of
// plain numbers) or "@FILE". Scale 1, offset 0 unless the file says otherwise.
enum conv_status conv_filter_parse_spec(struct conv_filter *filter, const char *spec,
                                        struct conv_err *err);

// Reads a matrix file. Errors as conv_filter_parse_matrix, and CONV_ERR_IO, CONV_ERR_MEMORY.
enum conv_status conv_filter_load(struct conv_filter *filter, const char *path,
                                  struct conv_err *err);

// --- builtin.c: the filters in the binary --------------------------------------------------------

struct conv_filter_builtin {
    const char *name;    // "emboss5"
    const char *family;  // "emboss": what --size chooses within
    const char *summary; // one line for `conv list`
    const char *text;    // content of the file under filters/
    bool magnitude;      // of the gradient whose x component is the file's filter
};

// The table, in the order to print it; *count is set.
const struct conv_filter_builtin *conv_filter_builtins(int *count);

// --- parametric.c: filters made from numbers -----------------------------------------------------

struct conv_filter_family {
    const char *name;    // "gaussian"
    const char *usage;   // "gaussian:SIGMA"
    const char *example; // "gaussian:2.5", which conv_filter_parse_chain accepts
    const char *summary; // one line for `conv list`
};

// The families, in the order to print them; *count is set.
const struct conv_filter_family *conv_filter_families(int *count);

// "SIGMA 0.2 to 250 pixels, AMOUNT 0.01 to 10 (default 1)": the parameters of one of them.
void conv_filter_describe_numbers(char *text, size_t size, const struct conv_filter_family *family);

// The family whose name and a colon the text begins with, or NULL.
const struct conv_filter_family *conv_filter_family_of(const char *text);

// The length of the first element of a chain. A number after a comma belongs to a parametric filter
// before it; anything else begins the next element.
size_t conv_filter_element_length(const char *text);

// Makes the filter that an element of a family such as "gaussian:2.5" describes. CONV_ERR_USAGE,
// with an example, for numbers that are missing, misspelled or out of range.
enum conv_status conv_filter_make_parametric(struct conv_filter *filter, const char *text,
                                             struct conv_err *err);

// --- resolve.c: texts of the user to filters -----------------------------------------------------

struct conv_filter_settings {
    const char *kernel;  // --kernel SPEC, or NULL
    int size;            // 3, 5, or 0 = as the filter's name says
    const char *divisor; // "N" or "sum", or NULL
    const char *bias;    // "N", or NULL
    bool flip;
};

// Parses "emboss,blur" with the options of the command line, which apply to each filter of the
// chain. `filters` has room for CONV_FILTER_MAX_CHAIN. An element is the name of a built-in, a
// parametric filter, `custom` (with --kernel) or the path of a matrix file (with a '/' or ending in
// ".mat").
// CONV_ERR_USAGE for an unknown name (the nearest one is suggested) and for values out of range.
enum conv_status conv_filter_parse_chain(struct conv_filter *filters, int *count, const char *text,
                                         const struct conv_filter_settings *options,
                                         struct conv_err *err);

// "reflect101", "edge", "constant:128", ... CONV_ERR_USAGE otherwise; `mirror` is refused with a
// text that gives both its meanings. *value is set for constant, else 0: any number up to 1e30 in
// magnitude, as float32 samples are.
enum conv_status conv_filter_parse_border(enum conv_border *border, float *value, const char *text,
                                          struct conv_err *err);

// CONV_ERR_USAGE unless the value of a border is one for images of 8 and 16 bits: a whole number of
// 8-bit units from 0 to 255.
enum conv_status conv_filter_check_border(float value, struct conv_err *err);

// Reads all of text[0..size) as a decimal number: sign, digits with an optional point, exponent,
// between blanks. No hexadecimal, no nan or inf; -0 becomes 0. CONV_ERR_FORMAT, quoting the text,
// if it is not such a number or beyond +-limit; *value is then unchanged. Any thread.
enum conv_status conv_number_parse(double *value, double limit, const char *text, size_t size,
                                   struct conv_err *err);
