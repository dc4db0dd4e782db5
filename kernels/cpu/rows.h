// SPDX-License-Identifier: MIT
// A row of the variant table over the kernels of pairs.h and floats.h, for each file of an
// instruction set.
#ifndef CONV_KERNELS_CPU_ROWS_H
#define CONV_KERNELS_CPU_ROWS_H

#include "base/cpu.h"
#include "kernels/cpu/floats.h"
#include "kernels/cpu/pairs.h"

static bool fits_vectors(const struct conv_stencil *stencil)
{
    return (stencil->exact || HAVE_FMA) && conv_cpu_plan(stencil) != CONV_CPU_NONE;
}

static enum conv_status run_vectors(const struct conv_stencil *stencil,
                                    const struct conv_stencil_batch *batch)
{
    enum conv_cpu_sums sums = conv_cpu_plan(stencil);
    if (sums == CONV_CPU_PAIRS)
        filter_pairs(stencil, batch);
    else
        filter_floats(stencil, batch, sums == CONV_CPU_DOUBLES);
    return CONV_OK;
}

#endif
