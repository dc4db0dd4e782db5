// SPDX-License-Identifier: MIT
// Operations of vector.h for instruction sets that lack them, in the compiler's vector extension.
// PLAIN_WORDS and PLAIN_QUADS are 1 where dot_words and dot_quads are needed.
#ifndef CONV_KERNELS_STENCIL_CPU_PLAIN_H
#define CONV_KERNELS_STENCIL_CPU_PLAIN_H

#include "kernels/stencil/cpu/vector.h"

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
