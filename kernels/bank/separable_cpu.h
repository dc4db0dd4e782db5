// SPDX-License-Identifier: MIT
// The CPU's versions of conv_separable_run, one per instruction set. Private to kernels/bank.
#ifndef CONV_KERNELS_BANK_SEPARABLE_CPU_H
#define CONV_KERNELS_BANK_SEPARABLE_CPU_H

#include "kernels/bank/separable.h"

// Output rows whose lines are kept at a time: at 31 taps and 768 columns two lines of a band take
// 380 KB, which second-level caches hold.
#define CONV_SEPARABLE_BAND 32

// Floats from one row of a line to the next.
static inline int64_t conv_separable_pitch(int out_width)
{
    return (out_width + 15) / 16 * 16;
}

typedef void (*conv_separable_fn)(const struct conv_separable *filters,
                                  const struct conv_separable_batch *batch);

// Like conv_separable_run; the processor must have the instructions. May run on any thread.
void conv_separable_portable(const struct conv_separable *filters,
                             const struct conv_separable_batch *batch);
void conv_separable_avx2(const struct conv_separable *filters,
                         const struct conv_separable_batch *batch);
void conv_separable_avx512(const struct conv_separable *filters,
                           const struct conv_separable_batch *batch);

#endif
