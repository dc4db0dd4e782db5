// SPDX-License-Identifier: MIT
// Filters and split for 64-bit ARM. They differ from unfilter_x86.c where NEON has a better
// instruction: a mean that rounds down, a table look-up that gives 0 beyond the table, loads that
// separate channels.
#ifdef __aarch64__
#include <arm_neon.h>

#include "base/features.h"
#include "png/cpu/unfilter_table.h"

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 32) {
        uint8x16_t x = vld1q_u8(src + i), y = vld1q_u8(src + i + 16);
        vst1q_u8(dst + i, vaddq_u8(x, vld1q_u8(above + i)));
        vst1q_u8(dst + i + 16, vaddq_u8(y, vld1q_u8(above + i + 16)));
    }
}

// As many whole pixels as 16 bytes hold: their prefix sums in doubling steps, plus the last pixel
// before. The bytes stored after them belong to the next pixels, which are written later.
CONV_UNFILTER_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    const size_t step = 16 - 16 % bpp;
    uint8_t bytes[16], tail[16];
    for (size_t i = 0; i < 16; i++) {
        bytes[i] = (uint8_t)i;
        tail[i] = (uint8_t)(step - bpp + i % bpp);
    }
    const uint8x16_t index = vld1q_u8(bytes), last = vld1q_u8(tail);
    uint8x16_t carry = vdupq_n_u8(0);
    for (size_t i = 0; i < size; i += step) {
        uint8x16_t x = vld1q_u8(src + i);
        // An index below the shift wraps to one beyond the table, which reads as 0.
        for (size_t shift = bpp; shift < step; shift *= 2)
            x = vaddq_u8(x, vqtbl1q_u8(x, vsubq_u8(index, vdupq_n_u8((uint8_t)shift))));
        x = vaddq_u8(x, carry);
        vst1q_u8(dst + i, x);
        carry = vqtbl1q_u8(x, last);
    }
}

// Here and below, 8 bytes are loaded and stored for a pixel of any size, as in sub().
CONV_UNFILTER_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *above,
                                  size_t size, size_t bpp)
{
    uint8x8_t a = vdup_n_u8(0);
    for (size_t i = 0; i < size; i += bpp) {
        a = vadd_u8(vhadd_u8(a, vld1_u8(above + i)), vld1_u8(src + i));
        vst1_u8(dst + i, a);
    }
}

CONV_UNFILTER_INLINE int16x8_t load_wide(const uint8_t *p)
{
    return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
}

// The sum of lanes whose upper bytes are 0, which they stay.
CONV_UNFILTER_INLINE int16x8_t add_low_bytes(int16x8_t x, int16x8_t y)
{
    return vreinterpretq_s16_u8(vaddq_u8(vreinterpretq_u8_s16(x), vreinterpretq_u8_s16(y)));
}

// predict() of unfilter.c in 16-bit lanes. The filtered pixel is added to all three candidates
// while they are compared, which leaves four dependent operations per pixel.
CONV_UNFILTER_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                                size_t bpp)
{
    int16x8_t a = vdupq_n_s16(0), c = a;
    for (size_t i = 0; i < size; i += bpp) {
        int16x8_t b = load_wide(above + i), x = load_wide(src + i);
        int16x8_t early = vsubq_s16(vaddq_s16(vaddq_s16(c, c), c), b);
        // Without this GCC adds a and b first: two dependent operations instead of one.
        __asm__("" : "+w"(early));
        int16x8_t t = vsubq_s16(early, a);
        int16x8_t low = vminq_s16(a, b), high = vmaxq_s16(a, b);
        uint16x8_t below_high = vcgtq_s16(high, t), above_low = vcgtq_s16(t, low);
        a = vbslq_s16(below_high, add_low_bytes(c, x), add_low_bytes(low, x));
        a = vbslq_s16(above_low, a, add_low_bytes(high, x));
        c = b;
        vst1_u8(dst + i, vmovn_u16(vreinterpretq_u16_s16(a)));
    }
}

CONV_UNFILTER_FUNCTIONS

// --- splitting -----------------------------------------------------------------------------------

// As conv_unfilter_vector_fn. Loads of 16-bit vectors need no alignment.

static inline void vector16_1(uint8_t *const *out, size_t at, const uint8_t *row)
{
    vst1q_u8(out[0] + at, vrev16q_u8(vld1q_u8(row)));
}

#define SPLIT_CHANNELS(n)                                                                          \
    static inline void vector8_##n(uint8_t *const *out, size_t at, const uint8_t *row)             \
    {                                                                                              \
        uint8x16x##n##_t x = vld##n##q_u8(row);                                                    \
        for (int c = 0; c < (n); c++)                                                              \
            vst1q_u8(out[c] + at, x.val[c]);                                                       \
    }                                                                                              \
    static inline void vector16_##n(uint8_t *const *out, size_t at, const uint8_t *row)            \
    {                                                                                              \
        uint16x8x##n##_t x = vld##n##q_u16((const uint16_t *)(const void *)row);                   \
        for (int c = 0; c < (n); c++)                                                              \
            vst1q_u8(out[c] + at, vrev16q_u8(vreinterpretq_u8_u16(x.val[c])));                     \
    }

SPLIT_CHANNELS(2)
SPLIT_CHANNELS(3)
SPLIT_CHANNELS(4)

CONV_UNFILTER_SPLIT(split)

const struct conv_unfilter conv_unfilter_neon = {
    .name = "neon",
    .needs = CONV_CPU_NEON,
    .reverse = CONV_UNFILTER_ALL,
    .split = split,
};
#endif
