// SPDX-License-Identifier: MIT
// One band of an image through all filters, on the CPU: what a task of filter_cpu.c does.
#ifndef CONV_API_API_FILTER_BAND_H
#define CONV_API_API_FILTER_BAND_H

#include "api/api_device.h"
#include "engine/chain.h"

struct conv_api_filter {
    const struct conv_api_host *host;
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
struct conv_api_filter_band {
    int top, bottom, first, last;
};

// True if there is one filter only, and it can read the source's planes and write the result's.
bool conv_api_filter_band_is_direct(const struct conv_api_filter *filter, const conv_image *source,
                                    const conv_image *result);

// Filters the band; alpha that no filter changes is copied. Results are undefined after a failure.
// Any thread, each with another band. CONV_ERR_MEMORY, or what a kernel returns.
enum conv_status conv_api_filter_band_run(const struct conv_api_filter *filter,
                                          const struct conv_api_filter_band *band,
                                          const conv_image *result, const conv_image *source,
                                          struct conv_err *err);

#endif
