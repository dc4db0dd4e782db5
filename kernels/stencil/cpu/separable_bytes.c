// SPDX-License-Identifier: MIT
// 8-bit samples through a column times a row of positive weights, whose sums need up to 31 bits,
// with the dot products of AVX-512 VNNI. Columns come first: lines of four source rows, mixed byte
// by byte, times four weights at a time. A sum of up to 20 bits is then 16 times a 16-bit number
// plus four bits. Along the row the former are multiplied in pairs, the latter, in quads, only
// where the result is so near to the middle of two samples that they can decide.
#ifdef CONV_ISA_VNNI
#include <immintrin.h>
#include <stdlib.h>

#include "base/features.h"
#include "kernels/stencil/cpu/cpu_internal.h"

#define STRIP 1024                // columns
#define BLOCK 64                  // samples of a row
#define ROWS 4                    // of results that are computed together
#define PITCH (STRIP + 3 * BLOCK) // samples of a line, which vectors may exceed
#define MOST_QUADS ((CONV_FILTER_MAX_SIDE + 3 + 3) / 4)
#define MOST_PAIRS ((CONV_FILTER_MAX_SIDE + 1) / 2)
#define LEAST_SIDE 7
#define LOW 4             // bits
#define MOST_COLUMN 4080  // sum of weights: 128 times it has 16 bits above those
#define LEAST_DIVISOR 100 // per sum of weights of the row: few results need the lowest bits
#define MOST_OFFSET 20000 // with 255 * MOST_COLUMN / LEAST_DIVISOR, 16 bits hold results
#define FLOAT_ERROR 1e-4f // of sums as floats times the reciprocal, up to 256

struct separable_constants {
    int quads;                            // of rows that ROWS results need
    int pairs, row_quads;                 // of samples that two, and four, neighbours need
    uint32_t columns[MOST_QUADS][ROWS];   // by row of results
    uint32_t row_pairs[MOST_PAIRS][2];    // by result
    uint32_t row_quads_of[MOST_QUADS][4]; // by result
    int32_t start;                        // of all sums, to which the bias is added
    float factor, offset;                 // from the sum of 16-bit numbers to the result
    float certain;                        // the most that this may be from an integer
    struct conv_cpu_rounding rounding;
};
_Static_assert(sizeof(struct separable_constants) <= CONV_STENCIL_PLAN_BYTES, "constants fit");

struct separable_job {
    const struct conv_stencil *stencil;
    const struct separable_constants *constants;
    const struct conv_stencil_plane *plane;
    uint8_t *ring;  // `quads` lines of four rows, minus 128
    uint8_t *fresh; // ROWS lines of samples
    int16_t *high;  // ROWS lines of sums over columns, without their lowest LOW bits
    int8_t *low;    // and these
};

static uint32_t pack(const int32_t *coefs, int count, int first, int size)
{
    uint32_t packed = 0;
    for (int k = 0; k < 4 / size; k++)
        if (first + k >= 0 && first + k < count)
            packed |= (uint32_t)coefs[first + k] << 8 * size * k;
    return packed;
}

static int32_t sum_of(const int32_t *coefs, int count)
{
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += coefs[i];
    return sum;
}

// With samples minus 128 the sum of a column is T. The sums of columns 4i to 4i + 3 are split one
// after the other: T + e = 16 * high + f, where e is what the column before has left, and first 8.
// So T = 16 * high + low with low = f - e, and of the weights' sums c and r, a sum over all is
// 16 * sum(row * high) + sum(row * low) + 128 * c * r. Neighbouring weights are similar, so that
// the second sum is small: the f of a column, 0 to 15, counts as its weight less the next one.
static void bound_low(const int32_t *row, int width, int32_t *least, int32_t *most)
{
    *least = INT32_MAX;
    *most = INT32_MIN;
    for (int first = -3; first <= 0; first++) {
        int32_t low = 0, high = 0;
        for (int i = first; i < width; i++) {
            bool begins = (i - first) % 4 == 0, ends = (i - first) % 4 == 3;
            int32_t own = i < 0 ? 0 : row[i];
            int32_t less = own - (ends || i + 1 < 0 || i + 1 == width ? 0 : row[i + 1]);
            low += 15 * (less < 0 ? less : 0) - (begins ? 8 * own : 0);
            high += 15 * (less > 0 ? less : 0) - (begins ? 8 * own : 0);
        }
        *least = low < *least ? low : *least;
        *most = high > *most ? high : *most;
    }
}

