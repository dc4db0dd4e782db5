// SPDX-License-Identifier: MIT
// The variant over the kernels of direct.h, dots.h, floats.h and gradient.h, defined once in each
// file of an instruction set. SCORE, given by that file, is its score for all stencils;
// SAME_FLOATS_AND_DIRECT, where it is defined, is a variant whose code for floats.h and direct.h is
// the same.
#pragma once

// Operations of vector.h for instruction sets that lack them, in the compiler's vector extension.
// PLAIN_WORDS and PLAIN_QUADS are 1 where dot_words and dot_quads are needed.
#ifdef PLAIN_WORDS
#define PAIRS false

ALWAYS_INLINE vec_u16 dot_pairs(vec_u16 sum, vec_u8 a, vec_u32 coefs)
{
    vec_i16 pair = (vec_i16)coefs;
    vec_u16 low = (vec_u16)((pair << 8) >> 8), high = (vec_u16)(pair >> 8);
    return sum + ((vec_u16)a & 255) * low + ((vec_u16)a >> 8) * high;
}

#if PLAIN_WORDS
ALWAYS_INLINE vec_u32 dot_words(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
    vec_i32 words = (vec_i32)a, c = (vec_i32)coefs;
    return sum + (vec_u32)((words << 16 >> 16) * (c << 16 >> 16) + (words >> 16) * (c >> 16));
}
#endif

#if PLAIN_QUADS
ALWAYS_INLINE vec_u32 dot_quads(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
    vec_i16 c = (vec_i16)coefs, bytes = (vec_i16)a;
    sum = dot_words(sum, (vec_u8)(bytes & 255), (vec_u32)(c << 8 >> 8));
    return dot_words(sum, (vec_u8)((vec_u16)bytes >> 8), (vec_u32)(c >> 8));
}
#endif

ALWAYS_INLINE vec_f64 load_f32_as_f64(const float *p)
{
    vec_f32_half v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vec_f64);
}

ALWAYS_INLINE void stream(uint8_t *p, vec_u8 v)
{
    memcpy(p, &v, sizeof v);
}

ALWAYS_INLINE void stream_end(void)
{
}
#endif

#include "base/features.h"
#include "kernels/stencil/cpu/direct.h"
#include "kernels/stencil/cpu/dots.h"
#include "kernels/stencil/cpu/float_samples.h"
#include "kernels/stencil/cpu/floats.h"
#include "kernels/stencil/cpu/gradient.h"

static bool can_vectors(const struct conv_stencil *stencil)
{
    struct conv_cpu_plan plan;
    conv_cpu_plan_init(&plan, stencil, QUADS, PAIRS);
    bool fused = !stencil->exact && (!stencil->magnitude || stencil->depth == 32);
    return (!fused || HAVE_FMA) && plan.sums != CONV_CPU_NONE;
}

// The score depends on the instruction set, not on the stencil.
static int score_vectors(const struct conv_stencil *stencil, size_t launch_bytes)
{
    (void)stencil;
    (void)launch_bytes;
    return SCORE;
}

struct vector_constants {
    struct conv_cpu_plan plan; // decides which of these is used
    union {
        struct direct_constants direct;
        struct conv_cpu_dot_constants dots;
        struct float_constants floats;
        struct sample_constants samples;
    };
};
_Static_assert(sizeof(struct vector_constants) <= CONV_STENCIL_PLAN_BYTES, "constants fit");

static void plan_vectors(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    struct vector_constants *constants = (struct vector_constants *)(void *)plan->constants;
    struct conv_cpu_plan *cpu = &constants->plan;
    conv_cpu_plan_init(cpu, stencil, QUADS, PAIRS);
    conv_cpu_plan_scratch(cpu, stencil, &plan->cpu.scratch_fixed, &plan->cpu.scratch_per_column);
    if (cpu->sums == CONV_CPU_GRADIENT)
        return;
    if (cpu->sums == CONV_CPU_SAMPLES) {
        plan_samples(&constants->samples, stencil, plan);
        return;
    }
    if (cpu->sums == CONV_CPU_FLOATS || cpu->sums == CONV_CPU_DOUBLES)
        init_float_constants(&constants->floats, stencil, cpu);
    else if (cpu->direct)
        init_direct_constants(&constants->direct, stencil);
    else
        init_dot_constants(&constants->dots, stencil, cpu);
}

static enum conv_status run_vectors(const struct conv_stencil_plan *plan,
                                    const struct conv_stencil_batch *batch)
{
    const struct vector_constants *constants =
        (const struct vector_constants *)(const void *)plan->constants;
    const struct conv_cpu_plan *cpu = &constants->plan;
    if (cpu->sums == CONV_CPU_GRADIENT)
        filter_gradient(plan->stencil, batch);
#ifdef SAME_FLOATS_AND_DIRECT
    else if (cpu->sums == CONV_CPU_FLOATS || cpu->sums == CONV_CPU_DOUBLES ||
             cpu->sums == CONV_CPU_SAMPLES || cpu->direct)
        return SAME_FLOATS_AND_DIRECT.run(plan, batch);
#else
    else if (cpu->sums == CONV_CPU_FLOATS || cpu->sums == CONV_CPU_DOUBLES)
        filter_floats(plan->stencil, &constants->floats, batch);
    else if (cpu->sums == CONV_CPU_SAMPLES)
        filter_samples(plan->stencil, &constants->samples, batch);
    else if (cpu->direct)
        filter_direct(plan->stencil, &constants->direct, batch);
#endif
    else
        filter_dots(plan->stencil, cpu, &constants->dots, batch);
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
        .magnitudes = true,                                                                        \
        .floats = true,                                                                            \
        .float_samples = true,                                                                     \
        .thresholds = true,                                                                        \
        .pixels = true,                                                                            \
        .symmetric = true,                                                                         \
    }
