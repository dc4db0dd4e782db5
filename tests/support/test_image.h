// SPDX-License-Identifier: MIT
// Planes to decode into and to encode from, each with a stride of its own.
#pragma once

#include "png/png.h"
#include "support/png_make.h"

// Gives the image planes whose strides differ from each other; every byte is set to `fill`.
void image_alloc(struct conv_image *image, int fill);
void image_free(struct conv_image *image);

unsigned image_sample(const struct conv_image *image, int channel, int x, int y);
void image_set(const struct conv_image *image, int channel, int x, int y, unsigned sample);

// True if the padding of every row still holds `fill`.
bool image_padding_is(const struct conv_image *image, int fill);

// True if shape and samples are the same, whatever the strides.
bool image_equal(const struct conv_image *a, const struct conv_image *b);

// Appends an encoded file to *file.
void image_join(struct png_file *file, const struct conv_encoded *parts);

// A PNG codec with that encoder (NULL: our own), to be closed by the caller.
struct conv_codec *image_codec(const struct conv_png_encoder *encoder, int level);

// Probes and decodes a file as a worker does. The planes are freed by the caller in any case.
enum conv_status image_decode(struct conv_image *image, const uint8_t *data, size_t size,
                              struct conv_err *err);