static void plan_separable(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    struct separable_constants *c = (struct separable_constants *)(void *)plan->constants;
    int32_t column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE], least, most;
    int width = stencil->width, height = stencil->height;
    conv_stencil_factors(stencil, column, row);
    conv_cpu_rounding_wide(&c->rounding, stencil);
    c->quads = (height + 3 + 3) / 4;
    c->pairs = (width + 1 + 1) / 2;
    c->row_quads = (width + 3 + 3) / 4;
    for (int q = 0; q < c->quads; q++)
        for (int r = 0; r < ROWS; r++)
            c->columns[q][r] = pack(column, height, 4 * q - r, 1);
    for (int q = 0; q < c->pairs; q++)
        for (int r = 0; r < 2; r++)
            c->row_pairs[q][r] = pack(row, width, 2 * q - r, 2);
    for (int q = 0; q < c->row_quads; q++)
        for (int r = 0; r < 4; r++)
            c->row_quads_of[q][r] = pack(row, width, 4 * q - r, 1);
    c->start = 128 * sum_of(column, height) * sum_of(row, width) + (int32_t)stencil->bias;
    bound_low(row, width, &least, &most);
    double divisor = (double)stencil->divisor;
    c->factor = (float)((1 << LOW) / divisor);
    c->offset = (float)((c->start + 0.5 * (most + least)) / divisor);
    c->certain = (float)(0.5 - FLOAT_ERROR - 0.5 * (most - least) / divisor);
    plan->cpu.scratch_fixed = PITCH * (size_t)(4 * c->quads + ROWS * (1 + 2 + 1));
}

// --- columns -------------------------------------------------------------------------------------

#define ODD 0xaaaaaaaaaaaaaaaa // bytes or words

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

// Adds dot products of bytes, the first of them unsigned, or of words. With the intrinsics GCC 12
// copies each sum to another register and back.
#define ADD_QUADS(sum, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))
#define ADD_PAIRS(sum, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

static uint8_t *ring_line(const struct separable_job *job, int q)
{
    return job->ring + (size_t)(q % job->constants->quads) * (4 * PITCH);
}

// Mixes rows y to y + 3 at columns x to x + count - 1: of each 64 columns, four samples of columns
// 0, 4, 8, ..., then of 1, 5, 9, ..., and so on.
static void mix_rows(const struct separable_job *job, int q, int x, int y, int count)
{
    const struct conv_stencil_plane *plane = job->plane;
    uint8_t *to = ring_line(job, q);
    const uint8_t *rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
        int from = conv_border_index(job->stencil->border, y + r, plane->height);
        if (from >= 0 && x >= 0 && x + count + BLOCK <= plane->width) {
            rows[r] = plane->src + from * plane->src_stride + x;
        } else {
            conv_cpu_line(job->fresh + r * PITCH, job->stencil, plane, x, y + r, count);
            rows[r] = job->fresh + r * PITCH;
        }
    }
    for (int at = 0; at < count; at += BLOCK, to += ROWS * BLOCK) {
        __m512i row[ROWS], pair[2][2]; // columns 2i and 2i + 1 of two rows
        for (int r = 0; r < ROWS; r++)
            row[r] = _mm512_xor_si512(load(rows[r] + at), _mm512_set1_epi8((char)0x80));
        for (int k = 0; k < 2; k++) {
            __m512i up = _mm512_slli_epi16(row[2 * k + 1], 8);
            __m512i down = _mm512_srli_epi16(row[2 * k], 8);
            pair[0][k] = _mm512_mask_blend_epi8(ODD, row[2 * k], up);
            pair[1][k] = _mm512_mask_blend_epi8(ODD, down, row[2 * k + 1]);
        }
        for (int k = 0; k < 2; k++) {
            __m512i up = _mm512_slli_epi32(pair[k][1], 16);
            __m512i down = _mm512_srli_epi32(pair[k][0], 16);
            _mm512_store_si512(to + k * BLOCK,
                               _mm512_mask_blend_epi16((__mmask32)ODD, pair[k][0], up));
            _mm512_store_si512(to + (k + 2) * BLOCK,
                               _mm512_mask_blend_epi16((__mmask32)ODD, down, pair[k][1]));
        }
    }
}

