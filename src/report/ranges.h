// SPDX-License-Identifier: MIT
// Ranges of NVTX, which Nsight Systems shows; nothing in a build without the CUDA toolkit, next to
// nothing when no profiler is there.
#ifndef CONV_REPORT_RANGES_H
#define CONV_REPORT_RANGES_H

#if CONV_HAVE_CUDA

void conv_ranges_push(const char *name); // on this thread, until the matching pop
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
