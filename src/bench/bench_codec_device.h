// SPDX-License-Identifier: MIT
// The part of `conv bench codec` that measures a device.
#ifndef CONV_BENCH_BENCH_CODEC_DEVICE_H
#define CONV_BENCH_BENCH_CODEC_DEVICE_H

#include "bench/bench_images.h"

// conv bench codec FOLDER --device cuda: the device's decoder and encoder alone, one row per
// kernel, with 1 to 4,000 images in flight (--images N: with N, and also with each number of
// threads per image). Decoded planes are compared with libpng's, encoded images are decoded by
// libpng. Prints a table, or JSON. CONV_ERR_FORMAT, after the table, if pixels were wrong.
enum conv_status conv_bench_codec_device(const struct conv_bench_options *options,
                                         const struct conv_bench_images *images,
                                         struct conv_err *err);

#endif
