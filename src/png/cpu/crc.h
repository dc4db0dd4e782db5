// SPDX-License-Identifier: MIT
// The CRC-32 of PNG chunks.
#ifndef CONV_PNG_CPU_CRC_H
#define CONV_PNG_CPU_CRC_H

#include <stddef.h>
#include <stdint.h>

// Continues `crc`, 0 at the beginning, over `size` bytes. Any thread.
uint32_t conv_png_crc(uint32_t crc, const uint8_t *data, size_t size);

#endif
