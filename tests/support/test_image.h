// SPDX-License-Identifier: MIT
// Planes to decode into and to encode from, each with a stride of its own.
#ifndef CONV_TESTS_TEST_IMAGE_H
#define CONV_TESTS_TEST_IMAGE_H

#include "png/png.h"

// Gives the image planes whose strides differ from each other; every byte is set to `fill`.
void image_alloc(struct conv_image *image, int fill);
void image_free(struct conv_image *image);

unsigned image_sample(const struct conv_image *image, int channel, int x, int y);
void image_set(struct conv_image *image, int channel, int x, int y, unsigned sample);

// True if the padding of every row still holds `fill`.
bool image_padding_is(const struct conv_image *image, int fill);

// Probes and decodes a file as a worker does. The planes are freed by the caller in any case.
enum conv_status image_decode(struct conv_image *image, const uint8_t *data, size_t size,
                              struct conv_err *err);

#endif
