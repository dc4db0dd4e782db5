// SPDX-License-Identifier: MIT
// The ranges of trace.h in a file of their own: NVTX's header needs dlopen, so a static program
// links others in their place.
#include "report/trace.h"

#if CONV_HAVE_CUDA

#include <nvtx3/nvToolsExt.h>

void conv_ranges_push(const char *name)
{
    (void)nvtxRangePushA(name); // the level of nesting
}

void conv_ranges_pop(void)
{
    (void)nvtxRangePop();
}

#endif
