// SPDX-License-Identifier: MIT
// Divides times and amounts of work that are measured. It is 1, except in builds with sanitizers,
// which show that the code is right and whose figures mean nothing.
#ifndef CONV_BENCH_TIME_H
#define CONV_BENCH_TIME_H

#ifndef CONV_BENCH_SHORTER
#define CONV_BENCH_SHORTER 1
#endif

#endif
