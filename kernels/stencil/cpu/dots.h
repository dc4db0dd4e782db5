// SPDX-License-Identifier: MIT
// Exact stencils as dot products: each lane of a vector of samples holds 2 or 4 neighbours, and
// one instruction multiplies them by as many coefficients and adds the products to the lane's sum.
// Lane i of a load at x serves the output samples at 2i + x and, with the coefficients moved up by
// one, 2i + 1 + x (of 4 neighbours: 4i + x to 4i + 3 + x). So no samples are shuffled; at the end
// the sums are rounded in their lanes and joined. Two output rows share the loads. There are no
// branches other than loops: lines contain the border (line.c), and the last block of a row is
// written to a buffer.
#pragma once

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/round.h"
#include "kernels/stencil/cpu/vector.h"

// A scheduled tap and the address of its samples for the two output rows being computed.
struct conv_cpu_dot_tap {
    const uint8_t *at;
    uint32_t coefs[2][2];
};

// A line of sums of the first pass and its coefficients for the two output rows being computed.
struct conv_cpu_column_tap {
    const uint8_t *at;
    uint32_t coefs[2];
};

// Derived once per plan.
struct conv_cpu_dot_constants {
    struct conv_cpu_rounding rounding;
    uint32_t column_coefs[CONV_FILTER_MAX_SIDE + 1][2]; // separable: by line, by output row
    struct conv_cpu_tap_schedule schedule;              // of the stencil, or of its row factor
};

// One run: the constants, and the addresses that change from row to row.
struct conv_cpu_dot_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const struct conv_cpu_tap_schedule *schedule;
    struct conv_cpu_plan plan;
    bool streams; // output is written past the caches
    struct conv_cpu_rounding rounding;
    int upper_end, both_end, tap_count; // as in the schedule
    struct conv_cpu_dot_tap taps[CONV_CPU_MAX_TAPS];
    struct conv_cpu_column_tap columns[CONV_FILTER_MAX_SIDE + 1];
    uint8_t *ring;            // the last height + 1 lines of samples or of sums
    size_t ring_line;         // bytes of a line there
    uint8_t *fresh;           // a line of samples that becomes a line of sums
    uint8_t *spare;           // replaces the row below the last one
    int32_t keep_below;       // with plan.sample: as in the stencil
    const uint8_t *centre[2]; // the source rows of the two output rows
    const uint8_t *next[2];   // source rows that the next two output rows will need
};

// Outputs of a lane; the sum of each is in a separate vector.
#define DOT_PHASES(sums) ((sums) == CONV_CPU_QUADS ? 4 : 2)
// Two vectors of each of two rows are enough to hide latencies; with twice as many, AVX-512 took 10
// to 15 % longer. QUAD_VECTORS is 1 where there are only 16 registers.
#define DOT_VECTORS(sums) ((sums) == CONV_CPU_QUADS ? QUAD_VECTORS : 2)
#define DOT_BLOCK(sums) (DOT_VECTORS(sums) * VECTOR) // bytes
#define DOT_MOST_PHASES 4
#define DOT_MOST_VECTORS 2
_Static_assert(DOT_MOST_VECTORS *VECTOR <= CONV_CPU_BLOCK, "a block fits after a strip");

ALWAYS_INLINE vec_u32 add_dot(vec_u32 sum, vec_u8 a, vec_u32 coefs, enum conv_cpu_sums sums)
{
    switch (sums) {
    case CONV_CPU_PAIRS:
        return (vec_u32)dot_pairs((vec_u16)sum, a, coefs);
    case CONV_CPU_QUADS:
        return dot_quads(sum, a, coefs);
    default:
        return dot_words(sum, a, coefs);
    }
}

typedef vec_u32 dot_sums[2][DOT_MOST_PHASES][DOT_MOST_VECTORS];

