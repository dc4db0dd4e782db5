// SPDX-License-Identifier: MIT
// Reverses PNG's filters (section 9 of the standard) a byte at a time, without a branch: the lanes
// of a warp are in different rows, each with its own filter.
#ifndef CONV_PNG_CUDA_UNFILTER_CUH
#define CONV_PNG_CUDA_UNFILTER_CUH

#include "png/cuda/symbols.cuh"

// Every filter except the average is computed like Paeth's, with neighbours that it does not use
// masked out. With `triple` 0, the predicted value is the greater of left and above.
struct row_filter {
    uint32_t left, above; // masks: all ones if the filter uses that neighbour
    int32_t triple;       // the factor of above_left: 3 for Paeth, else 0
    bool average;
};

ANYWHERE struct row_filter choose_filter(uint32_t number) // none, sub, up, average, Paeth
{
    struct row_filter filter = {number == 1 || number >= 3 ? 0xffffffffu : 0,
                                number >= 2 ? 0xffffffffu : 0, number == 4 ? 3 : 0, number == 3};
    return filter;
}

// The byte, in the low bits of the result. The neighbours are from 0 to 255 and masked.
ANYWHERE uint32_t unfilter_byte(const struct row_filter *filter, uint32_t byte, uint32_t left,
                                uint32_t above, uint32_t above_left)
{
    // The nearest of the three to left + above - above_left, as in src/png/cpu/unfilter.c.
    int32_t a = (int32_t)left, b = (int32_t)above, c = (int32_t)above_left;
    int32_t t = filter->triple * c - b - a, low = a < b ? a : b, high = a < b ? b : a;
    int32_t nearest = high <= t ? low : c;
    nearest = t <= low ? high : nearest;
    nearest = filter->average ? (a + b) >> 1 : nearest;
    return byte + (uint32_t)nearest;
}

#endif
