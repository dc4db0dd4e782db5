// SPDX-License-Identifier: MIT
// Views of planar images: laid out in one block of memory, copied, compared.
#include "image/image.h"

#include <math.h>
#include <string.h>

#include "base/features.h"

void conv_image_lay_out(struct conv_image *image, const struct conv_image *shape, uint8_t *memory)
{
    struct conv_image laid_out = *shape;
    size_t bytes = conv_image_plane_bytes(shape->width, shape->height, shape->depth);
    for (int c = 0; c < shape->channels; c++) {
        laid_out.plane[c].data = memory + (size_t)c * bytes;
        laid_out.plane[c].stride = (ptrdiff_t)conv_image_stride(shape->width, shape->depth);
    }
    *image = laid_out;
}

void conv_image_copy(const struct conv_image *dst, const struct conv_image *src)
{
    size_t row = (size_t)src->width * (size_t)(src->depth / 8);
    for (int c = 0; c < src->channels; c++) {
        const struct conv_plane *to = &dst->plane[c], *from = &src->plane[c];
        for (int y = 0; y < src->height; y++)
            memcpy(to->data + y * to->stride, from->data + y * from->stride, row);
    }
}

// Samples of a row that are `step` bytes apart in the source, for columns and mirrored rows.
static void gather(uint8_t *dst, const uint8_t *src, ptrdiff_t step, int count, size_t size)
{
    for (int x = 0; x < count; x++) {
        if (size == 1)
            dst[x] = src[x * step];
        else if (size == 2)
            memcpy(dst + 2 * x, src + x * step, 2);
        else
            memcpy(dst + 4 * x, src + x * step, 4);
    }
}

// In tiles, so that columns of the source stay in the cache.
#define TILE 32

void conv_image_turn(const struct conv_image *dst, const struct conv_image *src, int orientation)
{
    bool columns = orientation >= 5; // become rows
    bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    ptrdiff_t size = src->depth / 8;
    for (int c = 0; c < src->channels; c++) {
        const struct conv_plane *from = &src->plane[c], *to = &dst->plane[c];
        const uint8_t *first = from->data + (left ? (src->width - 1) * size : 0) +
                               (up ? (src->height - 1) * from->stride : 0);
        ptrdiff_t along = left ? -size : size, down = up ? -from->stride : from->stride;
        ptrdiff_t step = columns ? down : along, line = columns ? along : down;
        for (int y = 0; y < dst->height; y += TILE)
            for (int x = 0; x < dst->width; x += TILE)
                for (int i = y; i < y + TILE && i < dst->height; i++)
                    gather(to->data + i * to->stride + x * size, first + i * line + x * step, step,
                           dst->width - x < TILE ? dst->width - x : TILE, (size_t)size);
    }
}

bool conv_image_differ(const struct conv_image *a, const struct conv_image *b,
                       struct conv_image_difference *first)
{
    size_t sample = (size_t)a->depth / 8, row = (size_t)a->width * sample;
    for (int c = 0; c < a->channels; c++) {
        for (int y = 0; y < a->height; y++) {
            const uint8_t *of_a = conv_image_row(a, c, y);
            const uint8_t *of_b = conv_image_row(b, c, y);
            if (memcmp(of_a, of_b, row) == 0)
                continue;
            size_t x = 0;
            while (memcmp(of_a + x * sample, of_b + x * sample, sample) == 0)
                x++;
            *first = (struct conv_image_difference){.channel = c, .x = (int)x, .y = y};
            first->a = conv_image_get(of_a, a->depth, (int)x);
            first->b = conv_image_get(of_b, a->depth, (int)x);
            return true;
        }
    }
    return false;
}

// --- samples in place ----------------------------------------------------------------------------
// They are computed in parts of rows, apart from the row, which compilers can vectorise.

#define PART 256

CONV_LOOP int part_of(const struct conv_image *image, int x)
{
    return image->width - x < PART ? image->width - x : PART;
}

CONV_LOOP void load(uint16_t *restrict to, const uint8_t *restrict row, int depth, int x, int count)
{
    if (depth == 8)
        for (int i = 0; i < count; i++)
            to[i] = row[x + i];
    else
        memcpy(to, row + 2 * (size_t)x, 2 * (size_t)count);
}

CONV_LOOP void store(uint8_t *restrict row, const uint16_t *restrict from, int depth, int x,
                     int count)
{
    if (depth == 8)
        for (int i = 0; i < count; i++)
            row[x + i] = (uint8_t)from[i];
    else
        memcpy(row + 2 * (size_t)x, from, 2 * (size_t)count);
}

// Apart from vectors, which compilers would fill sample by sample.
__attribute__((noinline)) static void look_up(uint16_t *value, const uint16_t *table, int count)
{
    for (int i = 0; i < count; i++)
        value[i] = table[value[i]];
}

CONV_LOOP void convert_row(uint8_t *row, const struct conv_image *image, int to,
                           const uint16_t *table)
{
    uint16_t value[PART] = {0};
    int from = image->depth, parts = (image->width + PART - 1) / PART;
    for (int k = 0; k < parts; k++) { // samples that become wider overwrite those after them
        int x = (from < to ? parts - 1 - k : k) * PART, count = part_of(image, x);
        load(value, row, from, x, count);
        for (int i = 0; i < PART && from < to; i++)
            value[i] = (uint16_t)(value[i] * 257);
        if (table)
            look_up(value, table, count);
        for (int i = 0; i < PART && to < from; i++)
            value[i] = (uint16_t)((value[i] + 128u) / 257);
        store(row, value, to, x, count);
    }
}

