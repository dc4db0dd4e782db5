// SPDX-License-Identifier: MIT
// A row of the variant table over the kernels of strips.h and floats.h, for each file of an
// instruction set.
#ifndef CONV_KERNELS_STENCIL_CPU_VECTOR_VARIANT_H
#define CONV_KERNELS_STENCIL_CPU_VECTOR_VARIANT_H

#include "base/features.h"
#include "kernels/stencil/cpu/direct.h"
#include "kernels/stencil/cpu/floats.h"
#include "kernels/stencil/cpu/strips.h"

static bool fits_vectors(const struct conv_stencil *stencil)
{
    struct conv_cpu_plan plan;
    conv_cpu_plan_init(&plan, stencil, QUADS, PAIRS);
    return (stencil->exact || HAVE_FMA) && plan.sums != CONV_CPU_NONE;
}

static enum conv_status run_vectors(const struct conv_stencil *stencil,
                                    const struct conv_stencil_batch *batch)
{
    struct conv_cpu_plan plan;
    conv_cpu_plan_init(&plan, stencil, QUADS, PAIRS);
    if (plan.sums == CONV_CPU_FLOATS || plan.sums == CONV_CPU_DOUBLES)
        filter_floats(stencil, batch, plan.sums == CONV_CPU_DOUBLES);
    else if (plan.direct)
        filter_direct(stencil, batch);
    else
        filter_dots(stencil, batch, &plan);
    return CONV_OK;
}

#endif
