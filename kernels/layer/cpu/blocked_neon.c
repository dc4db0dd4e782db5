// SPDX-License-Identifier: MIT
// 64-bit ARM: 4 outputs per vector, 32 registers.
#ifdef __aarch64__
#include <arm_neon.h>

#define LANES 4
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define PUT_SOME(p, x, n) put_some(p, x, n)
#define GET_SOME(p, n) get_some(p, n)
#define SCORE 40
#define MOST_MAPS 6
#define VECTORS_FOR(maps) ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : 4)

#include "kernels/layer/cpu/blocked_image.h"

CONV_LAYER_BLOCKED(cpu_layer_neon, CONV_CPU_NEON, "tiles of 4 to 32 outputs in registers");

#endif
