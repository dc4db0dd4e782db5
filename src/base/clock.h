// SPDX-License-Identifier: MIT
// The clock of all measurements and timeouts.
#ifndef CONV_BASE_CLOCK_H
#define CONV_BASE_CLOCK_H

#include <stdint.h>

// Nanoseconds of the monotonic clock; only differences are meaningful.
uint64_t conv_clock_ns(void);

// Nanoseconds of CPU time of the calling thread, which hardly depend on what else runs.
uint64_t conv_clock_thread_ns(void);

#endif
