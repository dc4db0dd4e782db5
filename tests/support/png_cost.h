// SPDX-License-Identifier: MIT
// What tests of the cost of decoding share: libpng's decoding, which a file is compared with, and
// what a file may cost besides.
#ifndef CONV_TESTS_PNG_COST_H
#define CONV_TESTS_PNG_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Processor time of the calling thread.
double png_cost_now_ns(void);

// Decodes by libpng into interleaved rows of 8 or 16 bits, which have room for that. Chunks that
// make no pixels are skipped, which is cheapest. False if libpng refuses the file.
bool png_cost_libpng(const uint8_t *data, size_t size, uint8_t **rows);

// The cost that a file may have in addition to a multiple of libpng's time: a microsecond, and, if
// libpng stops at the first error, the rows that are inflated at once and one read of each byte of
// the file.
double png_cost_allowed_ns(bool good, size_t size);

#endif
