// SPDX-License-Identifier: MIT
// NEON, which every 64-bit ARM has: over the portable row, 16-bit multiply-adds that widen, the
// high half of a product, saturating differences.
#ifdef __aarch64__
#define QUADS CONV_CPU_QUADS_SLOW
#include "kernels/stencil/cpu/neon.h"

#include "kernels/stencil/cpu/vector_variant.h"

const struct conv_variant conv_cpu_neon = {
    .name = "cpu_neon",
    .summary = "multiplications that widen, 16 bytes",
    .where = CONV_ON_CPU,
    .needs = CONV_CPU_NEON,
    .fits = fits_vectors,
    .scratch = conv_cpu_scratch,
    .run = run_vectors,
};

#endif
