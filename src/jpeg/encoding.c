// SPDX-License-Identifier: MIT
// How an output is encoded: as its input, or as options say.
#include <string.h>

#include "jpeg/jpeg.h"

// At 90 and above colours are stored at full resolution, as by libvips: filters make edges of
// colour that 4:2:0 would smear.
#define DEFAULT_QUALITY 90
#define FULL_CHROMA_QUALITY 90

#define BLOCK CONV_JPEG_BLOCK_SAMPLES
#define MOST_DIVISOR 32767 // libjpeg's SIMD code has 16 bits with a sign
#define TABLES 4

// ITU-T T.81, figure A.6.
const uint8_t conv_jpeg_zigzag[BLOCK] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// ITU-T T.81, tables K.1 and K.2: of luma and of chroma, row by row.
static const uint8_t usual[2][BLOCK] = {
    {16, 11, 10, 16, 24,  40,  51,  61,  12, 12, 14, 19, 26,  58,  60,  55,
     14, 13, 16, 24, 40,  57,  69,  56,  14, 17, 22, 29, 51,  87,  80,  62,
     18, 22, 37, 56, 68,  109, 103, 77,  24, 35, 55, 64, 81,  104, 113, 92,
     49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99},
    {17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99,
     99, 99, 47, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
     99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99}};

// The divisor in place k of the zigzag order, as libjpeg scales it for a quality.
static unsigned divisor_of(int quality, int table, int k)
{
    int percent = quality < 50 ? 5000 / quality : 200 - 2 * quality;
    int value = (usual[table][conv_jpeg_zigzag[k]] * percent + 50) / 100;
    return value < 1 ? 1 : value > 255 ? 255 : (unsigned)value;
}

// --- what an input has ---------------------------------------------------------------------------

static bool read_divisors(uint16_t to[BLOCK], const uint8_t *p, bool wide)
{
    bool good = true;
    for (int k = 0; k < BLOCK; k++) {
        unsigned value = wide ? conv_marker_read_u16(p + (size_t)2 * k) : p[k];
        to[k] = (uint16_t)value;
        good = good && value > 0 && value <= MOST_DIVISOR;
    }
    return good;
}

// A segment may define several tables. False if one is damaged.
static bool read_tables(uint16_t tables[TABLES][BLOCK], const struct conv_marker *marker)
{
    const uint8_t *p = marker->data, *end = p + marker->length;
    while (p < end) {
        int table = *p & 15;
        bool wide = *p++ >> 4;
        size_t bytes = (size_t)BLOCK * (wide ? 2 : 1);
        if (table >= TABLES || (size_t)(end - p) < bytes || !read_divisors(tables[table], p, wide))
            return false;
        p += bytes;
    }
    return true;
}

// Luma's factors where both chroma components have 1x1, after division by a common factor, and a
// scan can hold all components; else 1x1, which loses nothing.
static void keep_sampling(struct conv_kept *kept, const struct conv_image_header *header)
{
    int h = header->jpeg.h[0], v = header->jpeg.v[0];
    int chroma_h = header->jpeg.h[1], chroma_v = header->jpeg.v[1];
    kept->h = kept->v = 1;
    if (header->shape.channels == 1 || chroma_h != header->jpeg.h[2] ||
        chroma_v != header->jpeg.v[2] || h % chroma_h != 0 || v % chroma_v != 0 ||
        h / chroma_h * (v / chroma_v) > CONV_JPEG_MCU_BLOCKS - 2)
        return;
    kept->h = (uint8_t)(h / chroma_h);
    kept->v = (uint8_t)(v / chroma_v);
}

// True if luma has as many samples as the image.
static bool has_full_luma(const struct conv_image_header *header)
{
    const uint8_t *h = header->jpeg.h, *v = header->jpeg.v;
    return h[0] >= h[1] && h[0] >= h[2] && v[0] >= v[1] && v[0] >= v[2];
}

