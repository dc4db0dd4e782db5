// SPDX-License-Identifier: MIT
// Exact stencils of 3x3 and 5x5 whose sums fit 16 bits, straight from the source rows: only samples
// near a row's ends go through lines that contain the border. The arithmetic is that of dots.h with
// pairs, but the number of taps is a compile-time constant: no loop is left around the
// multiplications, and their coefficients are precomputed vectors. Speed over lines and loops
// (AVX2, 2880x1800 and 8192x4096): 1.4 to 1.7 times at 3x3, 1.2 times at 5x5, where two passes
// (dots.h) are faster still for separable stencils. A block is one vector of each of two output
// rows. It is stored after the next one was loaded: processors first compare loads with earlier
// stores by the low 12 bits of their addresses. Where rows of source and result are equal in these
// bits (8192 columns), a block's halo would seem to have been stored just before, which cost a
// third of the speed.
#pragma once

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/round.h"
#include "kernels/stencil/cpu/vector.h"

// --- sums ----------------------------------------------------------------------------------------

// The sums of direct.h: a vector of each of two output rows. A 3x3 stencil takes the method with
// the fewest multiplications and coefficients. In general these are 24 and 12; the coefficients of
// AVX2 do not fit its registers, and 32 bytes of two rows take 18.6 cycles (Zen 5). With the
// relations that usual filters have, 16 multiplications by 4 coefficients take 13.7 (emboss)
// and 15.7 (blur).

#define DIRECT_MOST_SIDE 5
#define DIRECT_LINES (DIRECT_MOST_SIDE + 1) // source rows that two output rows need

enum direct_method {
    DIRECT_3X3,
    DIRECT_5X5,
    // 3x3 stencils whose divisions are signed (enum conv_cpu_division):
    // Top left to bottom right: the right tap of the top row and the left one of the bottom row are
    // 0, as in emboss and sharpen. Four pairs cover the rest.
    DIRECT_FALLING,
    DIRECT_RISING, // bottom left to top right
    DIRECT_EQUAL,  // three equal rows, as in blur: the sums along a row serve three output rows
    DIRECT_SMOOTH, // rows times 1, 2 and 1, as in gaussian: likewise
};

// By row of taps, by load, for the first and the second output sample of a lane. Four pairs: by
// row, by pair of the row, [0] for both.
typedef vec_u32 direct_coefs[DIRECT_MOST_SIDE][(DIRECT_MOST_SIDE + 1) / 2][2];

// The constants of a sum.
struct direct_sums {
    direct_coefs coefs;
    struct conv_cpu_rounding rounding;
};

typedef vec_u16 direct_vectors[2][2]; // by output row, by sample of a lane

// Any stencil: a lane's two samples have their own coefficients, so that they share the loads.
ALWAYS_INLINE void sum_rows(direct_vectors sum, const struct direct_sums *sums,
                            const uint8_t *const *lines, size_t x, int side)
{
    for (int r = 0; r < 2; r++)
        sum[r][0] = sum[r][1] = (vec_u16)((vec_u32){0} + sums->rounding.start);
#pragma GCC unroll 6
    for (int k = 0; k <= side; k++) {
#pragma GCC unroll 3
        for (int i = 0; i <= side / 2; i++) {
            vec_u8 samples = load_u8(lines[k] + x + 2 * i);
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++) {
                if (k < r || k - r >= side)
                    continue;
#pragma GCC unroll 2
                for (int phase = 0; phase < 2; phase++) {
                    sum[r][phase] = dot_pairs(sum[r][phase], samples, sums->coefs[k - r][i][phase]);
                    SETTLE(sum[r][phase]);
                }
            }
        }
    }
}

// The top row's pair of taps begins at column `top`, the bottom row's at 1 - top. A lane's second
// sample is computed from loads that begin one sample later, so it has the same coefficients. The
// rows' loads must be shared: with a list of four addresses 16 loads are needed instead of 10.
ALWAYS_INLINE void sum_four(direct_vectors sum, const struct direct_sums *sums,
                            const uint8_t *const *lines, size_t x, int top)
{
    for (int r = 0; r < 2; r++)
        sum[r][0] = sum[r][1] = (vec_u16)((vec_u32){0} + sums->rounding.start);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            vec_u8 samples = load_u8(lines[k] + x + i);
            SETTLE(samples);
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++) {
                int row = k - r;
                if (row < 0 || row > 2)
                    continue;
                for (int phase = 0; phase < 2; phase++) {
                    int column = i - phase;
                    bool pair = row == 0   ? column == top
                                : row == 1 ? column == 0 || column == 1
                                           : column == 1 - top;
                    if (!pair)
                        continue;
                    sum[r][phase] = dot_pairs(sum[r][phase], samples,
                                              sums->coefs[row][row == 1 ? column : 0][0]);
                    SETTLE(sum[r][phase]);
                }
            }
        }
    }
}

