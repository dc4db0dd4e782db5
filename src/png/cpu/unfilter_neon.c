// SPDX-License-Identifier: MIT
// The reversal of PNG's filters and the split for 64-bit ARM. The steps differ from those of
// unfilter_x86.h where NEON has the better instruction: a mean that rounds down, a table look-up
// that gives 0 beyond the table, loads that take channels apart.
#ifdef __aarch64__
#include <arm_neon.h>
#include <string.h>

#include "base/features.h"
#include "png/cpu/interleave.h"
#include "png/cpu/unfilter.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static void none(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size)
{
    (void)up;
    memcpy(dst, src, size);
}

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 32) {
        uint8x16_t x = vld1q_u8(src + i), y = vld1q_u8(src + i + 16);
        vst1q_u8(dst + i, vaddq_u8(x, vld1q_u8(above + i)));
        vst1q_u8(dst + i + 16, vaddq_u8(y, vld1q_u8(above + i + 16)));
    }
}

// As many whole pixels as 16 bytes hold: their sums by doubling steps, the last pixel carried on.
// What is stored behind them is the next pixels' place, which is written later.
ALWAYS_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
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

// Here and below 8 bytes are loaded and stored for a pixel of any size, as in sub().
ALWAYS_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                           size_t bpp)
{
    uint8x8_t a = vdup_n_u8(0);
    for (size_t i = 0; i < size; i += bpp) {
        a = vadd_u8(vhadd_u8(a, vld1_u8(above + i)), vld1_u8(src + i));
        vst1_u8(dst + i, a);
    }
}

ALWAYS_INLINE int16x8_t load_wide(const uint8_t *p)
{
    return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
}

// The sum of lanes whose upper bytes are 0, which they stay.
ALWAYS_INLINE int16x8_t add_low_bytes(int16x8_t x, int16x8_t y)
{
    return vreinterpretq_s16_u8(vaddq_u8(vreinterpretq_u8_s16(x), vreinterpretq_u8_s16(y)));
}

// predict() of unfilter.c in lanes of 16 bits. The filtered pixel is added to all three candidates
// beside the comparisons, which leaves four steps from one pixel to the next.
ALWAYS_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                         size_t bpp)
{
    int16x8_t a = vdupq_n_s16(0), c = a;
    for (size_t i = 0; i < size; i += bpp) {
        int16x8_t b = load_wide(above + i), x = load_wide(src + i);
        int16x8_t early = vsubq_s16(vaddq_s16(vaddq_s16(c, c), c), b);
        // GCC would add a and b first and make one step into two.
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

#define FOR_PIXELS_OF(bpp)                                                                         \
    static void sub_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)     \
    {                                                                                              \
        (void)above;                                                                               \
        sub(dst, src, size, bpp);                                                                  \
    }                                                                                              \
    static void average_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size) \
    {                                                                                              \
        average(dst, src, above, size, bpp);                                                       \
    }                                                                                              \
    static void paeth_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)   \
    {                                                                                              \
        paeth(dst, src, above, size, bpp);                                                         \
    }

FOR_PIXELS_OF(1)
FOR_PIXELS_OF(2)
FOR_PIXELS_OF(3)
FOR_PIXELS_OF(4)
FOR_PIXELS_OF(6)
FOR_PIXELS_OF(8)

#define ROW(bpp)                                                                                   \
    {                                                                                              \
        none, sub_##bpp, up, average_##bpp, paeth_##bpp                                            \
    }

// --- splitting -----------------------------------------------------------------------------------

// Each handles one vector of samples of each channel, from `row` to out[channel] + at. Samples of
// 16 bits get their bytes swapped; a vector's load needs no alignment.

static inline void split16_1(uint8_t *const *out, size_t at, const uint8_t *row)
{
    vst1q_u8(out[0] + at, vrev16q_u8(vld1q_u8(row)));
}

#define SPLIT_CHANNELS(n)                                                                          \
    static inline void split8_##n(uint8_t *const *out, size_t at, const uint8_t *row)              \
    {                                                                                              \
        uint8x16x##n##_t x = vld##n##q_u8(row);                                                    \
        for (int c = 0; c < (n); c++)                                                              \
            vst1q_u8(out[c] + at, x.val[c]);                                                       \
    }                                                                                              \
    static inline void split16_##n(uint8_t *const *out, size_t at, const uint8_t *row)             \
    {                                                                                              \
        uint16x8x##n##_t x = vld##n##q_u16((const uint16_t *)(const void *)row);                   \
        for (int c = 0; c < (n); c++)                                                              \
            vst1q_u8(out[c] + at, vrev16q_u8(vreinterpretq_u8_u16(x.val[c])));                     \
    }

SPLIT_CHANNELS(2)
SPLIT_CHANNELS(3)
SPLIT_CHANNELS(4)

typedef void (*split_fn)(uint8_t *const *out, size_t at, const uint8_t *row);

// The last vector overlaps the one before, so that nothing is written beyond the row.
ALWAYS_INLINE void split_row(const struct conv_image *dst, int y, const uint8_t *row,
                             size_t channels, size_t sample, split_fn step)
{
    uint8_t *out[CONV_IMAGE_MAX_CHANNELS];
    for (size_t c = 0; c < channels; c++)
        out[c] = dst->plane[c].data + y * dst->plane[c].stride;
    size_t bytes = (size_t)dst->width * sample, at = 0;
    for (; at + 16 < bytes; at += 16)
        step(out, at, row + at * channels);
    step(out, bytes - 16, row + (bytes - 16) * channels);
}

static void split(const struct conv_image *dst, int y, const uint8_t *row)
{
    size_t sample = (size_t)dst->depth / 8;
    if ((size_t)dst->width * sample < 16) {
        conv_interleave_split(dst, y, row);
        return;
    }
    switch (dst->channels * 2 + (sample == 2)) {
    case 2:
        memcpy(dst->plane[0].data + y * dst->plane[0].stride, row, (size_t)dst->width);
        break;
    case 3:
        split_row(dst, y, row, 1, 2, split16_1);
        break;
    case 4:
        split_row(dst, y, row, 2, 1, split8_2);
        break;
    case 5:
        split_row(dst, y, row, 2, 2, split16_2);
        break;
    case 6:
        split_row(dst, y, row, 3, 1, split8_3);
        break;
    case 7:
        split_row(dst, y, row, 3, 2, split16_3);
        break;
    case 8:
        split_row(dst, y, row, 4, 1, split8_4);
        break;
    case 9:
        split_row(dst, y, row, 4, 2, split16_4);
        break;
    }
}

const struct conv_unfilter conv_unfilter_neon = {
    .name = "neon",
    .needs = CONV_CPU_NEON,
    .reverse = {ROW(1), ROW(2), ROW(3), ROW(4), ROW(6), ROW(8)},
    .split = split,
};
#endif