void conv_jpeg_keep(const uint8_t *data, size_t size, const struct conv_image_header *header,
                    struct conv_kept *kept)
{
    uint16_t tables[TABLES][BLOCK] = {{0}};
    const uint8_t *frame = NULL;
    struct conv_jpeg_colours colours = {0};
    struct conv_marker marker;
    size_t at = 2;
    bool good = true;
    *kept = (struct conv_kept){.progressive = header->jpeg.progressive};
    while (good && conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS) {
        if (marker.code == CONV_MARKER_DQT)
            good = read_tables(tables, &marker);
        else if (conv_marker_is_frame(marker.code))
            frame = marker.data; // of that many components, as the probe has seen
        conv_jpeg_note_colours(&colours, &marker);
    }
    if (!good || !frame)
        return;
    int channels = frame[5] == 3 ? 3 : 1;
    for (int c = 0; c < channels; c++) {
        int table = frame[8 + 3 * c];
        if (table >= TABLES || tables[table][0] == 0)
            return;
        memcpy(kept->quant[c], tables[table], sizeof kept->quant[c]);
    }
    kept->components = (uint8_t)channels;
    kept->luma_apart = channels == 3 && conv_jpeg_is_ycc(&colours, frame) && has_full_luma(header);
    keep_sampling(kept, header);
}

// --- what an output gets -------------------------------------------------------------------------

static void set_quality(struct conv_jpeg_encoding *encoding, int quality, bool colors)
{
    bool full = !colors || quality >= FULL_CHROMA_QUALITY;
    encoding->h = encoding->v = full ? 1 : 2;
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < BLOCK; k++)
            encoding->quant[c][k] = (uint16_t)divisor_of(quality, c > 0, k);
}

void conv_jpeg_choose(struct conv_jpeg_encoding *encoding, const struct conv_codec_config *config,
                      const struct conv_image *shape, const struct conv_metadata *metadata)
{
    const struct conv_kept *kept = metadata ? &metadata->kept : &(struct conv_kept){0};
    int components = shape->channels < 3 ? 1 : 3;
    *encoding = (struct conv_jpeg_encoding){.progressive = config->progressive || kept->progressive,
                                            .optimize = config->optimize};
    if (config->quality || kept->components < components) {
        set_quality(encoding, config->quality ? config->quality : DEFAULT_QUALITY, components == 3);
        if (config->sampling_h && components == 3) {
            encoding->h = (uint8_t)config->sampling_h;
            encoding->v = (uint8_t)config->sampling_v;
        }
        return;
    }
    memcpy(encoding->quant, kept->quant, sizeof encoding->quant);
    encoding->h = components == 3 ? kept->h : 1;
    encoding->v = components == 3 ? kept->v : 1;
}

void conv_jpeg_choose_device(const struct conv_codec_config *config, const struct conv_image *shape,
                             const struct conv_metadata *metadata,
                             struct conv_device_encoding *device)
{
    struct conv_jpeg_encoding encoding;
    conv_jpeg_choose(&encoding, config, shape, metadata);
    *device = (struct conv_device_encoding){.coder = CONV_DEVICE_JPEG};
    bool narrow = true;
    for (int k = 0; k < BLOCK; k++)
        narrow = narrow && encoding.quant[0][k] <= 255 && encoding.quant[1][k] <= 255;
    bool same = memcmp(encoding.quant[1], encoding.quant[2], sizeof encoding.quant[1]) == 0;
    if (encoding.progressive || encoding.optimize || !narrow || !same)
        return;
    device->h = encoding.h;
    device->v = encoding.v;
    memcpy(device->quant, encoding.quant, sizeof device->quant);
}

static size_t samples_of(const struct conv_jpeg_encoding *encoding, const struct conv_image *shape)
{
    size_t h = encoding->h, v = encoding->v, block = 8;
    size_t width = conv_image_align((size_t)shape->width, block * h);
    size_t samples = width * conv_image_align((size_t)shape->height, block * v);
    return shape->channels < 3 ? samples : samples + 2 * (samples / (h * v));
}

// At quality 100, where coefficients are not divided, noise of full amplitude takes 1.6 bytes per
// sample, and no image 2.25, since the mean square of a block's coefficients is at most that of its
// samples: 8 bits and a code of 10. At 95 the divisors save 2 of these bits.
size_t conv_jpeg_most_bytes(const struct conv_jpeg_encoding *encoding,
                            const struct conv_image *shape)
{
    size_t samples = samples_of(encoding, shape);
    bool fine = encoding->progressive;
    for (int c = 0; c < (shape->channels < 3 ? 1 : 3); c++)
        for (int k = 0; k < BLOCK; k++)
            fine = fine || encoding->quant[c][k] < divisor_of(95, c > 0, k);
    return (fine ? samples / 4 * 9 : samples / 2 * 3) + ((size_t)1 << 16);
}

size_t conv_jpeg_coefficient_bytes(const struct conv_jpeg_encoding *encoding,
                                   const struct conv_image *shape)
{
    bool passes = encoding->progressive || encoding->optimize;
    return passes ? samples_of(encoding, shape) * sizeof(int16_t) : 0;
}