// Rows of samples are multiplied by the first row of taps, once for both output rows.
ALWAYS_INLINE void sum_columns(direct_vectors sum, const struct direct_sums *sums,
                               const uint8_t *const *lines, size_t x, bool smooth)
{
    vec_u16 along[4][2];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vec_u8 first = load_u8(lines[k] + x), second = load_u8(lines[k] + x + 2);
        SETTLE(first);
        SETTLE(second);
#pragma GCC unroll 2
        for (int phase = 0; phase < 2; phase++) {
            along[k][phase] = dot_pairs((vec_u16){0}, first, sums->coefs[0][0][phase]);
            along[k][phase] = dot_pairs(along[k][phase], second, sums->coefs[0][1][phase]);
            SETTLE(along[k][phase]);
        }
    }
#pragma GCC unroll 2
    for (int phase = 0; phase < 2; phase++) {
        vec_u16 shared = along[1][phase] + along[2][phase];
        shared += (vec_u16)((vec_u32){0} + sums->rounding.start);
        SETTLE(shared);
        for (int r = 0; r < 2; r++) {
            vec_u16 other = along[3 * r][phase];
            if (smooth)
                other += along[1 + r][phase];
            sum[r][phase] = shared + other;
        }
    }
}

// A vector of two output rows. x: from column 0 of the source to the first sample of the first tap.
ALWAYS_INLINE void sum_direct(vec_u8 out[2], const struct direct_sums *sums,
                              const uint8_t *const *lines, size_t x, enum direct_method method,
                              enum conv_cpu_division division)
{
    direct_vectors sum;
    if (method == DIRECT_FALLING || method == DIRECT_RISING)
        sum_four(sum, sums, lines, x, method == DIRECT_RISING);
    else if (method == DIRECT_EQUAL || method == DIRECT_SMOOTH)
        sum_columns(sum, sums, lines, x, method == DIRECT_SMOOTH);
    else
        sum_rows(sum, sums, lines, x, method == DIRECT_5X5 ? 5 : 3);
    for (int r = 0; r < 2; r++)
        out[r] = join_u16(round_u16(sum[r][0], &sums->rounding, division),
                          round_u16(sum[r][1], &sums->rounding, division));
}

// -------------------------------------------------------------------------------------------------

// Source rows are prefetched as many pairs of rows before they are needed: at least two, and as
// many as have this number of bytes.
#define DIRECT_AHEAD_BYTES (8 << 10)
// Planes of at least this many bytes are written past the caches, in whole rows: a cache line
// written in both ways costs more than is saved. Not with vectors of 16 bytes, which take longer.
#define DIRECT_STREAM ((4 << 20) / CONV_CPU_STREAM_PART)
_Static_assert(CONV_CPU_ROW_END + VECTOR + DIRECT_MOST_SIDE - 1 <= CONV_CPU_EDGES &&
                   VECTOR + DIRECT_MOST_SIDE - 1 <= CONV_CPU_RIGHT_EDGE &&
                   2 * VECTOR <= CONV_CPU_BLOCK,
               "edges fit");

struct direct_job {
    struct direct_sums sums;
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    int ahead;    // pairs of rows from those that are computed to those that are prefetched
    bool streams; // output is written past the caches
    size_t width; // bytes of a row
    size_t right; // columns from here on, a whole number of vectors, are in the right edge
    bool wide;    // the columns of each edge are those of two whole vectors
    int beyond[2][DIRECT_MOST_SIDE / 2]; // wide: the columns left and right of a row, or -1
    size_t right_edge;                   // in a line of edges: where column right - width / 2 is
    uint8_t *edges; // height + 1 of them: columns -(width / 2) and on; columns from `right` on
    uint8_t *blank; // a row of the constant border's value
    uint8_t *spare; // replaces the row below the last one
    // For the current rows, by line:
    const uint8_t *source[DIRECT_LINES], *left_lines[DIRECT_LINES], *right_lines[DIRECT_LINES];
    const uint8_t *next[2]; // source rows to prefetch
};

