// SPDX-License-Identifier: MIT
// Schedules the coefficients of a stencil: decides which loads of samples are multiplied by which
// of them.
#include <stdlib.h>

#include "kernels/stencil/cpu/cpu_internal.h"

#define MOST_SAMPLES 4 // per lane

// The coefficients of a load that no tap has taken yet: by output row, by output of a lane, by
// sample of the lane.
struct rest {
    int coefs[2][2][MOST_SAMPLES];
};

// The matrix to schedule.
struct matrix {
    const int32_t *coefs;
    int width, height;
    int32_t sample; // subtracted from the coefficient at the centre
};

static int coef_at(const struct matrix *matrix, int column, int row)
{
    bool inside = row >= 0 && row < matrix->height && column >= 0 && column < matrix->width;
    bool centre = column == matrix->width / 2 && row == matrix->height / 2;
    return !inside ? 0
                   : matrix->coefs[row * matrix->width + column] - (centre ? matrix->sample : 0);
}

// Takes up to 8 bits of each of two neighbours whose sum is within +-128: pmaddubsw saturates, and
// 128 * 255 is the last multiple within 16 bits.
static uint32_t take_bytes(int *first, int *second)
{
    int a = *first > 127 ? 127 : *first < -127 ? -127 : *first;
    int b = *second > 127 ? 127 : *second < -127 ? -127 : *second;
    if (abs(a + b) > 128)
        b = 0;
    *first -= a;
    *second -= b;
    return (uint32_t)(uint8_t)a | (uint32_t)(uint8_t)b << 8;
}

static uint32_t take_words(int *first, int *second)
{
    uint32_t words = (uint32_t)(uint16_t)*first | (uint32_t)(uint16_t)*second << 16;
    *first = *second = 0;
    return words;
}

static uint32_t take_lane(int coefs[MOST_SAMPLES], enum conv_cpu_sums sums)
{
    if (sums == CONV_CPU_WORDS)
        return take_words(&coefs[0], &coefs[1]);
    uint32_t low = take_bytes(&coefs[0], &coefs[1]);
    return low | (sums == CONV_CPU_QUADS ? take_bytes(&coefs[2], &coefs[3]) : low) << 16;
}

// Makes a tap that takes as much of the rest as one multiplication can; false if nothing was left.
static bool take_tap(struct conv_cpu_tap *tap, struct rest *rest, enum conv_cpu_sums sums)
{
    uint32_t any = 0;
    for (int r = 0; r < 2; r++) {
        for (int phase = 0; phase < 2; phase++) {
            tap->coefs[r][phase] = take_lane(rest->coefs[r][phase], sums);
            any |= tap->coefs[r][phase];
        }
    }
    return any != 0;
}

enum output_rows { UPPER, BOTH, LOWER };

static enum output_rows rows_of(const struct conv_cpu_tap *tap)
{
    if (!tap->coefs[1][0] && !tap->coefs[1][1])
        return UPPER;
    return tap->coefs[0][0] || tap->coefs[0][1] ? BOTH : LOWER;
}

static void start_rest(struct rest *rest, const struct matrix *matrix, int samples, int column,
                       int row)
{
    *rest = (struct rest){0};
    for (int r = 0; r < 2; r++)
        for (int phase = 0; phase < 2; phase++)
            for (int k = 0; k < samples; k++)
                rest->coefs[r][phase][k] = coef_at(matrix, column + k - phase, row - r);
}

// Appends the taps of these output rows.
static void append_taps(struct conv_cpu_tap_schedule *schedule, const struct matrix *matrix,
                        enum conv_cpu_sums sums, enum output_rows rows)
{
    int samples = sums == CONV_CPU_QUADS ? 4 : 2; // per lane
    for (int j = 0; j <= matrix->height; j++) {
        for (int i = 0; i <= matrix->width; i += samples) {
            struct rest rest;
            start_rest(&rest, matrix, samples, i, j);
            struct conv_cpu_tap tap = {.column = (int16_t)i, .row = (int16_t)j};
            while (take_tap(&tap, &rest, sums))
                if (rows_of(&tap) == rows)
                    schedule->taps[schedule->count++] = tap;
        }
    }
}

int conv_cpu_quads_count(const struct conv_stencil *stencil, int32_t sample)
{
    struct matrix matrix = {stencil->icoef, stencil->width, stencil->height, sample};
    int count = 0;
    for (int j = 0; j <= matrix.height; j++) {
        for (int i = 0; i <= matrix.width && count <= CONV_CPU_MAX_TAPS; i += MOST_SAMPLES) {
            struct rest rest;
            struct conv_cpu_tap tap;
            start_rest(&rest, &matrix, MOST_SAMPLES, i, j);
            while (count <= CONV_CPU_MAX_TAPS && take_tap(&tap, &rest, CONV_CPU_QUADS))
                count++;
        }
    }
    return count;
}

bool conv_cpu_tap_pack_pair(uint32_t *packed, int first, int second)
{
    uint32_t pair = take_bytes(&first, &second);
    *packed = pair | pair << 16;
    return first == 0 && second == 0;
}

void conv_cpu_tap_schedule_init(struct conv_cpu_tap_schedule *schedule,
                                const struct conv_stencil *stencil,
                                const struct conv_cpu_plan *plan)
{
    struct matrix matrix = {stencil->icoef, stencil->width, stencil->height, plan->sample};
    if (plan->separable)
        matrix = (struct matrix){plan->row, stencil->width, 1, 0};
    schedule->count = 0;
    append_taps(schedule, &matrix, plan->sums, UPPER);
    schedule->upper_end = schedule->count;
    append_taps(schedule, &matrix, plan->sums, BOTH);
    schedule->both_end = schedule->count;
    append_taps(schedule, &matrix, plan->sums, LOWER);
}