// Sums of 64 columns, in the order of mix_rows.
static inline void split_sums(const struct separable_job *job, const __m512i sum[4], int r, int x)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    __m512i left = _mm512_set1_epi32(8), bytes = left, high[4];
    for (int k = 0; k < 4; k++) {
        high[k] = _mm512_add_epi32(sum[k], left);
        left = _mm512_and_si512(high[k], _mm512_set1_epi32((1 << LOW) - 1));
        bytes = k ? _mm512_or_si512(bytes, _mm512_slli_epi32(left, 8 * k)) : left;
        high[k] = k % 2 ? _mm512_slli_epi32(high[k], 16 - LOW) : _mm512_srli_epi32(high[k], LOW);
    }
    __m512i near = _mm512_mask_blend_epi16((__mmask32)ODD, high[0], high[1]);
    __m512i far = _mm512_mask_blend_epi16((__mmask32)ODD, high[2], high[3]);
    int16_t *to = job->high + r * PITCH + x;
    _mm512_store_si512(to, _mm512_permutex2var_epi32(near, first, far));
    _mm512_store_si512(to + BLOCK / 2, _mm512_permutex2var_epi32(near, second, far));
    __m512i before = _mm512_or_si512(_mm512_slli_epi32(bytes, 8), _mm512_set1_epi32(8));
    _mm512_store_si512(job->low + r * PITCH + x, _mm512_sub_epi8(bytes, before));
}

// Columns x to x + count - 1 of a strip, of rows that begin at line q of the ring.
static void sum_columns(const struct separable_job *job, int q, int count)
{
    const struct separable_constants *c = job->constants;
    const uint8_t *lines[MOST_QUADS];
    for (int k = 0; k < c->quads; k++)
        lines[k] = ring_line(job, q + k);
    for (int x = 0; x < count; x += BLOCK) {
        __m512i sum[ROWS][4];
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < 4; k++)
                sum[r][k] = _mm512_setzero_si512();
        for (int k = 0; k < c->quads; k++) {
            __m512i quads[4];
            for (int n = 0; n < 4; n++)
                quads[n] = load(lines[k] + 4 * x + n * BLOCK);
            for (int r = 0; r < ROWS; r++) {
                __m512i weights = _mm512_set1_epi32((int)c->columns[k][r]);
                for (int n = 0; n < 4; n++)
                    ADD_QUADS(sum[r][n], weights, quads[n]);
            }
        }
        for (int r = 0; r < ROWS; r++)
            split_sums(job, sum[r], r, x);
    }
}

// --- rows ----------------------------------------------------------------------------------------

// The results of sums that are exact: round.h.
static inline __m512i round_exactly(__m512i sum, const struct conv_cpu_rounding *r)
{
    __m512i divisor = _mm512_set1_epi32(r->divisor), one = _mm512_set1_epi32(1);
    sum = _mm512_max_epi32(sum, _mm512_setzero_si512());
    sum = _mm512_min_epi32(sum, _mm512_set1_epi32(r->limit));
    __m512 quotient = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(r->reciprocal));
    __m512i nearest = _mm512_cvtps_epi32(quotient), odd = _mm512_and_si512(nearest, one);
    __m512i rest = _mm512_sub_epi32(sum, _mm512_mullo_epi32(nearest, divisor));
    __m512i twice = _mm512_slli_epi32(rest, 1);
    __mmask16 more = _mm512_cmpgt_epi32_mask(_mm512_add_epi32(twice, odd), divisor);
    __mmask16 less = _mm512_cmpgt_epi32_mask(_mm512_sub_epi32(odd, twice), divisor);
    nearest = _mm512_mask_add_epi32(nearest, more, nearest, one);
    return _mm512_mask_sub_epi32(nearest, less, nearest, one);
}

