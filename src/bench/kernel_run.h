// SPDX-License-Identifier: MIT
// One kernel on one device with staging of its own: what `verify` compares and `bench` times.
#ifndef CONV_BENCH_KERNEL_RUN_H
#define CONV_BENCH_KERNEL_RUN_H

#include "backend/backend.h"
#include "cli/options.h"
#include "kernels/stencil/stencil.h"

struct conv_kernel_run {
    const struct conv_backend_ops *ops;
    struct conv_backend *backend;
    struct conv_stream *stream;
    struct conv_group group;
    struct conv_group_plane *planes;
    const struct conv_variant *variant;
    int filter_count;
};

// `row` need not be in the table. CONV_ERR_DEVICE or CONV_ERR_USAGE if this kernel cannot run here
// or not with these filters.
enum conv_status conv_kernel_run_open(struct conv_kernel_run *contender,
                                      const struct conv_variant *row,
                                      const struct conv_options *options,
                                      const struct conv_filter *filters, int filter_count,
                                      struct conv_err *err);
void conv_kernel_run_close(struct conv_kernel_run *contender); // half-built is fine

// Makes room for `count` images, one group, and says where their planes are to be written:
// `in` has room for as many, or is NULL.
enum conv_status conv_kernel_run_place(struct conv_kernel_run *contender,
                                       const struct conv_image *shapes, int count,
                                       bool filter_alpha, struct conv_image *in,
                                       struct conv_err *err);

// Places the same image as `other` has, pixels included.
enum conv_status conv_kernel_run_copy(struct conv_kernel_run *contender,
                                      const struct conv_kernel_run *other,
                                      const struct conv_image *shape, bool filter_alpha,
                                      struct conv_err *err);

struct conv_difference {
    int plane, x, y;
    unsigned expected, got;
};

// True if the results differ; *first is the first sample that does.
bool conv_kernel_run_differs(const struct conv_kernel_run *reference,
                             const struct conv_kernel_run *contender,
                             struct conv_difference *first);

#endif
