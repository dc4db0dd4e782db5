// SPDX-License-Identifier: MIT
// Each loop below holds nothing but loads and stores through restrict pointers, with a constant
// number of channels: compilers turn that into vector code.
#include "png/cpu/interleave.h"

#include <string.h>

#include "png/chunk.h"

// A sample in a PNG's byte order, to and from the machine's.
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

// --- packed bits, palettes, transparent colours --------------------------------------------------

void conv_expand_prepare(struct conv_expand *expand, const struct conv_image_header *header,
                         const uint8_t *plte, size_t plte_size, const uint8_t *trns,
                         size_t trns_size)
{
    if (header->png.color_type == CONV_COLOR_PALETTE) {
        memset(expand->palette, 0, 3 * sizeof expand->palette[0]);
        for (size_t i = 0; i < plte_size / 3; i++) {
            for (size_t c = 0; c < 3; c++)
                expand->palette[c][i] = plte[3 * i + c];
        }
        memset(expand->palette[3], 255, sizeof expand->palette[3]);
        if (trns)
            memcpy(expand->palette[3], trns, trns_size);
    } else if (trns) {
        // Only the bits of a sample count.
        unsigned mask = (1u << header->png.bit_depth) - 1;
        for (size_t c = 0; c < trns_size / 2; c++)
            expand->key[c] = (uint16_t)((trns[2 * c] << 8 | trns[2 * c + 1]) & (int)mask);
    }
}

bool conv_expand_needed(const struct conv_image_header *header)
{
    return header->png.color_type == CONV_COLOR_PALETTE || header->png.bit_depth < 8 ||
           header->png.transparency;
}

// Spreads the samples of a byte, of 1, 2 or 4 bits each, to bytes; the first sample is in the
// lowest byte.
static inline uint64_t spread(unsigned byte, int depth)
{
    if (depth == 4)
        return byte >> 4 | (byte & 15) << 8;
    if (depth == 2)
        return byte >> 6 | (byte >> 4 & 3) << 8 | (byte >> 2 & 3) << 16 | (byte & 3) << 24;
    // One bit in each byte of a word, moved to the lowest place; no sum exceeds a byte.
    uint64_t bits = (uint64_t)byte * 0x0101010101010101 & 0x0102040810204080;
    return (bits + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
}

static inline void unpack_as(uint8_t *restrict out, const uint8_t *restrict row, size_t width,
                             int depth, unsigned scale)
{
    size_t each = 8 / (unsigned)depth;
    for (; width >= each; width -= each, out += each, row++) {
        uint64_t samples = spread(*row, depth) * scale;
        memcpy(out, &samples, each);
    }
    for (size_t x = 0; x < width; x++)
        out[x] = (uint8_t)(spread(*row, depth) * scale >> 8 * x);
}

// Samples of 1, 2 or 4 bits, the first in the highest bits, times `scale`.
static void unpack(uint8_t *out, const uint8_t *row, size_t width, int depth, unsigned scale)
{
    if (depth == 4)
        unpack_as(out, row, width, 4, scale);
    else if (depth == 2)
        unpack_as(out, row, width, 2, scale);
    else
        unpack_as(out, row, width, 1, scale);
}

// out[x] = table[from[x]]; `from` may be `out`. By words: fewer loads and stores.
static void map_bytes(uint8_t *out, const uint8_t *from, size_t width, const uint8_t *table)
{
    size_t x = 0;
    for (; x + 8 <= width; x += 8) {
        uint64_t word, mapped = 0;
        memcpy(&word, from + x, sizeof word);
        for (int i = 0; i < 64; i += 8)
            mapped |= (uint64_t)table[word >> i & 0xff] << i;
        memcpy(out + x, &mapped, sizeof mapped);
    }
    for (; x < width; x++)
        out[x] = table[from[x]];
}

static void look_up(const struct conv_expand *expand, const struct conv_image *dst, int y,
                    const uint8_t *row, int depth)
{
    size_t width = (size_t)dst->width;
    // The last plane holds the indices until its own samples replace them.
    uint8_t *indices = conv_image_row(dst, dst->channels - 1, y);
    if (depth < 8)
        unpack(indices, row, width, depth, 1);
    const uint8_t *from = depth < 8 ? indices : row;
    for (int c = 0; c < dst->channels; c++)
        map_bytes(conv_image_row(dst, c, y), from, width, expand->palette[c]);
}

// Sets alpha to 0 where all samples equal the key, else to opaque.
static void key_out8(uint8_t *restrict alpha, const struct conv_image *dst, int y,
                     const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint8_t *a = conv_image_row(dst, 0, y), *b = a, *c = a;
    uint8_t ka = (uint8_t)key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = conv_image_row(dst, 1, y), c = conv_image_row(dst, 2, y);
        kb = (uint8_t)key[1], kc = (uint8_t)key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint8_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

static void key_out16(uint16_t *restrict alpha, const struct conv_image *dst, int y,
                      const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint16_t *a = (const uint16_t *)(const void *)conv_image_row(dst, 0, y), *b = a, *c = a;
    uint16_t ka = key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = (const uint16_t *)(const void *)conv_image_row(dst, 1, y);
        c = (const uint16_t *)(const void *)conv_image_row(dst, 2, y);
        kb = key[1], kc = key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint16_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

void conv_expand_row(const struct conv_expand *expand, const struct conv_image_header *header,
                     const struct conv_image *dst, int y, const uint8_t *row,
                     void (*split)(const struct conv_image *dst, int y, const uint8_t *row))
{
    if (header->png.color_type == CONV_COLOR_PALETTE) {
        look_up(expand, dst, y, row, header->png.bit_depth);
        return;
    }
    uint16_t key[3];
    memcpy(key, expand->key, sizeof key);
    if (header->png.bit_depth < 8) {
        // 1, 3 or 15 becomes 255.
        unsigned scale = 255u / ((1u << header->png.bit_depth) - 1);
        unpack(conv_image_row(dst, 0, y), row, (size_t)dst->width, header->png.bit_depth, scale);
        key[0] = (uint16_t)(key[0] * scale);
    } else {
        struct conv_image color = *dst;
        color.channels -= header->png.transparency;
        color.alpha = false;
        split(&color, y, row);
    }
    if (!header->png.transparency)
        return;
    uint8_t *alpha = conv_image_row(dst, dst->channels - 1, y);
    if (dst->depth == 8)
        key_out8(alpha, dst, y, key);
    else
        key_out16((uint16_t *)(void *)alpha, dst, y, key);
}
