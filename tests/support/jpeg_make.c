// SPDX-License-Identifier: MIT
#include "support/jpeg_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "support/random.h"

#define MOST_SCANS 200

static uint8_t make_sample(enum jpeg_content content, int x, int y, int channel, uint64_t *seed)
{
    if (content == JPEG_FLAT)
        return (uint8_t)(200 + channel);
    if (content == JPEG_NOISE)
        return (uint8_t)random_below(seed, 256);
    unsigned noise = random_below(seed, 24);
    return (uint8_t)(((x * (5 + channel) + y * 3 * (channel + 1)) & 0xDF) + (int)noise);
}

// A scan of the DC coefficients, then one per AC coefficient and component, as many as requested.
static int script_scans(jpeg_scan_info scans[MOST_SCANS], const struct jpeg_spec *spec)
{
    int components = spec->channels, count = 1;
    scans[0] = (jpeg_scan_info){.comps_in_scan = components, .component_index = {0, 1, 2}};
    for (int k = 1; k < 64 && count < spec->scans; k++)
        for (int c = 0; c < components && count < spec->scans; c++)
            scans[count++] =
                (jpeg_scan_info){.comps_in_scan = 1, .component_index = {c}, .Ss = k, .Se = k};
    return count;
}

static int script_separate(jpeg_scan_info scans[MOST_SCANS], const struct jpeg_spec *spec)
{
    for (int c = 0; c < spec->channels; c++)
        scans[c] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {c}, .Se = 63};
    return spec->channels;
}

static void configure(struct jpeg_compress_struct *jpeg, const struct jpeg_spec *spec,
                      jpeg_scan_info scans[MOST_SCANS])
{
    static const J_COLOR_SPACE inputs[] = {0, JCS_GRAYSCALE, 0, JCS_RGB, JCS_CMYK};
    jpeg->image_width = (JDIMENSION)spec->width;
    jpeg->image_height = (JDIMENSION)spec->height;
    jpeg->input_components = spec->channels;
    jpeg->in_color_space = inputs[spec->channels];
    jpeg_set_defaults(jpeg);
    if (spec->colors == JPEG_RGB)
        jpeg_set_colorspace(jpeg, JCS_RGB);
    jpeg_set_quality(jpeg, spec->quality ? spec->quality : 85, TRUE);
    for (int i = 0; spec->quant && i < 2; i++)
        jpeg_add_quant_table(jpeg, i, spec->quant[i], 100, TRUE);
    jpeg->comp_info[0].h_samp_factor = spec->sampling_h ? spec->sampling_h : 1;
    jpeg->comp_info[0].v_samp_factor = spec->sampling_v ? spec->sampling_v : 1;
    for (int c = 1; c < spec->channels; c++) {
        jpeg->comp_info[c].h_samp_factor = spec->chroma_h ? spec->chroma_h : 1;
        jpeg->comp_info[c].v_samp_factor = spec->chroma_v ? spec->chroma_v : 1;
    }
    jpeg->restart_in_rows = spec->restart;
    jpeg->restart_interval = (unsigned)spec->restart_mcus;
    jpeg->arith_code = spec->arithmetic;
    jpeg->optimize_coding = spec->optimized;
    if (spec->progressive)
        jpeg_simple_progression(jpeg);
    if (spec->scans > 0 || spec->separate) {
        jpeg->num_scans = spec->separate ? script_separate(scans, spec) : script_scans(scans, spec);
        jpeg->scan_info = scans;
    }
}

void jpeg_make(struct png_file *file, const struct jpeg_spec *spec, uint64_t seed)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[MOST_SCANS];
    unsigned char *data = NULL;
    unsigned long size = 0;
    uint8_t *row = malloc((size_t)spec->width * (size_t)spec->channels);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &size);
    configure(&jpeg, spec, scans);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < spec->height; y++) {
        for (int x = 0; x < spec->width; x++)
            for (int c = 0; c < spec->channels; c++)
                row[x * spec->channels + c] =
                    spec->pixels
                        ? spec->pixels->plane[c].data[y * spec->pixels->plane[c].stride + x]
                        : make_sample(spec->content, x, y, c, &seed);
        (void)jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    png_make_free(file);
    png_make_bytes(file, data, size);
    free(data);
}

uint8_t *jpeg_decode_plain(const struct png_file *file, int width, int height, int channels)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file->data, file->size);
    (void)jpeg_read_header(&jpeg, TRUE);
    if (channels == 1)
        jpeg.out_color_space = JCS_GRAYSCALE;
    (void)jpeg_start_decompress(&jpeg);
    size_t row_size = (size_t)width * (size_t)channels;
    uint8_t *pixels = NULL;
    if (jpeg.output_width == (JDIMENSION)width && jpeg.output_height == (JDIMENSION)height &&
        jpeg.output_components == channels)
        pixels = malloc(row_size * (size_t)height);
    for (int y = 0; pixels && y < height; y++) {
        uint8_t *row = pixels + (size_t)y * row_size;
        (void)jpeg_read_scanlines(&jpeg, &row, 1);
    }
    if (pixels)
        (void)jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    return pixels;
}

