// SPDX-License-Identifier: MIT
// Shows on stderr what is being measured.
#ifndef CONV_BENCH_BENCH_PROGRESS_H
#define CONV_BENCH_BENCH_PROGRESS_H

#include <stdbool.h>

// Replaces the line on the terminal by `name`, which is being measured; NULL clears it. Does
// nothing unless `shown` is set. One thread at a time.
void conv_bench_progress(bool shown, const char *name);

#endif
