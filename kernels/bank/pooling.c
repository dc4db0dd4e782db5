// SPDX-License-Identifier: MIT
// Sums over cells and the largest of maps on the CPU.
#include "kernels/bank/bank_kernels.h"

#include <math.h>
#include <string.h>

#define LANES 32

static struct conv_pool_sums add_lanes(const double *sum, const double *squares, const double *max)
{
    double a[LANES], b[LANES], m[LANES];
    memcpy(a, sum, sizeof a);
    memcpy(b, squares, sizeof b);
    memcpy(m, max, sizeof m);
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        for (int lane = 0; lane < distance; lane++) {
            a[lane] += a[lane + distance];
            b[lane] += b[lane + distance];
            m[lane] = m[lane + distance] > m[lane] ? m[lane + distance] : m[lane];
        }
    }
    return (struct conv_pool_sums){a[0], b[0], m[0]};
}

// The samples of one row of a cell.
static struct conv_pool_sums sum_row(const float *row, int count)
{
    double sum[LANES] = {0}, squares[LANES] = {0}, max[LANES];
    for (int lane = 0; lane < LANES; lane++)
        max[lane] = -INFINITY;
    for (int x = 0; x < count; x += LANES) {
        int lanes = count - x < LANES ? count - x : LANES;
        for (int lane = 0; lane < lanes; lane++) {
            double value = row[x + lane];
            sum[lane] += value;
            squares[lane] += value * value; // exact product: 48 bits
            max[lane] = value > max[lane] ? value : max[lane];
        }
    }
    return add_lanes(sum, squares, max);
}

void conv_pool_sum(struct conv_pool_sums *cells, int grid, const float *map, int height, int width)
{
    for (int i = 0; i < grid * grid; i++)
        cells[i] = (struct conv_pool_sums){0, 0, -INFINITY};
    for (int y = 0, i = 0; y < height; y++) {
        while (y >= conv_pool_edge(height, grid, i + 1))
            i++;
        for (int j = 0; j < grid; j++) {
            int left = conv_pool_edge(width, grid, j), right = conv_pool_edge(width, grid, j + 1);
            struct conv_pool_sums row = sum_row(map + (int64_t)y * width + left, right - left);
            struct conv_pool_sums *cell = &cells[i * grid + j];
            cell->sum += row.sum;
            cell->squares += row.squares;
            cell->max = row.max > cell->max ? row.max : cell->max;
        }
    }
}

void conv_combine_max(float *dst, const float *planes, int count, int64_t size)
{
    memcpy(dst, planes, (size_t)size * sizeof *dst);
    for (int p = 1; p < count; p++) {
        const float *plane = planes + p * size;
        for (int64_t i = 0; i < size; i++)
            dst[i] = plane[i] > dst[i] ? plane[i] : dst[i];
    }
}
