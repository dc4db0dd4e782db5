// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_BENCH_CODEC_DEVICE_H
#define CONV_BENCH_BENCH_CODEC_DEVICE_H

#include "bench/bench_images.h"

// conv bench codec FOLDER --device cuda: the device's decoder and encoder alone, a row a kernel,
// with more and more images in flight (--batch N: with N). Every result is checked: what was
// decoded against libpng's planes, what was encoded by libpng. Prints the table, or JSON.
// CONV_ERR_FORMAT, after the table, if pixels were wrong.
enum conv_status conv_bench_codec_device(const struct conv_options *options,
                                         const struct conv_bench_images *images,
                                         struct conv_err *err);

#endif
