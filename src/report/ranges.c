// SPDX-License-Identifier: MIT
#include "report/ranges.h"

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