static const int factors[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {1, 2, 1, 1},
                                 {4, 1, 1, 1}, {4, 2, 1, 1}, {1, 4, 1, 1}, {2, 2, 1, 2},
                                 {2, 2, 2, 1}, {4, 1, 2, 1}, {1, 1, 2, 2}, {1, 1, 2, 1}};
_Static_assert(sizeof factors / sizeof factors[0] == JPEG_FACTORS, "all are counted");

void jpeg_set_factors(struct jpeg_spec *spec, size_t i)
{
    spec->sampling_h = factors[i][0], spec->sampling_v = factors[i][1];
    spec->chroma_h = factors[i][2], spec->chroma_v = factors[i][3];
}

size_t jpeg_find(const struct png_file *file, int code)
{
    size_t at = 0;
    while (at + 1 < file->size && !(file->data[at] == 0xFF && file->data[at + 1] == code))
        at++;
    if (at + 1 >= file->size)
        abort();
    return at;
}

size_t jpeg_find_last(const struct png_file *file, int code)
{
    size_t at = file->size - 2;
    while (at > 0 && !(file->data[at] == 0xFF && file->data[at + 1] == code))
        at--;
    return at;
}

void jpeg_insert(struct png_file *file, size_t at, int code, const void *data, size_t size)
{
    struct png_file segment = {0};
    const uint8_t head[4] = {0xFF, (uint8_t)code, (uint8_t)((size + 2) >> 8), (uint8_t)(size + 2)};
    png_make_bytes(&segment, head, sizeof head);
    png_make_bytes(&segment, data, size);
    png_make_insert(file, at, &segment);
    png_make_free(&segment);
}

void jpeg_orient(struct png_file *file, int orientation)
{
    const uint8_t exif[] = {
        'E', 'x', 'i', 'f', 0,    0, 'M', 'M', 0, '*', 0, 0, 0,
        8,   0,   1,   1,   0x12, 0, 3,   0,   0, 0,   1, 0, (uint8_t)orientation,
        0,   0,   0,   0,   0,    0};
    jpeg_insert(file, 2, 0xE1, exif, sizeof exif);
}

void jpeg_mutate(struct png_file *file, uint64_t *state)
{
    for (int n = 1 + (int)random_below(state, 3); n > 0 && file->size > 16; n--) {
        unsigned size = (unsigned)file->size;
        unsigned at = random_below(state, 4) ? size - 1 - random_below(state, size / 2)
                                             : random_below(state, size);
        unsigned length = 1 + random_below(state, 3);
        length = length < size - at ? length : size - at;
        switch (random_below(state, 6)) {
        case 0:
        case 1:
            file->data[at] ^= (uint8_t)(1u << random_below(state, 8));
            break;
        case 2:
            file->data[at] = (uint8_t)random_below(state, 256);
            break;
        case 3:
            memmove(file->data + at, file->data + at + length, size - at - length);
            file->size -= length;
            break;
        case 4: { // bytes of the scan, or zeros, before EOI
            uint8_t more[3] = {0};
            if (random_below(state, 2))
                memcpy(more, file->data + at, length);
            png_make_insert(file, at, &(struct png_file){more, length});
            break;
        }
        default:
            if (random_below(state, 4) == 0)
                file->size = at;
        }
    }
}

struct jpeg_spec jpeg_draw(uint64_t *state)
{
    static const int samplings[][4] = {
        {1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {1, 2, 1, 1}, {4, 1, 1, 1}, {4, 2, 1, 1},
        {1, 4, 1, 1}, {2, 4, 1, 1}, {2, 2, 1, 2}, {2, 2, 2, 1}, {2, 1, 2, 1}, {4, 1, 2, 1},
        {1, 2, 2, 1}, {3, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 2, 2}, {1, 1, 2, 1}, {1, 1, 1, 2}};
    static const unsigned most[] = {4, 20, 60, 200, 400};
    const int *sampling = samplings[random_below(state, 2) ? 2 : random_below(state, 18)];
    unsigned side = most[random_below(state, 5)];
    struct jpeg_spec spec = {
        .width = 1 + (int)random_below(state, side),
        .height = 1 + (int)random_below(state, side),
        .channels = random_below(state, 5) ? 3 : 1,
        .quality = 1 + (int)random_below(state, 100),
        .sampling_h = sampling[0],
        .sampling_v = sampling[1],
        .chroma_h = sampling[2],
        .chroma_v = sampling[3],
        .restart_mcus = random_below(state, 3) ? 0 : 1 + (int)random_below(state, 40),
        .content = (enum jpeg_content)random_below(state, JPEG_CONTENTS),
        .optimized = random_below(state, 3) == 0,
    };
    return spec;
}
