// SPDX-License-Identifier: MIT
// NEON, which every 64-bit ARM has: 16-bit multiply-adds that widen, the high half of a product,
// saturating differences.
#ifdef __aarch64__
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 40
#include "kernels/stencil/cpu/neon.h"

#include "kernels/stencil/cpu/vector_variant.h"

CONV_CPU_VECTOR_VARIANT(cpu_neon, CONV_CPU_NEON, "multiplications that widen, 16 bytes");

#endif