// Sums of 16-bit numbers of 64 results: [of 32][of results 2i and 2i + 1].
typedef __m512i pair_sums[2][2];

// With the lowest bits as well.
static __attribute__((noinline)) __m512i finish_exactly(const struct separable_job *job, int r,
                                                        int x, const __m512i *sums)
{
    const struct separable_constants *c = job->constants;
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const int8_t *low = job->low + r * PITCH + x;
    __m512i sum[4], out = _mm512_setzero_si512();
    for (int k = 0; k < 4; k++) {
        sum[k] = _mm512_permutex2var_epi32(sums[k & 1], k < 2 ? even : odd, sums[2 + (k & 1)]);
        sum[k] = _mm512_add_epi32(_mm512_slli_epi32(sum[k], LOW), _mm512_set1_epi32(c->start));
    }
    for (int q = 0; q < c->row_quads; q++)
        for (int k = 0; k < 4; k++)
            sum[k] = _mm512_dpbusd_epi32(sum[k], _mm512_set1_epi32((int)c->row_quads_of[q][k]),
                                         load(low + 4 * q));
    for (int k = 3; k >= 0; k--)
        out = _mm512_or_si512(_mm512_slli_epi32(out, 8), round_exactly(sum[k], &c->rounding));
    return out;
}

static inline __m512i finish_row(const struct separable_job *job, int r, int x, pair_sums sum)
{
    const struct separable_constants *c = job->constants;
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512 most = _mm512_setzero_ps();
    __m512i words[2];
    for (int half = 0; half < 2; half++) {
        __m512i result[2];
        for (int k = 0; k < 2; k++) {
            __m512 quotient = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[half][k]),
                                              _mm512_set1_ps(c->factor), _mm512_set1_ps(c->offset));
            result[k] = _mm512_cvtps_epi32(quotient);
            most = _mm512_range_ps(most, _mm512_reduce_ps(quotient, 0), 0xb); // of magnitudes
        }
        result[1] = _mm512_slli_epi32(result[1], 16);
        words[half] = _mm512_mask_blend_epi16((__mmask32)ODD, result[0], result[1]);
    }
    if (_mm512_cmp_ps_mask(most, _mm512_set1_ps(c->certain), _CMP_GT_OQ)) {
        __m512i sums[4] = {sum[0][0], sum[0][1], sum[1][0], sum[1][1]};
        return finish_exactly(job, r, x, sums);
    }
    return _mm512_permutexvar_epi64(order, _mm512_packus_epi16(words[0], words[1]));
}

// 64 samples from column x on of rows r and r + 1.
static inline void filter_pair(const struct separable_job *job, int r, int x, __m512i out[2])
{
    const struct separable_constants *c = job->constants;
    pair_sums sum[2];
    for (int k = 0; k < 8; k++)
        sum[k >> 2][k >> 1 & 1][k & 1] = _mm512_setzero_si512();
    for (int p = 0; p < c->pairs; p++) {
        __m512i first = _mm512_set1_epi32((int)c->row_pairs[p][0]);
        __m512i second = _mm512_set1_epi32((int)c->row_pairs[p][1]);
        for (int k = 0; k < 4; k++) {
            __m512i *to = sum[k >> 1][k & 1];
            __m512i samples =
                load(job->high + (r + (k >> 1)) * PITCH + x + (k & 1) * BLOCK / 2 + 2 * p);
            ADD_PAIRS(to[0], samples, first);
            ADD_PAIRS(to[1], samples, second);
        }
    }
    for (int k = 0; k < 2; k++)
        out[k] = finish_row(job, r + k, x, sum[k]);
}

