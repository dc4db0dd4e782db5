// SPDX-License-Identifier: MIT
// PNG decoders that conv does not use, for `conv bench codec` alone.
#ifndef CONV_BENCH_BENCH_COMPETITORS_H
#define CONV_BENCH_BENCH_COMPETITORS_H

#include "png/buffer.h"
#include "png/png.h"

// Decodes an image of 8 bits a sample into rows of conv_interleave_bytes(&header->shape) bytes:
// what these libraries give, without a split into planes. CONV_ERR_UNSUPPORTED for what a library
// or this measurement leaves out.
typedef enum conv_status (*conv_bench_rival_fn)(struct conv_buffer *pixels, const uint8_t *data,
                                                size_t size, const struct conv_png_header *header,
                                                struct conv_err *err);

struct conv_bench_rival {
    const char *name;
    conv_bench_rival_fn decode;
};

// Those this program was built with.
const struct conv_bench_rival *conv_bench_competitors(int *count);

#endif
