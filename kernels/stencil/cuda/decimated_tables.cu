// SPDX-License-Identifier: MIT
// The weights of large Gaussians of integers as the lanes of a warp hold them for products on
// tensor cores (decimated.cu): made once per plan, on the host, not by each block.
//
// A's register r of lane 4g + t has row g, or g + 8 if r is odd, and columns from 4t, or 16 + 4t
// for the last two registers; of half-precision numbers half as many.
#include "kernels/common/half.h"
#include "kernels/stencil/cuda/decimated.cuh"

// Both bytes of the weights of a word of A, which weight(0 ... 3) returns.
template <typename Weight>
static void write_word(uint4 *tables, int table, int lane, int r, Weight weight)
{
    uint32_t *low = (uint32_t *)&tables[table * TABLE_CELLS + lane] + r, *high = low + 4 * WARP;
    *low = *high = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t w = (uint32_t)weight(k);
        *low |= (w & 0xff) << 8 * k;
        *high |= w >> 8 << 8 * k;
    }
}

// The products of a strip from left to right, and of those of 32 rows that begin at each multiple
// of block_rows until the places repeat.
static void write_down(uint4 *tables, const struct conv_decimated &d,
                       const struct decimated_filter &f, int size)
{
    int products = f.segments * 2 / size, period = STRIP * d.step;
    auto weight_of = [&](int away) { return away < 2 * d.step ? d.down[away] : 0; };
    for (int i = 0; i < (products + f.phases) * WARP * 4; i++) {
        int table = i / (WARP * 4), lane = i / 4 % WARP, r = i % 4, t = lane % 4, half = r / 2;
        int away = d.step * (lane / 4 + 8 * (r % 2) + 2); // of pixel 0 from the coarse sample
        if (table < products) {
            int segment = table * size / 2, part = table * size % 2;
            away -= SEGMENT / size * segment + 8 * part + 4 * half +
                    (segment == f.half_segment ? 8 : 16 / size) * t;
            write_word(tables, table, lane, r, [&](int k) { return weight_of(abs(away - k)); });
        } else {
            int row = 16 * half + 2 * t;
            away -= 3 * d.step; // coarse row -1 has place 0
            away = (away - f.block_rows * (table - products) - row + 3 * period) % period;
            write_word(tables, table, lane, r, [&](int k) {
                int below = k % 2 + k / 2 * 8, distance = abs(away - below);
                bool used = row + below < f.block_rows;
                return used ? weight_of(min(distance, period - distance)) : 0;
            });
        }
    }
}

// The products along rows, whose windows begin `lead` samples early, then along columns, from the
// first window on. Columns have such an order that a lane has four neighbours at the end.
static void write_lines(uint4 *tables, const struct conv_decimated &d,
                        const struct decimated_filter &f)
{
    for (int i = 0; i < (f.across_windows + f.windows) * WARP * 4; i++) {
        int table = i / (WARP * 4), lane = i / 4 % WARP, r = i % 4, t = lane % 4, half = r / 2;
        bool rows = table < f.across_windows;
        int column = lane / 8 * 4 + r % 2 * 2 + lane / 4 % 2, row = lane / 4 + 8 * (r % 2);
        int away =
            rows ? table * WINDOW - f.lead - column : (table - f.across_windows) * WINDOW - row;
        write_word(tables, table, lane, r, [&](int k) {
            int at = rows ? 8 * t + 4 * half + k : 16 * half + 8 * (k / 2) + 2 * t + k % 2;
            int distance = abs(away - d.radius + at);
            return distance <= d.radius ? d.line[distance] : 0;
        });
    }
}

// Two weights of results that are `at` pixels after a filtered sample: of samples `cell` and after.
static uint32_t two_halves(const struct conv_decimated &d, int at, int cell)
{
    uint32_t word = 0;
    for (int k = 0; k < 2; k++)
        if (cell + k >= 0 && cell + k < 4)
            word |= (uint32_t)conv_half_from_float((float)d.up[at][cell + k]) << 16 * k;
    return word;
}

static void write_up(struct enlarge_tables *tables, const struct conv_decimated &d,
                     const struct decimated_filter &f)
{
    uint32_t *across = (uint32_t *)tables->across, *down = (uint32_t *)tables->down;
    for (int i = 0; i < f.up_phases * f.up_parts * WARP * 4; i++) {
        int table = i / (WARP * 4), phase = table / f.up_parts, lane = i / 4 % WARP;
        int x = phase * TILE + lane / 8 * 4 + i % 2 * 2 + lane / 4 % 2;
        int cell = (phase * TILE / d.step & ~1) + table % f.up_parts * 8 + lane % 4 * 2;
        across[i] = two_halves(d, x % d.step, cell - x / d.step);
    }
    for (int i = 0; i < f.down_phases * WARP * 4; i++) {
        int table = i / (WARP * 4), lane = i / 4 % WARP, r = i % 4;
        int y = table * TILE + lane / 4 + r % 2 * 8, group = table * 2 / d.step;
        int cell = group * GROUP + lane % 4 * 2 + r / 2 * 8;
        down[i] = two_halves(d, y % d.step, cell - y / d.step);
    }
}

void conv_cuda_decimated_tables(struct decimated_tables *tables,
                                const struct conv_stencil_plan *plan)
{
    const struct conv_decimated &d = plan->stencil->decimated;
    const auto &f = *constants_of<struct decimated_filter>(plan);
    write_down(tables->reduce, d, f, plan->stencil->depth / 8);
    write_lines(tables->filter, d, f);
    write_up(&tables->enlarge, d, f);
}
