// SPDX-License-Identifier: MIT
// CRC-32 as a remainder of polynomials over GF(2) by P (0xedb88320). The words of a little-endian
// bit stream are such polynomials without conversion, bit 0 the highest power, which is also the
// order in which deflate fills them. So parts of a stream have separate remainders, wherever they
// begin and however many bits they have, and a multiplication moves a remainder to its part's
// place. C as well as CUDA; after Adler and zlib's crc32_combine.
#ifndef CONV_PNG_CUDA_CRC_CUH
#define CONV_PNG_CUDA_CRC_CUH

#include <stdint.h>

#include "kernels/common/host_device.h"

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

// x^n mod P. x has the order 2^32 - 1, so n may be taken modulo that.
CONV_HOST_DEVICE static inline uint32_t crc_power(uint32_t n)
{
    uint32_t power = CRC_ONE, square = CRC_ONE >> 1;
    for (; n; n >>= 1) {
        if (n & 1)
            power = crc_multiply(power, square);
        square = crc_multiply(square, square);
    }
    return power;
}

// n mod 2^32 - 1
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

#endif
