// SPDX-License-Identifier: MIT
// The images that `conv bench kernels` filters.
#ifndef CONV_BENCH_BENCH_KERNELS_IMAGES_H
#define CONV_BENCH_BENCH_KERNELS_IMAGES_H

#include "backend/group.h"
#include "image/image.h"

#define CONV_BENCH_CHANNELS 3

// Shapes of `count` RGB images, of one size or, if width is 0, of conv_bench_mix's sizes. *pixels
// is how many pixels they have together.
enum conv_status conv_bench_images_shape(struct conv_image *shapes, int count, int width,
                                         int height, int depth, double *pixels,
                                         struct conv_err *err);

// Fills h_in of a group that holds them.
void conv_bench_images_fill(const struct conv_group *group);

// Planes, laid out in `bytes` as the table says, to RGBRGB... in `wide`, or back (`split`).
// `wide_group` holds the same images as one plane each, three times as wide.
void conv_bench_images_interleave(const struct conv_group_plane *planes, int count, uint8_t *bytes,
                                  const struct conv_group *wide_group, uint8_t *wide, bool split);

#endif
