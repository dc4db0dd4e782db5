// SPDX-License-Identifier: MIT
// NVTX ranges for Nsight Systems. They cost nothing in a build without CUDA and next to nothing
// without a profiler.
#ifndef CONV_REPORT_RANGES_H
#define CONV_REPORT_RANGES_H

#if CONV_HAVE_CUDA

void conv_ranges_push(const char *name); // on the calling thread, until the matching pop
void conv_ranges_pop(void);

#else

static inline void conv_ranges_push(const char *name)
{
    (void)name;
}

static inline void conv_ranges_pop(void)
{
}

#endif

#endif
