// SPDX-License-Identifier: MIT
// Copies of rows of samples in host memory. Loops over contiguous samples are separate, so that
// compilers turn them into vector code.
#include "kernels/layout/layout.h"

static inline uint8_t u8_of_u8(uint8_t sample)
{
    return sample;
}

static inline uint8_t u8_of_u16(uint16_t sample)
{
    return (uint8_t)((sample + 128u) / 257);
}

static inline uint16_t u16_of_u8(uint8_t sample)
{
    return (uint16_t)(sample * 257);
}

static inline uint16_t u16_of_u16(uint16_t sample)
{
    return sample;
}

static inline float f32_of_u8(uint8_t sample)
{
    return sample;
}

static inline float f32_of_u16(uint16_t sample)
{
    return sample;
}

static inline float f32_of_f32(float sample)
{
    return sample;
}

#define COPY(to, from, to_type, from_type)                                                         \
    static void copy_##to##_of_##from(void *dst, int64_t dst_stride, const void *src,              \
                                      int64_t src_stride, int64_t width)                           \
    {                                                                                              \
        to_type *restrict d = dst;                                                                 \
        const from_type *restrict s = src;                                                         \
        if (dst_stride == 1 && src_stride == 1)                                                    \
            for (int64_t x = 0; x < width; x++)                                                    \
                d[x] = to##_of_##from(s[x]);                                                       \
        else if (dst_stride == 1 && src_stride == 3)                                               \
            for (int64_t x = 0; x < width; x++)                                                    \
                d[x] = to##_of_##from(s[3 * x]);                                                   \
        else if (dst_stride == 3 && src_stride == 1)                                               \
            for (int64_t x = 0; x < width; x++)                                                    \
                d[3 * x] = to##_of_##from(s[x]);                                                   \
        else                                                                                       \
            for (int64_t x = 0; x < width; x++)                                                    \
                d[x * dst_stride] = to##_of_##from(s[x * src_stride]);                             \
    }
COPY(u8, u8, uint8_t, uint8_t)
COPY(u8, u16, uint8_t, uint16_t)
COPY(u16, u8, uint16_t, uint8_t)
COPY(u16, u16, uint16_t, uint16_t)
COPY(f32, u8, float, uint8_t)
COPY(f32, u16, float, uint16_t)
COPY(f32, f32, float, float)

void conv_layout_copy_row(void *dst, int to, int64_t dst_stride, const void *src, int from,
                          int64_t src_stride, int64_t width)
{
    if (to == 1)
        (from == 1 ? copy_u8_of_u8 : copy_u8_of_u16)(dst, dst_stride, src, src_stride, width);
    else if (to == 2)
        (from == 1 ? copy_u16_of_u8 : copy_u16_of_u16)(dst, dst_stride, src, src_stride, width);
    else if (from == 4)
        copy_f32_of_f32(dst, dst_stride, src, src_stride, width);
    else
        (from == 1 ? copy_f32_of_u8 : copy_f32_of_u16)(dst, dst_stride, src, src_stride, width);
}

void conv_layout_fill_row(void *row, int bytes, int64_t stride, int64_t width)
{
    static const float one = 1;
    static const uint16_t most = UINT16_MAX; // its first byte, too
    const void *value = bytes == 4 ? (const void *)&one : &most;
    conv_layout_copy_row(row, bytes, stride, value, bytes, 0, width);
}
