// SPDX-License-Identifier: MIT
// Large Gaussians of 8-bit samples in integers, with the dot products of AVX-512 VNNI: four samples
// times the two bytes of their weights along rows, pairs of 16-bit numbers elsewhere. The same
// steps as in decimated.c, rows before columns where the image is reduced; every sum is exact.
#ifdef CONV_ISA_VNNI
#include <immintrin.h>

#include "base/features.h"
#include "kernels/stencil/cpu/cpu_internal.h"

#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_PAIRS (CONV_DECIMATED_MAX_RADIUS + 1)
#define LANES 16  // of 32 bits
#define DOUBLES 8 // of a vector
#define SPARE 128 // samples that vectors may read or write beyond the end of a line
#define ALIGN 64

struct byte_constants {
    // For taps 4g to 4g + 3 of the 4 * step from 2 * step before a coarse sample on: the high and
    // the low bytes, signed, of their weights.
    uint32_t high[MOST_STEP], low[MOST_STEP];
    double down[4][MOST_STEP]; // of the row that is i after coarse row m, in coarse row m - 1 + k
    uint32_t line[MOST_PAIRS]; // pairs of weights, from -radius on; the last one is 0
    int32_t up[MOST_STEP][4];
    // Columns 16t to 16t + 15 from a multiple of 16 * step on: the filtered sample that the first
    // one needs first, and of each column two pairs of them, in bytes from there, and their
    // weights.
    int32_t first[MOST_STEP];
    uint8_t pairs[MOST_STEP][2][4 * LANES];
    uint32_t weights[MOST_STEP][2][LANES];
};
_Static_assert(sizeof(struct byte_constants) <= CONV_STENCIL_PLAN_BYTES, "constants fit");

struct byte_job {
    const struct conv_stencil *stencil;
    const struct conv_decimated *d;
    const struct byte_constants *constants;
    const struct conv_stencil_plane *plane;
    int filtered, coarse, pitch; // numbers of samples of a line, from -1 and -radius - 1 on
    uint8_t *line;               // of a source row, with its border
    int32_t *reduced;            // `step` rows, reduced along the row
    double *down[4];             // sums of these for coarse row m: [m & 3]
    int16_t *ring;               // 2 * radius + 1 coarse rows, minus 2^15
    int16_t *high, *low;         // sums over coarse rows: 32 bits, minus 2^31; low minus 2^15
    int16_t *fine;               // a filtered row
    int32_t *wide[4];            // at the source's width, for filtered row m: [m & 3]
};

static uint32_t pack_pair(int32_t first, int32_t second)
{
    return (uint32_t)(uint16_t)first | (uint32_t)second << 16;
}

static void plan_bytes(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    struct byte_constants *c = (struct byte_constants *)(void *)plan->constants;
    const struct conv_decimated *d = &stencil->decimated;
    int step = d->step, radius = d->radius;
    for (int i = 0; i < 4 * step; i++) {
        int away = i < 2 * step ? 2 * step - i : i - 2 * step;
        int32_t weight = away < 2 * step ? d->down[away] : 0;
        int8_t low = (int8_t)(weight & 255);
        c->low[i / 4] |= (uint32_t)(uint8_t)low << i % 4 * 8;
        c->high[i / 4] |= (uint32_t)(uint8_t)((weight - low) >> 8) << i % 4 * 8;
        // The row i - 2 * step after a coarse row is `at` after coarse row m.
        int k = 3 - i / step, at = i % step;
        c->down[k][at] = weight;
    }
    for (int k = 0; k <= radius; k++) {
        int first = 2 * k - radius, second = first + 1;
        c->line[k] = pack_pair(d->line[first < 0 ? -first : first],
                               second > radius ? 0 : d->line[second < 0 ? -second : second]);
    }
    for (int i = 0; i < step; i++)
        for (int k = 0; k < 4; k++)
            c->up[i][k] = d->up[i][k];
    for (int t = 0; t < step; t++) {
        c->first[t] = LANES * t / step;
        for (int n = 0; n < LANES; n++) {
            int x = LANES * t + n, at = x / step - c->first[t];
            const int32_t *up = d->up[x % step];
            for (int half = 0; half < 2; half++) {
                c->weights[t][half][n] = pack_pair(up[2 * half], up[2 * half + 1]);
                for (int b = 0; b < 4; b++)
                    c->pairs[t][half][4 * n + b] = (uint8_t)(2 * (at + 2 * half) + b);
            }
        }
    }
    // For each coarse sample of a line, and for each column.
    size_t coarse = (size_t)(5 * step + 4 * (int)sizeof(double) + 2 * (2 * radius + 1 + 3));
    plan->cpu.scratch_per_column = coarse / (size_t)step + 1 + 4 * sizeof(int32_t);
    plan->cpu.scratch_fixed = coarse * (size_t)(2 * radius + 4 + 2 * SPARE) + 32 * SPARE +
                              (size_t)(2 * radius + 16 + 2 * step) * ALIGN;
}

