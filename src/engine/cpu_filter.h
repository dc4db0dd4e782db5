// SPDX-License-Identifier: MIT
// What the files of the CPU share: cpu.c (its row of engine.h, and groups), cpu_views.c (images in
// memory, cut into bands) and cpu_band.c (one band through all filters).
#ifndef CONV_ENGINE_CPU_FILTER_H
#define CONV_ENGINE_CPU_FILTER_H

#include "engine/chain.h"
#include "engine/engine.h"

struct conv_device_context {
    struct conv_device_host host;
};

struct conv_backend {
    const struct conv_device_host *host; // NULL: groups only
    enum conv_alpha_mode alpha;
    bool floats;
    bool deep;  // 8-bit images are filtered with 16 bits: the passes of a large Gaussian
    bool wraps; // the last rows reach the first ones
    int reach;  // rows above and below that the chain reads for a row
    int op_count;
    struct conv_chain_op chain[];
};

// A band as it passes through the chain: rows `top` to `bottom` - 1 of the image are read, of which
// `first` to `last` - 1 become results.
struct conv_cpu_band {
    int top, bottom, first, last;
};

// True if there is one filter only, and it can read the source's planes and write the result's.
bool conv_cpu_band_is_direct(const struct conv_backend *filter, const conv_image *source,
                             const conv_image *result);

// Filters the band; alpha that no filter changes is copied. Results are undefined after a failure.
// Any thread, each with another band. CONV_ERR_MEMORY, or what a kernel returns.
enum conv_status conv_cpu_band_run(const struct conv_backend *filter,
                                   const struct conv_cpu_band *band, const conv_image *result,
                                   const conv_image *source, struct conv_err *err);

// filter_run of engine.h.
enum conv_status conv_cpu_views_run(struct conv_backend *filter, const conv_image *results,
                                    const conv_image *sources, int count, void *stream,
                                    struct conv_err *err);

#endif
