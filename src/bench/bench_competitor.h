// SPDX-License-Identifier: MIT
// Other libraries, measured for comparison and used nowhere else.
#ifndef CONV_BENCH_BENCH_COMPETITOR_H
#define CONV_BENCH_BENCH_COMPETITOR_H

#include "base/buffer.h"
#include "bench/bench_launch.h"
#include "png/png.h"

// One filter on planes. `source` and `result` hold them at their offsets, `bytes` bytes each.
struct conv_competitor_filter {
    const struct conv_filter *filter;
    enum conv_border border;
    int depth;
    const struct conv_bench_plane *planes;
    int count;
    const uint8_t *source;
    uint8_t *result;
    size_t bytes;
    int device; // CUDA ordinal
};

// A library, or one way to use it. It has a function for each task that it can do; the others are
// NULL. Each reports CONV_ERR_UNSUPPORTED for a task that the library or this measurement lacks.
struct conv_competitor {
    const char *name, *summary;
    const char *inexact; // the summary if its results differ from ours
    unsigned tolerance;  // most that a sample may differ; more means another filter

    // Filters all planes once to warm up, then `runs` times with cold caches: ns[0 ... runs - 1].
    enum conv_status (*filter)(const struct conv_competitor_filter *task, uint64_t *ns, int runs,
                               struct conv_err *err);

    // Decodes a PNG file into rows of conv_interleave_bytes(&header->shape) bytes; there is no
    // split into planes. 8 bits per sample.
    enum conv_status (*decode)(struct conv_buffer *pixels, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, struct conv_err *err);
};

// All competitors that this program was built with; *count is set.
const struct conv_competitor *const *conv_competitors(int *count);

extern const struct conv_competitor conv_competitor_npp, conv_competitor_npp_passes;

#endif
