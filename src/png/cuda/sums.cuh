// SPDX-License-Identifier: MIT
// The checksums of PNG and zlib, of data in parts. C as well as CUDA.
#pragma once

#include <stdint.h>

#include "kernels/common/place.h"
#include "png/cuda/symbols.cuh"

// --- CRC-32 --------------------------------------------------------------------------------------

// CRC-32 as a remainder of polynomials over GF(2) by P (0xedb88320). The words of a little-endian
// bit stream are such polynomials without conversion, bit 0 the highest power, which is also the
// order in which deflate fills them. So parts of a stream have separate remainders, wherever they
// begin and however many bits they have, and a multiplication moves a remainder to its part's
// place. C as well as CUDA; after Adler and zlib's crc32_combine.

#define CRC_POLYNOMIAL 0xedb88320u
#define CRC_ONE 0x80000000u // the polynomial 1

// a * x mod P
CONV_HOST_DEVICE static inline uint32_t crc_times_x(uint32_t a)
{
    return a >> 1 ^ ((0u - (a & 1)) & CRC_POLYNOMIAL);
}

// a * b mod P
CONV_HOST_DEVICE static inline uint32_t crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= (uint32_t)((int32_t)a >> 31) & b;
        a <<= 1;
        b = crc_times_x(b);
    }
    return product;
}

// n mod 2^32 - 1, the order of x: an exponent.
CONV_HOST_DEVICE static inline uint32_t crc_exponent(uint64_t n)
{
    n = (n >> 32) + (n & 0xffffffffu); // below 2^33: once more
    return (uint32_t)((n >> 32) + (n & 0xffffffffu));
}

// The exponent of the inverse, x^-n.
CONV_HOST_DEVICE static inline uint32_t crc_inverse(uint32_t n)
{
    return 0xffffffffu - n;
}

#ifdef __cplusplus

// --- tables --------------------------------------------------------------------------------------

// Products that the kernels look up, computed by the compiler.

constexpr uint32_t constant_times_x(uint32_t a)
{
    return a >> 1 ^ (a & 1 ? CRC_POLYNOMIAL : 0);
}

// entry[k][b]: byte k of a word, of value b, times x^1024.
struct crc_line_table {
    uint32_t entry[4][256];
};

// entry[k][d]: x^(d * 16^k).
struct crc_power_table {
    uint32_t entry[8][16];
};

// entry[l]: x^(32 * (32 - l)), for the words after word l of a line of 32, and 32 bits more.
struct crc_lane_table {
    uint32_t entry[32];
};

constexpr struct crc_line_table make_crc_line_table()
{
    struct crc_line_table table = {};
    uint32_t power[32] = {}; // bit i of a word times x^1024: bit 31 is 1, bit 30 x, ...
    uint32_t value = CRC_ONE;
    for (int i = 0; i < 1024; i++)
        value = constant_times_x(value);
    for (int i = 31; i >= 0; i--) {
        power[i] = value;
        value = constant_times_x(value);
    }
    for (int k = 0; k < 4; k++)
        for (int b = 1; b < 256; b++) {
            int low = 0;
            while (!(b >> low & 1))
                low++;
            table.entry[k][b] = table.entry[k][b & (b - 1)] ^ power[8 * k + low];
        }
    return table;
}

constexpr uint32_t constant_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 31; i >= 0; i--) {
        product ^= a >> i & 1 ? b : 0;
        b = constant_times_x(b);
    }
    return product;
}

constexpr struct crc_power_table make_crc_power_table()
{
    struct crc_power_table table = {};
    uint32_t step = CRC_ONE >> 1;
    for (int k = 0; k < 8; k++) {
        table.entry[k][0] = CRC_ONE;
        for (int d = 1; d < 16; d++)
            table.entry[k][d] = constant_multiply(table.entry[k][d - 1], step);
        step = constant_multiply(table.entry[k][15], step);
    }
    return table;
}

constexpr struct crc_lane_table make_crc_lane_table()
{
    struct crc_lane_table table = {};
    uint32_t value = CRC_ONE;
    for (int l = 31; l >= 0; l--) {
        for (int i = 0; i < 32; i++)
            value = constant_times_x(value);
        table.entry[l] = value;
    }
    return table;
}

static __device__ const struct crc_line_table crc_line_table = make_crc_line_table();
static __device__ const struct crc_power_table crc_power_table = make_crc_power_table();
static __device__ const struct crc_lane_table crc_lane_table = make_crc_lane_table();

// x^n mod P by the n's digits; `digits` of 4 bits.
__device__ inline uint32_t crc_power_by_table(uint32_t n, int digits)
{
    uint32_t power = crc_power_table.entry[0][n & 15];
    for (int k = 1; k < digits; k++)
        power = crc_multiply(power, crc_power_table.entry[k][n >> 4 * k & 15]);
    return power;
}

#endif

// --- Adler-32 ------------------------------------------------------------------------------------

// Adler-32 (RFC 1950) of bytes in any order: each thread adds up some of the bytes, and the same
// bytes times their index.

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
