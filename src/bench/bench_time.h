// SPDX-License-Identifier: MIT
// Divides times and amounts of work that are measured. It is 1, except in builds with sanitizers:
// they show that the code is right, and their figures mean nothing.
#ifndef CONV_BENCH_TIME_H
#define CONV_BENCH_TIME_H

#ifndef CONV_BENCH_SHORTER
#define CONV_BENCH_SHORTER 1
#endif

#endif
