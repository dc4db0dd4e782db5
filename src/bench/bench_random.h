// SPDX-License-Identifier: MIT
// Random numbers for the data of benchmarks, the same on every machine.
#ifndef CONV_BENCH_BENCH_RANDOM_H
#define CONV_BENCH_BENCH_RANDOM_H

#include <stdint.h>

// Marsaglia's xorshift with 32 bits of state, which is not 0. One thread at a time per state.
static inline uint32_t conv_bench_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

#endif
