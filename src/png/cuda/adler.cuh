// SPDX-License-Identifier: MIT
// Adler-32 (RFC 1950) of bytes in any order: each thread adds up some of the bytes, and the same
// bytes times their index.
#ifndef CONV_PNG_CUDA_ADLER_CUH
#define CONV_PNG_CUDA_ADLER_CUH

#include "png/cuda/symbols.cuh"

#define ADLER_MODULUS 65521u
#define ADLER_BYTES 32700 // see add_adler()

// Both below the modulus.
struct adler {
    uint32_t bytes, weighted;
};

// Adds bytes at the indices from `start` on: `bytes` is their sum, `weighted` the sum of each times
// its distance from `start`. With at most ADLER_BYTES and 2^31 no sum exceeds 32 bits.
ANYWHERE void add_adler(struct adler *adler, uint32_t start, uint32_t bytes, uint32_t weighted)
{
    uint32_t both = start % ADLER_MODULUS * bytes + weighted; // below 2^31 + 2^31
    adler->bytes = (adler->bytes + bytes) % ADLER_MODULUS;
    adler->weighted = (adler->weighted + both) % ADLER_MODULUS;
}

// The Adler-32 of `size` bytes: 1 + d0 + d1 + ... in the low half; in the high half the sum of that
// after each byte, which contains d0 `size` times and d1 once less.
ANYWHERE uint32_t finish_adler(const struct adler *adler, uint32_t size)
{
    uint64_t n = size % ADLER_MODULUS;
    uint64_t high = n + n * adler->bytes + ADLER_MODULUS - adler->weighted;
    return (uint32_t)(high % ADLER_MODULUS) << 16 | (adler->bytes + 1) % ADLER_MODULUS;
}

#endif
