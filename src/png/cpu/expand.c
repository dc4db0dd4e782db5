// SPDX-License-Identifier: MIT
#include "png/cpu/expand.h"

#include <string.h>

#include "png/chunk.h"

void conv_expand_prepare(struct conv_expand *expand, const struct conv_png_header *header,
                         const uint8_t *plte, size_t plte_size, const uint8_t *trns,
                         size_t trns_size)
{
    if (header->color_type == CONV_COLOR_PALETTE) {
        for (size_t i = 0; i < 256; i++) {
            uint8_t *entry = expand->palette[i];
            bool exists = 3 * i < plte_size;
            for (size_t c = 0; c < 3; c++)
                entry[c] = exists ? plte[3 * i + c] : 0;
            entry[3] = i < trns_size ? trns[i] : 255;
        }
    } else if (trns) {
        // Only the bits of a sample count.
        unsigned mask = (1u << header->bit_depth) - 1;
        for (size_t c = 0; c < trns_size / 2; c++)
            expand->key[c] = (uint16_t)((trns[2 * c] << 8 | trns[2 * c + 1]) & (int)mask);
    }
}

bool conv_expand_needed(const struct conv_png_header *header)
{
    return header->color_type == CONV_COLOR_PALETTE || header->bit_depth < 8 ||
           header->transparency;
}

// Samples of 1, 2 or 4 bits, the first in the highest bits, times `scale`.
static void unpack(uint8_t *restrict out, const uint8_t *restrict row, size_t width, int depth,
                   unsigned scale)
{
    unsigned mask = (1u << depth) - 1;
    for (size_t x = 0; x < width; x++) {
        size_t bit = x * (size_t)depth;
        out[x] = (uint8_t)((row[bit / 8] >> (8 - depth - (int)(bit % 8)) & mask) * scale);
    }
}

static uint8_t *row_of(const struct conv_image *image, int channel, int y)
{
    return image->plane[channel].data + y * image->plane[channel].stride;
}

static void look_up(const struct conv_expand *expand, const struct conv_image *dst, int y,
                    const uint8_t *row, int depth)
{
    size_t width = (size_t)dst->width;
    // The last plane holds the indices until its own samples replace them.
    uint8_t *indices = row_of(dst, dst->channels - 1, y);
    if (depth < 8)
        unpack(indices, row, width, depth, 1);
    else
        memcpy(indices, row, width);
    for (int c = 0; c < dst->channels; c++) {
        uint8_t *out = row_of(dst, c, y), table[256];
        for (int i = 0; i < 256; i++)
            table[i] = expand->palette[i][c];
        for (size_t x = 0; x < width; x++)
            out[x] = table[indices[x]];
    }
}

// Sets alpha to 0 where all samples equal the key, else to opaque.
static void key_out8(uint8_t *restrict alpha, const struct conv_image *dst, int y,
                     const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint8_t *a = row_of(dst, 0, y), *b = a, *c = a;
    uint8_t ka = (uint8_t)key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = row_of(dst, 1, y), c = row_of(dst, 2, y);
        kb = (uint8_t)key[1], kc = (uint8_t)key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint8_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

static void key_out16(uint16_t *restrict alpha, const struct conv_image *dst, int y,
                      const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint16_t *a = (const uint16_t *)(const void *)row_of(dst, 0, y), *b = a, *c = a;
    uint16_t ka = key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = (const uint16_t *)(const void *)row_of(dst, 1, y);
        c = (const uint16_t *)(const void *)row_of(dst, 2, y);
        kb = key[1], kc = key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint16_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

void conv_expand_row(const struct conv_expand *expand, const struct conv_png_header *header,
                     const struct conv_image *dst, int y, const uint8_t *row,
                     void (*split)(const struct conv_image *dst, int y, const uint8_t *row))
{
    if (header->color_type == CONV_COLOR_PALETTE) {
        look_up(expand, dst, y, row, header->bit_depth);
        return;
    }
    uint16_t key[3];
    memcpy(key, expand->key, sizeof key);
    if (header->bit_depth < 8) {
        // 1, 3 or 15 becomes 255.
        unsigned scale = 255u / ((1u << header->bit_depth) - 1);
        unpack(row_of(dst, 0, y), row, (size_t)dst->width, header->bit_depth, scale);
        key[0] = (uint16_t)(key[0] * scale);
    } else {
        struct conv_image color = *dst;
        color.channels -= header->transparency;
        color.alpha = false;
        split(&color, y, row);
    }
    if (!header->transparency)
        return;
    uint8_t *alpha = row_of(dst, dst->channels - 1, y);
    if (dst->depth == 8)
        key_out8(alpha, dst, y, key);
    else
        key_out16((uint16_t *)(void *)alpha, dst, y, key);
}
