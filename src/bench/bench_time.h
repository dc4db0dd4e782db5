// SPDX-License-Identifier: MIT
// Divides times and amounts of work that are measured: 1, or 10 with CONV_BENCH_SHORTER in the
// environment, by which tests show that the code is right; the figures mean little then.
#ifndef CONV_BENCH_TIME_H
#define CONV_BENCH_TIME_H

#include <stdlib.h>

#define CONV_BENCH_SHORTER (getenv("CONV_BENCH_SHORTER") ? 10u : 1u)

#endif
