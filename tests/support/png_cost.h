// SPDX-License-Identifier: MIT
// What tests of the cost of decoding share: decoding with libpng, whose time is the measure, and
// the time that a file may take in addition.
#ifndef CONV_TESTS_PNG_COST_H
#define CONV_TESTS_PNG_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Nanoseconds of processor time of the calling thread.
double png_cost_now_ns(void);

// Decodes with libpng into interleaved rows of 8 or 16 bits, which must be large enough. Skips
// chunks that do not affect pixels, which is the cheapest way. False if libpng refuses the file.
bool png_cost_libpng(const uint8_t *data, size_t size, uint8_t **rows);

// The time that a file may take in addition to a multiple of libpng's: a microsecond and, for
// damaged files, at whose first error libpng stops, the time to inflate the rows that are inflated
// at once and to read each byte of the file once.
double png_cost_allowed_ns(bool good, size_t size);

#endif
