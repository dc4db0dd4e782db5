// SPDX-License-Identifier: MIT
// Divides planes into strips, strips into pairs of output rows and rows into blocks, whose
// arithmetic is in dots.h. Source rows are copied to lines together with their border,
// so blocks may extend past their ends. While a row is computed, the source rows that the next one
// needs are prefetched.
#ifndef CONV_KERNELS_STENCIL_CPU_STRIPS_H
#define CONV_KERNELS_STENCIL_CPU_STRIPS_H

#include "kernels/stencil/cpu/dots.h"

// How a block is computed; a compile-time constant wherever it is used.
struct dot_method {
    enum conv_cpu_sums sums;
    bool narrow, separable, plain;
    bool sample, keeps; // of passes: a multiple of the sample is added; there is a threshold
};

ALWAYS_INLINE void filter_block(uint8_t *const out[2], const struct conv_cpu_dot_job *job,
                                const uint8_t *const samples[2], size_t x,
                                const struct dot_method *method)
{
    if (method->separable)
        filter_pass_block(out, job, samples, x, method->plain, method->narrow, method->sample,
                          method->keeps, method->sums);
    else
        filter_dot_block(out, job, x, method->narrow, method->sums);
}

// `bytes` of two output rows.
ALWAYS_INLINE void filter_rows(const struct conv_cpu_dot_job *job, uint8_t *const rows[2],
                               size_t bytes, struct dot_method method)
{
    const size_t block = DOT_BLOCK(method.sums);
    size_t x = 0;
    for (; x + block <= bytes; x += block) {
        for (size_t line = 0; line < block; line += 64) {
            __builtin_prefetch(job->next[0] + x + line);
            __builtin_prefetch(job->next[1] + x + line);
        }
        filter_block((uint8_t *[2]){rows[0] + x, rows[1] + x}, job,
                     (const uint8_t *[2]){job->centre[0] + x, job->centre[1] + x}, x, &method);
    }
    if (x < bytes) {
        _Alignas(64) uint8_t buffer[2][DOT_MOST_VECTORS * VECTOR], last[2][sizeof buffer[0]];
        for (int r = 0; method.sample && r < 2; r++) {
            memset(last[r], 0, sizeof last[r]);
            memcpy(last[r], job->centre[r] + x, bytes - x);
        }
        filter_block((uint8_t *[2]){buffer[0], buffer[1]}, job,
                     (const uint8_t *[2]){last[0], last[1]}, x, &method);
        memcpy(rows[0] + x, buffer[0], bytes - x);
        memcpy(rows[1] + x, buffer[1], bytes - x);
    }
}

// One function per method: inlined into one, they would share registers.
#define DEFINE_METHOD(name, ...)                                                                   \
    static __attribute__((noinline)) void name(const struct conv_cpu_dot_job *job,                 \
                                               uint8_t *const rows[2], size_t bytes)               \
    {                                                                                              \
        filter_rows(job, rows, bytes, (struct dot_method){__VA_ARGS__});                           \
    }

DEFINE_METHOD(filter_pairs, .sums = CONV_CPU_PAIRS, .narrow = true)
DEFINE_METHOD(filter_pair_passes, .sums = CONV_CPU_PAIRS, .narrow = true, .separable = true)
DEFINE_METHOD(filter_pair_boxes, .sums = CONV_CPU_PAIRS, .narrow = true, .separable = true,
              .plain = true)
DEFINE_METHOD(filter_quads, .sums = CONV_CPU_QUADS)
DEFINE_METHOD(filter_narrow_quads, .sums = CONV_CPU_QUADS, .narrow = true)
DEFINE_METHOD(filter_quad_passes, .sums = CONV_CPU_QUADS, .separable = true)
DEFINE_METHOD(filter_quad_sample_passes, .sums = CONV_CPU_QUADS, .separable = true, .sample = true)
DEFINE_METHOD(filter_quad_kept_passes, .sums = CONV_CPU_QUADS, .separable = true, .sample = true,
              .keeps = true)
DEFINE_METHOD(filter_words, .sums = CONV_CPU_WORDS)
DEFINE_METHOD(filter_word_passes, .sums = CONV_CPU_WORDS, .separable = true)

typedef void (*filter_rows_fn)(const struct conv_cpu_dot_job *job, uint8_t *const rows[2],
                               size_t bytes);

static filter_rows_fn choose_method(const struct conv_cpu_dot_job *job)
{
    bool passes = job->plan.separable;
    switch (job->plan.sums) {
    case CONV_CPU_PAIRS:
        return !passes ? filter_pairs : job->plan.plain ? filter_pair_boxes : filter_pair_passes;
    case CONV_CPU_QUADS:
        if (job->plan.sample)
            return job->stencil->keeps ? filter_quad_kept_passes : filter_quad_sample_passes;
        return passes ? filter_quad_passes : job->plan.narrow ? filter_narrow_quads : filter_quads;
    default:
        return passes ? filter_word_passes : filter_words;
    }
}

static void sum_line(uint8_t *line, const struct conv_cpu_dot_job *job, size_t bytes)
{
    if (job->plan.sums == CONV_CPU_PAIRS)
        sum_dot_line(line, job, bytes, CONV_CPU_PAIRS);
    else if (job->plan.sums == CONV_CPU_QUADS)
        sum_dot_line(line, job, bytes, CONV_CPU_QUADS);
    else
        sum_dot_line(line, job, bytes, CONV_CPU_WORDS);
}

