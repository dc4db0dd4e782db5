// SPDX-License-Identifier: MIT
// The filters in the binary. Their numbers are the files under filters/, which the build turns into
// FILTER_TEXT(name, "contents") lines: a row without a file does not compile, a file without a row
// trips the assertion below.
//
// Where the less usual ones come from:
//   emboss      the kernel of the ffmpeg manual (convolution filter); emboss5 widens it
//   sharpen     identity - laplacian
//   sharpen5    the second sharpening kernel of Lode Vandevenne's Computer Graphics Tutorial
//   unsharp     2 * identity - gaussian5
//   laplacian5  the usual integer Laplacian of Gaussian, sigma near 1
//   sobel, prewitt, scharr  OpenCV's signs: brighter to the right (x) or below (y) is positive.
//               Without -x or -y: the magnitude of both, from the file of -x
#include "filter/filter.h"

#define FILTER_TEXT(name, text) static const char text_##name[] = text;
#include "filter_texts.h"
#undef FILTER_TEXT

#define FILTER_TEXT(name, text) FILE_##name,
enum filter_file {
#include "filter_texts.h"
    FILE_COUNT
};
#undef FILTER_TEXT

static const struct conv_filter_builtin builtins[] = {
    {"identity", "identity", "leaves the pixels as they are", text_identity, false},
    {"blur", "blur", "mean of 3x3 pixels", text_blur, false},
    {"blur5", "blur", "mean of 5x5 pixels", text_blur5, false},
    {"gaussian", "gaussian", "soft blur, binomial 3x3", text_gaussian, false},
    {"gaussian5", "gaussian", "soft blur, binomial 5x5", text_gaussian5, false},
    {"motion", "motion", "blur along the falling diagonal, 5x5", text_motion, false},
    {"sharpen", "sharpen", "sharpens against the 4 neighbours", text_sharpen, false},
    {"sharpen5", "sharpen", "sharpens mildly against a ring of 5x5", text_sharpen5, false},
    {"unsharp", "unsharp", "unsharp mask over the binomial 5x5", text_unsharp, false},
    {"emboss", "emboss", "relief lit along the diagonal, colours kept", text_emboss, false},
    {"emboss5", "emboss", "deeper relief, 5x5", text_emboss5, false},
    {"edge", "edge", "outlines against the 8 neighbours", text_edge, false},
    {"laplacian", "laplacian", "second derivative, 4 neighbours", text_laplacian, false},
    {"laplacian5", "laplacian", "Laplacian of Gaussian, 5x5", text_laplacian5, false},
    {"sobel", "sobel", "gradient magnitude, smoothed 1 2 1", text_sobel_x, true},
    {"sobel-x", "sobel-x", "gradient to the right, smoothed 1 2 1", text_sobel_x, false},
    {"sobel-y", "sobel-y", "gradient downwards, smoothed 1 2 1", text_sobel_y, false},
    {"prewitt", "prewitt", "gradient magnitude, smoothed 1 1 1", text_prewitt_x, true},
    {"prewitt-x", "prewitt-x", "gradient to the right, smoothed 1 1 1", text_prewitt_x, false},
    {"prewitt-y", "prewitt-y", "gradient downwards, smoothed 1 1 1", text_prewitt_y, false},
    {"scharr", "scharr", "gradient magnitude, smoothed 3 10 3", text_scharr_x, true},
    {"scharr-x", "scharr-x", "gradient to the right, smoothed 3 10 3", text_scharr_x, false},
    {"scharr-y", "scharr-y", "gradient downwards, smoothed 3 10 3", text_scharr_y, false},
};
#define BUILTIN_COUNT (sizeof builtins / sizeof builtins[0])

#define MAGNITUDE_COUNT 3 // rows that share the file of another

_Static_assert(BUILTIN_COUNT == FILE_COUNT + MAGNITUDE_COUNT,
               "each file under filters/ needs one row above");

const struct conv_filter_builtin *conv_filter_builtins(int *count)
{
    *count = (int)BUILTIN_COUNT;
    return builtins;
}
