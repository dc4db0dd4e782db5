// SPDX-License-Identifier: MIT
// Planes to strips, strips to pairs of output rows, rows to blocks: what surrounds the arithmetic
// of dots.h and passes.h. Source rows are copied to lines with the border made, so blocks may run
// over their ends; while a row is computed, the source rows after it are fetched.
#ifndef CONV_KERNELS_STENCIL_CPU_STRIPS_H
#define CONV_KERNELS_STENCIL_CPU_STRIPS_H

#include "kernels/stencil/cpu/passes.h"

// How a block is computed; constants where they are used.
struct dot_way {
    enum conv_cpu_sums sums;
    bool narrow, separable, plain;
};

ALWAYS_INLINE void filter_block(uint8_t *const out[2], const struct dot_job *job, size_t x,
                                const struct dot_way *way)
{
    if (way->separable)
        filter_pass_block(out, job, x, way->plain, way->narrow, way->sums);
    else
        filter_dot_block(out, job, x, way->narrow, way->sums);
}

// `bytes` of two output rows.
ALWAYS_INLINE void filter_rows(const struct dot_job *job, uint8_t *const rows[2], size_t bytes,
                               struct dot_way way)
{
    const size_t block = DOT_BLOCK(way.sums);
    size_t x = 0;
    for (; x + block <= bytes; x += block) {
        for (size_t line = 0; line < block; line += 64) {
            __builtin_prefetch(job->next[0] + x + line);
            __builtin_prefetch(job->next[1] + x + line);
        }
        filter_block((uint8_t *[2]){rows[0] + x, rows[1] + x}, job, x, &way);
    }
    if (x < bytes) {
        _Alignas(64) uint8_t buffer[2][DOT_MOST_VECTORS * VECTOR];
        filter_block((uint8_t *[2]){buffer[0], buffer[1]}, job, x, &way);
        memcpy(rows[0] + x, buffer[0], bytes - x);
        memcpy(rows[1] + x, buffer[1], bytes - x);
    }
}

// One copy of the code for each way, none inlined into the other's registers.
#define DEFINE_WAY(name, ...)                                                                      \
    static __attribute__((noinline)) void name(const struct dot_job *job, uint8_t *const rows[2],  \
                                               size_t bytes)                                       \
    {                                                                                              \
        filter_rows(job, rows, bytes, (struct dot_way){__VA_ARGS__});                              \
    }

DEFINE_WAY(filter_pairs, CONV_CPU_PAIRS, true, false, false)
DEFINE_WAY(filter_pair_passes, CONV_CPU_PAIRS, true, true, false)
DEFINE_WAY(filter_pair_boxes, CONV_CPU_PAIRS, true, true, true)
DEFINE_WAY(filter_quads, CONV_CPU_QUADS, false, false, false)
DEFINE_WAY(filter_narrow_quads, CONV_CPU_QUADS, true, false, false)
DEFINE_WAY(filter_quad_passes, CONV_CPU_QUADS, false, true, false)
DEFINE_WAY(filter_words, CONV_CPU_WORDS, false, false, false)
DEFINE_WAY(filter_word_passes, CONV_CPU_WORDS, false, true, false)

typedef void (*filter_rows_fn)(const struct dot_job *job, uint8_t *const rows[2], size_t bytes);

static filter_rows_fn choose_way(const struct dot_job *job)
{
    bool passes = job->plan.separable;
    switch (job->plan.sums) {
    case CONV_CPU_PAIRS:
        return !passes ? filter_pairs : job->plan.plain ? filter_pair_boxes : filter_pair_passes;
    case CONV_CPU_QUADS:
        return passes ? filter_quad_passes : job->plan.narrow ? filter_narrow_quads : filter_quads;
    default:
        return passes ? filter_word_passes : filter_words;
    }
}

static void sum_line(uint8_t *line, const struct dot_job *job, size_t bytes)
{
    if (job->plan.sums == CONV_CPU_PAIRS)
        sum_dot_line(line, job, bytes, CONV_CPU_PAIRS);
    else if (job->plan.sums == CONV_CPU_QUADS)
        sum_dot_line(line, job, bytes, CONV_CPU_QUADS);
    else
        sum_dot_line(line, job, bytes, CONV_CPU_WORDS);
}

// Where dots want that: as signed numbers, less by half their range.
static void make_signed(uint8_t *line, const struct conv_cpu_plan *plan, int samples)
{
    if (plan->sums == CONV_CPU_WORDS) {
        uint16_t *words = (uint16_t *)(void *)line;
        for (int i = 0; i < samples; i++)
            words[i] ^= 0x8000;
    } else if (plan->sums == CONV_CPU_QUADS && plan->quads == CONV_CPU_QUADS_SIGNED) {
        for (int i = 0; i < samples; i++)
            line[i] ^= 0x80;
    }
}

