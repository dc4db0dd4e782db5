// SPDX-License-Identifier: MIT
// What is being measured, on stderr.
#ifndef CONV_BENCH_BENCH_PROGRESS_H
#define CONV_BENCH_BENCH_PROGRESS_H

#include <stdbool.h>

// Replaces the line on the terminal by the name of what is measured; NULL clears it. Does nothing
// unless `shown` is set. One thread at a time.
void conv_bench_progress(bool shown, const char *name);

#endif
