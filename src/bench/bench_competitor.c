// SPDX-License-Identifier: MIT
#include "bench/bench_competitor.h"

const struct conv_competitor *const *conv_competitors(int *count)
{
    static const struct conv_competitor *const competitors[] = {
#if CONV_HAVE_NPP
        &conv_competitor_npp,
        &conv_competitor_npp_passes,
#endif
#if CONV_HAVE_CUDNN
        &conv_competitor_cudnn,
#endif
        &conv_competitor_stb,
#if CONV_HAVE_SPNG
        &conv_competitor_spng,
#endif
    };
    *count = sizeof competitors / sizeof competitors[0];
    return competitors;
}