ALWAYS_INLINE void store_direct(uint8_t *const rows[2], size_t x, const vec_u8 out[2], bool streams)
{
    for (int r = 0; r < 2; r++) {
        if (streams)
            stream(rows[r] + x, out[r]);
        else
            memcpy(rows[r] + x, &out[r], VECTOR);
    }
}

// Like store_direct, for a vector that may reach past the end of the row.
ALWAYS_INLINE void store_direct_end(uint8_t *const rows[2], size_t x, const vec_u8 out[2],
                                    const struct direct_job *job)
{
    if (job->width - x >= VECTOR) {
        store_direct(rows, x, out, job->streams);
        return;
    }
    for (int r = 0; r < 2; r++)
        memcpy(rows[r] + x, &out[r], job->width - x);
}

// Filters the columns that need no border: from the second vector to the last one before the right
// edge.
ALWAYS_INLINE void filter_direct_inside(const struct direct_job *job, uint8_t *const rows[2],
                                        enum direct_method method, enum conv_cpu_division division,
                                        bool streams)
{
    size_t x = VECTOR, halo = method == DIRECT_5X5 ? 2 : 1, end = job->right;
    if (x >= end)
        return;
    // Copies cannot alias the rows that are written, so they can stay in registers.
    uint8_t *const to[2] = {rows[0], rows[1]};
    const uint8_t *const next[2] = {job->next[0], job->next[1]};
    const struct direct_sums sums = job->sums;
    const uint8_t *lines[DIRECT_LINES];
    memcpy(lines, job->source, sizeof lines);
    vec_u8 ready[2], out[2];
    sum_direct(ready, &sums, lines, x - halo, method, division);
    for (x += VECTOR; x < end; x += VECTOR) {
        if (x % 64 == 0) {
            __builtin_prefetch(next[0] + x);
            __builtin_prefetch(next[1] + x);
        }
        sum_direct(out, &sums, lines, x - halo, method, division);
        store_direct(to, x - VECTOR, ready, streams);
        ready[0] = out[0], ready[1] = out[1];
    }
    store_direct(to, x - VECTOR, ready, streams);
}

ALWAYS_INLINE void filter_direct_rows(const struct direct_job *job, uint8_t *const rows[2],
                                      enum direct_method method, enum conv_cpu_division division)
{
    vec_u8 out[2];
    sum_direct(out, &job->sums, job->left_lines, 0, method, division);
    store_direct_end(rows, 0, out, job);
    if (job->streams)
        filter_direct_inside(job, rows, method, division, true);
    else
        filter_direct_inside(job, rows, method, division, false);
    for (size_t x = job->right; x < job->width; x += VECTOR) {
        sum_direct(out, &job->sums, job->right_lines, x - job->right, method, division);
        store_direct_end(rows, x, out, job);
    }
}

// X(method, division): every division has a general method.
#define DIRECT_METHODS(X)                                                                          \
    ROUND_BY_ALL(X, 3X3)                                                                           \
    ROUND_BY_ALL(X, 5X5)                                                                           \
    ROUND_BY_SIGNED(X, FALLING)                                                                    \
    ROUND_BY_SIGNED(X, RISING)                                                                     \
    ROUND_BY_SIGNED(X, EQUAL)                                                                      \
    ROUND_BY_SIGNED(X, SMOOTH)