static void filter_strip(const struct separable_job *job, int x, int count, int from, int to)
{
    const struct separable_constants *c = job->constants;
    const struct conv_stencil_plane *plane = job->plane;
    int width = job->stencil->width, mixed = 0, last = plane->height - 1;
    int top = from - job->stencil->height / 2, wide = count + width - 1;
    for (int y = from, q = 0; y < to; y += ROWS, q++) {
        for (; mixed < q + c->quads; mixed++)
            mix_rows(job, mixed, x - width / 2, top + ROWS * mixed, wide);
        sum_columns(job, q, wide);
        for (int r = 0; r < ROWS && y + r < to; r += 2) {
            const uint8_t *read[2], *written[2]; // next
            for (int k = 0; k < 2; k++) {
                int next = top + ROWS * mixed + r + k, row = y + r + k + ROWS;
                next = next < 0 ? 0 : next < last ? next : last;
                read[k] = plane->src + next * plane->src_stride + x;
                written[k] = plane->dst + (row < last ? row : last) * plane->dst_stride + x;
            }
            uint8_t *dst = plane->dst + (y + r) * plane->dst_stride + x;
            for (int at = 0; at < count; at += BLOCK) {
                __mmask64 valid = count - at < BLOCK ? ((__mmask64)1 << (count - at)) - 1 : ~0ull;
                __m512i out[2];
                for (int k = 0; k < 2; k++) {
                    __builtin_prefetch(read[k] + at);
                    __builtin_prefetch(written[k] + at, 1);
                }
                filter_pair(job, r, at, out);
                _mm512_mask_storeu_epi8(dst + at, valid, out[0]);
                if (y + r + 1 < to)
                    _mm512_mask_storeu_epi8(dst + plane->dst_stride + at, valid, out[1]);
            }
        }
    }
}

static enum conv_status run_separable(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    struct separable_job job = {.stencil = plan->stencil};
    job.constants = (const struct separable_constants *)(const void *)plan->constants;
    job.ring = batch->cpu.scratch;
    job.fresh = job.ring + (size_t)job.constants->quads * 4 * PITCH;
    job.low = (int8_t *)job.fresh + ROWS * PITCH;
    job.high = (int16_t *)(void *)(job.low + ROWS * PITCH);
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        for (int x = 0; x < job.plane->width; x += STRIP) {
            int left = job.plane->width - x;
            filter_strip(&job, x, left < STRIP ? left : STRIP, batch->cpu.from,
                         conv_cpu_end(batch, job.plane));
        }
    }
    return CONV_OK;
}

static bool are_bytes(const int32_t *coefs, int count)
{
    bool fit = true;
    for (int i = 0; i < count; i++)
        fit = fit && coefs[i] >= 0 && coefs[i] <= UINT8_MAX;
    return fit;
}

static bool can_separable(const struct conv_stencil *stencil)
{
    struct conv_cpu_rounding rounding;
    int32_t column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    if (stencil->depth != 8 || !stencil->exact || stencil->floats || stencil->channels > 1 ||
        stencil->width < LEAST_SIDE || stencil->height < LEAST_SIDE ||
        !conv_cpu_rounding_wide(&rounding, stencil) || !conv_stencil_factors(stencil, column, row))
        return false;
    return are_bytes(column, stencil->height) && are_bytes(row, stencil->width) &&
           sum_of(column, stencil->height) <= MOST_COLUMN &&
           stencil->divisor >= LEAST_DIVISOR * (int64_t)sum_of(row, stencil->width) &&
           llabs(stencil->bias) <= MOST_OFFSET * stencil->divisor;
}

static int score_separable(const struct conv_stencil *stencil, size_t)
{
    struct conv_cpu_rounding rounding;
    return conv_cpu_rounding_narrow(&rounding, stencil) ? CONV_SCORE_UNSUITED : 70;
}

const struct conv_variant conv_cpu_separable_vnni = {
    .name = "cpu_separable_vnni",
    .summary = "columns, then rows, of positive weights: four and two taps per instruction",
    .place = CONV_ON_CPU,
    .needs = CONV_CPU_AVX512 | CONV_CPU_VNNI,
    .can = can_separable,
    .score = score_separable,
    .plan = plan_separable,
    .run = run_separable,
};

#endif
