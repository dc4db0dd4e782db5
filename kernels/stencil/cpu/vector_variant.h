// SPDX-License-Identifier: MIT
// The variant over the kernels of direct.h, strips.h and floats.h, defined once in each file of an
// instruction set. SCORE, given by that file, is its score for all stencils.
#ifndef CONV_KERNELS_STENCIL_CPU_VECTOR_VARIANT_H
#define CONV_KERNELS_STENCIL_CPU_VECTOR_VARIANT_H

#include "base/features.h"
#include "kernels/stencil/cpu/direct.h"
#include "kernels/stencil/cpu/floats.h"
#include "kernels/stencil/cpu/strips.h"

static bool can_vectors(const struct conv_stencil *stencil)
{
    struct conv_cpu_plan plan;
    conv_cpu_plan_init(&plan, stencil, QUADS, PAIRS);
    return (stencil->exact || HAVE_FMA) && plan.sums != CONV_CPU_NONE;
}

// The instruction set decides, whatever the stencil.
static int score_vectors(const struct conv_stencil *stencil, const struct conv_stencil_shape *shape)
{
    (void)stencil;
    (void)shape;
    return SCORE;
}

static void plan_vectors(const struct conv_stencil *stencil, const struct conv_stencil_shape *shape,
                         struct conv_stencil_plan *plan)
{
    struct conv_cpu_plan *cpu = (struct conv_cpu_plan *)(void *)plan->constants;
    (void)shape;
    conv_cpu_plan_init(cpu, stencil, QUADS, PAIRS);
    conv_cpu_plan_scratch(cpu, stencil, &plan->scratch_fixed, &plan->scratch_per_column);
}

static enum conv_status run_vectors(const struct conv_stencil_plan *plan,
                                    const struct conv_stencil_batch *batch)
{
    const struct conv_cpu_plan *cpu = (const struct conv_cpu_plan *)(const void *)plan->constants;
    const struct conv_stencil *stencil = plan->stencil;
    if (cpu->sums == CONV_CPU_FLOATS || cpu->sums == CONV_CPU_DOUBLES)
        filter_floats(stencil, batch, cpu->sums == CONV_CPU_DOUBLES);
    else if (cpu->direct)
        filter_direct(stencil, batch);
    else
        filter_dots(stencil, batch, cpu);
    return CONV_OK;
}

// The variant of a file: its symbol without "conv_", features and summary.
#define CONV_CPU_VECTOR_VARIANT(symbol, features, text)                                            \
    const struct conv_variant conv_##symbol = {                                                    \
        .name = #symbol,                                                                           \
        .summary = text,                                                                           \
        .place = CONV_ON_CPU,                                                                      \
        .needs = features,                                                                         \
        .can = can_vectors,                                                                        \
        .score = score_vectors,                                                                    \
        .plan = plan_vectors,                                                                      \
        .run = run_vectors,                                                                        \
    }

#endif
