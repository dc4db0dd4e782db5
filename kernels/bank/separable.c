// SPDX-License-Identifier: MIT
// Separable filters on the CPU, compiled once per instruction set (CMakeLists.txt), which
// CONV_ISA_... names, and once for any processor, with the choice between them. Inner loops run
// over BLOCK outputs of a row, which the compiler keeps in vector registers.
#include "kernels/bank/bank_kernels.h"

#include <math.h>
#include <string.h>

#include "base/features.h"

#if defined CONV_ISA_AVX2
#define SEPARABLE_RUN conv_separable_avx2
#elif defined CONV_ISA_AVX512
#define SEPARABLE_RUN conv_separable_avx512
#else
#define SEPARABLE_RUN conv_separable_portable
#endif

#define BLOCK 64

// One row of one line: out[x] for x = 0 to count - 1.
static inline void line_block(float *out, const float *src, const float *row, int width, int count)
{
    float sum[BLOCK] = {0};
    if (count == BLOCK) {
        for (int v = 0; v < width; v++)
            for (int x = 0; x < BLOCK; x++)
                sum[x] = fmaf(row[v], src[x + v], sum[x]);
    } else {
        for (int v = 0; v < width; v++)
            for (int x = 0; x < count; x++)
                sum[x] = fmaf(row[v], src[x + v], sum[x]);
    }
    memcpy(out, sum, (size_t)count * sizeof *out);
}

// Response of one part of a group: `lines` has the terms' lines, each at its first row.
static inline void response_block(float *sum, const struct conv_separable *filters,
                                  const float *const *lines, int64_t pitch, const float *columns,
                                  int count)
{
    int terms = filters->terms, step = terms * filters->parts;
    for (int x = 0; x < BLOCK; x++)
        sum[x] = 0;
    for (int u = 0; u < filters->height; u++) {
        for (int t = 0; t < terms; t++) {
            const float *line = lines[t] + u * pitch;
            float weight = columns[u * step + t * filters->parts];
            if (count == BLOCK) {
                for (int x = 0; x < BLOCK; x++)
                    sum[x] = fmaf(weight, line[x], sum[x]);
            } else {
                for (int x = 0; x < count; x++)
                    sum[x] = fmaf(weight, line[x], sum[x]);
            }
        }
    }
}

static void group_row(const struct conv_separable *filters, int group, const float *scratch,
                      int64_t plane, int64_t pitch, int row, float *dst, int width)
{
    const float *columns =
        filters->columns +
        (size_t)group * (size_t)(filters->height * filters->terms * filters->parts);
    for (int x = 0; x < width; x += BLOCK) {
        int count = width - x < BLOCK ? width - x : BLOCK;
        const float *lines[CONV_SEPARABLE_MAX_TERMS];
        float a[BLOCK], b[BLOCK];
        for (int t = 0; t < filters->terms; t++)
            lines[t] =
                scratch + filters->line_of[group * filters->terms + t] * plane + row * pitch + x;
        response_block(a, filters, lines, pitch, columns, count);
        if (filters->parts == 2) {
            response_block(b, filters, lines, pitch, columns + 1, count);
            for (int i = 0; i < BLOCK; i++)
                a[i] = sqrtf(fmaf(b[i], b[i], a[i] * a[i]));
        }
        memcpy(dst + x, a, (size_t)count * sizeof *dst);
    }
}

// Output rows first to first + rows - 1, at most CONV_SEPARABLE_BAND, of one image.
static void band(const struct conv_separable *filters, const struct conv_separable_batch *batch,
                 const float *src, float *dst, int first, int rows)
{
    int width = batch->out_width, line_rows = rows + filters->height - 1;
    int64_t pitch = conv_separable_pitch(width), plane = pitch * line_rows;
    for (int k = 0; k < filters->lines; k++) {
        for (int y = 0; y < line_rows; y++) {
            const float *from = src + (first + y) * batch->src_row;
            float *to = batch->scratch + k * plane + y * pitch;
            for (int x = 0; x < width; x += BLOCK)
                line_block(to + x, from + x, filters->rows + k * filters->width, filters->width,
                           width - x < BLOCK ? width - x : BLOCK);
        }
    }
    for (int group = 0; group < filters->groups; group++)
        for (int y = 0; y < rows; y++)
            group_row(filters, group, batch->scratch, plane, pitch, y,
                      dst + group * batch->dst_map + (int64_t)(first + y) * width, width);
}

void SEPARABLE_RUN(const struct conv_separable *filters, const struct conv_separable_batch *batch)
{
    int end = batch->first_row + batch->rows;
    for (int64_t image = 0; image < batch->images; image++)
        for (int y = batch->first_row; y < end; y += CONV_SEPARABLE_BAND)
            band(filters, batch, batch->src + image * batch->src_image,
                 batch->dst + image * batch->dst_image, y,
                 end - y < CONV_SEPARABLE_BAND ? end - y : CONV_SEPARABLE_BAND);
}

#if !defined CONV_ISA_AVX2 && !defined CONV_ISA_AVX512
size_t conv_separable_scratch(const struct conv_separable *filters, int out_width)
{
    size_t rows = (size_t)(CONV_SEPARABLE_BAND + filters->height - 1);
    return (size_t)filters->lines * rows * (size_t)conv_separable_pitch(out_width);
}

static conv_separable_fn choose(void)
{
#ifdef __x86_64__
    unsigned have = conv_cpu_features();
    if (have & CONV_CPU_AVX512)
        return conv_separable_avx512;
    if (have & CONV_CPU_AVX2)
        return conv_separable_avx2;
#endif
    return conv_separable_portable;
}

void conv_separable_run(const struct conv_separable *filters,
                        const struct conv_separable_batch *batch)
{
    choose()(filters, batch);
}
#endif
