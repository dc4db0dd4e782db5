// SPDX-License-Identifier: MIT
// NEON with the dot product of ARMv8.2: four taps by one sdot, whose samples are signed.
#ifdef __aarch64__
#define QUADS CONV_CPU_QUADS_SIGNED
#include "kernels/stencil/cpu/neon.h"

#include "kernels/stencil/cpu/vector_variant.h"

const struct conv_variant conv_cpu_neon_dot = {
    .name = "cpu_neon_dot",
    .summary = "four taps an instruction",
    .where = CONV_ON_CPU,
    .needs = CONV_CPU_NEON | CONV_CPU_DOTPROD,
    .fits = fits_vectors,
    .scratch = conv_cpu_scratch,
    .run = run_vectors,
};

#endif
