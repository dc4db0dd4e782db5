// SPDX-License-Identifier: MIT
// The Adler-32 of zlib streams and the CRC-32 of PNG chunks.
#ifndef CONV_PNG_CPU_CHECKSUM_H
#define CONV_PNG_CPU_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CONV_ADLER_BASE 65521u // the largest prime below 65536

// Continues `adler`, 1 at the beginning, over `size` bytes. Any thread.
uint32_t conv_png_adler(uint32_t adler, const uint8_t *data, size_t size);

// The Adler-32 of two byte strings one after the other, of which the second has `size` bytes: as
// adler32_combine of zlib.
static inline uint32_t conv_adler_join(uint32_t first, uint32_t second, size_t size)
{
    uint64_t rest = size % CONV_ADLER_BASE, low = first & 0xffff;
    uint64_t a = low + (second & 0xffff) + CONV_ADLER_BASE - 1;
    uint64_t b = (first >> 16) + (second >> 16) + rest * low + CONV_ADLER_BASE - rest;
    return (uint32_t)(b % CONV_ADLER_BASE << 16 | a % CONV_ADLER_BASE);
}

// Continues `crc`, 0 at the beginning, over `size` bytes. Any thread.
uint32_t conv_png_crc(uint32_t crc, const uint8_t *data, size_t size);

#endif