// Subtracts half their range from samples that are multiplied as signed numbers.
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

// Fills line k of the ring from source row k - height / 2.
static void fill_line(const struct conv_cpu_dot_job *job, int x, int k, int count)
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

static const uint8_t *ring_line(const struct conv_cpu_dot_job *job, int k)
{
    return job->ring + (size_t)(k % (job->stencil->height + 1)) * job->ring_line;
}

// The places of taps and columns in the ring differ for each pair of rows.
static void place_taps(struct conv_cpu_dot_job *job, int y)
{
    size_t size = (size_t)job->stencil->depth / 8;
    if (job->plan.separable) {
        for (int k = 0; k <= job->stencil->height; k++)
            job->columns[k].at = ring_line(job, y + k);
        return;
    }
    for (int k = 0; k < job->tap_count; k++) {
        const struct conv_cpu_tap *tap = &job->schedule->taps[k];
        job->taps[k].at = ring_line(job, y + tap->row) + (size_t)tap->column * size;
    }
}

static void filter_strip(struct conv_cpu_dot_job *job, filter_rows_fn filter, int x, int count,
                         int from, int end)
{
    const struct conv_stencil_plane *plane = job->plane;
    int height = job->stencil->height, filled = from;
    size_t size = (size_t)job->stencil->depth / 8;
    for (int y = from; y < end; y += 2) {
        for (; filled < y + height + 1; filled++)
            fill_line(job, x, filled, count);
        place_taps(job, y);
        for (int r = 0; r < 2; r++) {
            int next = filled - height / 2 + r;
            next = next < 0 ? 0 : next < plane->height ? next : plane->height - 1;
            job->next[r] = plane->src + next * plane->src_stride + (size_t)x * size;
            int row = y + r < plane->height ? y + r : y;
            job->centre[r] = plane->src + row * plane->src_stride + (size_t)x * size;
        }
        uint8_t *row = plane->dst + y * plane->dst_stride + (size_t)x * size;
        uint8_t *rows[2] = {row, y + 1 < end ? row + plane->dst_stride : job->spare};
        filter(job, rows, (size_t)count * size);
    }
}

// The constants of the dot product kernels, for the plan that was chosen.
static void init_dot_constants(struct conv_cpu_dot_constants *constants,
                               const struct conv_stencil *stencil, const struct conv_cpu_plan *plan)
{
    if (plan->narrow)
        conv_cpu_rounding_narrow(&constants->rounding, stencil);
    else
        conv_cpu_rounding_wide(&constants->rounding, stencil);
    if (!plan->separable)
        constants->rounding.start += plan->lift;
    conv_cpu_tap_schedule_init(&constants->schedule, stencil, plan);
    for (int k = 0; k <= stencil->height && plan->separable; k++) {
        for (int r = 0; r < 2; r++) {
            bool inside = k - r >= 0 && k - r < stencil->height;
            uint32_t coef = inside ? (uint32_t)plan->column[k - r] : 0;
            constants->column_coefs[k][r] = plan->narrow ? (coef & 0xffff) * 0x10001 : coef;
        }
    }
}

// Copies the coefficients next to the addresses that change. The taps of a row factor always lie in
// the fresh line.
static void init_taps(struct conv_cpu_dot_job *job, const struct conv_cpu_dot_constants *constants)
{
    size_t size = (size_t)job->stencil->depth / 8;
    for (int k = 0; k < job->tap_count; k++) {
        const struct conv_cpu_tap *tap = &constants->schedule.taps[k];
        memcpy(job->taps[k].coefs, tap->coefs, sizeof tap->coefs);
        job->taps[k].at = job->fresh + (size_t)tap->column * size;
    }
    for (int k = 0; k <= job->stencil->height && job->plan.separable; k++)
        memcpy(job->columns[k].coefs, constants->column_coefs[k], sizeof job->columns[k].coefs);
}

static void init_scratch(struct conv_cpu_dot_job *job, void *scratch)
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

static void filter_dots(const struct conv_stencil *stencil, const struct conv_cpu_plan *plan,
                        const struct conv_cpu_dot_constants *constants,
                        const struct conv_stencil_batch *batch)
{
    struct conv_cpu_dot_job job;
    job.stencil = stencil;
    job.schedule = &constants->schedule;
    job.plan = *plan;
    job.rounding = constants->rounding;
    job.keep_below = stencil->keep_below < INT32_MAX ? (int32_t)stencil->keep_below : INT32_MAX;
    job.upper_end = constants->schedule.upper_end;
    job.both_end = constants->schedule.both_end;
    job.tap_count = constants->schedule.count;
    init_scratch(&job, batch->cpu.scratch);
    init_taps(&job, constants);
    filter_rows_fn filter = choose_method(&job);
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        size_t bytes = (size_t)job.plane->height * (size_t)job.plane->dst_stride;
        job.streams = bytes >= CONV_CPU_STREAM && is_aligned(job.plane);
        for (int x = 0; x < job.plane->width; x += CONV_CPU_STRIP) {
            int left = job.plane->width - x;
            filter_strip(&job, filter, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP,
                         batch->cpu.from, conv_cpu_end(batch, job.plane));
        }
        if (job.streams)
            stream_end();
    }
}

#endif
