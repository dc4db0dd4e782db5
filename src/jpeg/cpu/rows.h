// SPDX-License-Identifier: MIT
// The arithmetic of libjpeg-turbo between the samples of a JPEG and R'G'B', to the last bit, on
// rows of one component each: conversion of colours, enlargement and reduction of chroma.
#ifndef CONV_JPEG_CPU_ROWS_H
#define CONV_JPEG_CPU_ROWS_H

#include <stddef.h>
#include <stdint.h>

// Bytes that may be read before and after the samples of a source, and that may be overwritten
// after those of a destination, in the functions that say so.
#define CONV_JPEG_ROW_SLACK 64

// The functions for one instruction set. Arrays do not overlap; n > 0.
struct conv_jpeg_rows {
    const char *name;
    unsigned needs; // CONV_CPU_* bits

    // Y, Cb, Cr to R, G, B and back: n samples each (ITU-T T.871, 16 fractional bits, rounded).
    void (*to_rgb)(uint8_t *const rgb[3], const uint8_t *const ycc[3], size_t n);
    void (*to_ycc)(uint8_t *const ycc[3], const uint8_t *const rgb[3], size_t n);

    // These four need slack.
    // n samples to 2 n, each 3/4 of the nearer sample and 1/4 of the next one. src[-1] and src[n]
    // repeat the first and the last sample.
    void (*widen)(uint8_t *dst, const uint8_t *src, size_t n);
    // The same of the column 3/4 `near`, 1/4 `far`, rounded once.
    void (*widen_between)(uint8_t *dst, const uint8_t *near, const uint8_t *far, size_t n);
    // The means of pairs, and of squares from two rows, rounded down and up in turn; n results.
    void (*halve)(uint8_t *dst, const uint8_t *src, size_t n);
    void (*halve_both)(uint8_t *dst, const uint8_t *upper, const uint8_t *lower, size_t n);
};

extern const struct conv_jpeg_rows conv_jpeg_rows_plain;
extern const struct conv_jpeg_rows conv_jpeg_rows_avx2; // on x86-64 only

// The fastest for these CONV_CPU_* bits.
const struct conv_jpeg_rows *conv_jpeg_rows_choose(unsigned features);

#endif
