// SPDX-License-Identifier: MIT
// Prints lines about images in the order of the images, which finish in any order.
#ifndef CONV_REPORT_ORDER_H
#define CONV_REPORT_ORDER_H

#include <stdint.h>
#include <stdio.h>

// Lines that wait for those before them. If there are more, the first of them is printed, so that
// an image that takes very long, or a pipe without a writer, delays no more than these.
#define CONV_ORDER_MOST 1024

struct conv_order_line {
    uint64_t number;
    char *text; // malloc'ed; NULL: nothing is printed for this image
};

struct conv_order {                                // {0}: no line yet
    uint64_t printed;                              // all images up to this number
    struct conv_order_line lines[CONV_ORDER_MOST]; // a heap, the smallest number first
    int count;
};

// Takes the line of image `number`, which counts from 1 without gaps, and prints every line whose
// turn it is. Takes over `text`. Each number once.
void conv_order_add(struct conv_order *order, FILE *stream, uint64_t number, char *text);

// Prints what is left, in order.
void conv_order_flush(struct conv_order *order, FILE *stream);

#endif
