// SPDX-License-Identifier: MIT
// Gradient magnitudes of 3x3 matrices that are a column (a, b, a) times the row (-1, 0, 1): Sobel,
// Scharr, Prewitt. For each output row, two lines are made of three lines of samples: the smoothed
// column sums, whose difference along the row is gx, and the differences between the rows below and
// above, whose smoothed sum along the row is gy.
// 8-bit samples: both lines are of 16 bits, and each lane of 32 bits gets gx * gx + gy * gy of an
// even or an odd sample by one multiplication. 16-bit samples and float32 results: lines of floats.
// In both cases all integers are exact, so that only the defined operations round.
#pragma once

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/round.h"
#include "kernels/stencil/cpu/vector.h"

#define GRADIENT_LANES (VECTOR / (int)sizeof(float))

typedef uint8_t vec_u8_half __attribute__((vector_size(VECTOR / 2)));

struct gradient_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    int outer, inner;      // a and b
    bool plain;            // divisor 1, offset 0
    bool floats;           // lines of floats, from samples of 16 bits
    uint8_t *ring;         // three lines of samples; number k holds source row k - 1
    uint8_t *fresh;        // a line of samples of 8 bits, to be widened
    void *smooth, *differ; // these two lines; [x] is column x - 1
};

ALWAYS_INLINE vec_f32 find_gradient(vec_f32 squares, const struct gradient_job *job, bool plain)
{
    vec_f32 v = sqrt_f32(squares);
    return plain ? v : v / job->stencil->fdivisor + job->stencil->fbias;
}

// The samples of the squares of magnitudes, in the low 16 bits of lanes.
ALWAYS_INLINE vec_u32 finish_gradient(vec_f32 squares, const struct gradient_job *job, bool plain)
{
    const vec_f32 zero = {0};
    vec_f32 v = find_gradient(squares, job, plain);
    // Floats that are not negative are in the order of their bits, and negative ones are negative.
    vec_i32 bits = max_i32((vec_i32)v, (vec_i32)zero);
    bits = min_i32(bits, (vec_i32)(zero + (float)job->stencil->max));
    return (vec_u32)((vec_f32)bits + INTEGER_FLOATS) & 0xffff;
}

// --- 8 bits --------------------------------------------------------------------------------------

// Signed 16-bit numbers, computed as unsigned ones: lanes beyond the last sample hold any value and
// may overflow.
ALWAYS_INLINE vec_u16 widen_u8(const uint8_t *p)
{
    vec_u8_half v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vec_u16);
}

