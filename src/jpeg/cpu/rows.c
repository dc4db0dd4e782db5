// SPDX-License-Identifier: MIT
// The definition of the arithmetic in C, from which other instruction sets do not differ.
#include "jpeg/cpu/cpu_jpeg.h"

#include "jpeg/decoding.h"

#define BITS 16
#define FIX(x) ((int)((x) * (1 << BITS) + 0.5))
#define HALF (1 << (BITS - 1))

static uint8_t clamp(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Transforms 16 columns. Returns bits beyond the lowest `bits` unless all results plus `bias` are 0
// to 2^bits - 1. Compilers make vectors of it.
static int32_t transform(int32_t (*restrict to)[16], const int32_t (*restrict from)[16], int shift,
                         int32_t bias, int bits)
{
    int32_t outside = 0;
    for (int x = 0; x < 16; x++) {
        const int32_t in[8] = {from[0][x], from[1][x], from[2][x], from[3][x],
                               from[4][x], from[5][x], from[6][x], from[7][x]};
        int32_t out[8];
        conv_jpeg_idct(out, in);
        for (int y = 0; y < 8; y++) {
            int32_t value = conv_jpeg_descale(out[y], shift);
            to[y][x] = value;
            outside |= value + bias;
        }
    }
    return outside >> bits;
}

static bool idct(uint8_t *dst, ptrdiff_t stride, const int16_t *blocks, const int16_t *steps)
{
    int32_t v[8][16], w[8][16];
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 16; x++)
            v[y][x] = blocks[x / 8 * 64 + 8 * y + x % 8] * steps[8 * y + x % 8];
    if (transform(w, v, CONV_JPEG_IDCT_FIRST, CONV_JPEG_ROW_MOST + 1, 14))
        return false;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 16; x++)
            v[x % 8][x / 8 * 8 + y] = w[y][x];
    if (transform(w, v, CONV_JPEG_IDCT_SECOND, 512, 10))
        return false;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 16; x++)
            dst[y * stride + x] = clamp(w[x % 8][x / 8 * 8 + y] + 128);
    return true;
}

static void to_rgb(uint8_t *const rgb[3], const uint8_t *const ycc[3], size_t n)
{
    uint8_t *restrict r = rgb[0], *restrict g = rgb[1], *restrict b = rgb[2];
    const uint8_t *restrict luma = ycc[0], *restrict blue = ycc[1], *restrict red = ycc[2];
    for (size_t i = 0; i < n; i++) {
        int y = luma[i], cb = blue[i] - 128, cr = red[i] - 128;
        r[i] = clamp(y + ((FIX(1.40200) * cr + HALF) >> BITS));
        g[i] = clamp(y + ((-FIX(0.34414) * cb - FIX(0.71414) * cr + HALF) >> BITS));
        b[i] = clamp(y + ((FIX(1.77200) * cb + HALF) >> BITS));
    }
}

static void to_ycc(uint8_t *const ycc[3], const uint8_t *const rgb[3], size_t n)
{
    const int middle = (128 << BITS) + HALF - 1;
    uint8_t *restrict y = ycc[0], *restrict cb = ycc[1], *restrict cr = ycc[2];
    const uint8_t *restrict red = rgb[0], *restrict green = rgb[1], *restrict blue = rgb[2];
    for (size_t i = 0; i < n; i++) {
        int r = red[i], g = green[i], b = blue[i];
        y[i] = (uint8_t)((FIX(0.29900) * r + FIX(0.58700) * g + FIX(0.11400) * b + HALF) >> BITS);
        cb[i] = (uint8_t)((middle - FIX(0.16874) * r - FIX(0.33126) * g + FIX(0.5) * b) >> BITS);
        cr[i] = (uint8_t)((middle + FIX(0.5) * r - FIX(0.41869) * g - FIX(0.08131) * b) >> BITS);
    }
}

static void widen(uint8_t *restrict dst, const uint8_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *s = src + i;
        dst[2 * i] = (uint8_t)((3 * s[0] + s[-1] + 1) >> 2);
        dst[2 * i + 1] = (uint8_t)((3 * s[0] + s[1] + 2) >> 2);
    }
}

static void widen_between(uint8_t *restrict dst, const uint8_t *restrict near,
                          const uint8_t *restrict far, size_t n)
{
    int before = 3 * near[-1] + far[-1], here = 3 * near[0] + far[0];
    for (size_t i = 0; i < n; i++) {
        int next = 3 * near[i + 1] + far[i + 1];
        dst[2 * i] = (uint8_t)((3 * here + before + 8) >> 4);
        dst[2 * i + 1] = (uint8_t)((3 * here + next + 7) >> 4);
        before = here;
        here = next;
    }
}

static void halve(uint8_t *restrict dst, const uint8_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)((src[2 * i] + src[2 * i + 1] + (int)(i & 1)) >> 1);
}

static void halve_both(uint8_t *restrict dst, const uint8_t *restrict upper,
                       const uint8_t *restrict lower, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int sum = upper[2 * i] + upper[2 * i + 1] + lower[2 * i] + lower[2 * i + 1];
        dst[i] = (uint8_t)((sum + 1 + (int)(i & 1)) >> 2);
    }
}

const struct conv_jpeg_rows conv_jpeg_rows_plain = {
    .idct = idct,
    .to_rgb = to_rgb,
    .to_ycc = to_ycc,
    .widen = widen,
    .widen_between = widen_between,
    .halve = halve,
    .halve_both = halve_both,
};

const struct conv_jpeg_rows *conv_jpeg_rows_choose(unsigned features)
{
#ifdef __x86_64__
    if (!(conv_jpeg_rows_avx2.needs & ~features))
        return &conv_jpeg_rows_avx2;
#endif
    (void)features;
    return &conv_jpeg_rows_plain;
}
