// SPDX-License-Identifier: MIT
// The random numbers of all tests: splitmix64 (Steele, Lea, Flood 2014). A sequence depends only on
// its seed, which is the first value of *state; any number can be used, also consecutive ones.
#pragma once

#include <stdint.h>

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// 0 to n - 1; 0 for n = 0.
static inline unsigned random_below(uint64_t *state, unsigned n)
{
    return (unsigned)((random_bits(state) >> 32) * n >> 32);
}
