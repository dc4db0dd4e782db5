// SPDX-License-Identifier: MIT
// One loop a shape, with nothing in it but loads and stores through restrict pointers: that is what
// compilers turn into vector code.
#include "png/cpu/interleave.h"

#include <string.h>

// A sample as a PNG has it, to and from the machine's order.
static inline uint16_t big_endian(uint16_t sample)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (uint16_t)(sample << 8 | sample >> 8);
#else
    return sample;
#endif
}

static void split8_2(uint8_t *restrict a, uint8_t *restrict b, const uint8_t *restrict row,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = row[2 * i];
        b[i] = row[2 * i + 1];
    }
}

static void join8_2(uint8_t *restrict row, const uint8_t *restrict a, const uint8_t *restrict b,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[2 * i] = a[i];
        row[2 * i + 1] = b[i];
    }
}

static void split8_3(uint8_t *restrict a, uint8_t *restrict b, uint8_t *restrict c,
                     const uint8_t *restrict row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = row[3 * i];
        b[i] = row[3 * i + 1];
        c[i] = row[3 * i + 2];
    }
}

static void join8_3(uint8_t *restrict row, const uint8_t *restrict a, const uint8_t *restrict b,
                    const uint8_t *restrict c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[3 * i] = a[i];
        row[3 * i + 1] = b[i];
        row[3 * i + 2] = c[i];
    }
}

static void split8_4(uint8_t *restrict a, uint8_t *restrict b, uint8_t *restrict c,
                     uint8_t *restrict d, const uint8_t *restrict row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = row[4 * i];
        b[i] = row[4 * i + 1];
        c[i] = row[4 * i + 2];
        d[i] = row[4 * i + 3];
    }
}

static void join8_4(uint8_t *restrict row, const uint8_t *restrict a, const uint8_t *restrict b,
                    const uint8_t *restrict c, const uint8_t *restrict d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[4 * i] = a[i];
        row[4 * i + 1] = b[i];
        row[4 * i + 2] = c[i];
        row[4 * i + 3] = d[i];
    }
}

static void split16_1(uint16_t *restrict a, const uint16_t *restrict row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = big_endian(row[i]);
    }
}

static void join16_1(uint16_t *restrict row, const uint16_t *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[i] = big_endian(a[i]);
    }
}

static void split16_2(uint16_t *restrict a, uint16_t *restrict b, const uint16_t *restrict row,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = big_endian(row[2 * i]);
        b[i] = big_endian(row[2 * i + 1]);
    }
}

static void join16_2(uint16_t *restrict row, const uint16_t *restrict a, const uint16_t *restrict b,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[2 * i] = big_endian(a[i]);
        row[2 * i + 1] = big_endian(b[i]);
    }
}

static void split16_3(uint16_t *restrict a, uint16_t *restrict b, uint16_t *restrict c,
                      const uint16_t *restrict row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = big_endian(row[3 * i]);
        b[i] = big_endian(row[3 * i + 1]);
        c[i] = big_endian(row[3 * i + 2]);
    }
}

static void join16_3(uint16_t *restrict row, const uint16_t *restrict a, const uint16_t *restrict b,
                     const uint16_t *restrict c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[3 * i] = big_endian(a[i]);
        row[3 * i + 1] = big_endian(b[i]);
        row[3 * i + 2] = big_endian(c[i]);
    }
}

static void split16_4(uint16_t *restrict a, uint16_t *restrict b, uint16_t *restrict c,
                      uint16_t *restrict d, const uint16_t *restrict row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = big_endian(row[4 * i]);
        b[i] = big_endian(row[4 * i + 1]);
        c[i] = big_endian(row[4 * i + 2]);
        d[i] = big_endian(row[4 * i + 3]);
    }
}

static void join16_4(uint16_t *restrict row, const uint16_t *restrict a, const uint16_t *restrict b,
                     const uint16_t *restrict c, const uint16_t *restrict d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row[4 * i] = big_endian(a[i]);
        row[4 * i + 1] = big_endian(b[i]);
        row[4 * i + 2] = big_endian(c[i]);
        row[4 * i + 3] = big_endian(d[i]);
    }
}

static uint8_t *row_of(const struct conv_image *image, int channel, int y)
{
    return image->plane[channel].data + y * image->plane[channel].stride;
}

void conv_interleave_split(const struct conv_image *dst, int y, const uint8_t *row)
{
    size_t n = (size_t)dst->width;
    uint8_t *p[CONV_IMAGE_MAX_CHANNELS] = {0};
    for (int c = 0; c < dst->channels; c++)
        p[c] = row_of(dst, c, y);
    if (dst->depth == 8) {
        switch (dst->channels) {
        case 1:
            memcpy(p[0], row, n);
            break;
        case 2:
            split8_2(p[0], p[1], row, n);
            break;
        case 3:
            split8_3(p[0], p[1], p[2], row, n);
            break;
        case 4:
            split8_4(p[0], p[1], p[2], p[3], row, n);
            break;
        }
        return;
    }
    const uint16_t *row16 = (const uint16_t *)row;
    uint16_t *q[CONV_IMAGE_MAX_CHANNELS];
    for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++)
        q[c] = (uint16_t *)p[c];
    switch (dst->channels) {
    case 1:
        split16_1(q[0], row16, n);
        break;
    case 2:
        split16_2(q[0], q[1], row16, n);
        break;
    case 3:
        split16_3(q[0], q[1], q[2], row16, n);
        break;
    case 4:
        split16_4(q[0], q[1], q[2], q[3], row16, n);
        break;
    }
}

void conv_interleave_join(uint8_t *row, const struct conv_image *src, int y)
{
    size_t n = (size_t)src->width;
    uint8_t *p[CONV_IMAGE_MAX_CHANNELS] = {0};
    for (int c = 0; c < src->channels; c++)
        p[c] = row_of(src, c, y);
    if (src->depth == 8) {
        switch (src->channels) {
        case 1:
            memcpy(row, p[0], n);
            break;
        case 2:
            join8_2(row, p[0], p[1], n);
            break;
        case 3:
            join8_3(row, p[0], p[1], p[2], n);
            break;
        case 4:
            join8_4(row, p[0], p[1], p[2], p[3], n);
            break;
        }
        return;
    }
    uint16_t *row16 = (uint16_t *)row;
    uint16_t *q[CONV_IMAGE_MAX_CHANNELS];
    for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++)
        q[c] = (uint16_t *)p[c];
    switch (src->channels) {
    case 1:
        join16_1(row16, q[0], n);
        break;
    case 2:
        join16_2(row16, q[0], q[1], n);
        break;
    case 3:
        join16_3(row16, q[0], q[1], q[2], n);
        break;
    case 4:
        join16_4(row16, q[0], q[1], q[2], q[3], n);
        break;
    }
}