// Adds taps `from` to `to` - 1 to output rows `first` to `last`.
ALWAYS_INLINE void add_taps(dot_sums sum, const struct conv_cpu_dot_tap *taps, size_t x, int from,
                            int to, int first, int last, enum conv_cpu_sums sums)
{
    for (int k = from; k < to; k++) {
        const struct conv_cpu_dot_tap *tap = &taps[k];
        for (int v = 0; v < DOT_VECTORS(sums); v++) {
            for (int phase = 0; phase < DOT_PHASES(sums); phase++) {
                const uint8_t *at = tap->at + x + v * VECTOR + (phase & 2);
                for (int r = first; r <= last; r++)
                    sum[r][phase][v] = add_dot(sum[r][phase][v], load_u8(at),
                                               (vec_u32){0} + tap->coefs[r][phase & 1], sums);
            }
        }
    }
}

// The samples of a vector from its rounded sums.
ALWAYS_INLINE vec_u8 join_sums(const vec_u32 sum[DOT_MOST_PHASES][DOT_MOST_VECTORS], int v,
                               const struct conv_cpu_dot_job *job, enum conv_cpu_division division,
                               bool narrow, enum conv_cpu_sums sums)
{
    const struct conv_cpu_rounding *r = &job->rounding;
    vec_u32 even = sum[0][v], odd = sum[1][v];
    if (sums == CONV_CPU_QUADS && narrow) {
        even = (even & 0xffff) | sum[2][v] << 16;
        odd = (odd & 0xffff) | sum[3][v] << 16;
    }
    if (narrow)
        return join_u16(round_u16((vec_u16)even, r, division),
                        round_u16((vec_u16)odd, r, division));
    even = round_u32(even, r, division);
    odd = round_u32(odd, r, division);
    if (sums == CONV_CPU_WORDS)
        return (vec_u8)(even | odd << 16);
    return (vec_u8)(even | odd << 8 | round_u32(sum[2][v], r, division) << 16 |
                    round_u32(sum[3][v], r, division) << 24);
}

ALWAYS_INLINE void store_block(uint8_t *const out[2], dot_sums sum,
                               const struct conv_cpu_dot_job *job, enum conv_cpu_division division,
                               bool narrow, enum conv_cpu_sums sums)
{
    for (int r = 0; r < 2; r++) {
        for (int v = 0; v < DOT_VECTORS(sums); v++) {
            vec_u8 samples = join_sums(sum[r], v, job, division, narrow, sums);
            if (job->streams)
                stream(out[r] + v * VECTOR, samples);
            else
                memcpy(out[r] + v * VECTOR, &samples, sizeof samples);
        }
    }
}