#define DEFINE_DIRECT(method, division)                                                            \
    static __attribute__((noinline)) void filter_##method##_##division(                            \
        const struct direct_job *job, uint8_t *const rows[2])                                      \
    {                                                                                              \
        filter_direct_rows(job, rows, DIRECT_##method, CONV_CPU_##division);                       \
    }
DIRECT_METHODS(DEFINE_DIRECT)

typedef void (*filter_direct_fn)(const struct direct_job *job, uint8_t *const rows[2]);

#define DIRECT_ENTRY(method, division)                                                             \
    [DIRECT_##method][CONV_CPU_##division] = filter_##method##_##division,
static const filter_direct_fn direct_methods[][CONV_CPU_BY_ANY + 1] = {
    DIRECT_METHODS(DIRECT_ENTRY)};

static uint8_t *edge_line(const struct direct_job *job, int k)
{
    return job->edges + (size_t)(k % CONV_CPU_EDGE_LINES) * CONV_CPU_EDGES;
}

static uint8_t beyond_row(const struct direct_job *job, const uint8_t *row, int side, int i)
{
    int column = job->beyond[side][i];
    return column < 0 ? (uint8_t)job->stencil->border_value : row[column];
}

// Copies of constant sizes: with those of conv_cpu_line, edges took a quarter of the time at 768
// columns.
static void fill_wide_edges(const struct direct_job *job, int k)
{
    const struct conv_stencil_plane *plane = job->plane;
    uint8_t *line = edge_line(job, k), *end = line + CONV_CPU_ROW_END;
    int halo = job->stencil->width / 2;
    int sy = conv_border_index(job->stencil->border, k - halo, plane->height);
    const uint8_t *row = sy < 0 ? job->blank : plane->src + sy * plane->src_stride;
    memcpy(line + halo, row, VECTOR + DIRECT_MOST_SIDE / 2);
    memcpy(end - 2 * VECTOR, row + job->width - 2 * VECTOR, 2 * VECTOR);
    for (int i = 0; i < halo; i++) {
        line[i] = beyond_row(job, row, 0, i);
        end[i] = beyond_row(job, row, 1, i);
    }
}

// Fills both edges of line k from source row k - height / 2.
static void fill_edges(const struct direct_job *job, int k)
{
    const struct conv_stencil *stencil = job->stencil;
    uint8_t *line = edge_line(job, k);
    int halo = stencil->width / 2, y = k - halo, width = (int)job->width, right = (int)job->right;
    int left = width < VECTOR ? width : VECTOR;
    conv_cpu_line(line, stencil, job->plane, -halo, y, left + 2 * halo);
    if (right < width)
        conv_cpu_line(line + CONV_CPU_RIGHT_EDGE, stencil, job->plane, right - halo, y,
                      width - right + 2 * halo);
}

// Sets the lines of output rows y and y + 1.
static void place_lines(struct direct_job *job, int y)
{
    const struct conv_stencil_plane *plane = job->plane;
    int height = job->stencil->height;
    for (int k = 0; k <= height; k++) {
        int sy = conv_border_index(job->stencil->border, y + k - height / 2, plane->height);
        job->source[k] = sy < 0 ? job->blank : plane->src + sy * plane->src_stride;
        job->left_lines[k] = edge_line(job, y + k);
        job->right_lines[k] = job->left_lines[k] + job->right_edge;
    }
    for (int r = 0; r < 2; r++) {
        int next = y + height - height / 2 + r + 2 * job->ahead - 1;
        next = next < plane->height ? next : plane->height - 1;
        job->next[r] = plane->src + next * plane->src_stride;
    }
}

static void filter_direct_plane(struct direct_job *job, filter_direct_fn filter, int from, int end)
{
    const struct conv_stencil_plane *plane = job->plane;
    int filled = from;
    for (int y = from; y < end; y += 2) {
        // One pair ahead: a load of bytes that were just stored stalls.
        for (; filled <= y + 2 + job->stencil->height; filled++) {
            if (job->wide)
                fill_wide_edges(job, filled);
            else
                fill_edges(job, filled);
        }
        place_lines(job, y);
        uint8_t *row = plane->dst + y * plane->dst_stride;
        uint8_t *rows[2] = {row, y + 1 < end ? row + plane->dst_stride : job->spare};
        filter(job, rows);
    }
}

// Derived once per plan.
struct direct_constants {
    struct conv_cpu_rounding rounding;
    enum direct_method method;
    uint32_t coefs[DIRECT_MOST_SIDE][(DIRECT_MOST_SIDE + 1) / 2][2]; // as direct_coefs, by lane
};

// Whether row k of a 3x3 stencil is its first row times `factor`.
static bool is_multiple(const struct conv_stencil *stencil, int k, int factor)
{
    for (int i = 0; i < 3; i++)
        if (stencil->icoef[3 * k + i] != factor * stencil->icoef[i])
            return false;
    return true;
}

// Sets the coefficients of four pairs if they cover all taps of a 3x3 stencil; `top` as in
// sum_four.
static bool set_four(struct direct_constants *constants, const struct conv_stencil *stencil,
                     int top)
{
    const int32_t *first = stencil->icoef, *middle = first + 3, *last = middle + 3;
    if (first[top ? 0 : 2] || last[top ? 2 : 0])
        return false;
    conv_cpu_tap_pack_pair(&constants->coefs[0][0][0], first[top], first[top + 1]);
    conv_cpu_tap_pack_pair(&constants->coefs[1][0][0], middle[0], middle[1]);
    conv_cpu_tap_pack_pair(&constants->coefs[1][1][0], 0, middle[2]);
    conv_cpu_tap_pack_pair(&constants->coefs[2][0][0], last[1 - top], last[2 - top]);
    return true;
}

static void set_rows(struct direct_constants *constants, const struct conv_stencil *stencil)
{
    int side = stencil->width;
    for (int j = 0; j < side; j++) {
        for (int i = 0; i <= side; i++) {
            const int32_t *row = &stencil->icoef[j * side];
            // The second sample's pairs begin one coefficient earlier.
            conv_cpu_tap_pack_pair(&constants->coefs[j][i / 2][i % 2 == 0], i > 0 ? row[i - 1] : 0,
                                   i < side ? row[i] : 0);
        }
    }
}

static void init_direct_constants(struct direct_constants *constants,
                                  const struct conv_stencil *stencil)
{
    conv_cpu_rounding_narrow(&constants->rounding, stencil);
    enum conv_cpu_division division = constants->rounding.division;
    bool is_signed = stencil->width == 3 &&
                     (division == CONV_CPU_BY_1_SIGNED || division == CONV_CPU_BY_POWER_SIGNED ||
                      division == CONV_CPU_BY_ODD_SIGNED);
    if (is_signed && set_four(constants, stencil, 0)) {
        constants->method = DIRECT_FALLING;
    } else if (is_signed && set_four(constants, stencil, 1)) {
        constants->method = DIRECT_RISING;
    } else {
        set_rows(constants, stencil);
        constants->method = stencil->width == 5 ? DIRECT_5X5 : DIRECT_3X3;
        if (is_signed && is_multiple(stencil, 2, 1))
            constants->method = is_multiple(stencil, 1, 1)   ? DIRECT_EQUAL
                                : is_multiple(stencil, 1, 2) ? DIRECT_SMOOTH
                                                             : DIRECT_3X3;
    }
}

// Sets the members that depend on the plane. In rows too short for a block between the edges, all
// columns are edge.
static void set_direct_plane(struct direct_job *job, const struct conv_stencil_plane *plane,
                             uint8_t *scratch)
{
    size_t halo = (size_t)job->stencil->width / 2, width = (size_t)plane->width;
    job->plane = plane;
    job->width = width;
    job->wide = width >= 2 * VECTOR;
    job->right = VECTOR;
    job->right_edge = CONV_CPU_RIGHT_EDGE;
    if (width >= 2 * VECTOR + halo)
        job->right = (width - halo) / VECTOR * VECTOR;
    if (job->wide)
        job->right_edge = CONV_CPU_ROW_END - (width - job->right + halo);
    for (int i = 0; i < (int)halo; i++) {
        enum conv_border border = job->stencil->border;
        job->beyond[0][i] = conv_border_index(border, i - (int)halo, plane->width);
        job->beyond[1][i] = conv_border_index(border, plane->width + i, plane->width);
    }
    int ahead = DIRECT_AHEAD_BYTES / 2 / plane->width;
    job->ahead = ahead > 2 ? ahead : 2;
    size_t row = (width + CONV_CPU_BLOCK) / CONV_CPU_BLOCK * CONV_CPU_BLOCK;
    job->edges = scratch;
    job->blank = scratch + (size_t)CONV_CPU_EDGE_LINES * CONV_CPU_EDGES;
    job->spare = job->blank + row;
    if (job->stencil->border == CONV_BORDER_CONSTANT)
        memset(job->blank, (int)job->stencil->border_value, width);
    bool aligned = ((uintptr_t)plane->dst | (uintptr_t)plane->dst_stride) % VECTOR == 0;
    job->streams = VECTOR >= 32 && aligned && width * (size_t)plane->height >= DIRECT_STREAM;
}

static inline void filter_direct(const struct conv_stencil *stencil,
                                 const struct direct_constants *constants,
                                 const struct conv_stencil_batch *batch)
{
    struct direct_job job;
    job.stencil = stencil;
    job.sums.rounding = constants->rounding;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i <= stencil->width / 2; i++)
            for (int phase = 0; phase < 2; phase++)
                job.sums.coefs[j][i][phase] = (vec_u32){0} + constants->coefs[j][i][phase];
    filter_direct_fn filter = direct_methods[constants->method][job.sums.rounding.division];
    for (int p = 0; p < batch->count; p++) {
        set_direct_plane(&job, &batch->planes[p], batch->cpu.scratch);
        filter_direct_plane(&job, filter, batch->cpu.from, conv_cpu_end(batch, job.plane));
        if (job.streams)
            stream_end();
    }
}
