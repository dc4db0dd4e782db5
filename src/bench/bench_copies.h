// SPDX-License-Identifier: MIT
// What copies alone reach, for `conv bench streams --stage device`.
#ifndef CONV_BENCH_BENCH_COPIES_H
#define CONV_BENCH_BENCH_COPIES_H

#include "cli/device.h"
#include "page/page.h"

// Large copies on all devices at once, and images of `image_bytes` one by one, over streams and
// in groups on the first. On a backend with time_copies.
enum conv_status conv_bench_copies_time(struct conv_page_copies *copies,
                                        const struct conv_device *device, size_t image_bytes,
                                        size_t group_bytes, struct conv_err *err);

#endif