#define STORE_CASE(store, division)                                                                \
    case CONV_CPU_##division:                                                                      \
        store(out, sum, job, CONV_CPU_##division, narrow, sums);                                   \
        break;

ALWAYS_INLINE void finish_block(uint8_t *const out[2], dot_sums sum,
                                const struct conv_cpu_dot_job *job, bool narrow,
                                enum conv_cpu_sums sums)
{
    switch (job->rounding.division) {
        ROUND_BY_ALL(STORE_CASE, store_block)
    }
}

ALWAYS_INLINE void start_block(dot_sums sum, uint32_t start, enum conv_cpu_sums sums)
{
    for (int r = 0; r < 2; r++)
        for (int phase = 0; phase < DOT_PHASES(sums); phase++)
            for (int v = 0; v < DOT_VECTORS(sums); v++)
                sum[r][phase][v] = (vec_u32){0} + start;
}

// Adds the multiple of the samples at the block's position. keeps: a sum that is near its sample
// times the divisor is replaced by that product (the threshold in stencil.h).
ALWAYS_INLINE void add_samples(dot_sums sum, const struct conv_cpu_dot_job *job,
                               const uint8_t *const samples[2], bool keeps)
{
    vec_u32 coef = (vec_u32){0} + (uint32_t)job->plan.sample;
    vec_u32 divisor = (vec_u32){0} + (uint32_t)job->rounding.divisor;
    vec_i32 below = (vec_i32){0} + job->keep_below;
    uint32_t start = job->rounding.start - (job->plan.separable ? 0 : job->plan.lift);
    for (int r = 0; r < 2; r++)
        for (int v = 0; v < DOT_VECTORS(CONV_CPU_QUADS); v++) {
            vec_u32 four = (vec_u32)load_u8(samples[r] + v * VECTOR);
            for (int phase = 0; phase < DOT_PHASES(CONV_CPU_QUADS); phase++) {
                vec_u32 sample = four >> 8 * phase & 0xff;
                vec_u32 all = sum[r][phase][v] + sample * coef;
                if (keeps) {
                    vec_u32 kept = sample * divisor + start;
                    vec_i32 more = (vec_i32)(all - kept);
                    vec_u32 near = (vec_u32)((more < below) & (more > -below));
                    all = (kept & near) | (all & ~near);
                }
                sum[r][phase][v] = all;
            }
        }
}

// DOT_BLOCK bytes at byte x of two output rows, straight from the lines.
// `samples`: the image's samples at the same position; read only if plan.sample is not 0, which
// `sample` repeats.
ALWAYS_INLINE void filter_dot_block(uint8_t *const out[2], const struct conv_cpu_dot_job *job,
                                    const uint8_t *const samples[2], size_t x, bool narrow,
                                    bool sample, bool keeps, enum conv_cpu_sums sums)
{
    dot_sums sum;
    start_block(sum, job->rounding.start, sums);
    add_taps(sum, job->taps, x, 0, job->upper_end, 0, 0, sums);
    add_taps(sum, job->taps, x, job->upper_end, job->both_end, 0, 1, sums);
    add_taps(sum, job->taps, x, job->both_end, job->tap_count, 1, 1, sums);
    if (sample)
        add_samples(sum, job, samples, keeps);
    finish_block(out, sum, job, narrow, sums);
}

// --- two passes ----------------------------------------------------------------------------------

// Exact stencils that are a column times a row, in two passes: each line of samples becomes a line
// of sums along the row once, and output rows are sums down the columns of these. All sums are
// modulo 2^16 or 2^32, so the result is right even if intermediate sums wrap. A line of sums is
// stored as it is computed: for each vector of samples, one vector per phase. At 3x3 with 8 bits
// one pass (direct.h) is faster.

// The first pass: sums for `bytes` of samples, rounded up to blocks, to `line`.
ALWAYS_INLINE void sum_dot_line(uint8_t *line, const struct conv_cpu_dot_job *job, size_t bytes,
                                enum conv_cpu_sums sums)
{
    for (size_t x = 0; x < bytes; x += DOT_BLOCK(sums)) {
        dot_sums sum;
        start_block(sum, job->plan.lift, sums);
        add_taps(sum, job->taps, x, 0, job->upper_end, 0, 0, sums);
        for (int v = 0; v < DOT_VECTORS(sums); v++)
            for (int phase = 0; phase < DOT_PHASES(sums); phase++, line += VECTOR)
                memcpy(line, &sum[0][phase][v], VECTOR);
    }
}

ALWAYS_INLINE vec_u32 add_column(vec_u32 sum, vec_u8 a, uint32_t coef, bool plain, bool narrow)
{
    vec_u32 c = (vec_u32){0} + coef;
    if (narrow)
        return (vec_u32)((vec_u16)sum + (plain ? (vec_u16)a : (vec_u16)a * (vec_u16)c));
    return sum + (plain ? (vec_u32)a : (vec_u32)a * c);
}

// Adds line `k` of sums to output rows `first` to `last`.
ALWAYS_INLINE void add_line(dot_sums sum, const struct conv_cpu_dot_job *job, size_t at, int k,
                            int first, int last, bool plain, bool narrow, enum conv_cpu_sums sums)
{
    const struct conv_cpu_column_tap *tap = &job->columns[k];
    for (int v = 0; v < DOT_VECTORS(sums); v++)
        for (int phase = 0; phase < DOT_PHASES(sums); phase++)
            for (int r = first; r <= last; r++)
                sum[r][phase][v] =
                    add_column(sum[r][phase][v],
                               load_u8(tap->at + at + (v * DOT_PHASES(sums) + phase) * VECTOR),
                               tap->coefs[r], plain, narrow);
}

// The second pass: DOT_BLOCK bytes at byte x of two output rows.
ALWAYS_INLINE void filter_pass_block(uint8_t *const out[2], const struct conv_cpu_dot_job *job,
                                     const uint8_t *const samples[2], size_t x, bool plain,
                                     bool narrow, bool sample, bool keeps, enum conv_cpu_sums sums)
{
    size_t at = x * DOT_PHASES(sums);
    int height = job->stencil->height;
    dot_sums sum;
    start_block(sum, job->rounding.start, sums);
    add_line(sum, job, at, 0, 0, 0, plain, narrow, sums);
    for (int k = 1; k < height; k++)
        add_line(sum, job, at, k, 0, 1, plain, narrow, sums);
    add_line(sum, job, at, height, 1, 1, plain, narrow, sums);
    if (sample)
        add_samples(sum, job, samples, keeps);
    finish_block(out, sum, job, narrow, sums);
}

// --- strips --------------------------------------------------------------------------------------

// Divides planes into strips, strips into pairs of output rows and rows into blocks, whose
// arithmetic is in dots.h. Source rows are copied to lines together with their border,
// so blocks may extend past their ends. While a row is computed, the source rows that the next one
// needs are prefetched.

// How a block is computed; a compile-time constant wherever it is used.
struct dot_method {
    enum conv_cpu_sums sums;
    bool narrow, separable, plain;
    bool sample, keeps; // of quads: a multiple of the sample is added; there is a threshold
};

ALWAYS_INLINE void filter_block(uint8_t *const out[2], const struct conv_cpu_dot_job *job,
                                const uint8_t *const samples[2], size_t x,
                                const struct dot_method *method)
{
    if (method->separable)
        filter_pass_block(out, job, samples, x, method->plain, method->narrow, method->sample,
                          method->keeps, method->sums);
    else
        filter_dot_block(out, job, samples, x, method->narrow, method->sample, method->keeps,
                         method->sums);
}

// `bytes` of two output rows. The last block may be a part of one, from and to a buffer; as a case
// of its own after the loop it took the compiler as long again.
ALWAYS_INLINE void filter_rows(const struct conv_cpu_dot_job *job, uint8_t *const rows[2],
                               size_t bytes, struct dot_method method)
{
    const size_t block = DOT_BLOCK(method.sums), part = bytes % block;
    _Alignas(64) uint8_t buffer[2][DOT_MOST_VECTORS * VECTOR], last[2][sizeof buffer[0]];
    uint8_t *out[2] = {rows[0], rows[1]};
    const uint8_t *samples[2] = {job->centre[0], job->centre[1]};
    for (size_t x = 0; x < bytes; x += block) {
        for (int r = 0; x + part == bytes && part > 0 && r < 2; r++) {
            out[r] = buffer[r];
            if (method.sample) {
                memset(last[r], 0, sizeof last[r]);
                samples[r] = memcpy(last[r], samples[r], part);
            }
        }
        for (size_t line = 0; line < block; line += 64) {
            __builtin_prefetch(job->next[0] + x + line);
            __builtin_prefetch(job->next[1] + x + line);
        }
        filter_block(out, job, samples, x, &method);
        for (int r = 0; r < 2; r++) {
            out[r] += block;
            samples[r] += block;
        }
    }
    for (int r = 0; part > 0 && r < 2; r++)
        memcpy(rows[r] + bytes - part, buffer[r], part);
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
DEFINE_METHOD(filter_sample_quads, .sums = CONV_CPU_QUADS, .sample = true)
DEFINE_METHOD(filter_kept_quads, .sums = CONV_CPU_QUADS, .sample = true, .keeps = true)
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
        if (job->plan.sample && passes)
            return job->stencil->keeps ? filter_quad_kept_passes : filter_quad_sample_passes;
        if (job->plan.sample)
            return job->stencil->keeps ? filter_kept_quads : filter_sample_quads;
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
