// SPDX-License-Identifier: MIT
// NVIDIA's library for neural networks, for `conv bench kernels` alone; built with
// -DCONV_BENCH_NPP=ON where its header is found. The library itself is looked for at run time.
#ifndef CONV_BENCH_BENCH_CUDNN_H
#define CONV_BENCH_BENCH_CUDNN_H

#include "backend/group.h"
#include "base/err.h"
#include "filter/filter.h"

// As conv_bench_npp. cuDNN convolves float32: planes go in as floats, with the replicated border
// around them, sums come out, and neither that nor rounding, which is done here, is in the times.
// Planes of one size are one call, others a call each. CONV_ERR_UNSUPPORTED if there is no cuDNN.
enum conv_status conv_bench_cudnn(const struct conv_filter *filter, enum conv_border border,
                                  const struct conv_group_plane *planes, int count,
                                  const uint8_t *source, uint8_t *result, size_t bytes, int device,
                                  uint64_t *ns, int runs, struct conv_err *err);

#endif