// Line number k of the ring: source row k - height / 2.
static void fill_line(const struct dot_job *job, int x, int k, int count)
{
    const struct conv_stencil *stencil = job->stencil;
    uint8_t *ring = job->ring + (size_t)(k % (stencil->height + 1)) * job->ring_line;
    uint8_t *line = job->plan.separable ? job->fresh : ring;
    int samples = count + stencil->width - 1;
    conv_cpu_line(line, stencil, job->plane, x - stencil->width / 2, k - stencil->height / 2,
                  samples);
    make_signed(line, &job->plan, samples);
    if (job->plan.separable)
        sum_line(ring, job, (size_t)count * (size_t)(stencil->depth / 8));
}

static const uint8_t *ring_line(const struct dot_job *job, int k)
{
    return job->ring + (size_t)(k % (job->stencil->height + 1)) * job->ring_line;
}

// Steps and columns lie elsewhere in the ring for each pair of rows.
static void place_taps(struct dot_job *job, int y)
{
    size_t size = (size_t)job->stencil->depth / 8;
    if (job->plan.separable) {
        for (int k = 0; k <= job->stencil->height; k++)
            job->columns[k].at = ring_line(job, y + k);
        return;
    }
    for (int k = 0; k < job->steps.count; k++) {
        const struct conv_cpu_step *step = &job->steps.steps[k];
        job->taps[k].at = ring_line(job, y + step->row) + (size_t)step->column * size;
    }
}

static void filter_strip(struct dot_job *job, filter_rows_fn filter, int x, int count)
{
    const struct conv_stencil_plane *plane = job->plane;
    int height = job->stencil->height, filled = 0;
    size_t size = (size_t)job->stencil->depth / 8;
    for (int y = 0; y < plane->height; y += 2) {
        for (; filled < y + height + 1; filled++)
            fill_line(job, x, filled, count);
        place_taps(job, y);
        for (int r = 0; r < 2; r++) {
            int next = filled - height / 2 + r;
            next = next < 0 ? 0 : next < plane->height ? next : plane->height - 1;
            job->next[r] = plane->src + next * plane->src_stride + (size_t)x * size;
        }
        uint8_t *row = plane->dst + y * plane->dst_stride + (size_t)x * size;
        uint8_t *rows[2] = {row, y + 1 < plane->height ? row + plane->dst_stride : job->spare};
        filter(job, rows, (size_t)count * size);
    }
}

// Taps of the steps, which stay what they are but for their places; of a row factor these too.
static void init_taps(struct dot_job *job)
{
    size_t size = (size_t)job->stencil->depth / 8;
    for (int k = 0; k < job->steps.count; k++) {
        const struct conv_cpu_step *step = &job->steps.steps[k];
        memcpy(job->taps[k].coefs, step->coefs, sizeof step->coefs);
        job->taps[k].at = job->fresh + (size_t)step->column * size;
    }
    for (int k = 0; k <= job->stencil->height && job->plan.separable; k++) {
        for (int r = 0; r < 2; r++) {
            bool inside = k - r >= 0 && k - r < job->stencil->height;
            uint32_t coef = inside ? (uint32_t)job->plan.column[k - r] : 0;
            job->columns[k].coefs[r] = job->plan.narrow ? (coef & 0xffff) * 0x10001 : coef;
        }
    }
}

static void init_scratch(struct dot_job *job, void *scratch)
{
    size_t lines = (size_t)job->stencil->height + 1, line = conv_cpu_line_bytes(job->stencil);
    job->ring_line = job->plan.separable ? conv_cpu_sums_bytes(job->stencil, &job->plan) : line;
    job->ring = scratch;
    job->fresh = job->ring + lines * job->ring_line;
    job->spare = job->fresh + line;
}

static bool is_aligned(const struct conv_stencil_plane *plane)
{
    return ((uintptr_t)plane->dst | (uintptr_t)plane->dst_stride) % VECTOR == 0;
}

static void filter_dots(const struct conv_stencil *stencil, const struct conv_stencil_batch *batch,
                        const struct conv_cpu_plan *plan)
{
    struct dot_job job;
    job.stencil = stencil;
    job.plan = *plan;
    if (plan->narrow)
        conv_cpu_rounding_narrow(&job.rounding, stencil);
    else
        conv_cpu_rounding_wide(&job.rounding, stencil);
    if (!plan->separable)
        job.rounding.start += plan->lift;
    conv_cpu_steps_init(&job.steps, stencil, plan);
    init_scratch(&job, batch->scratch);
    init_taps(&job);
    filter_rows_fn filter = choose_way(&job);
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        size_t bytes = (size_t)job.plane->height * (size_t)job.plane->dst_stride;
        job.streams = bytes >= CONV_CPU_STREAM && is_aligned(job.plane);
        for (int x = 0; x < job.plane->width; x += CONV_CPU_STRIP) {
            int left = job.plane->width - x;
            filter_strip(&job, filter, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP);
        }
        if (job.streams)
            stream_end();
    }
}

#endif
