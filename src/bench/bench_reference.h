// SPDX-License-Identifier: MIT
// What the reference makes of the images that kernels are held against: slow, so all cores do it.
#ifndef CONV_BENCH_BENCH_REFERENCE_H
#define CONV_BENCH_BENCH_REFERENCE_H

#include "cli/options.h"
#include "image/image.h"
#include "kernels/stencil/stencil.h"

struct conv_bench_reference {
    const struct conv_options *options;
    const struct conv_variant *reference;
    const struct conv_filter *filters;
    int filter_count;
    const struct conv_image *shapes; // of the images, `channels` planes each
    int images;
    const struct conv_group_plane *planes; // where they lie in source and result
    const uint8_t *source;
    uint8_t *result;
};

enum conv_status conv_bench_reference(const struct conv_bench_reference *truth,
                                      struct conv_err *err);

#endif