// --- from the source to coarse samples -----------------------------------------------------------

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

// Four samples from each of 16 coarse ones on.
static inline __m512i load_quads(const uint8_t *line, int step, __m512i places)
{
    if (step == 4)
        return load(line);
    if (step < 4)
        return _mm512_permutexvar_epi8(places, load(line));
    return _mm512_i32gather_epi32(places, line, 1);
}

static void reduce_row(const struct byte_job *job, int32_t *to)
{
    const struct byte_constants *c = job->constants;
    int step = job->d->step;
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(step));
    if (step < 4) // bytes
        places = _mm512_add_epi8(_mm512_mullo_epi32(places, _mm512_set1_epi32(0x01010101)),
                                 _mm512_set1_epi32(0x03020100));
    for (int m = 0; m < job->coarse; m += LANES) {
        __m512i high = _mm512_setzero_si512(), low = high;
        for (int g = 0; g < step; g++) {
            __m512i quads = load_quads(job->line + m * step + 4 * g, step, places);
            high = _mm512_dpbusd_epi32(high, quads, _mm512_set1_epi32((int)c->high[g]));
            low = _mm512_dpbusd_epi32(low, quads, _mm512_set1_epi32((int)c->low[g]));
        }
        _mm512_storeu_si512(to + m, _mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
    }
}

// Adds the rows after coarse row m to the sums of m - 1 to m + 2.
static void add_rows(const struct byte_job *job, int m)
{
    int step = job->d->step, before = (job->d->radius + 3) * step;
    for (int i = 0; i < step; i++) {
        conv_cpu_line(job->line, job->stencil, job->plane, -before, m * step + i,
                      (job->coarse + 4) * step);
        reduce_row(job, job->reduced + i * job->pitch);
    }
    for (int x = 0; x < job->coarse; x += DOUBLES) {
        __m512d sum[4];
        for (int k = 0; k < 4; k++)
            sum[k] = k == 3 ? _mm512_setzero_pd() : _mm512_load_pd(job->down[(m - 1 + k) & 3] + x);
        for (int i = 0; i < step; i++) {
            const void *from = job->reduced + i * job->pitch + x;
            __m512d row = _mm512_cvtepi32_pd(_mm256_loadu_si256(from));
            for (int k = 0; k < 4; k++)
                sum[k] = _mm512_fmadd_pd(row, _mm512_set1_pd(job->constants->down[k][i]), sum[k]);
        }
        for (int k = 0; k < 4; k++)
            _mm512_store_pd(job->down[(m - 1 + k) & 3] + x, sum[k]);
    }
}

static int16_t *ring_row(const struct byte_job *job, int m)
{
    int rows = 2 * job->d->radius + 1, row = m % rows;
    return job->ring + (row < 0 ? row + rows : row) * job->pitch;
}

// Sums of both weights of 2^16, of samples times 256: the nearest multiple of 2^24, halves up.
static void round_coarse(const struct byte_job *job, int m)
{
    const double *sums = job->down[m & 3];
    int16_t *to = ring_row(job, m);
    for (int x = 0; x < job->coarse; x += DOUBLES) {
        __m512d sum = _mm512_add_pd(_mm512_load_pd(sums + x), _mm512_set1_pd(0x1p23));
        __m256i whole = _mm512_cvttpd_epi32(_mm512_mul_pd(sum, _mm512_set1_pd(0x1p-24)));
        whole = _mm256_sub_epi32(whole, _mm256_set1_epi32(1 << 15));
        _mm_storeu_si128((__m128i *)(void *)(to + x), _mm256_cvtepi32_epi16(whole));
    }
}

// --- the coarse image ----------------------------------------------------------------------------

