// SPDX-License-Identifier: MIT
// `conv bench streams --stage device`: the images are decoded once and wait in staging memory as
// groups; streams take them in turn, again and again, and the results are dropped. What the wires
// and the kernels give when no PNG is in the way.
#ifndef CONV_BENCH_BENCH_DEVICE_H
#define CONV_BENCH_BENCH_DEVICE_H

#include <stdatomic.h>

#include "cli/device.h"
#include "cli/options.h"
#include "page/page.h"

struct conv_bench_device;

// Decodes what the folder holds, as far as it fits into some groups for each of `streams` streams
// of each device.
enum conv_status conv_bench_device_open(struct conv_bench_device **bench,
                                        const struct conv_options *options,
                                        const struct conv_device *device, const char *folder,
                                        int streams, struct conv_err *err);
void conv_bench_device_close(struct conv_bench_device *bench); // NULL is fine

// Runs `streams` streams of each device for a second. *bytes is what they copied, in and out
// together.
enum conv_status conv_bench_device_run(struct conv_bench_device *bench, int streams,
                                       atomic_int *stop, struct conv_totals *totals, double *bytes,
                                       struct conv_err *err);

// Measures what copies alone reach; *measured is false on a backend that has none.
enum conv_status conv_bench_device_copies(struct conv_bench_device *bench, bool *measured,
                                          struct conv_page_copies *copies, struct conv_err *err);

#endif
