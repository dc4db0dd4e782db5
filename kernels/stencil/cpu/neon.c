// SPDX-License-Identifier: MIT
// The operations of vector.h on 64-bit ARM, which always has NEON: 16-bit multiply-adds that widen,
// the high half of a product, saturating differences. With CONV_ISA_DOTPROD once more, for
// processors that have the dot product of ARMv8.2: four taps per sdot, on signed samples.
#ifdef __aarch64__
#include <arm_neon.h>

#define VECTOR 16
#define QUAD_VECTORS 2
#define HAVE_FMA 1
#define PLAIN_WORDS 0

#include "kernels/stencil/cpu/vector.h"

ALWAYS_INLINE vec_u32 dot_words(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
    int32x4_t words = (int32x4_t)a, c = (int32x4_t)coefs;
    int32x4_t low = vmlal_s16((int32x4_t)sum, vmovn_s32(words), vmovn_s32(c));
    return (vec_u32)vmlal_s16(low, vshrn_n_s32(words, 16), vshrn_n_s32(c, 16));
}

#ifdef CONV_ISA_DOTPROD
ALWAYS_INLINE vec_u32 dot_quads(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
    return (vec_u32)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)coefs);
}
#define PLAIN_QUADS 0
#else
#define PLAIN_QUADS 1
#endif

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)vminq_u16((uint16x8_t)a, (uint16x8_t)b);
}

ALWAYS_INLINE vec_u16 sub_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)vqsubq_u16((uint16x8_t)a, (uint16x8_t)b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    uint16x8_t f = vdupq_n_u16(factor);
    uint16x8_t low = (uint16x8_t)vmull_u16(vget_low_u16((uint16x8_t)a), vget_low_u16(f));
    uint16x8_t high = (uint16x8_t)vmull_high_u16((uint16x8_t)a, f);
    return (vec_u16)vuzp2q_u16(low, high) >> shift;
}

ALWAYS_INLINE vec_u16 scale_i16(vec_u16 a, uint16_t factor)
{
    return (vec_u16)vqrdmulhq_n_s16((int16x8_t)a, (int16_t)factor);
}

ALWAYS_INLINE vec_u8 join_u16(vec_u16 even, vec_u16 odd)
{
    uint8x8_t low = vqmovun_s16((int16x8_t)even), high = vqmovun_s16((int16x8_t)odd);
    return (vec_u8)vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
}

ALWAYS_INLINE vec_i32 min_i32(vec_i32 a, vec_i32 b)
{
    return (vec_i32)vminq_s32((int32x4_t)a, (int32x4_t)b);
}

ALWAYS_INLINE vec_i32 max_i32(vec_i32 a, vec_i32 b)
{
    return (vec_i32)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
    return (vec_f32)vfmaq_f32((float32x4_t)sum, (float32x4_t)coef, (float32x4_t)tap);
}

ALWAYS_INLINE vec_f64 add_product(vec_f64 sum, vec_f64 a, vec_f64 b)
{
    return (vec_f64)vfmaq_f64((float64x2_t)sum, (float64x2_t)a, (float64x2_t)b);
}

ALWAYS_INLINE vec_f32 sqrt_f32(vec_f32 a)
{
    return (vec_f32)vsqrtq_f32((float32x4_t)a);
}

#ifdef CONV_ISA_DOTPROD
#define QUADS CONV_CPU_QUADS_SIGNED
#define SCORE 60
#else
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 40
#endif

#include "kernels/stencil/cpu/vector_variant.h"

#ifdef CONV_ISA_DOTPROD
CONV_CPU_VECTOR_VARIANT(cpu_neon_dot, CONV_CPU_NEON | CONV_CPU_DOTPROD,
                        "four taps per instruction");
#else
CONV_CPU_VECTOR_VARIANT(cpu_neon, CONV_CPU_NEON, "multiplications that widen, 16 bytes");
#endif

#endif