// The weights sum to 2^16: of samples minus 2^15, sums are less by 2^31, modulo 2^32.
static void add_coarse_rows(const struct byte_job *job, int m)
{
    int radius = job->d->radius;
    const __m512i words = _mm512_set1_epi32(0xffff), half = _mm512_set1_epi32(1 << 15);
    const int16_t *rows[2 * MOST_PAIRS];
    for (int k = 0; k <= 2 * radius + 1; k++)
        rows[k] = ring_row(job, m - radius + (k > 2 * radius ? 0 : k));
    for (int x = 0; x < job->coarse; x += 2 * LANES) {
        __m512i near = _mm512_setzero_si512(), far = near; // halves of each 128 bits
        for (int k = 0; k <= radius; k++) {
            __m512i first = load(rows[2 * k] + x), second = load(rows[2 * k + 1] + x);
            __m512i weights = _mm512_set1_epi32((int)job->constants->line[k]);
            near = _mm512_dpwssd_epi32(near, _mm512_unpacklo_epi16(first, second), weights);
            far = _mm512_dpwssd_epi32(far, _mm512_unpackhi_epi16(first, second), weights);
        }
        __m512i high = _mm512_packs_epi32(_mm512_srai_epi32(near, 16), _mm512_srai_epi32(far, 16));
        __m512i low = _mm512_packs_epi32(_mm512_sub_epi32(_mm512_and_si512(near, words), half),
                                         _mm512_sub_epi32(_mm512_and_si512(far, words), half));
        _mm512_storeu_si512(job->high + x, high);
        _mm512_storeu_si512(job->low + x, low);
    }
}

// Every second filtered sample from x on: sums of 48 bits, to the nearest multiple of 2^36.
static inline __m512i filter_coarse(const struct byte_job *job, int x)
{
    __m512i high = _mm512_set1_epi32((int)0x80000000), low = high;
    for (int k = 0; k <= job->d->radius; k++) {
        __m512i weights = _mm512_set1_epi32((int)job->constants->line[k]);
        high = _mm512_dpwssd_epi32(high, load(job->high + x + 2 * k), weights);
        low = _mm512_dpwssd_epi32(low, load(job->low + x + 2 * k), weights);
    }
    __m512i sum = _mm512_add_epi32(high, _mm512_srli_epi32(low, 16));
    return _mm512_srli_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(1 << 19)), 20);
}

// Filtered row m at the source's width.
static void make_wide(const struct byte_job *job, int m)
{
    const struct byte_constants *c = job->constants;
    int step = job->d->step;
    add_coarse_rows(job, m);
    for (int x = 0; x < job->filtered; x += 2 * LANES) {
        __m512i odd = _mm512_slli_epi32(filter_coarse(job, x + 1), 16);
        _mm512_storeu_si512(job->fine + x, _mm512_or_si512(filter_coarse(job, x), odd));
    }
    const int16_t *fine = job->fine;
    for (int x = 0, t = 0; x < job->plane->width; x += LANES) {
        __m512i near = load(fine + c->first[t]);
        __m512i sum = _mm512_dpwssd_epi32(_mm512_setzero_si512(),
                                          _mm512_permutexvar_epi8(load(c->pairs[t][0]), near),
                                          load(c->weights[t][0]));
        sum = _mm512_dpwssd_epi32(sum, _mm512_permutexvar_epi8(load(c->pairs[t][1]), near),
                                  load(c->weights[t][1]));
        _mm512_store_si512(job->wide[m & 3] + x, sum);
        t = t + 1 < step ? t + 1 : 0;
        fine += t == 0 ? LANES : 0;
    }
}

// --- results -------------------------------------------------------------------------------------

// Eight results of eight numbers `blurred`, in 1 / 4096 of a sample.
static inline __m128i sharpen(const struct byte_job *job, __m256i blurred, __m128i samples)
{
    __m512i zero = _mm512_setzero_si512(), amount = _mm512_set1_epi64(job->d->amount);
    __m512i sample = _mm512_slli_epi64(_mm512_cvtepu8_epi64(samples), 12);
    __m512i off = _mm512_sub_epi64(sample, _mm512_cvtepu32_epi64(blurred));
    __m512i change = _mm512_mul_epi32(off, amount);
    __mmask8 kept = _mm512_cmplt_epi64_mask(_mm512_abs_epi64(change),
                                            _mm512_set1_epi64(job->stencil->keep_below));
    __m512i sum = _mm512_add_epi64(_mm512_slli_epi64(sample, 11), _mm512_set1_epi64(1 << 22));
    sum = _mm512_mask_add_epi64(sum, _knot_mask8(kept), sum, change);
    sum = _mm512_max_epi64(_mm512_srai_epi64(sum, 23), zero);
    return _mm512_cvtusepi64_epi8(sum);
}

