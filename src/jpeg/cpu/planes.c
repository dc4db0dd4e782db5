// SPDX-License-Identifier: MIT
#include "jpeg/cpu/cpu_jpeg.h"

#include <string.h>

#include "base/features.h"

#define SLACK CONV_JPEG_ROW_SLACK
#define BLOCK 8
#define RING 2 // rows of MCUs: enlarging a row needs one of the next row of MCUs

static int divide_up(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

// An odd number of cache lines, so that the rows of a block are in different sets of the cache.
static ptrdiff_t pitch_of(size_t samples)
{
    return (ptrdiff_t)(conv_image_align(samples + (size_t)2 * SLACK, 64) | 64);
}

static void set_sizes(struct conv_jpeg_planes *planes)
{
    planes->most_h = planes->most_v = 1;
    for (int c = 0; c < planes->components; c++) {
        planes->most_h = planes->h[c] > planes->most_h ? planes->h[c] : planes->most_h;
        planes->most_v = planes->v[c] > planes->most_v ? planes->v[c] : planes->most_v;
    }
    for (int c = 0; c < planes->components; c++) {
        struct conv_jpeg_component *component = &planes->component[c];
        component->width = divide_up((int64_t)planes->width * planes->h[c], planes->most_h);
        component->height = divide_up((int64_t)planes->height * planes->v[c], planes->most_v);
        component->padded = conv_image_align((size_t)component->width, BLOCK);
        component->pitch = pitch_of(component->padded);
        component->full_pitch = pitch_of(component->padded * (size_t)planes->most_h / planes->h[c]);
    }
}

struct conv_jpeg_planes conv_jpeg_planes_of(const struct conv_image_header *header)
{
    struct conv_jpeg_planes planes = {.width = header->shape.width,
                                      .height = header->shape.height,
                                      .components = header->jpeg.components,
                                      .ycc = header->jpeg.components == 3,
                                      .luma = header->jpeg.luma};
    memcpy(planes.h, header->jpeg.h, sizeof planes.h);
    memcpy(planes.v, header->jpeg.v, sizeof planes.v);
    return planes;
}

bool conv_jpeg_planes_fit(const struct conv_jpeg_planes *planes)
{
    struct conv_jpeg_planes sizes = *planes;
    bool fit = true;
    set_sizes(&sizes);
    for (int c = 0; c < planes->components; c++)
        fit = fit && sizes.most_h % planes->h[c] == 0 && sizes.most_v % planes->v[c] == 0;
    return fit;
}

static size_t row_bytes(const struct conv_jpeg_planes *planes)
{
    return conv_image_align((size_t)planes->width, 64);
}

// A row of the image in the scratch memory.
static struct conv_image scratch_row(const struct conv_jpeg_planes *planes, int channels)
{
    struct conv_image row = {.width = planes->width, .height = 1, .channels = channels, .depth = 8};
    for (int c = 0; c < channels; c++)
        row.plane[c].data = planes->row + (size_t)c * row_bytes(planes);
    return row;
}

// Rows in the ring and of full width of a component.
static size_t ring_rows(const struct conv_jpeg_planes *planes, int c)
{
    return (size_t)RING * BLOCK * planes->v[c];
}

size_t conv_jpeg_planes_bytes(const struct conv_jpeg_planes *planes)
{
    struct conv_jpeg_planes sizes = *planes;
    size_t bytes = SLACK + CONV_IMAGE_MAX_CHANNELS * row_bytes(planes);
    set_sizes(&sizes);
    for (int c = 0; c < planes->components; c++)
        bytes += ring_rows(&sizes, c) * (size_t)sizes.component[c].pitch +
                 (size_t)sizes.most_v * (size_t)sizes.component[c].full_pitch;
    return bytes;
}

void conv_jpeg_planes_place(struct conv_jpeg_planes *planes, uint8_t *memory)
{
    set_sizes(planes);
    planes->rows = conv_jpeg_rows_choose(conv_cpu_features());
    planes->done = 0;
    memory += SLACK;
    for (int c = 0; c < planes->components; c++) {
        struct conv_jpeg_component *component = &planes->component[c];
        component->ring = memory;
        memory += ring_rows(planes, c) * (size_t)component->pitch;
        component->full = memory;
        memory += (size_t)planes->most_v * (size_t)component->full_pitch;
    }
    planes->row = memory;
}

static uint8_t *row_of(const struct conv_jpeg_planes *planes, int c, int y)
{
    return planes->component[c].ring +
           (ptrdiff_t)((size_t)y % ring_rows(planes, c)) * planes->component[c].pitch;
}

void conv_jpeg_planes_rows(const struct conv_jpeg_planes *planes, int c, int mcu_row,
                           uint8_t *rows[CONV_JPEG_PLANES_MOST_ROWS])
{
    int count = BLOCK * planes->v[c];
    for (int i = 0; i < count; i++)
        rows[i] = row_of(planes, c, mcu_row * count + i);
}

// --- from the components to the image ------------------------------------------------------------

// The factors by which a component is enlarged.
static int step_h(const struct conv_jpeg_planes *planes, int c)
{
    return planes->most_h / planes->h[c];
}

static int step_v(const struct conv_jpeg_planes *planes, int c)
{
    return planes->most_v / planes->v[c];
}

// libjpeg-turbo interpolates between two columns, two rows, or both, and repeats samples in all
// other cases, and in components of one or two columns.
static bool is_smooth(const struct conv_jpeg_planes *planes, int c)
{
    int h = step_h(planes, c), v = step_v(planes, c);
    return (h == 2 && v <= 2 && planes->component[c].width > 2) || (h == 1 && v == 2);
}

static void repeat_ends(const struct conv_jpeg_planes *planes, int mcu_row)
{
    for (int c = 0; c < planes->components; c++) {
        const struct conv_jpeg_component *component = &planes->component[c];
        int count = BLOCK * planes->v[c];
        for (int y = mcu_row * count; y < (mcu_row + 1) * count && y < component->height; y++) {
            uint8_t *row = row_of(planes, c, y);
            row[-1] = row[0];
            row[component->width] = row[component->width - 1];
        }
    }
}

static void blend_rows(uint8_t *restrict dst, const uint8_t *restrict near,
                       const uint8_t *restrict far, int bias, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

static void repeat_samples(uint8_t *dst, const uint8_t *src, int step, int n)
{
    for (int i = 0; i < n; i++)
        dst[i] = src[i / step];
}

// Row y of the image of component c: in the ring, or enlarged in `full`.
static const uint8_t *enlarge(const struct conv_jpeg_planes *planes, int c, int y)
{
    const struct conv_jpeg_component *component = &planes->component[c];
    int h = step_h(planes, c), v = step_v(planes, c), from = y / v;
    size_t width = (size_t)component->width;
    const uint8_t *near = row_of(planes, c, from);
    if (h == 1 && v == 1)
        return near;
    if (!is_smooth(planes, c)) {
        repeat_samples(component->full, near, h, planes->width);
        return component->full;
    }
    if (v == 1) {
        planes->rows->widen(component->full, near, width);
        return component->full;
    }
    int other = y % 2 ? from + 1 : from - 1;
    other = other < 0 ? 0 : other >= component->height ? component->height - 1 : other;
    const uint8_t *far = row_of(planes, c, other);
    if (h == 2)
        planes->rows->widen_between(component->full, near, far, width);
    else
        blend_rows(component->full, near, far, 1 + y % 2, width);
    return component->full;
}

// Row y of the image, of the first `made` components.
static void make_row(struct conv_jpeg_planes *planes, int y, int made, uint8_t *const to[3])
{
    size_t width = (size_t)planes->width;
    const uint8_t *from[3];
    for (int c = 0; c < made; c++)
        from[c] = enlarge(planes, c, y);
    if (planes->ycc && made == 3)
        planes->rows->to_rgb(to, from, width);
    else
        for (int c = 0; c < made; c++)
            memcpy(to[c], from[c], width);
}

void conv_jpeg_planes_put(struct conv_jpeg_planes *planes, int mcu_row,
                          const struct conv_image *dst)
{
    int end = (mcu_row + 1) * BLOCK * planes->most_v;
    int made = planes->luma && planes->ycc ? 1 : planes->components;
    bool waits = false; // for a row of the next row of MCUs
    bool weighs = planes->luma && !planes->ycc;
    struct conv_image row = scratch_row(planes, made);
    repeat_ends(planes, mcu_row);
    for (int c = 0; c < planes->components; c++)
        waits = waits || (is_smooth(planes, c) && step_v(planes, c) == 2);
    end = end >= planes->height ? planes->height : end - waits;
    for (int y = planes->done; y < end; y++) {
        uint8_t *to[3];
        for (int c = 0; c < made; c++)
            to[c] = planes->put || weighs ? row.plane[c].data : conv_image_row(dst, c, y);
        make_row(planes, y, made, to);
        if (weighs) {
            conv_image_weigh(&row, &row);
            if (!planes->put)
                memcpy(conv_image_row(dst, 0, y), to[0], (size_t)row.width);
        }
        row.channels = planes->luma ? 1 : made;
        if (planes->put)
            planes->put->put(planes->put->context, y, &row);
    }
    planes->done = end;
}

// --- from the image to the components ------------------------------------------------------------

// The mean of a rectangle, rounded to nearest: libjpeg's for factors other than 1 and 2.
static void reduce(uint8_t *dst, const uint8_t *src, ptrdiff_t pitch, int h, int v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int sum = h * v / 2;
        for (int y = 0; y < v; y++)
            for (int x = 0; x < h; x++)
                sum += src[y * pitch + (ptrdiff_t)i * h + x];
        dst[i] = (uint8_t)(sum / (h * v));
    }
}

// Converts rows y to y + most_v - 1 of the image to full-size components: into the ring where a
// component is not reduced.
static void convert(struct conv_jpeg_planes *planes, int y, const struct conv_image *src)
{
    size_t width = (size_t)planes->width;
    struct conv_image one = scratch_row(planes, src->channels);
    const struct conv_image *image = planes->get ? &one : src;
    for (int i = 0; i < planes->most_v; i++) {
        int row = y + i < planes->height ? y + i : planes->height - 1;
        const uint8_t *from[3];
        uint8_t *to[3];
        if (planes->get)
            planes->get->get(planes->get->context, row, image);
        for (int c = 0; c < planes->components; c++) {
            const struct conv_jpeg_component *component = &planes->component[c];
            bool whole = step_h(planes, c) == 1 && step_v(planes, c) == 1;
            from[c] = image->plane[c].data + row * image->plane[c].stride;
            to[c] = whole ? row_of(planes, c, y + i)
                          : component->full + (ptrdiff_t)i * component->full_pitch;
        }
        if (planes->components == 3)
            planes->rows->to_ycc(to, from, width);
        else
            memcpy(to[0], from[0], width);
        for (int c = 0; c < planes->components; c++)
            memset(to[c] + width, to[c][width - 1],
                   planes->component[c].padded * (size_t)step_h(planes, c) - width);
    }
}

static void shrink(const struct conv_jpeg_planes *planes, int c, int y)
{
    const struct conv_jpeg_component *component = &planes->component[c];
    int h = step_h(planes, c), v = step_v(planes, c);
    const uint8_t *full = component->full;
    for (int i = 0; i < planes->v[c]; i++, full += v * component->full_pitch) {
        uint8_t *to = row_of(planes, c, y + i);
        if (h == 2 && v == 1)
            planes->rows->halve(to, full, component->padded);
        else if (h == 2 && v == 2)
            planes->rows->halve_both(to, full, full + component->full_pitch, component->padded);
        else if (h > 1 || v > 1)
            reduce(to, full, component->full_pitch, h, v, component->padded);
    }
}

void conv_jpeg_planes_get(struct conv_jpeg_planes *planes, int mcu_row,
                          const struct conv_image *src)
{
    for (int i = 0; i < BLOCK; i++) {
        int group = mcu_row * BLOCK + i; // of most_v rows of the image
        bool inside = group * planes->most_v < planes->height;
        if (inside)
            convert(planes, group * planes->most_v, src);
        for (int c = 0; c < planes->components; c++) {
            int y = group * planes->v[c];
            if (inside)
                shrink(planes, c, y);
            else // repeats the last reduced row
                for (int k = 0; k < planes->v[c]; k++)
                    memcpy(row_of(planes, c, y + k), row_of(planes, c, y - 1),
                           planes->component[c].padded);
        }
    }
}