CONV_LOOP void conv_image_convert_loop(struct conv_image *image, int to, const uint16_t *table)
{
    int colours = table ? image->channels - image->alpha : 0;
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height && (c < colours || image->depth != to); y++)
            convert_row(conv_image_row(image, c, y), image, to, c < colours ? table : NULL);
    image->depth = to;
}
CONV_VECTORISE(conv_image_convert, (struct conv_image * image, int to, const uint16_t table[65536]),
               (image, to, table))

CONV_LOOP void conv_image_mix_loop(const struct conv_image *image, const struct conv_image *other,
                                   unsigned share)
{
    uint16_t value[PART] = {0}, of_other[PART] = {0};
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x += PART) {
                int count = part_of(image, x);
                load(value, conv_image_row(image, c, y), image->depth, x, count);
                load(of_other, conv_image_row(other, c, y), image->depth, x, count);
                for (int i = 0; i < PART; i++)
                    value[i] = (uint16_t)conv_image_divide_half_even(
                        share * of_other[i] + (CONV_IMAGE_WHOLE - share) * value[i],
                        CONV_IMAGE_WHOLE);
                store(conv_image_row(image, c, y), value, image->depth, x, count);
            }
}
CONV_VECTORISE(conv_image_mix,
               (const struct conv_image *image, const struct conv_image *other, unsigned share),
               (image, other, share))

// The luminance of some pixels of a row. *value: their colours.
CONV_LOOP void weigh(uint16_t *restrict luma, uint16_t (*restrict value)[PART],
                     const struct conv_image *colours, int y, int x)
{
    int count = part_of(colours, x);
    for (int c = 0; c < 3; c++)
        load(value[c], conv_image_row(colours, c, y), colours->depth, x, count);
    for (int i = 0; i < PART; i++)
        luma[i] = (uint16_t)conv_image_divide_half_even(
            299u * value[0][i] + 587u * value[1][i] + 114u * value[2][i], 1000);
}

CONV_LOOP void conv_image_weigh_loop(const struct conv_image *gray,
                                     const struct conv_image *colours)
{
    uint16_t luma[PART], value[3][PART] = {0};
    for (int y = 0; y < colours->height; y++)
        for (int x = 0; x < colours->width; x += PART) {
            weigh(luma, value, colours, y, x);
            store(conv_image_row(gray, 0, y), luma, colours->depth, x, part_of(colours, x));
        }
}
CONV_VECTORISE(conv_image_weigh, (const struct conv_image *gray, const struct conv_image *colours),
               (gray, colours))

CONV_LOOP void conv_image_replace_luma_loop(const struct conv_image *colours,
                                            const struct conv_image *luma)
{
    uint16_t old[PART], new[PART] = {0}, value[3][PART] = {0};
    int most = (1 << colours->depth) - 1;
    for (int y = 0; y < colours->height; y++) {
        for (int x = 0; x < colours->width; x += PART) {
            int count = part_of(colours, x);
            weigh(old, value, colours, y, x);
            load(new, conv_image_row(luma, 0, y), colours->depth, x, count);
            for (int c = 0; c < 3; c++) {
                for (int i = 0; i < PART; i++) {
                    int sum = value[c][i] + new[i] - old[i];
                    value[c][i] = (uint16_t)(sum < 0 ? 0 : sum > most ? most : sum);
                }
                store(conv_image_row(colours, c, y), value[c], colours->depth, x, count);
            }
        }
    }
}
CONV_VECTORISE(conv_image_replace_luma,
               (const struct conv_image *colours, const struct conv_image *luma), (colours, luma))

// --- linear light --------------------------------------------------------------------------------

#define MOST 65535
#define LN2 0.69314718055994530942
#define SQRT_HALF 0.70710678118654752440

// x to the power y for 0 < x <= 1 and 0 < y <= 10, within 1e-13 of its value. ln by the series of
// atanh, of which 12 terms leave 1e-18 for a mantissa from sqrt(1/2) to sqrt(2); exp by Taylor's,
// of which 17 leave 1e-22 for an argument up to ln(2) / 2. frexp, floor and ldexp are exact.
static double power(double x, double y)
{
    int exponent;
    double mantissa = frexp(x, &exponent), sum = 0, result = 1;
    if (mantissa < SQRT_HALF) {
        mantissa *= 2;
        exponent--;
    }
    double t = (mantissa - 1) / (mantissa + 1);
    for (int k = 11; k >= 0; k--)
        sum = sum * t * t + 1.0 / (2 * k + 1);
    double log2 = y * (exponent + 2 * t * sum / LN2), whole = floor(log2 + 0.5);
    for (int k = 17; k > 0; k--)
        result = result * ((log2 - whole) * LN2) / k + 1;
    return ldexp(result, (int)whole);
}

static double linear_of(double stored, uint32_t gamma)
{
    if (stored == 0 || gamma)
        return stored == 0 ? 0 : power(stored, 100000.0 / gamma);
    return stored <= 0.04045 ? stored / 12.92 : power((stored + 0.055) / 1.055, 2.4);
}

static double stored_of(double linear, uint32_t gamma)
{
    if (linear == 0 || gamma)
        return linear == 0 ? 0 : power(linear, gamma / 100000.0);
    return linear <= 0.0031308 ? 12.92 * linear : 1.055 * power(linear, 1 / 2.4) - 0.055;
}

void conv_curve_make(struct conv_curve *curve, uint32_t gamma)
{
    curve->gamma = gamma;
    for (int v = 0; v <= MOST; v++) {
        double share = v / (double)MOST;
        curve->linear[v] = (uint16_t)(MOST * linear_of(share, gamma) + 0.5);
        curve->stored[v] = (uint16_t)(MOST * stored_of(share, gamma) + 0.5);
    }
}