static void write_row(const struct byte_job *job, int y, bool sharpens)
{
    int step = job->d->step, m = y / step, width = job->plane->width;
    const int32_t *up = job->constants->up[y % step];
    const int32_t *rows[4];
    __m512i weights[4];
    for (int k = 0; k < 4; k++) {
        rows[k] = job->wide[(m - 1 + k) & 3];
        weights[k] = _mm512_set1_epi32(up[k]);
    }
    const uint8_t *src = job->plane->src + y * job->plane->src_stride;
    uint8_t *dst = job->plane->dst + y * job->plane->dst_stride;
    for (int x = 0; x < width; x += LANES) {
        __mmask16 valid = (__mmask16)(width - x < LANES ? (1 << (width - x)) - 1 : 0xffff);
        __m512i sum = _mm512_set1_epi32(sharpens ? 1 << 11 : 1 << 23);
        for (int k = 0; k < 4; k++)
            sum = _mm512_add_epi32(sum,
                                   _mm512_mullo_epi32(_mm512_load_si512(rows[k] + x), weights[k]));
        __m128i out;
        if (sharpens) {
            __m128i samples = _mm_maskz_loadu_epi8(valid, src + x);
            sum = _mm512_srli_epi32(sum, 12);
            out = _mm_unpacklo_epi64(
                sharpen(job, _mm512_castsi512_si256(sum), samples),
                sharpen(job, _mm512_extracti64x4_epi64(sum, 1), _mm_srli_si128(samples, 8)));
        } else {
            out = _mm512_cvtepi32_epi8(_mm512_srli_epi32(sum, 24));
        }
        _mm_mask_storeu_epi8(dst + x, valid, out);
    }
}

// Rows [from, to), which are rows of the coarse samples first to last.
static void filter_bytes(const struct byte_job *job, int from, int to)
{
    const struct conv_decimated *d = job->d;
    int first = from / d->step, last = (to - 1) / d->step, coarse = first - 1 - d->radius;
    for (int m = coarse - 2; m <= last + d->radius + 3; m++) {
        add_rows(job, m);
        if (m - 1 < coarse)
            continue; // begun by rows that were not added
        round_coarse(job, m - 1);
        int filtered = m - 1 - d->radius, done = filtered - 2;
        if (filtered < first - 1)
            continue;
        make_wide(job, filtered);
        for (int y = done * d->step; y < (done + 1) * d->step && done >= first; y++)
            if (y >= from && y < to)
                write_row(job, y, d->amount != 0);
    }
}

static void *take(uint8_t **scratch, size_t bytes)
{
    uint8_t *memory = *scratch;
    *scratch += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return memory;
}

static enum conv_status run_bytes(const struct conv_stencil_plan *plan,
                                  const struct conv_stencil_batch *batch)
{
    struct byte_job job = {.stencil = plan->stencil, .d = &plan->stencil->decimated};
    job.constants = (const struct byte_constants *)(const void *)plan->constants;
    size_t step = (size_t)job.d->step, rows = (size_t)(2 * job.d->radius + 1);
    for (int p = 0; p < batch->count; p++) {
        uint8_t *scratch = batch->cpu.scratch;
        job.plane = &batch->planes[p];
        job.filtered = (job.plane->width - 1) / job.d->step + 4;
        job.coarse = job.filtered + 2 * job.d->radius;
        job.pitch = (job.coarse + SPARE) / 32 * 32;
        size_t pitch = (size_t)job.pitch;
        job.line = take(&scratch, (pitch + 4) * step + SPARE);
        job.reduced = take(&scratch, pitch * step * sizeof(int32_t));
        job.ring = take(&scratch, pitch * rows * sizeof(int16_t));
        job.high = take(&scratch, pitch * sizeof(int16_t));
        job.low = take(&scratch, pitch * sizeof(int16_t));
        job.fine = take(&scratch, pitch * sizeof(int16_t));
        for (int k = 0; k < 4; k++) {
            job.down[k] = take(&scratch, pitch * sizeof(double));
            job.wide[k] = take(&scratch, (size_t)(job.plane->width + LANES) * sizeof(int32_t));
            for (size_t x = 0; x < pitch; x++)
                job.down[k][x] = 0;
        }
        filter_bytes(&job, batch->cpu.from, conv_cpu_end(batch, job.plane));
    }
    return CONV_OK;
}

// Weights are positive, and those of `line` fit 16 bits with their sign.
static bool can_bytes(const struct conv_stencil *stencil)
{
    const struct conv_decimated *d = &stencil->decimated;
    bool fits = stencil->depth == 8 && !stencil->floats && d->line[0] <= INT16_MAX;
    for (int i = 0; i <= d->radius; i++)
        fits = fits && d->line[i] >= 0;
    return fits;
}

static int score_bytes(const struct conv_stencil *, size_t)
{
    return 60;
}

const struct conv_variant conv_cpu_decimated_vnni = {
    .name = "cpu_decimated_vnni",
    .summary = "integers of 8-bit samples, four products per instruction",
    .place = CONV_ON_CPU,
    .needs = CONV_CPU_AVX512 | CONV_CPU_VNNI | CONV_CPU_VBMI,
    .can = can_bytes,
    .score = score_bytes,
    .plan = plan_bytes,
    .run = run_bytes,
    .thresholds = true,
    .decimated = true,
};

#endif
