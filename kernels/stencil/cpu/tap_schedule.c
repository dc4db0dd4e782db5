// SPDX-License-Identifier: MIT
// Cuts the coefficients of a stencil into steps: what one load of samples is multiplied by.
#include <stdlib.h>
#include <string.h>

#include "kernels/stencil/cpu/cpu_internal.h"

#define MOST_LANES 4

// What is left of the coefficients of a step: by output row, by output of a lane, by sample of it.
struct rest {
    int coefs[2][2][MOST_LANES];
};

// The matrix to cut.
struct matrix {
    const int32_t *coefs;
    int width, height;
};

static int coef_at(const struct matrix *matrix, int column, int row)
{
    bool inside = row >= 0 && row < matrix->height && column >= 0 && column < matrix->width;
    return inside ? matrix->coefs[row * matrix->width + column] : 0;
}

// 8 bits of each of two neighbours, and no more than 128 together on one side of 0: pmaddubsw
// saturates, and 128 * 255 is the last multiple within 16 bits.
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

static uint32_t take_lane(int coefs[MOST_LANES], enum conv_cpu_sums sums)
{
    if (sums == CONV_CPU_WORDS)
        return take_words(&coefs[0], &coefs[1]);
    uint32_t low = take_bytes(&coefs[0], &coefs[1]);
    return low | (sums == CONV_CPU_QUADS ? take_bytes(&coefs[2], &coefs[3]) : low) << 16;
}

// A step that takes what it can of the rest; false if nothing was left.
static bool take_step(struct conv_cpu_step *step, struct rest *rest, enum conv_cpu_sums sums)
{
    uint32_t any = 0;
    for (int r = 0; r < 2; r++) {
        for (int phase = 0; phase < 2; phase++) {
            step->coefs[r][phase] = take_lane(rest->coefs[r][phase], sums);
            any |= step->coefs[r][phase];
        }
    }
    return any != 0;
}

enum serves { UPPER, BOTH, LOWER };

static enum serves served_by(const struct conv_cpu_step *step)
{
    if (!step->coefs[1][0] && !step->coefs[1][1])
        return UPPER;
    return step->coefs[0][0] || step->coefs[0][1] ? BOTH : LOWER;
}

// Appends the steps that serve `wanted`.
static void append_steps(struct conv_cpu_steps *steps, const struct matrix *matrix,
                         enum conv_cpu_sums sums, enum serves wanted)
{
    int lanes = sums == CONV_CPU_QUADS ? 4 : 2;
    for (int j = 0; j <= matrix->height; j++) {
        for (int i = 0; i <= matrix->width; i += lanes) {
            struct rest rest = {0};
            for (int r = 0; r < 2; r++)
                for (int phase = 0; phase < 2; phase++)
                    for (int k = 0; k < lanes; k++)
                        rest.coefs[r][phase][k] = coef_at(matrix, i + k - phase, j - r);
            struct conv_cpu_step step = {.column = (int16_t)i, .row = (int16_t)j};
            while (take_step(&step, &rest, sums))
                if (served_by(&step) == wanted)
                    steps->steps[steps->count++] = step;
        }
    }
}

bool conv_cpu_pack_pair(uint32_t *packed, int first, int second)
{
    uint32_t pair = take_bytes(&first, &second);
    *packed = pair | pair << 16;
    return first == 0 && second == 0;
}

void conv_cpu_steps_init(struct conv_cpu_steps *steps, const struct conv_stencil *stencil,
                         const struct conv_cpu_plan *plan)
{
    struct matrix matrix = {stencil->icoef, stencil->width, stencil->height};
    if (plan->separable)
        matrix = (struct matrix){plan->row, stencil->width, 1};
    steps->count = 0;
    append_steps(steps, &matrix, plan->sums, UPPER);
    steps->upper_end = steps->count;
    append_steps(steps, &matrix, plan->sums, BOTH);
    steps->both_end = steps->count;
    append_steps(steps, &matrix, plan->sums, LOWER);
}