ALWAYS_INLINE vec_u16 load_u16(const uint16_t *p)
{
    vec_u16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

// The two lines at columns x - 1 to x + count.
static void make_byte_lines(const struct gradient_job *job, const uint8_t *const lines[3],
                            int count)
{
    uint16_t *smooth = job->smooth, *differ = job->differ;
    for (int x = 0; x < count + 2; x += VECTOR / 2) {
        vec_u16 top = widen_u8(lines[0] + x), bottom = widen_u8(lines[2] + x);
        vec_u16 s =
            (top + bottom) * (uint16_t)job->outer + widen_u8(lines[1] + x) * (uint16_t)job->inner;
        vec_u16 d = bottom - top;
        memcpy(smooth + x, &s, sizeof s);
        memcpy(differ + x, &d, sizeof d);
    }
}

// VECTOR / 2 samples, of 16 bits each.
ALWAYS_INLINE vec_u16 filter_gradient_half(const struct gradient_job *job, int x, bool plain)
{
    const uint16_t *smooth = (const uint16_t *)job->smooth + x,
                   *differ = (const uint16_t *)job->differ + x;
    vec_u32 gx = (vec_u32)(load_u16(smooth + 2) - load_u16(smooth));
    vec_u32 gy = (vec_u32)((load_u16(differ) + load_u16(differ + 2)) * (uint16_t)job->outer +
                           load_u16(differ + 1) * (uint16_t)job->inner);
    vec_u32 even = (gx & 0xffff) | gy << 16, odd = gx >> 16 | (gy & 0xffff0000);
    const vec_u32 zero = {0};
    vec_i32 squares[2] = {(vec_i32)dot_words(zero, (vec_u8)even, even),
                          (vec_i32)dot_words(zero, (vec_u8)odd, odd)};
    even = finish_gradient(__builtin_convertvector(squares[0], vec_f32), job, plain);
    odd = finish_gradient(__builtin_convertvector(squares[1], vec_f32), job, plain);
    return (vec_u16)(even | odd << 16);
}

ALWAYS_INLINE void filter_byte_gradient(const struct gradient_job *job, uint8_t *row, int count,
                                        bool plain)
{
    for (int x = 0; x < count; x += VECTOR) {
        vec_u8_half out[2] = {
            __builtin_convertvector(filter_gradient_half(job, x, plain), vec_u8_half),
            __builtin_convertvector(filter_gradient_half(job, x + VECTOR / 2, plain), vec_u8_half),
        };
        memcpy(row + x, out, count - x < VECTOR ? (size_t)(count - x) : VECTOR);
    }
}

// --- 16 bits and floats --------------------------------------------------------------------------

static void make_float_lines(const struct gradient_job *job, const uint16_t *restrict top,
                             const uint16_t *restrict middle, const uint16_t *restrict bottom,
                             int count)
{
    float *restrict smooth = job->smooth, *restrict differ = job->differ;
    int outer = job->outer, inner = job->inner;
    for (int x = 0; x < count + 2; x++) {
        smooth[x] = (float)((top[x] + bottom[x]) * outer + middle[x] * inner);
        differ[x] = (float)(bottom[x] - top[x]);
    }
}

// The squares of the magnitudes at x and on.
ALWAYS_INLINE vec_f32 square_gradient(const struct gradient_job *job, int x)
{
    float outer = (float)job->outer, inner = (float)job->inner;
    const float *smooth = (const float *)job->smooth + x, *differ = (const float *)job->differ + x;
    vec_f32 gx = load_f32(smooth + 2) - load_f32(smooth);
    vec_f32 gy = (load_f32(differ) + load_f32(differ + 2)) * outer + load_f32(differ + 1) * inner;
    return gx * gx + gy * gy;
}

ALWAYS_INLINE void filter_word_gradient(const struct gradient_job *job, uint16_t *row, int count,
                                        bool plain)
{
    for (int x = 0; x < count; x += GRADIENT_LANES) {
        vec_u32 out = finish_gradient(square_gradient(job, x), job, plain);
        uint16_t words[GRADIENT_LANES];
        for (int i = 0; i < GRADIENT_LANES; i++)
            words[i] = (uint16_t)out[i];
        int valid = count - x < GRADIENT_LANES ? count - x : GRADIENT_LANES;
        memcpy(row + x, words, sizeof *words * (size_t)valid);
    }
}

static void filter_float_gradient(const struct gradient_job *job, float *row, int count)
{
    for (int x = 0; x < count; x += GRADIENT_LANES) {
        vec_f32 out = find_gradient(square_gradient(job, x), job, job->plain);
        int valid = count - x < GRADIENT_LANES ? count - x : GRADIENT_LANES;
        memcpy(row + x, &out, sizeof *row * (size_t)valid);
    }
}

// --- planes --------------------------------------------------------------------------------------

// `count` results from column x of the row on.
static void filter_gradient_row(const struct gradient_job *job, uint8_t *row, int x, int count)
{
    uint16_t *words = (uint16_t *)(void *)row + x;
    if (job->stencil->floats)
        filter_float_gradient(job, (float *)(void *)row + x, count);
    else if (job->floats && job->plain)
        filter_word_gradient(job, words, count, true);
    else if (job->floats)
        filter_word_gradient(job, words, count, false);
    else if (job->plain)
        filter_byte_gradient(job, row + x, count, true);
    else
        filter_byte_gradient(job, row + x, count, false);
}

static uint8_t *gradient_line(const struct gradient_job *job, int k)
{
    return job->ring + (size_t)(k % 3) * CONV_CPU_LINE * sizeof(uint16_t);
}

// Fills line k of the ring from source row k - 1.
static void fill_gradient_line(const struct gradient_job *job, int x, int k, int count)
{
    uint8_t *line = gradient_line(job, k);
    bool widens = job->floats && job->stencil->depth == 8;
    conv_cpu_line(widens ? job->fresh : line, job->stencil, job->plane, x - 1, k - 1, count + 2);
    uint16_t *restrict words = (uint16_t *)(void *)line;
    const uint8_t *restrict bytes = job->fresh;
    for (int i = 0; i < count + 2 && widens; i++)
        words[i] = bytes[i];
}

static void filter_gradient_strip(const struct gradient_job *job, int x, int count, int from,
                                  int end)
{
    const struct conv_stencil_plane *plane = job->plane;
    int filled = from;
    for (int y = from; y < end; y++) {
        for (; filled < y + 3; filled++)
            fill_gradient_line(job, x, filled, count);
        const uint8_t *lines[3];
        for (int k = 0; k < 3; k++)
            lines[k] = gradient_line(job, y + k);
        if (job->floats)
            make_float_lines(job, (const uint16_t *)(const void *)lines[0],
                             (const uint16_t *)(const void *)lines[1],
                             (const uint16_t *)(const void *)lines[2], count);
        else
            make_byte_lines(job, lines, count);
        filter_gradient_row(job, plane->dst + y * plane->dst_stride, x, count);
    }
}

static void filter_gradient(const struct conv_stencil *stencil,
                            const struct conv_stencil_batch *batch)
{
    struct gradient_job job = {
        .stencil = stencil,
        .plain = stencil->fdivisor == 1 && stencil->fbias == 0,
        .floats = stencil->depth == 16 || stencil->floats,
        .ring = batch->cpu.scratch,
    };
    conv_stencil_smoothing(stencil, &job.outer, &job.inner);
    job.fresh = job.ring + 3 * CONV_CPU_LINE * sizeof(uint16_t);
    job.smooth = job.fresh + CONV_CPU_LINE * sizeof(uint16_t);
    job.differ = (float *)job.smooth + CONV_CPU_LINE;
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        for (int x = 0; x < job.plane->width; x += CONV_CPU_STRIP) {
            int left = job.plane->width - x;
            filter_gradient_strip(&job, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP,
                                  batch->cpu.from, conv_cpu_end(batch, job.plane));
        }
    }
}
