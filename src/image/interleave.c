// SPDX-License-Identifier: MIT
// Each loop below holds nothing but loads and stores through restrict pointers, with a constant
// number of channels: compilers turn that into vector code.
#include "image/interleave.h"

// A sample with its most significant byte first, to and from the machine's order.
static inline uint8_t order8(uint8_t sample)
{
    return sample;
}

static inline uint16_t order16(uint16_t sample)
{
    return (uint16_t)(sample << 8 | sample >> 8);
}

// The loops for `n` channels, of which a, b, c and d are the first n, and samples of `bits` bits.
#define LOOPS(bits, n)                                                                             \
    static void split##bits##_##n(uint##bits##_t *restrict a, uint##bits##_t *restrict b,          \
                                  uint##bits##_t *restrict c, uint##bits##_t *restrict d,          \
                                  const uint##bits##_t *restrict row, size_t width)                \
    {                                                                                              \
        (void)b, (void)c, (void)d;                                                                 \
        for (size_t x = 0; x < width; x++) {                                                       \
            a[x] = order##bits(row[n * x]);                                                        \
            if (n > 1)                                                                             \
                b[x] = order##bits(row[n * x + 1]);                                                \
            if (n > 2)                                                                             \
                c[x] = order##bits(row[n * x + 2]);                                                \
            if (n > 3)                                                                             \
                d[x] = order##bits(row[n * x + 3]);                                                \
        }                                                                                          \
    }                                                                                              \
    static void join##bits##_##n(uint##bits##_t *restrict row, const uint##bits##_t *restrict a,   \
                                 const uint##bits##_t *restrict b,                                 \
                                 const uint##bits##_t *restrict c,                                 \
                                 const uint##bits##_t *restrict d, size_t width)                   \
    {                                                                                              \
        (void)b, (void)c, (void)d;                                                                 \
        for (size_t x = 0; x < width; x++) {                                                       \
            row[n * x] = order##bits(a[x]);                                                        \
            if (n > 1)                                                                             \
                row[n * x + 1] = order##bits(b[x]);                                                \
            if (n > 2)                                                                             \
                row[n * x + 2] = order##bits(c[x]);                                                \
            if (n > 3)                                                                             \
                row[n * x + 3] = order##bits(d[x]);                                                \
        }                                                                                          \
    }

LOOPS(8, 1)
LOOPS(8, 2)
LOOPS(8, 3)
LOOPS(8, 4)
LOOPS(16, 1)
LOOPS(16, 2)
LOOPS(16, 3)
LOOPS(16, 4)

// Calls split or join with the number of channels.
#define CALL(loop, channels, ...)                                                                  \
    switch (channels) {                                                                            \
    case 1:                                                                                        \
        loop##_1(__VA_ARGS__);                                                                     \
        break;                                                                                     \
    case 2:                                                                                        \
        loop##_2(__VA_ARGS__);                                                                     \
        break;                                                                                     \
    case 3:                                                                                        \
        loop##_3(__VA_ARGS__);                                                                     \
        break;                                                                                     \
    case 4:                                                                                        \
        loop##_4(__VA_ARGS__);                                                                     \
        break;                                                                                     \
    }

static void get_rows(void *rows[CONV_IMAGE_MAX_CHANNELS], const struct conv_image *image, int y)
{
    for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++)
        rows[c] = c < image->channels ? conv_image_row(image, c, y) : NULL;
}

void conv_interleave_split(const struct conv_image *dst, int y, const uint8_t *row)
{
    const void *bytes = row;
    void *p[CONV_IMAGE_MAX_CHANNELS];
    get_rows(p, dst, y);
    if (dst->depth == 8)
        CALL(split8, dst->channels, p[0], p[1], p[2], p[3], bytes, (size_t)dst->width)
    else
        CALL(split16, dst->channels, p[0], p[1], p[2], p[3], bytes, (size_t)dst->width)
}

void conv_interleave_join(uint8_t *row, const struct conv_image *src, int y)
{
    void *bytes = row, *p[CONV_IMAGE_MAX_CHANNELS];
    get_rows(p, src, y);
    if (src->depth == 8)
        CALL(join8, src->channels, bytes, p[0], p[1], p[2], p[3], (size_t)src->width)
    else
        CALL(join16, src->channels, bytes, p[0], p[1], p[2], p[3], (size_t)src->width)
}
