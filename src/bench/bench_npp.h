// SPDX-License-Identifier: MIT
// NVIDIA's own filter, for `conv bench kernels` alone; built with -DCONV_BENCH_NPP=ON.
#ifndef CONV_BENCH_BENCH_NPP_H
#define CONV_BENCH_BENCH_NPP_H

#include "backend/group.h"
#include "base/err.h"
#include "filter/filter.h"

// The planes lie at their offsets in `bytes` bytes of source; result gets NPP's, where those lie.
// One call of nppiFilterBorder_8u_C1R a plane, as NPP takes no more at once, or of
// nppiFilterBorder32f_8u_C1R for real filters. ns gets the times of `runs` rounds over all planes,
// the cache flushed before each. CONV_ERR_UNSUPPORTED for what NPP does not have.
enum conv_status conv_bench_npp(const struct conv_filter *filter, enum conv_border border,
                                const struct conv_group_plane *planes, int count,
                                const uint8_t *source, uint8_t *result, size_t bytes, int device,
                                uint64_t *ns, int runs, struct conv_err *err);

// The same for a column times a row, in two calls a plane: nppiFilterRowBorder_8u_C1R, and
// nppiFilterColumnBorder_8u_C1R with what that has made of it, bytes.
enum conv_status conv_bench_npp_passes(const struct conv_filter *filter, enum conv_border border,
                                       const struct conv_group_plane *planes, int count,
                                       const uint8_t *source, uint8_t *result, size_t bytes,
                                       int device, uint64_t *ns, int runs, struct conv_err *err);

#endif
