// SPDX-License-Identifier: MIT
// Reverses PNG's filters (section 9 of the standard) a byte at a time, without a branch: the lanes
// of a warp are in different rows, each with its own filter.
#ifndef CONV_PNG_CUDA_UNFILTER_CUH
#define CONV_PNG_CUDA_UNFILTER_CUH

#include "png/cuda/symbols.cuh"

// The prediction of a byte: (left * of_left + above * of_above) >> halve, or Paeth's choice.
struct row_filter {
    uint32_t of_left, of_above, halve;
    bool paeth;
};

ANYWHERE struct row_filter choose_filter(uint32_t number) // none, sub, up, average, Paeth
{
    struct row_filter filter = {number == 1 || number == 3, number == 2 || number == 3, number == 3,
                                number == 4};
    return filter;
}

// The byte, in the low bits of the result.
ANYWHERE uint32_t unfilter_byte(const struct row_filter *filter, uint32_t byte, uint32_t left,
                                uint32_t above, uint32_t above_left)
{
    uint32_t mean = (left * filter->of_left + above * filter->of_above) >> filter->halve;
    // The nearest of the three to left + above - above_left, as in src/png/cpu/unfilter.c.
    int32_t a = (int32_t)left, b = (int32_t)above, c = (int32_t)above_left;
    int32_t t = 3 * c - (a + b), low = a < b ? a : b, high = a < b ? b : a;
    int32_t nearest = high <= t ? low : c;
    nearest = t <= low ? high : nearest;
    return byte + (filter->paeth ? (uint32_t)nearest : mean);
}

#endif
