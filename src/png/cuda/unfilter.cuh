// SPDX-License-Identifier: MIT
// Reverses PNG's filters (section 9 of the standard) without a branch: the lanes of a warp are in
// different rows, each with its own filter.
#ifndef CONV_PNG_CUDA_UNFILTER_CUH
#define CONV_PNG_CUDA_UNFILTER_CUH

#include "png/cuda/symbols.cuh"

// Two bytes are computed at a time, each in the low byte of a half of a word.
#define PAIR_BYTES 0x00ff00ffu

// Every filter except the average is computed like Paeth's, with neighbours that it does not use
// masked out. With `triple` 0, the predicted value is the greater of left and above.
struct row_filter {
    uint32_t left;    // PAIR_BYTES if the filter uses that neighbour, else 0
    uint32_t above;   // all ones or 0
    uint32_t triple;  // the factor of above_left: 3 for Paeth, else 0
    uint32_t average; // PAIR_BYTES or 0
};

ANYWHERE struct row_filter choose_filter(uint32_t number) // none, sub, up, average, Paeth
{
    struct row_filter filter = {number == 1 || number >= 3 ? PAIR_BYTES : 0,
                                number >= 2 ? 0xffffffffu : 0, number == 4 ? 3u : 0,
                                number == 3 ? PAIR_BYTES : 0};
    return filter;
}

// The lesser, and the greater, of each half.
ANYWHERE uint32_t lesser_halves(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __vminu2(a, b);
#else
    uint32_t low = (a & 0xffff) < (b & 0xffff) ? a : b, high = a >> 16 < b >> 16 ? a : b;
    return (high & 0xffff0000u) | (low & 0xffff);
#endif
}

ANYWHERE uint32_t greater_halves(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    uint32_t low = (a & 0xffff) < (b & 0xffff) ? b : a, high = a >> 16 < b >> 16 ? b : a;
    return (high & 0xffff0000u) | (low & 0xffff);
#endif
}

// Halves that are all ones where the top bit is set, else 0.
ANYWHERE uint32_t top_bits(uint32_t halves)
{
#ifdef __CUDA_ARCH__
    uint32_t all;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(all) : "r"(halves)); // the sign of bytes 1 and 3
    return all;
#else
    return (halves >> 31 ? 0xffff0000u : 0) | (halves & 0x8000 ? 0xffffu : 0);
#endif
}

// The bytes, in the low byte of each half of the result; the other bits are arbitrary. All bytes
// are given so, with zeros elsewhere, and the neighbours are masked.
ANYWHERE uint32_t unfilter_pair(const struct row_filter *filter, uint32_t bytes, uint32_t left,
                                uint32_t above, uint32_t above_left)
{
    // The nearest of the three to left + above - above_left, as in src/png/cpu/unfilter.c. The top
    // bit of a half is that of a difference of at least -765, which is 0x8000 too high: no half
    // borrows from the other.
    uint32_t sum = left + above, t = filter->triple * above_left + 0x80008000u - sum;
    uint32_t low = lesser_halves(left, above), high = greater_halves(left, above);
    uint32_t reached = top_bits(t - high), passed = top_bits(t - low - 0x00010001u);
    uint32_t nearest = (reached & low) | (~reached & above_left);
    nearest = (passed & nearest) | (~passed & high);
    nearest = (filter->average & sum >> 1) | (~filter->average & nearest);
    return bytes + nearest;
}

#endif
