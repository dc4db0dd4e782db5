// SPDX-License-Identifier: MIT
// Planes to decode into and to encode from, each with a stride of its own.
#ifndef CONV_TESTS_PICTURE_H
#define CONV_TESTS_PICTURE_H

#include "png/png.h"

// Gives the picture planes whose strides differ from each other; every byte is set to `fill`.
void picture_alloc(struct conv_image *picture, int fill);
void picture_free(struct conv_image *picture);

unsigned picture_sample(const struct conv_image *picture, int channel, int x, int y);
void picture_set(struct conv_image *picture, int channel, int x, int y, unsigned sample);

// True if the padding of every row still holds `fill`.
bool picture_padding_is(const struct conv_image *picture, int fill);

// Probes and decodes a file as a worker does. The planes are freed by the caller in any case.
enum conv_status picture_decode(struct conv_image *picture, const uint8_t *data, size_t size,
                                struct conv_err *err);

#endif
