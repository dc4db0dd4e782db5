// SPDX-License-Identifier: MIT
// NEON with the dot product of ARMv8.2: four taps per sdot, on signed samples.
#ifdef __aarch64__
#define QUADS CONV_CPU_QUADS_SIGNED
#define SCORE 60
#include "kernels/stencil/cpu/neon.h"

#include "kernels/stencil/cpu/vector_variant.h"

CONV_CPU_VECTOR_VARIANT(cpu_neon_dot, CONV_CPU_NEON | CONV_CPU_DOTPROD,
                        "four taps per instruction");

#endif
